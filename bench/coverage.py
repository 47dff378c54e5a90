"""How often intervals hold the truth, over systems whose truth is known.

    python -m bench.coverage [SYSTEMS]

Every family is drawn SYSTEMS times for each noise: seven client counts, three runs each. A prediction is compared with
one further run, between the measured counts and at twice the largest. A knee is compared with N* = (R_0 + Z) / D_max.
The models do not see how the systems are built.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import polars as pl

from knee.errors import FitError
from knee.fit import Scenario, fit_systems
from knee.queueing import Delay, LoadDependent, Network, Queue, solve_closed
from knee.stats.intervals import Floats, Interval
from knee.verdict.knee import Knee, find_knee

SYSTEMS = 40
NOISES = (0.01, 0.02, 0.05)
KNEE_NOISES = (0.0, *NOISES, 0.10)
COUNTS = 7
REPETITIONS = 3
FALLEN = 0.95
"""Throughput falls if it reaches at most this share of the largest throughput at the measured counts."""


@dataclass(frozen=True)
class System:
    """A system: throughput in requests/ms for 1, 2, … clients; the client count around which to measure (the knee, or
    where a fall begins); the think time in ms; the true knee, NaN if there is none."""

    solve: Callable[[int], Floats]
    around: float
    think_ms: float = 0.0
    knee: float = float("nan")


def closed(network: Network, knee: float) -> System:
    return System(lambda most: solve_closed(network, most).throughput, knee, float(network.think_times[0]), knee)


def queues(rng: np.random.Generator, number: int, *, balanced: bool = False) -> System:
    """Product form: a delay and stations of one to eight servers each."""
    think, delay = float(rng.choice([0.0, rng.uniform(1, 50)])), rng.uniform(0.3, 5)
    servers = [1 if balanced else int(rng.choice([1, 1, 2, 4, 8])) for _ in range(number)]
    times = [m * (0.2 if balanced else rng.uniform(0.02, 0.4)) for m in servers]
    network = Network(
        [Delay("out", delay), *(Queue(f"s{k}", times[k], servers=servers[k]) for k in range(number))], think
    )
    limit = max(time / m for time, m in zip(times, servers, strict=True))
    return closed(network, (think + delay + sum(times)) / limit)


def product_form(rng: np.random.Generator) -> System:
    return queues(rng, int(rng.integers(1, 4)))


def balanced(rng: np.random.Generator) -> System:
    return queues(rng, 3, balanced=True)


def slots_over_store(rng: np.random.Generator) -> System:
    """Worker slots that stay taken while a network and two stores with queues answer."""
    slots, outside = int(rng.choice([8, 16, 32, 64])), rng.uniform(0.5, 3)
    servers = [int(rng.choice([1, 2, 4, 8])) for _ in range(2)]
    stores = [Queue(f"s{k}", m * rng.uniform(0.02, 0.3), servers=m) for k, m in enumerate(servers)]
    rates = solve_closed(Network([Delay("wire", rng.uniform(0.2, 4)), *stores]), slots).throughput
    network = Network([Delay("outside", outside), LoadDependent("slots", rates.tolist())])
    return closed(network, float(rates.max()) * (outside + 1 / float(rates[0])))


def hidden_limit(rng: np.random.Generator) -> System:
    """Throughput bends at a first station, and stops at a second one whose limit lies near the largest count."""
    delay, many = rng.uniform(1, 5), int(rng.choice([8, 16, 32]))
    first, second = 1.0 / rng.uniform(2, 8), rng.uniform(0.2, 2)
    network = Network([Delay("out", delay), Queue("first", first), Queue("second", many * second, servers=many)])
    limit = max(first, second)
    system = closed(network, (delay + first + many * second) / limit)
    return System(system.solve, system.around * rng.uniform(0.4, 1.2), knee=system.knee)


def scalability(rng: np.random.Generator) -> System:
    """The universal scalability law, with its largest throughput at 8 to 200 clients."""
    alone, contention, peak = rng.uniform(1, 10), rng.uniform(0.005, 0.1), float(np.exp(rng.uniform(2.1, 5.3)))
    coherency = (1 - contention) / peak**2

    def solve(most: int) -> Floats:
        n = np.arange(1.0, most + 1)
        return np.asarray(n / alone / (1 + contention * (n - 1) + coherency * n * (n - 1)))

    return System(solve, peak)


def thrashing(rng: np.random.Generator) -> System:
    """A station that serves up to `full` requests at full speed, and collapses with more."""
    full, outside = int(np.exp(rng.uniform(2.1, 4.6))), rng.uniform(0.2, 2)
    scale, power = full * rng.uniform(2, 6), rng.uniform(1, 2)

    def solve(most: int) -> Floats:
        busy = np.arange(1.0, most + 1)
        rates = np.minimum(busy, full) / (1 + (np.maximum(0, busy - full) / scale) ** power)
        return solve_closed(Network([Delay("out", outside), LoadDependent("s", rates.tolist())]), most).throughput

    return System(solve, full * (1 + outside))


def linear(rng: np.random.Generator) -> System:
    system = product_form(rng)
    return System(system.solve, system.around / 6, system.think_ms, system.knee)


FAMILIES: dict[str, Callable[[np.random.Generator], System]] = {
    "product form": product_form,
    "slots over a store": slots_over_store,
    "hidden second limit": hidden_limit,
    "heavy-tailed noise": product_form,
    "scalability law": scalability,
    "thrashing": thrashing,
}

KNEES = {"product form": product_form, "slots over a store": slots_over_store, "balanced": balanced, "linear": linear}


def runs(
    rng: np.random.Generator, system: System, throughput: Floats, counts: Sequence[int], noise: float, heavy: bool
) -> pl.DataFrame:
    """Runs at each count. A heavy-tailed run follows Student's t(2.5)."""
    rows = []
    for point, count in enumerate(counts):
        for repetition in range(REPETITIONS):
            x = 1000 * float(throughput[count - 1]) * scattered(rng, noise, heavy)
            rows.append((point, repetition, count, x, max(1e-3, 1000 * count / x - system.think_ms), system.think_ms))
    columns = ["point", "repetition", "clients", "throughput", "response_ms", "think_ms"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def scattered(rng: np.random.Generator, noise: float, heavy: bool) -> float:
    drawn = rng.standard_t(2.5) if heavy else rng.standard_normal()
    return float(np.exp(np.clip(noise * drawn, -1, 1)))


def geometric(low: float, high: float) -> list[int]:
    return sorted({max(1, round(count)) for count in np.geomspace(max(1.0, low), max(high, 4), COUNTS)})


@dataclass(frozen=True)
class Predicted:
    """A prediction of a further run: whether its interval holds the run, the interval's half width and the error, all
    of the throughput. For a fall that no measurement shows, only the upper end must hold."""

    held: bool
    width: float
    error: float
    chosen: str


def predicted(rng: np.random.Generator, family: str, noise: float, seed: int) -> dict[str, Predicted]:
    """The predictions for one system, by kind."""
    system, heavy = FAMILIES[family](rng), family.startswith("heavy")
    last = system.around * np.exp(rng.uniform(np.log(0.7), np.log(4)))
    counts = geometric(system.around * rng.uniform(0.03, 0.25), last)
    twice = 2 * counts[-1]
    throughput = system.solve(twice)
    falls = throughput[twice - 1] < FALLEN * throughput[: counts[-1]].max()
    table = runs(rng, system, throughput, counts, noise, heavy)
    between = round(float(np.sqrt(counts[-2] * counts[-3])))
    found: dict[str, Predicted] = {}
    try:
        ((fitted, _),) = fit_systems(table, [], seed=seed)
    except FitError:
        return {}
    for kind, count in (("between", between), ("twice", twice)):
        forecast = fitted.forecast(Scenario(count, 1.0, system.think_ms, float("nan")))
        further = 1000 * float(throughput[count - 1]) * scattered(rng, noise, heavy)
        interval = forecast.throughput
        half = (interval.high - interval.low) / 2 / interval.estimate if interval.low and interval.high else np.inf
        held = inside(further, interval)
        if forecast.may_fall and falls:
            kind, held = "twice, an unmeasured fall", interval.high is not None and further <= interval.high
        found[kind] = Predicted(held, half, interval.estimate / further - 1, fitted.selection.chosen.model.name)
    return found


def inside(value: float, interval: Interval) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


def knee_of(rng: np.random.Generator, family: str, noise: float, seed: int, light: float) -> tuple[Knee, float]:
    """A knee with its truth; the lightest load is below or above 30 % of the maximum."""
    system = KNEES[family](rng)
    last = system.around * rng.uniform(2.5, 8) if family != "linear" else system.around
    counts = geometric(system.around * rng.uniform(*((0.03, 0.25) if light < 0.3 else (0.35, 0.7))), last)
    return find_knee(runs(rng, system, system.solve(counts[-1]), counts, noise, False), seed=seed), system.knee


def generator(*names: object) -> np.random.Generator:
    """The random numbers of a cell, the same whatever other cells are drawn."""
    return np.random.default_rng(crc32(repr(names).encode()))


def main() -> None:
    """Print both tables."""
    systems = int(sys.argv[1]) if len(sys.argv) > 1 else SYSTEMS
    print("| family | noise | predicted | systems | held | half width | error | nine of ten within | chosen |")
    print("|---|---|---|---|---|---|---|---|---|")
    for family in FAMILIES:
        for noise in NOISES:
            each = [predicted(generator(family, noise, k), family, noise, k) for k in range(systems)]
            for kind in sorted({kind for one in each for kind in one}):
                row = prediction_row([one[kind] for one in each if kind in one])
                print(f"| {family} | {noise:.0%} | {kind} | {row} |")
            if refused := sum(not one for one in each):
                print(f"| {family} | {noise:.0%} | refused | {refused} | | | | | |", flush=True)
    print("\n| family | lightest load | noise | found | not reached | cannot tell | N* held | half width | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for family in KNEES:
        for light in (0.25, 0.5) if family != "linear" else (0.25,):
            for noise in KNEE_NOISES:
                knees = [knee_of(generator(family, light, noise, k), family, noise, k, light) for k in range(systems)]
                print(
                    f"| {family} | {'light' if light < 0.3 else 'loaded'} | {noise:.0%} | {knee_row(knees)} |",
                    flush=True,
                )


def prediction_row(found: Sequence[Predicted]) -> str:
    errors = np.abs([one.error for one in found])
    chosen = Counter(one.chosen for one in found).most_common(3)
    return (
        f"{len(found)} | {np.mean([one.held for one in found]):.0%} | {np.median([one.width for one in found]):.1%} | "
        f"{np.median(errors):.1%} | {np.quantile(errors, 0.9):.1%} | "
        f"{', '.join(f'{name} {times}' for name, times in chosen)}"
    )


def knee_row(knees: Sequence[tuple[Knee, float]]) -> str:
    share = Counter(knee.status for knee, _ in knees)
    cells = [f"{share[status] / len(knees):.0%}" for status in ("found", "not reached", "cannot tell")]
    found = [(knee.clients, truth) for knee, truth in knees if knee.status == "found" and knee.clients]
    if not found:
        return " | ".join([*cells, "", "", ""])
    held = np.mean([inside(truth, clients) for clients, truth in found])
    widths = [clients.relative_half_width for clients, _ in found if clients.relative_half_width is not None]
    errors = [abs(clients.estimate / truth - 1) for clients, truth in found]
    return " | ".join([*cells, f"{held:.0%}", f"{np.median(widths):.1%}" if widths else "", f"{np.median(errors):.1%}"])


if __name__ == "__main__":
    main()
