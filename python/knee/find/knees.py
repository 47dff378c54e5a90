"""The knee as the target of a search. Pure.

N* = X_max · (R_0 + Z) needs few loads: the lightest one for R_0, one far beyond N* for X_max and for the proof that
throughput no longer grows, and one on each side of N*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from knee.check import table
from knee.data import csv
from knee.find.search import Next, Runs
from knee.verdict.knee import Knee, find_knee

_SIDES, BEYOND = (0.7, 1.4), 4.0
"""Loads to measure, in multiples of the estimated knee."""
_NEAR = 1.5
"""A measured load lies within this factor of the knee."""
_FLAT = 2.0
"""Loads with the largest throughput that are further apart form no peak."""


def knee_of(runs: Runs) -> Knee:
    """The knee of all results, as the verdict has it."""
    text = table([result for results in runs.values() for result in results])
    return find_knee(csv.parse(text, "the results of knee find").table)


def load_at_knee(runs: Runs) -> float | None:
    """The load at the knee of all results; None without an estimate."""
    clients = knee_of(runs).clients
    return None if clients is None else clients.estimate * _scale(runs)


@dataclass(frozen=True)
class KneeTarget:
    """The knee, with the half width of its interval as a share."""

    precision: float

    def is_enclosed(self, scouts: Runs) -> bool:
        return not _may_rise(knee_of(scouts))

    def loads(self, scouts: Runs) -> Sequence[float]:
        at = load_at_knee(scouts)
        if at is None:
            return list(scouts)
        return [min(scouts), *(share * at for share in _SIDES), max(BEYOND * at, max(scouts))]

    def judge(self, runs: Runs) -> Next | None:
        knee, most = knee_of(runs), max(runs)
        clients = knee.clients
        if clients is None or clients.low is None or clients.high is None or _may_rise(knee):
            is_vague = knee.obstacle is not None and knee.obstacle.kind == "unclear growth"
            return Next((2 * most,), tuple(runs) if is_vague else ())
        if beside := self._beside_peak(knee, runs):
            return Next(tuple(beside))
        if self.is_precise(knee) or knee.status == "saturated from the start":
            return None
        at = clients.estimate * _scale(runs)
        new = [] if any(at / _NEAR < load < at * _NEAR for load in runs) else [at]
        # The upper end contains the growth that larger loads may show, which repetitions hardly narrow.
        if clients.high / clients.estimate - 1 > max(self.precision, 2 * (1 - clients.low / clients.estimate)):
            new.append(2 * most)
        flat = [load for load, (result, *_) in runs.items() if result.clients in knee.plateau]
        return Next(tuple(new), tuple({min(runs), *flat}))

    def is_precise(self, knee: Knee) -> bool:
        """Whether the knee is found, and its interval is narrow enough."""
        width = None if knee.clients is None else knee.clients.relative_half_width
        return knee.status == "found" and width is not None and width <= self.precision

    def _beside_peak(self, knee: Knee, runs: Runs) -> list[float]:
        """The middles between a peak and the loads next to it, where more throughput may be, unless they are near."""
        loads = sorted(runs)
        top = [place for place, load in enumerate(loads) if runs[load][0].clients in knee.plateau]
        if not knee.retrograde or loads[top[-1]] > _FLAT * loads[top[0]]:
            return []
        # Between loads of fewer steps is none.
        return [
            (low * high) ** 0.5
            for low, high in pairwise(loads[max(0, top[0] - 1) : top[-1] + 2])
            if high > (1 + 2 * self.precision) * low and high - low >= 2 * loads[0]
        ]


def _may_rise(knee: Knee) -> bool:
    """Whether throughput may still grow at the largest load."""
    kind = knee.obstacle and knee.obstacle.kind
    return knee.status == "not reached" or kind in ("few levels", "unclear growth")


def _scale(runs: Runs) -> float:
    """The load of the command over the clients of the generator, which may count threads or a pipeline as well."""
    load = max(runs)
    return load / (runs[load][0].clients or load)
