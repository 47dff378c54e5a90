"""The time of exact solutions, compared with textbooks' recursions.

python -m bench.queueing
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from knee.queueing import Network, Queue, bard_schweitzer, linearizer, solve_classes, solve_closed

ROUNDS = 15
# The network of issue 4: 957.76 at 1000 customers.
POOLS = Network(
    [Queue("net", 0.0005), Queue("workers", 0.008, servers=8), Queue("store", 0.015, servers=16)], think_time=1.0
)
CLASSES = Network(
    [Queue(f"station {k}", (0.1 + 0.1 * k, 0.5 - 0.1 * k, 0.3), discipline="ps") for k in range(5)],
    1.0,
    ("get", "set", "multi-get"),
)
# The same work by slower servers, four at each.
CLASSES_4 = Network(
    [
        Queue(station.name, [4 * time for time in np.ravel(station.service_time)], servers=4, discipline="ps")
        for station in CLASSES.stations
    ],
    1.0,
    CLASSES.classes,
)


def main() -> None:
    contestants: dict[str, Callable[[], float]] = {
        "1, 8 and 16 servers, N = 1..1,000": lambda: float(solve_closed(POOLS, 1000).throughput[-1]),
        "  textbook, p(0) by subtraction": lambda: textbook_load_dependent(POOLS, 1000),
        "  Bard–Schweitzer, N = 1,000 only": lambda: float(bard_schweitzer(POOLS, [1000]).throughput[0]),
        "  Linearizer, N = 1,000 only": lambda: float(linearizer(POOLS, [1000]).throughput[0]),
        "1, 8 and 16 servers, N = 1..100,000": lambda: float(solve_closed(POOLS, 100_000).throughput[-1]),
        "3 classes of 20, 5 stations": lambda: float(solve_classes(CLASSES, [20] * 3).throughput[20, 20, 20].sum()),
        "  of 4 servers": lambda: float(solve_classes(CLASSES_4, [20] * 3).throughput[20, 20, 20].sum()),
        "  textbook, in NumPy": lambda: textbook_classes(CLASSES, 20),
        "  Linearizer, (20, 20, 20) only": lambda: float(linearizer(CLASSES, [20] * 3).throughput.sum()),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    answers = {}
    for _ in range(ROUNDS):
        for name, solve in contestants.items():
            began = time.perf_counter()
            answers[name] = solve()
            times[name].append(1000 * (time.perf_counter() - began))
    print(f"{'':<38}{'median ms':>12}{'best ms':>10}{'throughput':>14}   {ROUNDS} rounds, in turns")
    for name, each in times.items():
        print(f"{name:<38}{median(each):>12.2f}{min(each):>10.2f}{answers[name]:>14.4f}")


def textbook_load_dependent(network: Network, population: int) -> float:
    """Mean value analysis with probabilities, p(0) = 1 − Σ p(j), which cancels (Reiser & Lavenberg 1980)."""
    demands = network.demands[:, 0]
    speeds = np.array(
        [
            [min(there, station.servers) if isinstance(station, Queue) else there for there in range(1, population + 1)]
            for station in network.stations
        ]
    )
    there = np.arange(1, population + 1)
    probabilities = np.zeros((len(demands), population + 1))
    probabilities[:, 0] = 1
    throughput = 0.0
    for n in range(1, population + 1):
        residence_time = demands * (there[:n] / speeds[:, :n] * probabilities[:, :n]).sum(axis=1)
        throughput = n / (float(network.think_times[0]) + residence_time.sum())
        probabilities[:, 1 : n + 1] = throughput * demands[:, np.newaxis] / speeds[:, :n] * probabilities[:, :n]
        probabilities[:, 0] = 1 - probabilities[:, 1 : n + 1].sum(axis=1)
    return float(throughput)


def textbook_classes(network: Network, population: int) -> float:
    """Mean value analysis of single servers, state by state (Reiser & Lavenberg 1980)."""
    demands, classes = network.demands, len(network.classes)
    lengths = np.zeros((*(population + 1,) * classes, len(demands)))
    throughput = np.zeros(classes)
    for state in np.ndindex(*lengths.shape[:-1]):
        for index in (index for index in range(classes) if state[index]):
            before = (*state[:index], state[index] - 1, *state[index + 1 :])
            residence_time = demands[:, index] * (1 + lengths[before])
            throughput[index] = state[index] / (network.think_times[index] + residence_time.sum())
            lengths[state] += throughput[index] * residence_time
    return float(throughput.sum())


if __name__ == "__main__":
    main()
