"""The sentences on the seconds of a run."""

from __future__ import annotations

from knee.stats.intervals import number
from knee.verdict.details import Details
from knee.verdict.naming import Naming
from knee.verdict.timeline import LogGrowth


def log(details: Details, naming: Naming) -> list[str]:
    """The growth of the stores' logs at the point shown first; empty without a log."""
    growth = details.logs.get(naming.chosen)
    if growth is None:
        return []
    label = dict(naming.points).get(naming.chosen, "")
    return [f"{label}: {log_growth(growth)}" if label else log_growth(growth)]


def log_growth(found: LogGrowth) -> str:
    """How large the logs are in a run's second half, how much of that is live data, and whether they still grow."""
    grew = "did not exceed"
    if found.high_mb > found.before_mb:
        grew = f"was {found.high_mb / found.before_mb - 1:.1%} above"
    return (
        f"In the second half of the run, the stores' logs took {number(found.low_mb)} to {number(found.high_mb)} MB. "
        f"Their largest size {grew} that of the first half ({number(found.before_mb)} MB)."
        f"{' They may grow further.' * found.grows} On average, {number(found.live_mb)} MB of the logs were live data."
    )
