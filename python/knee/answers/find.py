"""The answer of `knee find`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from knee.answers import check
from knee.answers.check import Checked
from knee.check import Findings
from knee.find.goals import GoalTarget
from knee.find.search import Search
from knee.stats.intervals import Interval


@dataclass(frozen=True)
class Kept:
    """The largest number of clients that keeps the goal of `--slo`."""

    goal: str
    clients: Interval


@dataclass(frozen=True)
class Found:
    """A search: `folder` has its results. `ended` is why it ended: the interval is narrow, the budget is spent, or no
    more clients ran. `scouts` are the clients of the short first runs. `results` is the answer of `knee check` on all
    others, with the knee. `report` is the page, if there is one."""

    command: str
    folder: str
    ended: Literal["precise", "budget", "limit"]
    elapsed_s: float
    scouts: tuple[int, ...]
    goal: Kept | None
    results: Checked
    report: str | None
    text: tuple[str, ...]


def of(
    command: str,
    folder: str,
    search: Search,
    ended: Literal["precise", "budget", "limit"],
    elapsed_s: float,
    findings: Findings,
    report: str | None,
    text: tuple[str, ...],
) -> Found:
    """The answer of a search."""
    target = search.target
    kept = None
    if isinstance(target, GoalTarget) and search.runs:
        kept = Kept(str(target), target.limit(search.runs))
    return Found(command, folder, ended, elapsed_s, tuple(search.scouts), kept, check.of(findings), report, text)
