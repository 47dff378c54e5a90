"""Layered networks: a request holds a slot while servers behind it work, and the threads of a host share its cores.

A client thinks, sends a request through the `outside` stage, waits for one of its pool's slots, holds it through the
`inside` stage, and thinks again. Every thread is a processor-sharing station. Its speed falls as other threads of its
host become active. A request takes more processor time if it must wake a thread up. Networks with product form are
solved exactly.

Sources: layered queueing networks (Rolia & Sevcik 1995; Franks, Al-Omari, Woodside, Das & Derisavi 2009). A pool is a
machine repairman (Kleinrock 1975, §3.8) whose service time depends on the throughput (flow equivalence; Chandy, Herzog
& Woo 1975). The mean field treats threads as alike, with a correlation. See docs/methods/layered.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from knee.queueing.errors import ArgumentError
from knee.queueing.layered_exact import solve_exactly

Floats = NDArray[np.float64]

_GRID = 40
"""Number of steps of the grid of throughputs at which demands and speeds are solved, from 0 to the limit of the cores.
Between grid points they are linear."""

_EXACT = 1e-11
"""Relative error of the throughput."""

_STEPS = 110
"""Most steps to it: a third of them halve the interval."""

_ROUNDS = 400
_SETTLED = 1e-5

TOGETHER = 0.15
"""Correlation of the threads' activity: one event often wakes several threads. In the runs of eight systems, the
predicted wait for a core is 57 % of the measured one in the median, and 26 % with 0: see docs/methods/layered.md."""

TOGETHER_MOST = 0.75
"""Threads that an event wakes together with a thread, at most: the correlation falls with the number of threads."""

_FULL = 0.999
"""Largest probability that a thread is active."""


@dataclass(frozen=True)
class Tier:
    """Equal threads that share the requests.

    host     host of their cores
    threads  number of threads
    work     processor time of a request, in all threads together
    wakeup   additional processor time if each event finds its thread asleep
    by_slot  whether each slot has its own thread, where no other request waits
    """

    name: str
    host: str
    threads: int
    work: float
    wakeup: float = 0.0
    by_slot: bool = False


@dataclass(frozen=True)
class Stage:
    """A part of a request's way: a delay without a queue, and `stretch` times the residence at shares of some tiers'
    work."""

    shares: Mapping[str, float]
    delay: float = 0.0
    stretch: float = 1.0


@dataclass(frozen=True)
class Layered:
    """A layered network of one class.

    cores   of each host
    slots   of each pool; None without slots
    pools   number of equal pools, which share the clients
    """

    cores: Mapping[str, float]
    tiers: Sequence[Tier]
    outside: Stage
    inside: Stage
    think_time: float = 0.0
    pools: int = 1
    slots: int | None = None

    @cached_property
    def loads(self) -> Loads:
        """Demands and speeds over the throughput."""
        return loads_of([self])[0]

    @cached_property
    def threads(self) -> Floats:
        """Number of threads of each tier."""
        return np.array([tier.threads for tier in self.tiers], dtype=np.float64)

    @property
    def structure(self) -> tuple[object, ...]:
        """The parts that must be equal in networks that are solved together."""
        tiers = tuple((t.name, t.host, t.threads, t.by_slot) for t in self.tiers)
        return (tuple(self.cores.items()), tiers, self.pools, self.slots)

    def shares(self, stage: Stage) -> Floats:
        return np.array([stage.shares.get(tier.name, 0.0) for tier in self.tiers])

    def with_loads(self, loads: Loads, factor: float = 1.0) -> Layered:
        """A copy whose tiers take `factor` times the processor time; `loads` are those of this network."""
        tiers = [replace(tier, work=tier.work * factor, wakeup=tier.wakeup * factor) for tier in self.tiers]
        found = replace(self, tiers=tiers)
        found.__dict__["loads"] = Loads(loads.top / factor, loads.demand * factor, loads.speed)
        return found


@dataclass(frozen=True, eq=False)
class Loads:
    """Demands and speeds of the tiers over the throughput, on a grid from 0 to the limit of the cores.

    top     highest throughput
    demand  processor time of a request, wake-ups included, (grid, tiers)
    speed   of an active thread, 1 on a core of its own, (grid, tiers)
    """

    top: float
    demand: Floats
    speed: Floats


@dataclass(frozen=True, eq=False)
class LayeredSolution:
    """The steady state, a row for each network and number of customers; times in the networks' unit.

    inside     time that a request holds a slot
    waiting    time that it waits for a slot
    outside    other time, without thinking
    demand     processor time of a request, (rows, tiers)
    busy       share of time in which a thread is active or waits for a core, (rows, tiers)
    host_busy  of each host's cores, (rows, hosts)
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


def solve_layered(networks: Layered | Sequence[Layered], customers: float | Sequence[float]) -> LayeredSolution:
    """Solves one network for several numbers of customers, or several networks for one number or a number each.

    Networks that are solved together may differ in times, work and shares only.

    Raises
    ------
    ArgumentError
        If a number of customers is not above 0, or networks differ in anything else.
    """
    several = [networks] if isinstance(networks, Layered) else list(networks)
    first = several[0]
    counts = np.broadcast_to(np.asarray(customers, dtype=np.float64), max(len(several), np.size(customers)))
    if not (counts > 0).all():
        raise ArgumentError("customers", f"expected numbers above 0, not {customers}")
    if any(network.structure != first.structure for network in several):
        raise ArgumentError("networks", "expected equal hosts, threads, pools and slots")
    alike: dict[tuple[Tier, ...], list[Layered]] = {}
    for network in several:
        if "loads" not in network.__dict__:
            alike.setdefault(tuple(network.tiers), []).append(network)
    for same, loads in zip(alike.values(), loads_of([each[0] for each in alike.values()]), strict=True):
        for network in same:
            network.__dict__["loads"] = loads
    rows = _Rows(several, counts)
    throughput = _fixed_point(rows.passed, rows.most)
    inside, outside = rows.times(throughput)
    demand, speed = rows.at(throughput)
    busy = np.minimum(1.0, throughput[:, np.newaxis] * demand / first.threads / speed)
    for row, count in enumerate(counts.tolist()):
        network = several[row if len(several) > 1 else 0]
        if (exact := solve_exactly(network, count)) is not None:
            throughput[row], inside[row], outside[row], busy[row] = exact
            demand[row] = [tier.work for tier in network.tiers]
    placed = np.array([[tier.host == host for host in first.cores] for tier in first.tiers], dtype=np.float64)
    return LayeredSolution(
        counts,
        throughput,
        inside,
        np.maximum(0.0, counts / throughput - rows.think - inside - outside),
        outside,
        demand,
        busy,
        throughput[:, np.newaxis] * demand @ placed / np.array(list(first.cores.values())),
    )


def _fixed_point(passed: Callable[[Floats], Floats], high: Floats) -> Floats:
    """Where x = passed(x), from 0 to `high`; `passed` falls. The Illinois rule (Dowell & Jarratt 1971), and every third
    step halves the interval."""
    low = np.zeros_like(high)
    above, below = passed(low), np.minimum(0.0, passed(high) - high)
    last = np.zeros(high.shape)
    for step in range(_STEPS):
        found = high - (high - low) * (0.5 if step % 3 == 2 else below / (below - above))
        excess = passed(found) - found
        # The slope of the excess is −1 or less, so the error of the root is at most the excess.
        if (np.minimum(np.abs(excess), high - low) <= _EXACT * found).all():
            break
        side = np.sign(excess)
        more, again = side > 0, side == last
        low, high = np.where(more, found, low), np.where(more, high, found)
        above = np.where(more, excess, np.where(again, above / 2, above))
        below = np.where(more, np.where(again, below / 2, below), excess)
        last = side
    return found


class _Rows:
    """Pairs of a network and a number of customers, as arrays."""

    def __init__(self, networks: Sequence[Layered], customers: Floats) -> None:
        first = networks[0]
        self.size = len(customers)
        self.pools, self.slots, self.threads = first.pools, first.slots, first.threads
        self._queues = np.array([not tier.by_slot for tier in first.tiers], dtype=np.float64)
        self.customers = customers
        self._groups = [(float(count), customers == count) for count in np.unique(customers)]
        # One network stands for all rows.
        self._one = np.arange(self.size) if len(networks) == self.size else np.zeros(self.size, dtype=np.int64)
        self._demand = np.stack([network.loads.demand for network in networks])
        self._speed = np.stack([network.loads.speed for network in networks])

        def column(values: Iterable[float]) -> Floats:
            return np.broadcast_to(np.array(list(values), dtype=np.float64), self.size)

        self.top = column(network.loads.top for network in networks)
        self.think = column(network.think_time for network in networks)
        places = np.inf if self.slots is None else float(self.pools * self.slots)
        self._stages = [
            (
                column(stage.delay for stage in stages),
                column(stage.stretch for stage in stages),
                np.array([network.shares(stage) for network, stage in zip(networks, stages, strict=True)]),
                there,
            )
            for stages, there in (
                ([network.inside for network in networks], places),
                ([network.outside for network in networks], np.inf),
            )
        ]

        least = self.think + sum(delay for delay, *_ in self._stages)
        self.most = np.minimum(self.top, np.divide(customers, least, out=np.full(self.size, np.inf), where=least > 0))

    def at(self, throughput: Floats) -> tuple[Floats, Floats]:
        """Demands and speeds at a throughput, linear between the points of the grid."""
        place = throughput / self.top * _GRID
        low = np.minimum(place.astype(np.int64), _GRID - 1)
        part = (place - low)[:, np.newaxis]
        demand, speed = (
            values[self._one, low] * (1 - part) + values[self._one, low + 1] * part
            for values in (self._demand, self._speed)
        )
        return demand, speed

    def times(self, throughput: Floats) -> tuple[Floats, Floats]:
        """The times of a request inside and outside its slot."""
        demand, speed = self.at(throughput)
        busy = throughput[:, np.newaxis] * demand / self.threads
        found = []
        for delay, stretch, shares, there in self._stages:
            # An arriving request finds only the other requests.
            others = 1 - 1 / np.maximum(1.0, np.minimum(there, self.customers))
            gap = np.maximum(speed - busy * self._queues * others[:, np.newaxis], 1e-9)
            found.append(delay + stretch * (shares * demand / gap).sum(axis=1))
        inside, outside = found
        return inside, outside

    def passed(self, throughput: Floats) -> Floats:
        """The customers' throughput if the tiers have the load of the given throughput; it falls with the load."""
        inside, outside = self.times(throughput)
        away = self.think + outside
        if self.slots is None:
            return np.asarray(self.customers / (away + inside))
        found = np.empty(self.size)
        for count, own in self._groups:
            found[own] = self.pools * repairman(count / self.pools, self.slots, inside[own], away[own])
        return found


def repairman(customers: float, servers: int, service: Floats, away: Floats) -> Floats:
    """Throughput of M/M/m//N: `customers` that are `away` for a time, and servers of `service` time (exact; linear
    between whole N)."""
    low = int(customers)
    if low < customers:
        part = customers - low
        lower = repairman(low, servers, service, away) if low else np.zeros_like(service)
        return np.asarray((1 - part) * lower + part * repairman(low + 1, servers, service, away))
    there = np.arange(1, low + 1)
    steps = np.log((low - there + 1) / np.minimum(there, servers))
    logs = np.zeros((len(service), low + 1))
    # A time of zero has no logarithm.
    away, service = np.maximum(away, 1e-9 * service), np.maximum(service, 1e-12 * away)
    np.cumsum(steps + np.log(service / away)[:, np.newaxis], axis=1, out=logs[:, 1:])
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares[:, 1:] @ np.minimum(there, servers) / service / shares.sum(axis=1))


def loads_of(networks: Sequence[Layered]) -> list[Loads]:
    """The loads of networks of one structure, all in one fixed point."""
    if not networks:
        return []
    first = networks[0]
    threads = np.array([tier.threads for tier in first.tiers])
    hosts = [tier.host for tier in first.tiers]
    cores = np.array([first.cores[host] for host in hosts])
    work = np.array([[tier.work for tier in network.tiers] for network in networks])
    wakeup = np.array([[tier.wakeup for tier in network.tiers] for network in networks])
    together = np.array([[host == own for host in hosts] for own in hosts], dtype=np.float64)
    top = np.minimum((cores / (work @ together)).min(axis=1), (threads / work).min(axis=1))
    rates = np.linspace(0, top, _GRID + 1, axis=1)[:, :, np.newaxis] / threads
    base, extra = ((rates * each[:, np.newaxis, :]).reshape(-1, len(threads)) for each in (work, wakeup))
    active, speed = settle(base, threads, hosts, cores, extra)
    demand = work[:, np.newaxis, :] + wakeup[:, np.newaxis, :] * (1 - active.reshape(rates.shape))
    return [Loads(*each) for each in zip(top.tolist(), demand, speed.reshape(rates.shape), strict=True)]


def settle(
    used: Floats, threads: NDArray[np.int64], hosts: Sequence[str], cores: Floats, wakeups: Floats | None = None
) -> tuple[Floats, Floats]:
    """Probability that a thread is active, and its speed then, each (rows, tiers).

    used     share of a core that each thread uses
    wakeups  additional use if each event found its thread asleep
    """
    active = np.minimum(used, _FULL)
    speed = np.ones_like(used)
    rows = np.arange(len(used))
    extra = np.zeros_like(used) if wakeups is None else wakeups
    for _ in range(_ROUNDS):
        own = active[rows]
        speed[rows] = _speed(own, threads, hosts, cores)
        # active · speed = used + extra · (1 − active), solved for active. From below, it rises to the fixed point.
        active[rows] = np.minimum((used[rows] + extra[rows]) / (speed[rows] + extra[rows]), _FULL)
        rows = rows[np.abs(active[rows] - own).max(axis=1) > _SETTLED]
        if not rows.size:
            break
    return active, speed


def _speed(active: Floats, threads: NDArray[np.int64], hosts: Sequence[str], cores: Floats) -> Floats:
    """Speed of an active thread, (rows, tiers): its share of a core among the active threads of its host."""
    speed = np.empty_like(active)
    for i, host in enumerate(hosts):
        count = sum(own for own, there in zip(threads.tolist(), hosts, strict=True) if there == host) - 1
        others = active + min(TOGETHER, TOGETHER_MOST / max(1, count)) * (1 - active)
        # Row n: the probability that n of the others are active.
        chances = np.ones((1, len(active)))
        for j, count in enumerate(threads.tolist()):
            if hosts[j] == host and count > (j == i):
                chances = _with(chances, _binomial(count - (j == i), others[:, j]))
        speed[:, i] = np.minimum(1.0, cores[i] / (1 + np.arange(len(chances)))) @ chances
    return speed


def _binomial(count: int, chance: Floats) -> Floats:
    """Probabilities of 0 to `count` active threads, (count + 1, rows)."""
    if count == 1:
        return np.stack([1 - chance, chance])
    there = np.arange(count + 1)[:, np.newaxis]
    chance = np.clip(chance, 1e-12, _FULL)
    ways = gammaln(count + 1) - gammaln(there + 1) - gammaln(count - there + 1)
    return np.asarray(np.exp(ways + there * np.log(chance) + (count - there) * np.log1p(-chance)))


def _with(first: Floats, second: Floats) -> Floats:
    """Probabilities of the sum of two independent numbers, (values, rows)."""
    short, long = sorted((first, second), key=len)
    found = np.zeros((len(short) + len(long) - 1, long.shape[1]))
    for number, chance in enumerate(short):
        found[number : number + len(long)] += chance * long
    return found
