"""A line for each run, with the curve so far, and the result of a search."""

from __future__ import annotations

from statistics import fmean

from knee.data.foreign import Result
from knee.find.goals import GoalTarget
from knee.find.knees import knee_of
from knee.find.search import Search
from knee.lab.progress import duration
from knee.stats.intervals import clients_about, counted, number

_HEIGHTS = "▁▂▃▄▅▆▇█"


def run_line(search: Search, load: int, result: Result, repetition: int, elapsed_s: float) -> str:
    """Throughput and response time of a run that the search does not yet have, and the throughput by load so far.
    Repetition 0 is a scout."""
    runs: dict[int, list[float]] = {}
    for one, results in [*search.scouts.items(), *search.runs.items(), (load, [result])]:
        runs.setdefault(one, []).extend(each.throughput for each in results)
    means = [fmean(runs[one]) for one in sorted(runs)]
    curve = "".join(_HEIGHTS[round(mean / max(means) * (len(_HEIGHTS) - 1))] for mean in means)
    kind = f"run {repetition}" if repetition else "scout"
    time = "" if result.response_ms is None else f"{number(result.response_ms)} ms"
    return (
        f"{duration(elapsed_s):>7}  {kind:<7}{counted(load, 'client'):>13}{number(result.throughput, 4):>10}/s"
        f"{time:>11}  {curve}"
    )


def result_lines(search: Search, ended: str, elapsed_s: float, budget_s: float) -> list[str]:
    """The load that keeps the goal, if there is one, and why the search ended."""
    lines, width, target = [], None, search.target
    if search.runs and isinstance(target, GoalTarget):
        limit = target.limit(search.runs)
        width = limit.relative_half_width if min(search.runs) < limit.estimate < max(search.runs) else None
        lines.append(_goal_sentence(search, target))
    elif search.runs:
        knee = knee_of(search.runs)
        width = knee.clients.relative_half_width if knee.clients is not None and knee.status == "found" else None
    precision = "without an interval" if width is None else f"at ±{width:.1%}"
    counts = f"{counted(len(search.scouts), 'scout')} and {counted(sum(map(len, search.runs.values())), 'run')}"
    if width is None:
        enough = f": the fewest clients {'miss the goal' if isinstance(target, GoalTarget) else 'saturate the system'}"
    elif width <= target.precision:
        enough = f", within --precision {target.precision:.1%}"
    else:
        enough = ": its interval has one client at most"
    beyond = f"more than {counted(search.most, 'client')} failed"
    if not search.has_failed:
        beyond = f"no more than {counted(search.most, 'client')} ran; allow more with --most"
    reasons = {
        "precise": enough,
        "budget": f": the budget of {duration(budget_s)} is spent; add --budget, or shorten --seconds",
        "limit": f": {beyond}",
    }
    return [*lines, f"{counts} took {duration(elapsed_s)}. The search ended {precision}{reasons[ended]}."]


def _goal_sentence(search: Search, target: GoalTarget) -> str:
    limit, loads = target.limit(search.runs), sorted(search.runs)
    if limit.estimate >= loads[-1]:
        return f"{target} holds at {counted(loads[-1], 'client')}, the largest number measured."
    if limit.estimate <= loads[0]:
        return f"{target} does not hold at {counted(loads[0], 'client')}, the smallest number measured."
    below = max(load for load in loads if load <= limit.estimate)
    throughput = number(fmean(result.throughput for result in search.runs[below]))
    return f"{target} holds up to {clients_about(limit)}. At {counted(below, 'client')}, throughput is {throughput}/s."
