"""The largest load that keeps a limit of response times, as the target of a search. Pure.

The response time of a load is the median over its runs, since percentiles are not averaged. It is interpolated between
loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.data.foreign import Result
from knee.errors import MeasurementsError, SpecError
from knee.find.search import Next, Runs
from knee.fit import Goal
from knee.stats.intervals import Floats, Interval, pooled_bootstrap
from knee.verdict.crossing import first_zero

_WITHIN = (0.5, 0.63, 0.79, 1.0)
"""Loads to measure first, as shares of the largest scout; their ratios are equal."""


@dataclass(frozen=True)
class GoalTarget:
    """The largest load that keeps a goal, with the half width of its interval as a share."""

    goal: Goal
    precision: float

    def __post_init__(self) -> None:
        """Raise SpecError for a goal that more clients meet."""
        if self.goal.quantity == "throughput":
            raise SpecError(f"--slo {self.goal}: expected a limit of response times, such as 'p99 < 20 ms'")

    def __str__(self) -> str:
        return f"{self.goal.quantity} < {self.goal.bound:g} ms"

    def is_enclosed(self, scouts: Runs) -> bool:
        return self._time_ms(scouts[max(scouts)][0]) >= self.goal.bound

    def loads(self, scouts: Runs) -> Sequence[float]:
        """See Target. The lightest load is for the knee."""
        return [min(scouts), *(share * max(scouts) for share in _WITHIN)]

    def judge(self, runs: Runs) -> Next | None:
        limit, loads = self.limit(runs), self._loads(runs)
        if limit.low is None or limit.high is None:
            return Next((), tuple(loads))
        if limit.high >= loads[-1]:
            return Next((2 * loads[-1],), tuple(loads[-2:]) if limit.estimate < loads[-1] else ())
        if limit.low <= loads[0] > min(runs):
            return Next((_WITHIN[0] * loads[0],), tuple(loads[:2]))
        if limit.high <= loads[0] or limit.high - limit.low <= max(1.0, 2 * self.precision * limit.estimate):
            return None
        below = max(load for load in loads if load <= limit.estimate)
        above = min(load for load in loads if load > limit.estimate)
        return Next((limit.estimate,) if above > (1 + 2 * self.precision) * below else (), (below, above))

    def limit(self, runs: Runs) -> Interval:
        """The largest load that keeps the goal. Its interval ends at the least or the largest of the used loads."""
        loads = self._loads(runs)
        samples = [np.array([[self._time_ms(result)] for result in runs[load]]) for load in loads]

        def limits(drawn: Sequence[Floats]) -> Floats:
            left_ms = self.goal.bound - np.stack([np.median(each, axis=1)[:, 0] for each in drawn], axis=-1)
            return np.array([first_zero(loads, each) for each in left_ms])

        return pooled_bootstrap(samples, limits)

    def _loads(self, runs: Runs) -> list[int]:
        """The measured loads; without the lightest, whose percentiles are vague, if the next one keeps the goal."""
        lightest, *others = sorted(runs)
        keeps = bool(others) and np.median([self._time_ms(result) for result in runs[others[0]]]) < self.goal.bound
        return others if keeps else [lightest, *others]

    def _time_ms(self, result: Result) -> float:
        """The quantity of the goal. Raises MeasurementsError if the tool did not print it."""
        if self.goal.share is not None:
            time_ms = result.percentiles_ms.get(100 * self.goal.share)
        elif result.clients and (result.computed or result.corrected):
            time_ms = 1000 * result.clients / result.throughput
        else:
            time_ms = result.response_ms
        if time_ms is None:
            printed = ", ".join(f"p{share:g}" for share in result.percentiles_ms) or "no percentile"
            remedy = "add --latency" if result.tool == "wrk" and not result.percentiles_ms else "choose another goal"
            raise MeasurementsError(f"--slo '{self}': {result.tool} printed {printed}; {remedy}")
        # Some tools print whole milliseconds; relative residuals need a mean above zero.
        return max(time_ms, 1e-6)
