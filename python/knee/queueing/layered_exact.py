"""Layered networks with product form, solved exactly.

The places of such a network are stations of a closed network (Baskett, Chandy, Muntz & Palacios 1975). No thread has
wake-ups, no stage is stretched, and no request holds a slot in front of more than one queue:

* A thread with a core of its own is a queue. A tier of the inside stage alone sends a request to any of its threads.
* A thread that has one request at most, of a slot or a customer, is a delay. The cores of a host with such threads
  alone are a processor-sharing queue with that many servers.
* The slots in front of delays are a queue with that many servers, in each pool (Kleinrock 1975, §3.8).
* The slots of one pool in front of one queue are one queue with the smaller number of servers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from knee.queueing.closed import solve_closed
from knee.queueing.network import Delay, Floats, LoadDependent, Network, Queue, Station

if TYPE_CHECKING:
    from knee.queueing.layered import Layered

STEPS_MAX = 1_000_000
"""Customers times rates of the stations: such a solution takes some ms."""


class Exact(NamedTuple):
    """The steady state. `busy` is the share of time in which a thread of each tier is active or waits for a core."""

    throughput: float
    inside: float
    outside: float
    busy: Floats


@dataclass(frozen=True)
class _Place:
    """A queue of some tiers, by index: of `number` threads, or of a host's `cores`; `work` is the demand in all."""

    tiers: list[int]
    work: float
    number: int = 1
    cores: float | None = None

    def stations(self, slots: float = math.inf) -> list[Station]:
        """Queues with at most as many customers in service as slots."""
        servers, each = min(self.cores or 1.0, slots), self.work / self.number
        names = [f"{self.tiers[0]}.{index}" for index in range(self.number)]
        if servers % 1:
            rates = [min(j, servers) / each for j in range(1, math.ceil(servers) + 1)]
            return [LoadDependent(name, rates) for name in names]
        return [Queue(name, each, servers=int(servers)) for name in names]


def solve_exactly(network: Layered, customers: float) -> Exact | None:
    """The exact solution; None without product form, and for networks beyond STEPS_MAX."""
    stages, pools, slots = (network.inside, network.outside), network.pools, network.slots
    if customers % 1 or any(tier.wakeup for tier in network.tiers) or any(stage.stretch != 1 for stage in stages):
        return None
    count, shares = int(customers), np.stack([network.shares(stage) for stage in stages])
    places = _places(network, count, shares) if np.allclose(shares.sum(axis=0), 1, rtol=1e-12, atol=0) else None
    if places is None:
        return None
    times = np.array([tier.work for tier in network.tiers])
    # Time without a queue: delays, and the work of threads that have a core and at most one request.
    free = [i for i in range(len(times)) if not any(i in place.tiers for place in places)]
    inside, outside = np.array([stage.delay for stage in stages]) + (shares * times)[:, free].sum(axis=1)
    within = [place for place in places if shares[0, place.tiers].any()]
    slotted, held = Queue("slots", 0.0), None
    if slots is None or slots >= math.ceil(count / pools) or not (within or inside):
        pools = 1
    elif not within and (pools == 1 or not places):
        slotted = Queue("slots", inside, servers=slots)
    elif len(within) == pools == within[0].number == 1 and not inside and not shares[1, within[0].tiers].any():
        (held,) = within
    else:
        return None
    each = [place.stations(slots if place is held and slots else math.inf) for place in places]
    delay = Delay("delay", outside if slotted.service_time else inside + outside)
    closed = Network([delay, slotted, *chain.from_iterable(each)], network.think_time)
    if count * sum(len(station.speeds(count) or ()) for station in closed.stations) > STEPS_MAX:
        return None
    low, more = divmod(count, pools)
    solution = solve_closed(closed, low + (more > 0))
    found = solution.at(low)
    throughput = (pools - more) * found.throughput + more * float(solution.throughput[-1])
    active = times.copy()
    for place, stations in zip(places, each, strict=True):
        residence = sum(found[station.name].residence_time for station in stations)
        if place is held and slots:
            chances = found[stations[0].name].queue_length_probabilities
            residence = float(np.minimum(np.arange(len(chances)), slots) @ chances) / throughput
        times[place.tiers] *= residence / place.work
        if place.cores:
            active[place.tiers] = times[place.tiers]
    inside, outside = np.array([inside, outside]) + np.delete(shares * times, free, axis=1).sum(axis=1)
    return Exact(throughput, inside, outside, np.minimum(1.0, throughput * active / network.threads))


def _places(network: Layered, count: int, shares: Floats) -> list[_Place] | None:
    """Where requests queue besides for slots; None if a thread with a queue shares its core, or its requests are of
    several classes."""
    found = []
    for host, cores in network.cores.items():
        tiers = [i for i, tier in enumerate(network.tiers) if tier.host == host]
        # A thread of the outside stage serves always the same customers.
        sticky = [i for i in tiers if shares[1, i]]
        alone = [i for i in tiers if network.tiers[i].by_slot or (i in sticky and network.tiers[i].threads >= count)]
        if any(network.tiers[i].by_slot for i in sticky):
            return None
        if min(count, sum(min(network.tiers[i].threads, count) for i in tiers)) > cores:
            if alone != tiers:
                return None
            found.append(_Place(tiers, sum(network.tiers[i].work for i in tiers), cores=cores))
            continue
        for i in set(tiers) - set(alone):
            tier = network.tiers[i]
            if tier.threads > 1 and i in sticky:
                return None
            found.append(_Place([i], tier.work, tier.threads))
    return found
