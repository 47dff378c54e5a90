"""How often `knee compare` finds a difference between two systems that are equal, and between two that differ by 5 %.

    python -m bench.compare_power [PAIRS]

A pair is two closed systems with one queue and a think time, at five client counts around the knee. The logarithm of a
run's cycle time (response and think time) has the noise of its run folder, of its repetition and its own, a drift over
the folder, and stalls. The slower system's queue takes 5 % longer. The repetitions are those that the noise needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import polars as pl

from knee.compare import RUNS_APART, Pair, Side, compare, side_of, sides_between
from knee.compare.pairs import HEADLINE_SHARE
from knee.compare.ratios import SOUGHT, repetitions_for
from knee.data.measurements import Measurements
from knee.queueing import Delay, Network, Queue, solve_closed
from knee.stats.intervals import LEVEL

PAIRS = 500
THINK_MS = 2.0
QUEUE_MS = 0.1
CLIENTS = (4, 10, 21, 42, 84)


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms: between run folders, between repetitions of all points, of one run; the drift
    from the first to the last run of a folder; and the share of runs that stall, which adds 10 % on average."""

    folder: float
    repetition: float
    own: float
    drift: float = 0.0
    stalls: float = 0.0


@dataclass(frozen=True)
class Design:
    """How the systems are measured.

    together  whether one folder has both systems, in the given order; otherwise each has its own folders
    folders   folders of each system, alternating; each has one repetition if there are several
    shuffled  whether the order of all runs is random
    """

    name: str
    together: bool
    several: bool = False
    shuffled: bool = False


NOISES = (
    Noise(0.01, 0.005, 0.01),
    Noise(0.02, 0.01, 0.02),
    Noise(0.05, 0.02, 0.05),
    Noise(0.02, 0.01, 0.02, drift=0.10),
    Noise(0.02, 0.01, 0.02, stalls=0.10),
)
STALL = 0.10
DESIGNS = (
    Design("one run, order = given", together=True),
    Design("one run, order = random", together=True, shuffled=True),
    Design("alternating runs", together=False, several=True),
    Design("two separate runs", together=False),
)


def repetitions(noise: Noise, design: Design) -> int:
    """The repetitions that find 5 % by the documented rule; 5 for separate runs, which cannot in most cases."""
    paired = not design.shuffled
    # Of an exponential stall, the second moment less the squared mean.
    variance = 2 * (noise.own**2 + noise.stalls * (2 - noise.stalls) * STALL**2)
    if not paired:
        # With a random order, a drift adds the variance of a uniform distribution.
        variance += 2 * (noise.repetition**2 + noise.drift**2 / 12)
    if design.several:
        variance += 2 * (noise.folder**2 + noise.repetition**2)
    found = repetitions_for(variance, 1 - HEADLINE_SHARE * (1 - LEVEL), paired=paired)
    return max(3, found or 3) if design.together or design.several else 5


def measured(
    rng: np.random.Generator, noise: Noise, slower: Sequence[float], count: int, *, shuffled: bool, start: float
) -> Measurements:
    """A run folder with a level of the factor `system` for each entry of `slower`, the factors of the queue's time."""
    systems = len(slower)
    cycles = [
        solve_closed(Network([Delay("wire", 0.1), Queue("store", QUEUE_MS * factor)], THINK_MS), CLIENTS[-1])
        for factor in slower
    ]
    grid = [(r, c, s) for r in range(count) for c in range(len(CLIENTS)) for s in range(systems)]
    order = rng.permutation(len(grid)) if shuffled else np.arange(len(grid))
    of_repetition = rng.normal(0, noise.repetition, count)
    of_folder = rng.normal(0, noise.folder)
    rows = []
    for place, (repetition, level, system) in zip(order.tolist(), grid, strict=True):
        clients = CLIENTS[level]
        cycle_ms = THINK_MS + float(cycles[system].response_time[clients - 1])
        block = place * count // len(grid)
        drift = noise.drift * (place / len(grid) - 0.5)
        logarithm = of_folder + of_repetition[block] + rng.normal(0, noise.own) + drift
        logarithm += rng.exponential(STALL) * (rng.random() < noise.stalls)
        cycle_ms = max(cycle_ms * float(np.exp(logarithm)), THINK_MS + QUEUE_MS)
        rows.append((level * systems + system, repetition + 1, system, clients, 1000 * clients / cycle_ms))
        rows[-1] += (cycle_ms - THINK_MS, THINK_MS, start + place)  # type: ignore[assignment]
    names = ["point", "repetition", "system", "clients", "throughput", "response_ms", "think_ms", "run_order"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    factors = ("system", "clients") if systems > 1 else ("clients",)
    return Measurements("study", table, factors, ("throughput", "response_ms"), (), {})


def pair(rng: np.random.Generator, noise: Noise, design: Design, slower: float, count: int) -> Pair:
    """The comparison of two systems; the second takes `slower` times as long."""
    sides: Sequence[Side]
    if design.together:
        run = measured(rng, noise, (1.0, slower), count, shuffled=design.shuffled, start=0)
        sides = sides_between("study", run, "system")
    else:
        folders, each = (count, 1) if design.several else (1, count)
        runs: tuple[list[Measurements], list[Measurements]] = ([], [])
        for number in range(2 * folders):
            factor = (1.0, slower)[number % 2]
            found = measured(rng, noise, (factor,), each, shuffled=True, start=1000 * number)
            runs[number % 2].append(found)
        sides = [replace(side_of(name, each), timed=True) for name, each in zip("AB", runs, strict=True)]
    return compare(*sides, apart=RUNS_APART)


def shares(design: Design, noise: Noise, row: int, pairs: int) -> str:
    """False differences and found ones in %, and the repetitions."""
    count = repetitions(noise, design)
    false = found = 0
    for seed in range(pairs):
        same = pair(np.random.default_rng([row, seed, 0]), noise, design, 1.0, count)
        other = pair(np.random.default_rng([row, seed, 1]), noise, design, 1 + SOUGHT, count)
        false += same.differs or bool(same.different)
        found += other.differs and other.overall["throughput"].interval.estimate < 1
    return f"{100 * false / pairs:.1f} / {100 * found / pairs:.1f} ({count})"


def main() -> None:
    """Print the shares of pairs with a difference."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    percents = [", ".join(f"{100 * part:g}" for part in astuple(noise)) for noise in NOISES]
    print(f"| folder, repetition, run, drift, stalls (%) | {' | '.join(percents)} |\n|{'---|' * (len(NOISES) + 1)}")
    for row, design in enumerate(DESIGNS):
        cells = [shares(design, noise, row * len(NOISES) + at, pairs) for at, noise in enumerate(NOISES)]
        print(f"| {design.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
