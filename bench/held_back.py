"""How far predictions are off for client counts that were held back, of systems that are none of the models.

python -m bench.held_back [SYSTEMS]

Clients wait for worker slots; a slot stays taken while it waits for what lies behind: a network, and two kinds of
server with queues. Parameters are drawn, throughput is exact and then scattered as runs do. The models never see how
the systems are built.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import polars as pl

from knee.fit import FittedSystem, Scenario, fit_systems
from knee.queueing import Delay, LoadDependent, Network, Queue, solve_closed
from knee.stats.intervals import Floats, Interval

SYSTEMS = 100
SCATTER = 0.015
REPETITIONS = 3
COUNTS = 7


def main() -> None:
    systems = int(sys.argv[1]) if len(sys.argv) > 1 else SYSTEMS
    rng = np.random.default_rng(20060)
    between: list[tuple[float, float, bool, bool]] = []
    beyond: list[tuple[float, float, bool, bool]] = []
    chosen: Counter[str] = Counter()
    for number in range(systems):
        view = ("client", "middleware")[number % 2]
        slots, rows, further = drawn_system(rng, view)
        *measured, twice = sorted(set(rows["clients"].to_list()))
        shown = {*measured[::2], measured[-1]}
        ((system, _),) = fit_systems(rows.filter(pl.col("clients").is_in(shown)), [], seed=number)
        chosen[system.selection.chosen.model.name] += 1
        for count in {*measured, twice} - shown:
            row = further.row(by_predicate=pl.col("clients") == count, named=True)
            (beyond if count == twice else between).append(errors(system, slots, row, view))
    for name, found in (("between", between), ("twice the largest", beyond)):
        throughput, response, x_inside, r_inside = (np.array(column) for column in zip(*found, strict=True))
        print(f"{name}: {len(found)} predictions for {systems} systems")
        for quantity, error, within in (("throughput", throughput, x_inside), ("response time", response, r_inside)):
            worst = np.quantile(np.abs(error), 0.9)
            print(
                f"  {quantity:<14} median error {np.median(np.abs(error)):.1%}, nine of ten within {worst:.1%}; "
                f"{within.mean():.0%} of further runs within the 95 % prediction interval"
            )
    print("chosen:", ", ".join(f"{name} {times}" for name, times in chosen.most_common()))


def errors(system: FittedSystem, slots: int, further: dict[str, float], view: str) -> tuple[float, float, bool, bool]:
    """Relative errors of a prediction, and whether the further run lies within its intervals."""
    forecast = system.forecast(Scenario(further["clients"], 1.0, 0.0, float(slots)))
    response_ms = further["response_ms"] if view == "client" else further["queueing_ms"] + further["service_ms"]
    x, r = forecast.throughput, forecast.response_ms
    return (
        x.estimate / further["throughput"] - 1,
        r.estimate / response_ms - 1,
        inside(further["throughput"], x),
        inside(response_ms, r),
    )


def inside(value: float, interval: Interval) -> bool:
    return interval.low is not None and interval.high is not None and interval.low <= value <= interval.high


def drawn_system(rng: np.random.Generator, view: str) -> tuple[int, pl.DataFrame, pl.DataFrame]:
    """Worker slots, measurements, and one further run at every count, the last one twice the largest."""
    slots = int(rng.choice([8, 16, 32, 64, 128]))
    outside, wire = rng.uniform(0.5, 3), rng.uniform(0.2, 4)
    servers = [int(rng.choice([1, 2, 4, 8])) for _ in range(2)]
    times = [server * rng.uniform(0.02, 0.3) for server in servers]
    behind = Network([Delay("wire", wire), *(Queue(f"s{k}", t, servers=servers[k]) for k, t in enumerate(times))])
    rates = solve_closed(behind, slots).throughput
    network = Network([Delay("outside", outside), LoadDependent("slots", rates.tolist())])
    knee = float(rates[-1]) * (outside + 1 / float(rates[0]))
    measured = sorted({max(1, round(count)) for count in np.geomspace(max(1.0, knee / 6), 4 * knee, COUNTS)})
    counts = [*measured, 2 * measured[-1]]
    cycle = counts / solve_closed(network, counts[-1]).throughput[np.array(counts) - 1]
    runs = [run(rng, counts, cycle, outside, slots, view, repetition) for repetition in range(REPETITIONS + 1)]
    return slots, pl.concat(runs[1:]), runs[0]


def run(
    rng: np.random.Generator,
    counts: list[int],
    cycle: Floats,
    outside: float,
    slots: int,
    view: str,
    repetition: int,
) -> pl.DataFrame:
    scattered = cycle * np.exp(rng.normal(0, SCATTER, len(counts)))
    seen = {"response_ms": scattered}
    if view == "middleware":
        within = (scattered - outside) * np.exp(rng.normal(0, SCATTER, len(counts)))
        seen = {"queueing_ms": 0 * cycle, "service_ms": within}
    return pl.DataFrame(
        {
            "point": range(len(counts)),
            "repetition": repetition,
            "clients": counts,
            "throughput": 1000 * np.array(counts) / scattered,
            "think_ms": 0.0,
            "workers": slots,
            "middlewares": 1,
            **seen,
        }
    )


if __name__ == "__main__":
    main()
