"""The plan of an experiment: its points, and the order of their runs. Pure: a spec in, a plan out.

The order of all runs (point × repetition) is random by default. So a drift of the machine over time becomes noise at
every point, not an effect of a factor that varied with it (Jain 1991, §16.1).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

from knee.spec.tables import CLIENTS, Configuration, Level, Spec


@dataclass(frozen=True)
class Run:
    """One planned measurement: a point of the grid, once.

    point       the point's number in the order of the file's factors (the last factor varies fastest),
                from 0; it does not depend on the order of the runs
    repetition  from 1
    steps       of a ramp: the measurements that this run makes, by their clients; the last has its own number
    """

    point: int
    repetition: int
    levels: Mapping[str, Level]
    configuration: Configuration
    steps: tuple[Run, ...] = ()

    @property
    def measurements(self) -> tuple[Run, ...]:
        """The measurements that this run makes: itself, or the steps of a ramp."""
        return self.steps or (self,)


def runs(spec: Spec, seed: int) -> list[Run]:
    """All runs of an experiment, in the order of their measurement.

    With `order = "given"`, a repetition covers the whole grid before the next repetition starts.
    """
    names = list(spec.factors)
    grid = [dict(zip(names, levels, strict=True)) for levels in product(*spec.factors.values())]
    configurations = [spec.at(levels) for levels in grid]
    plan = [
        Run(point, repetition, grid[point], configurations[point])
        for repetition in range(1, spec.measure.repetitions + 1)
        for point in range(len(grid))
    ]
    if spec.measure.ramp:
        plan = _ramps(plan)
    if spec.measure.order == "random":
        random.Random(seed).shuffle(plan)
    return plan


def _ramps(plan: list[Run]) -> list[Run]:
    """One run for all measurements that differ in nothing but the clients."""
    ramps: dict[tuple[int, tuple[tuple[str, Level], ...]], list[Run]] = {}
    for run in plan:
        beside = tuple((name, level) for name, level in run.levels.items() if name != CLIENTS)
        ramps.setdefault((run.repetition, beside), []).append(run)
    return [replace(steps[-1], steps=tuple(steps)) for steps in ramps.values()]
