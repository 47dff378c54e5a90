"""How often `knee diagnose TABLE.csv` names the true bottleneck, on synthetic systems with known limits.

    python -m bench.bottlenecks [SYSTEMS [SEED]]

SYSTEMS is the number of tables of each family. Stations have exponential service times. Closed networks are solved
exactly; slots over a store by decomposition: a birth-death chain whose rates are those of the network within the slots.
Each table has three repetitions of five to nine client counts, with 0.5 to 2 % of noise. In half of the tables the
noise is a speed of the machine, and so common to all stations; in the others, it is independent for each column.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from knee.data import csv
from knee.data.measurements import StationKind
from knee.queueing import Network, Queue, solve_closed
from knee.stats.intervals import Floats
from knee.verdict import analyse
from knee.verdict.bottleneck import Bottleneck

SYSTEMS = 20
REPETITIONS = 3
GENERATORS = ("load", "client", "clients", "generator", "client_cpu", "load_cpu", "loadgen", "clients_cpu")
SLOTS = ("slots", "worker_slots", "pool", "connection_pool", "workers")
OUTCOMES = ("right", "half right", "cannot tell", "wrong, low confidence", "wrong")


@dataclass(frozen=True)
class System:
    """A measured system: exact means by client count, and what a diagnosis should say.

    throughput   requests/ms
    utilization  by measured station
    limits       stations that limit; none if nothing measured limits
    generators   stations of the load generator, declared by a flag
    software     stations that are software, declared by a flag
    """

    clients: list[int]
    think_ms: float
    throughput: Floats
    utilization: dict[str, Floats]
    limits: frozenset[str] = frozenset()
    by_load: bool = False
    generators: tuple[str, ...] = ()
    software: tuple[str, ...] = ()


Draw = Callable[[np.random.Generator], System]


def main() -> None:
    """Print how many verdicts of each family are right."""
    systems = int(sys.argv[1]) if len(sys.argv) > 1 else SYSTEMS
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(f"| {systems} tables each | {' | '.join(OUTCOMES)} |\n|---|{'---|' * len(OUTCOMES)}")
    whole: Counter[str] = Counter()
    for number, (name, draw) in enumerate(FAMILIES.items()):
        found = Counter(outcome_of(draw, np.random.default_rng([seed, number, k])) for k in range(systems))
        whole += found
        print(f"| {name} | {' | '.join(str(found[outcome] or '') for outcome in OUTCOMES)} |", flush=True)
    shares = (f"{whole[outcome] / whole.total():.1%}" for outcome in OUTCOMES)
    print(f"| all {whole.total()} | {' | '.join(shares)} |")


def outcome_of(draw: Draw, rng: np.random.Generator) -> str:
    """The outcome of the diagnosis of one drawn table."""
    system = draw(rng)
    return outcome(system, diagnosed(system, table(system, rng)))


def diagnosed(system: System, text: str) -> Bottleneck:
    """The verdict on a table."""
    kinds: dict[str, StationKind] = dict.fromkeys(system.generators, "generator")
    kinds |= dict.fromkeys(system.software, "software")
    (verdict,) = analyse(csv.parse(text, "table.csv").with_kinds(kinds)).verdicts
    return verdict.bottleneck


def outcome(system: System, found: Bottleneck) -> str:
    """One of OUTCOMES. A verdict that names one of two equal limits, or one more than limits, is half right."""
    named = {name.removeprefix("station ") for name in found.names}
    if found.status == "cannot tell":
        return "cannot tell"
    if (found.status == "load generator") == system.by_load and (system.by_load or named == system.limits):
        return "right"
    if not system.by_load and found.status == "found" and named & system.limits:
        return "half right"
    return "wrong" if found.confidence != "low" else "wrong, low confidence"


def table(system: System, rng: np.random.Generator) -> str:
    """The CSV of a system's noisy measurements."""
    noise = float(rng.choice([0.005, 0.01, 0.02]))
    common = bool(rng.integers(2))
    stations = list(system.utilization)
    header = ["clients", "repetition", "throughput", "response_ms", "think_ms"]
    lines = [",".join([*header, *(f"utilization_{name}" for name in stations)])]
    for at, clients in enumerate(system.clients):
        for repetition in range(1, REPETITIONS + 1):
            x, r, *busy = 1 + noise * rng.standard_normal(2 + len(stations))
            throughput = system.throughput[at] * x
            response = clients / throughput - system.think_ms
            if not common:
                response = (clients / system.throughput[at] - system.think_ms) * r
            shares = [
                min(1.0, system.utilization[name][at] * (1.0 if common else own))
                for name, own in zip(stations, busy, strict=True)
            ]
            cells = [clients, repetition, 1000 * throughput, max(response, 0.001), system.think_ms, *shares]
            lines.append(",".join(f"{cell:.6g}" for cell in cells))
    return "\n".join(lines) + "\n"


def counts(rng: np.random.Generator, knee: float, low: float, high: float) -> list[int]:
    """Client counts from a fraction of the knee to between `low` and `high` times the knee, in about equal ratios."""
    first = max(1.0, knee * rng.uniform(0.05, 0.25))
    last = max(first + 4, knee * rng.uniform(low, high))
    return sorted({round(n) for n in np.geomspace(first, last, int(rng.integers(6, 10)))})


def network(
    rng: np.random.Generator,
    demands: dict[str, float],
    hidden: tuple[str, ...] = (),
    low: float = 1.5,
    high: float = 8.0,
    thinking: tuple[float, ...] = (0.0, 2.0, 10.0, 50.0),
) -> System:
    """A closed network of stations with these demands, in ms for each server, and a think time of `thinking`, in
    multiples of the largest demand."""
    think_ms = float(rng.choice(thinking)) * max(demands.values())
    stations = []
    for name, demand in demands.items():
        servers = int(rng.choice([1, 1, 2, 4]))
        stations.append(Queue(name, demand * servers, servers=servers))
    light = think_ms + sum(float(np.ravel(station.service_time)[0]) for station in stations)
    clients = counts(rng, light / max(demands.values()), low, high)
    solution = solve_closed(Network(stations, think_ms), clients[-1])
    rows = np.array(clients) - 1
    busy = {name: solution.utilisation[rows, k] for k, name in enumerate(demands) if name not in hidden}
    return System(clients, think_ms, solution.throughput[rows], busy)


def with_truth(system: System, *limits: str, by_load: bool = False, generators: tuple[str, ...] = ()) -> System:
    """The system with what a diagnosis should say."""
    return System(
        system.clients, system.think_ms, system.throughput, system.utilization, frozenset(limits), by_load, generators
    )


def clear(rng: np.random.Generator) -> System:
    """One station limits; the next is at most 80 % as busy. One of the others is the load generator."""
    demands = {"disk": 1.0, "cpu": rng.uniform(0.1, 0.8), "client_cpu": rng.uniform(0.1, 0.8)}
    return with_truth(network(rng, demands), "disk")


def near_tie(rng: np.random.Generator) -> System:
    """The second station is 90 to 99 % as busy as the first; naming both is half right."""
    demands = {"disk": 1.0, "cpu": rng.uniform(0.9, 0.99), "net": rng.uniform(0.1, 0.5)}
    return with_truth(network(rng, demands), "disk")


def exact_tie(rng: np.random.Generator) -> System:
    """Two stations limit together; naming one is half right."""
    return with_truth(network(rng, {"disk": 1.0, "cpu": 1.0, "net": rng.uniform(0.1, 0.5)}), "disk", "cpu")


def load_by_name(rng: np.random.Generator) -> System:
    """The load generator limits; its station has a usual name."""
    name = str(rng.choice(GENERATORS))
    return with_truth(network(rng, {name: 1.0, "disk": rng.uniform(0.3, 0.8)}), by_load=True)


def load_by_flag(rng: np.random.Generator) -> System:
    """The load generator limits; a flag declares it."""
    found = network(rng, {"injector": 1.0, "disk": rng.uniform(0.3, 0.8)})
    return with_truth(found, by_load=True, generators=("injector",))


def load_tie(rng: np.random.Generator) -> System:
    """A station limits, and the load generator is 90 to 99 % as busy; naming both is half right."""
    return with_truth(network(rng, {"disk": 1.0, "client": rng.uniform(0.9, 0.99)}), "disk")


def unsaturated(rng: np.random.Generator) -> System:
    """No load near the knee."""
    return network(rng, {"disk": 1.0, "cpu": rng.uniform(0.1, 0.8)}, low=0.2, high=0.6, thinking=(50.0, 200.0))


def hidden(low: float, high: float) -> Draw:
    """A station without measurements limits, and the busiest measured one is this busy beside it."""

    def draw(rng: np.random.Generator) -> System:
        demands = {"hidden": 1.0, "disk": rng.uniform(low, high), "cpu": rng.uniform(0.1, 0.4)}
        return network(rng, demands, hidden=("hidden",))

    return draw


def slots_over(
    store: tuple[float, float], *, name: str | None = None, declared: bool = False, measured: bool = True
) -> Draw:
    """A pool of slots; each request keeps a slot while it waits for a store, and for a delay. `store` is the range of
    the store's utilisation once all slots are taken; the busier one limits. `name` is the pool's, by default a usual
    one.
    """

    def draw(rng: np.random.Generator) -> System:
        pool = name or str(rng.choice(SLOTS))
        while True:
            slots = int(rng.choice([4, 8, 16, 32, 64]))
            delay = slots * rng.uniform(0.1, 2.0)
            inside = solve_closed(Network([Queue("store", 1.0)], delay), slots).throughput
            if store[0] <= inside[-1] <= store[1]:
                break
        think_ms = float(rng.choice([1.0, 5.0, 20.0])) * (delay + 1)
        knee = float(inside[-1]) * (think_ms + delay + 1)
        # Slots fill only some time after the store.
        clients = counts(rng, knee + slots, 1.2, 8.0)
        chains = [slot_chain(n, inside, think_ms) for n in clients]
        throughput = np.array([x for x, _ in chains])
        busy = {pool: np.array([share for _, share in chains])}
        if measured:
            busy["store"] = throughput
        busy["cpu"] = throughput * rng.uniform(0.1, 0.4)
        limit = "store" if store[0] > 0.9 else pool
        return System(
            clients, think_ms, throughput, busy, frozenset({limit} & set(busy)), software=(pool,) if declared else ()
        )

    return draw


def slot_chain(clients: int, inside: Floats, think_ms: float) -> tuple[float, float]:
    """Throughput and the share of busy slots; `inside` is the throughput by taken slots (repairman's chain)."""
    slots = inside.size
    rates = inside[np.minimum(np.arange(1, clients + 1), slots) - 1]
    logs = np.cumsum(np.log((clients - np.arange(clients)) / think_ms / rates))
    weights = np.exp(np.append(0.0, logs) - max(0.0, logs.max()))
    shares = weights / weights.sum()
    taken = np.minimum(np.arange(clients + 1), slots)
    return float(shares[1:] @ rates), float(shares @ taken) / slots


FAMILIES: dict[str, Draw] = {
    "clear": clear,
    "near tie (0.90–0.99)": near_tie,
    "exact tie": exact_tie,
    "load generator, by name": load_by_name,
    "load generator, by flag": load_by_flag,
    "load generator nearly limits (0.90–0.99)": load_tie,
    "no saturation": unsaturated,
    "hidden limit, busiest station 40–90 %": hidden(0.4, 0.9),
    "hidden limit, busiest station 91–97 %": hidden(0.91, 0.97),
    "slots by name, the store limits": slots_over((0.97, 1.0)),
    "slots by flag, the store limits": slots_over((0.97, 1.0), name="gate", declared=True),
    "slots not declared, the store limits": slots_over((0.97, 1.0), name="gate"),
    "slots by name, a hidden store limits": slots_over((0.97, 1.0), measured=False),
    "slots by name, the slots limit": slots_over((0.3, 0.7)),
}


if __name__ == "__main__":
    main()
