"""Layered networks: a request holds a slot while others serve it, and the threads of a host share its cores.

A client thinks, sends a request through the `outside` stage, waits for one of the slots of its pool, holds it through the
`inside` stage, and thinks again. Every thread is a processor-sharing station, whose speed falls as other threads of its
host become active. What a request takes of a thread falls as the thread is kept awake: a wake-up has a price.

Sources: layered queueing networks (Rolia & Sevcik 1995; Franks, Al-Omari, Woodside, Das & Derisavi 2009); the pool is
the machine repairman (Kleinrock 1975, §3.8) with flow-equivalent service (Chandy, Herzog & Woo 1975). Threads are
independent of each other in the mean field. docs/methods/layered.md says how well that holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from knee.queueing.errors import ArgumentError

Floats = NDArray[np.float64]

_GRID = 60
"""Throughputs, from none to what the cores allow, at which demands and speeds are solved; linear between them."""

_ROUNDS = 400
_SETTLED = 1e-7


@dataclass(frozen=True)
class Tier:
    """Equal threads that share the requests.

    host     whose cores they run on
    threads  how many
    work     processor time of a request, in all threads together
    wakeup   further processor time where each event finds its thread asleep and a core idle
    """

    name: str
    host: str
    threads: int
    work: float
    wakeup: float = 0.0


@dataclass(frozen=True)
class Stage:
    """What a request passes: a delay without a queue, and shares of its work in some tiers, `stretch` times their
    residence in all."""

    shares: Mapping[str, float]
    delay: float = 0.0
    stretch: float = 1.0


@dataclass(frozen=True)
class Layered:
    """A layered network of one class.

    cores   of each host
    slots   of each pool; None where a request waits for none
    pools   equal ones that share the clients
    """

    cores: Mapping[str, float]
    tiers: Sequence[Tier]
    outside: Stage
    inside: Stage
    think_time: float = 0.0
    pools: int = 1
    slots: int | None = None
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ArgumentError("tiers", "expected one or more")
        for tier in self.tiers:
            if tier.host not in self.cores:
                raise ArgumentError(f"{tier.name}.host", f"expected one of {list(self.cores)}, not {tier.host!r}")
            if tier.threads < 1 or not tier.work > 0 or tier.wakeup < 0:
                raise ArgumentError(tier.name, "expected a thread or more, work above 0 and a wake-up from 0")
        object.__setattr__(self, "_index", {tier.name: i for i, tier in enumerate(self.tiers)})

    @cached_property
    def loads(self) -> Loads:
        """Demands and speeds over throughput."""
        return _loads(self)

    def shares(self, stage: Stage) -> Floats:
        """Of each tier's work, the share in a stage."""
        found = np.zeros(len(self.tiers))
        for name, share in stage.shares.items():
            found[self._index[name]] = share
        return found


@dataclass(frozen=True, eq=False)
class Loads:
    """What a throughput makes of the tiers; rows are throughputs, columns tiers.

    demand  processor time of a request, wake-ups included
    speed   of an active thread, 1 on a core of its own
    asleep  probability that an event finds the thread asleep and a core idle
    """

    throughput: Floats
    demand: Floats
    speed: Floats
    asleep: Floats

    def at(self, throughput: float) -> tuple[Floats, Floats]:
        """Demands and speeds at a throughput."""
        place = np.searchsorted(self.throughput, throughput)
        place = min(max(int(place), 1), len(self.throughput) - 1)
        low, high = self.throughput[place - 1], self.throughput[place]
        part = min(1.0, (throughput - low) / (high - low))
        return (
            self.demand[place - 1] * (1 - part) + self.demand[place] * part,
            self.speed[place - 1] * (1 - part) + self.speed[place] * part,
        )


@dataclass(frozen=True, eq=False)
class LayeredSolution:
    """The steady state for each number of customers; times in the network's unit.

    inside     how long a slot is held
    waiting    for a slot
    outside    all else but thinking
    demand     processor time of a request, (customers, tiers)
    busy       of each tier's threads, the share of time in which one is active or waits for a core, (customers, tiers)
    host_busy  of each host's cores, (customers, hosts)
    """

    customers: Floats
    throughput: Floats
    inside: Floats
    waiting: Floats
    outside: Floats
    demand: Floats
    busy: Floats
    host_busy: Floats

    @property
    def response_time(self) -> Floats:
        return np.asarray(self.inside + self.waiting + self.outside)


def solve_layered(network: Layered, customers: Sequence[float]) -> LayeredSolution:
    """Solves a layered network for each number of customers, a fixed point in the throughput."""
    counts = np.asarray(customers, dtype=np.float64)
    if not (counts > 0).all():
        raise ArgumentError("customers", f"expected numbers above 0, not {customers}")
    hosts = list(network.cores)
    placed = np.array([[tier.host == host for host in hosts] for tier in network.tiers], dtype=np.float64)
    threads = np.array([tier.threads for tier in network.tiers], dtype=np.float64)
    rows = []
    for count in counts.tolist():
        throughput = _throughput(network, count)
        inside, outside = _times(network, throughput, count)
        demand, speed = network.loads.at(throughput)
        used = throughput * demand
        waiting = max(0.0, count / throughput - network.think_time - inside - outside)
        rows.append(
            (throughput, inside, waiting, outside, demand, np.minimum(1.0, used / threads / speed), used @ placed)
        )
    throughputs, inside_of, waiting_of, outside_of, demands, busy, cpu = zip(*rows, strict=True)
    cores = np.array([network.cores[host] for host in hosts])
    return LayeredSolution(
        counts,
        np.array(throughputs),
        np.array(inside_of),
        np.array(waiting_of),
        np.array(outside_of),
        np.array(demands),
        np.array(busy),
        np.array(cpu) / cores,
    )


def _throughput(network: Layered, customers: float) -> float:
    """Where as much goes through the stages as their load lets through: the difference falls with the throughput."""

    def surplus(throughput: float) -> float:
        inside, outside = _times(network, throughput, customers)
        away = network.think_time + outside
        if network.slots is None:
            return customers / (away + inside) - throughput
        share = customers / network.pools
        return network.pools * repairman(share, network.slots, inside, away) - throughput

    highest = network.loads.throughput[-1]
    return float(brentq(surplus, highest * 1e-9, highest, xtol=highest * 1e-9, rtol=1e-9))


def _times(network: Layered, throughput: float, customers: float) -> tuple[float, float]:
    """How long a request is inside and outside of its slot, at a throughput."""
    demand, speed = network.loads.at(throughput)
    threads = np.array([tier.threads for tier in network.tiers])
    busy = throughput * demand / threads
    slots = np.inf if network.slots is None else network.pools * network.slots

    def time(stage: Stage, there: float) -> float:
        shares = network.shares(stage)
        # An arriving request finds the others only.
        others = 1 - 1 / max(1.0, min(there, customers))
        gap = np.maximum(speed - busy * others, 1e-9)
        return stage.delay + stage.stretch * float((shares * demand / gap).sum())

    return time(network.inside, slots), time(network.outside, np.inf)


def repairman(customers: float, servers: int, service: float, away: float) -> float:
    """Throughput of M/M/m//N: `customers` that are `away`, and servers of `service` (exact; linear between whole N)."""
    low = int(customers)
    if low < customers:
        part = customers - low
        lower = repairman(low, servers, service, away) if low else 0.0
        return (1 - part) * lower + part * repairman(low + 1, servers, service, away)
    there = np.arange(1, low + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log((low - there + 1) / away) - np.log(np.minimum(there, servers) / service))))
    shares = np.exp(logs - logs.max())
    return float(shares[1:] @ np.minimum(there, servers)) / service / float(shares.sum())


def _loads(network: Layered) -> Loads:
    """Demands and speeds over a grid of throughputs, all of it in one fixed point."""
    work = np.array([tier.work for tier in network.tiers])
    wakeup = np.array([tier.wakeup for tier in network.tiers])
    threads = np.array([tier.threads for tier in network.tiers])
    hosts = [tier.host for tier in network.tiers]
    cores = np.array([network.cores[host] for host in hosts])
    used = np.array([sum(w for w, host in zip(work, hosts, strict=True) if host == own) for own in hosts])
    top = min(float((cores / used).min()), float((threads / work).min()))
    throughput = np.linspace(0, top, _GRID + 1)
    demand = np.broadcast_to(work + wakeup, (throughput.size, work.size)).copy()
    active = np.zeros_like(demand)
    speed, asleep = np.ones_like(demand), np.ones_like(demand)
    for _ in range(_ROUNDS):
        speed, idle = shared(active, threads, hosts, cores)
        asleep = (1 - active) * idle
        now = work + wakeup * asleep
        busy = np.minimum(throughput[:, np.newaxis] * now / threads / speed, 1.0)
        change = max(float(np.abs(busy - active).max()), float(np.abs(now / demand - 1).max()))
        active, demand = (active + busy) / 2, (demand + now) / 2
        if change < _SETTLED:
            break
    return Loads(throughput, demand, speed, asleep)


def shared(active: Floats, threads: NDArray[np.int64], hosts: Sequence[str], cores: Floats) -> tuple[Floats, Floats]:
    """Speed of an active thread, and the probability of an idle core, as the other threads of its host are active
    independently of each other with the probabilities `active`, (rows, tiers)."""
    speed, idle = np.empty_like(active), np.empty_like(active)
    for i, host in enumerate(hosts):
        others = [int(count) - (j == i) if hosts[j] == host else 0 for j, count in enumerate(threads)]
        most = sum(others)
        turns = np.exp(2j * np.pi * np.arange(most + 1) / (most + 1))
        # The number of active threads by the values of its generating function at the roots of unity.
        values = np.ones((len(active), most + 1), dtype=np.complex128)
        for j, count in enumerate(others):
            if count:
                values *= (1 + active[:, j, np.newaxis] * (turns - 1)) ** count
        chances = np.maximum(np.fft.fft(values, axis=1).real / (most + 1), 0)
        there = np.arange(most + 1)
        speed[:, i] = chances @ np.minimum(1.0, cores[i] / (1 + there))
        idle[:, i] = chances @ (there < cores[i])
    return speed, idle
