"""How often the layered model's intervals hold a further run, over systems whose truth is known.

    python -m bench.layered_coverage [SYSTEMS]

Each system has processor times, prices of wake-ups, delays and stretches of its own. It is measured at five client
counts, three runs each, with one number of workers. Held back: twice the most clients, four times the workers, twice
the middlewares, and half the think time.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np

from knee.errors import FitError
from knee.fit.demands import TIERS, Demands
from knee.fit.layered import WAKEUPS, LayeredFit, Setup, layered_system
from knee.queueing.layered import solve_layered
from knee.stats.intervals import Floats, Interval

SYSTEMS = 100
NOISES = (0.01, 0.03, 0.06)
REPETITIONS = 3


def drawn(rng: np.random.Generator) -> tuple[LayeredFit, list[Setup]]:
    """A system, and the setups in which it is measured."""
    work = np.exp(rng.normal(np.log(0.03), 0.5, 3))
    wakeups = work * np.exp(rng.normal(*WAKEUPS, 3))
    inside, outside = ((rng.uniform(0.02, 0.5), rng.uniform(0.8, 1.3)) for _ in range(2))
    system = LayeredFit(TIERS, False, np.stack([work, wakeups], axis=1), inside, outside, rng.uniform(0.2, 0.5))
    middlewares, cores = int(rng.integers(1, 3)), float(rng.choice([2, 4, 8]))
    base = Setup(1, rng.uniform(0.5, 4), int(rng.choice([1, 2, 8])), (1, middlewares, 3), (2, 1, 1), cores)
    light = solve_layered(system.network(base), 1)
    most = solve_layered(system.network(base), 1000)
    knee = float(most.throughput[0] / light.throughput[0])
    return system, [replace(base, customers=max(1, round(knee * part))) for part in (0.25, 0.5, 1, 2, 4)]


def run(system: LayeredFit, setup: Setup, noise: float, rng: np.random.Generator) -> dict[str, float | Floats]:
    """Measures one run: processor times and stage times have noise, and the throughput is what they give."""

    def luck(*size: int) -> Floats:
        return np.exp(noise * rng.standard_normal(size))

    laws = system.laws * luck(3)[:, np.newaxis]
    inside, outside = ((delay * float(luck()), stretch) for delay, stretch in (system.inside, system.outside))
    found = solve_layered(replace(system, laws=laws, inside=inside, outside=outside).network(setup), setup.customers)
    return {
        "throughput": float(found.throughput[0]),
        "response": float(found.response_time[0]),
        "inside": float(found.inside[0]),
        "waiting": float(found.waiting[0]),
        "outside": float(found.outside[0]),
        "reply": system.share_out * float(found.demand[0, 1]),
        "cpu": found.demand[0, :3],
    }


def measured(system: LayeredFit, setups: list[Setup], noise: float, rng: np.random.Generator) -> Demands:
    """The table of all runs."""
    each = [
        (point, setup, run(system, setup, noise, rng)) for point, setup in enumerate(setups) for _ in range(REPETITIONS)
    ]
    column = {name: np.array([found[name] for *_, found in each]) for name in each[0][2]}
    point, customers, think, slots = np.array([(p, s.customers, s.think_ms, s.slots or 0) for p, s, _ in each]).T
    processes = np.array([s.processes for _, s, _ in each], dtype=np.float64)
    threads = processes * np.array([s.threads for _, s, _ in each])
    nothing = np.zeros(len(each))
    return Demands(
        system.tiers,
        False,
        False,
        False,
        setups[0].cores,
        point,
        column["throughput"],
        customers,
        nothing + 1,
        think,
        column["inside"],
        column["waiting"],
        column["outside"],
        column["reply"],
        column["cpu"],
        nothing,
        nothing,
        processes,
        threads,
        slots,
        slots,
    )


def held_back(setups: list[Setup]) -> dict[str, Setup]:
    last = setups[-1]
    return {
        "measured point": setups[2],
        "clients x 2": replace(last, customers=2 * last.customers),
        "workers x 4": replace(last, slots=4 * (last.slots or 1)),
        "middlewares x 2": replace(last, processes=(1, 2 * last.middlewares, 3)),
        "think / 2": replace(last, think_ms=last.think_ms / 2),
    }


def holds(interval: Interval, value: float) -> bool:
    assert interval.low is not None and interval.high is not None
    return interval.low <= value <= interval.high


def main() -> None:
    systems = int(sys.argv[1]) if len(sys.argv) > 1 else SYSTEMS
    print("| noise | held back | X held | R held | error of X | error of R | refused |\n|---|---|---|---|---|---|---|")
    for noise in NOISES:
        rows: dict[str, list[tuple[bool, bool, float, float]]] = defaultdict(list)
        refused = 0
        for number in range(systems):
            rng = np.random.default_rng([number, int(1000 * noise)])
            system, setups = drawn(rng)
            try:
                fitted = layered_system(measured(system, setups, noise, rng), level=0.95, seed=number)
            except FitError:
                refused += 1
                continue
            for name, setup in held_back(setups).items():
                forecast, found = fitted.forecast(setup), run(system, setup, noise, rng)
                x, r = 1000 * float(found["throughput"]), float(found["response"])
                rows[name].append(
                    (
                        holds(forecast.throughput, x),
                        holds(forecast.response_ms, r),
                        abs(np.log(forecast.throughput.estimate / x)),
                        abs(np.log(forecast.response_ms.estimate / r)),
                    )
                )
        for name, each in rows.items():
            x_held, r_held = (100 * np.mean([row[i] for row in each]) for i in range(2))
            x_error, r_error = (100 * np.median([row[i] for row in each]) for i in range(2, 4))
            print(
                f"| {noise:.0%} | {name} | {x_held:.1f} % | {r_held:.1f} % "
                f"| {x_error:.1f} % | {r_error:.1f} % | {refused} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
