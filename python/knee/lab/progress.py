"""Progress of a run: a live line on a terminal; otherwise a plain line per measurement."""

from __future__ import annotations

import math
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from knee.data import Outcome
from knee.lab.deploy.deployment import Progress
from knee.spec import Measure
from knee.spec.design import Run

_LATE_S = 2, 3
"""Least and largest delay in seconds before a second is reported, so that its requests are complete."""


class PlainProgress(Progress):
    """A line at the end of each measurement, for logs and pipes."""

    def __init__(self, console: Console, measure: Measure) -> None:
        self._console = console
        self._place = ""
        self._remaining = ""
        self._rates: list[int] = []
        self._grows = False
        least, most = _LATE_S
        self._from_s = measure.warmup_s + most
        # The report after the end covers the last second.
        self._until_s = min(measure.seconds - measure.cooldown_s + least, measure.seconds)

    def begin(self, run: Run, index: int, total: int, remaining_s: float) -> None:
        self._place = f"{index}/{total}"
        self._remaining = f"{duration(remaining_s)} left"
        self._rates = []
        self._grows = bool(run.steps)

    def second(self, elapsed_s: float, requests_per_s: int | None) -> None:
        if requests_per_s is not None and not self._grows and self._from_s <= elapsed_s < self._until_s:
            self._rates.append(requests_per_s)

    def end(self, run: Run, outcome: Outcome) -> None:
        if outcome.status != "done":
            how = f"{outcome.status}: {outcome.reason}"
        elif outcome.throughput is not None:
            how = f"{outcome.throughput:,.0f} requests/s"
        else:
            how = f"about {fmean(self._rates):,.0f} requests/s" if self._rates else "done"
        line = f"{self._place}  {name_of(run)}  {how}  ({self._remaining} when it began)"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveProgress(Progress):
    """A line that it rewrites, and a line for each failure. Use it as a context."""

    def __init__(self, console: Console, seconds: int) -> None:
        self._seconds = seconds
        self._remaining_s = 0.0
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[left]} left"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, rate="", left="")

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, run: Run, index: int, total: int, remaining_s: float) -> None:
        self._remaining_s = remaining_s
        self._bar.update(
            self._task, description=name_of(run), completed=index - 1, total=total, left=duration(remaining_s), rate=""
        )

    def second(self, elapsed_s: float, requests_per_s: int | None) -> None:
        rate = "" if requests_per_s is None else f"{requests_per_s:,} requests/s"
        left = duration(self._remaining_s - min(elapsed_s, self._seconds))
        self._bar.update(self._task, rate=rate, left=left)

    def end(self, run: Run, outcome: Outcome) -> None:
        if outcome.status != "done":
            text = f"{name_of(run)}  {outcome.status}: {outcome.reason}"
            self._bar.console.print(text, markup=False, highlight=False)
        self._bar.advance(self._task)


def name_of(run: Run) -> str:
    """The levels of a run's factors, and its repetition."""
    levels = [f"{name}={level}" for name, level in run.levels.items()]
    return "  ".join([*levels, f"repetition {run.repetition}"])


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours from one hour on."""
    minutes, rest = divmod(max(0, math.ceil(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
