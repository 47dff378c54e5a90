"""The candidate models, from the simplest to the most specific.

Each predicts throughput and response time of N customers from a few parameters, all positive. Times are milliseconds,
throughputs requests/s. Every model but the universal scalability law has `outside_ms`, a delay without a queue between
client and middleware.

Predictions are made for several parameter vectors at once: `values` of shape (…, p) give results of shape (…, n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import numpy as np

from knee.fit.curve import Curve
from knee.queueing import Delay, LoadDependent, Network, Queue, erlang_c
from knee.queueing.closed import closed_throughput
from knee.stats.intervals import Floats

_STATES_MAX = 1_000_000
"""States, of all parameter vectors together, that the load-dependent network solves at once."""

_LIGHT = 1e-3
"""Milliseconds that represent no delay: parameters are fitted as logarithms, so zero is impossible."""


class Model(ABC):
    """A model of a closed loop with positive parameters.

    name         the usual name in the literature
    parameters   their names, with their units
    needs_slots  whether it takes the number of worker slots
    falls        whether throughput falls towards zero with many clients
    """

    name: str
    parameters: tuple[str, ...]
    needs_slots = False
    falls = False

    @abstractmethod
    def starts(self, curve: Curve) -> list[Floats]:
        """Starting points of the search, estimated from the smallest and the largest load: one for each resource that
        may limit the throughput."""

    def network(self, values: Floats, customers: int, think_ms: float, slots: float) -> Network | None:
        """The closed network of the model for up to `customers`; None if the model has no stations. Times are in
        milliseconds; `slots` is NaN if unknown.
        """
        return None

    @abstractmethod
    def cycle_ms(self, values: Floats, customers: Floats, think_ms: float, slots: float) -> Floats:
        """Cycle time N / X in ms for every whole number N of `customers`; `slots` is NaN if unknown."""

    def predict(self, values: Floats, curve: Curve) -> tuple[Floats, Floats]:
        """Throughput (requests/s) and response time (ms) of every row of a curve; the curve's measurements are not
        used."""
        cycle = np.empty((*values.shape[:-1], len(curve)))
        for think_ms, slots, rows in curve.alike:
            cycle[..., rows] = self.cycle_ms(values, curve.customers[rows], think_ms, slots)
        outside = self.outside_ms(values) if curve.view == "middleware" else 0.0
        return 1000 * curve.customers / cycle, np.maximum(cycle - (curve.think_ms + outside), 1e-9)

    def outside_ms(self, values: Floats) -> Floats:
        """Delay in ms between client and middleware, (…, 1): the part of a client's cycle outside the middleware,
        without think time."""
        return np.asarray(columns(values)[self.parameters.index("outside_ms")])


def columns(values: Floats) -> Floats:
    """Each parameter with shape (…, 1), to combine with a row of client counts."""
    return np.moveaxis(values, -1, 0)[..., np.newaxis]


def _light_ms(curve: Curve) -> float:
    """Mean response time in ms at the fewest clients; in the middleware's view, with the delay between client and
    middleware."""
    least = curve.customers == curve.customers.min()
    cycle = 1000 * curve.customers[least] / curve.throughput[least]
    return float(np.mean(cycle - curve.think_ms[least]))


def _capacity(curve: Curve) -> float:
    return float(curve.throughput.max()) / 1000


class OpenMM1(Model):
    """M/M/1 (Kleinrock 1975, §3.2) with the arrival rate from the interactive law: N = X (Z + outside + R(X)).

    Parameters: `outside_ms`; `service_ms`, S of the one server.
    """

    name = "M/M/1"
    parameters: tuple[str, ...] = ("outside_ms", "service_ms")

    def starts(self, curve: Curve) -> list[Floats]:
        service = 0.9 / _capacity(curve)
        return [np.array([max(_light_ms(curve) - service, _LIGHT), service])]

    def cycle_ms(self, values: Floats, customers: Floats, think_ms: float, slots: float) -> Floats:
        outside, service = columns(values)
        # X² S (Z + o) − X (Z + o + S + N S) + N = 0, with the root below 1 / S.
        delay = think_ms + outside
        middle = delay + service + customers * service
        root = np.sqrt(middle**2 - 4 * service * delay * customers)
        return np.asarray((middle + root) / 2)


class OpenMMm(Model):
    """M/M/m with m the worker slots (Kleinrock 1975, §3.5), closed by the interactive law as :class:`OpenMM1`.

    Parameters: `outside_ms`; `service_ms`, S of each server.
    """

    name = "M/M/m"
    parameters: tuple[str, ...] = ("outside_ms", "service_ms")
    needs_slots = True

    def starts(self, curve: Curve) -> list[Floats]:
        service = max(_light_ms(curve) / 2, _LIGHT)
        return [np.array([service, service])]

    def cycle_ms(self, values: Floats, customers: Floats, think_ms: float, slots: float) -> Floats:
        utilisation, waiting = _queueing(round(slots))
        response = 1 + waiting / (round(slots) * (1 - utilisation))

        def interpolated(one: Floats) -> Floats:
            # N = X (Z + outside + R(X)) rises with X, so a table of it, interpolated, gives X for each N.
            outside, service = one
            cycle = think_ms + outside + service * response
            return np.asarray(np.interp(customers, utilisation * (round(slots) / service) * cycle, cycle))

        return np.asarray(np.apply_along_axis(interpolated, -1, values))


@cache
def _queueing(servers: int) -> tuple[Floats, Floats]:
    """A table of M/M/m: utilisations, and the probability of waiting at each. Interpolation between entries is off by
    less than 1e-4.
    """
    utilisation = 1 - np.geomspace(1, 1e-9, 1000)
    return utilisation, np.array([0.0, *(erlang_c(servers, servers * float(rho)) for rho in utilisation[1:])])


class ClosedNetwork(Model):
    """A closed network: a delay, the worker slots if their number is known, and one server behind them.

    Exact solution (Buzen 1973). A request does not hold a slot while it waits for the server; in the load-dependent
    network it does. Parameters: `outside_ms`; `slot_ms`, S of each worker slot (with slots only); `server_ms`, S of the
    one server.
    """

    def __init__(self, *, slots: bool) -> None:
        self.needs_slots = slots
        self.name = "closed network with worker slots" if slots else "closed network"
        self.parameters = ("outside_ms", "slot_ms", "server_ms") if slots else ("outside_ms", "server_ms")

    def starts(self, curve: Curve) -> list[Floats]:
        server = 0.9 / _capacity(curve)
        rest = max(_light_ms(curve) - server, _LIGHT)
        if not self.needs_slots:
            return [np.array([rest, server])]
        # The bottleneck is either the server or the slots.
        slot = 0.9 * float(curve.slots.max()) / _capacity(curve)
        return [np.array([rest / 2, rest / 2, server]), np.array([rest / 2, slot, server / 10])]

    def network(self, values: Floats, customers: int, think_ms: float, slots: float) -> Network:
        outside, *slot, server = values
        stations = [Delay("outside", outside), Queue("server", server)]
        if slot:
            stations.insert(1, Queue("slots", slot[0], servers=round(slots)))
        return Network(stations, think_ms)

    def cycle_ms(self, values: Floats, customers: Floats, think_ms: float, slots: float) -> Floats:
        most, rows = int(customers.max()), customers.astype(np.int64) - 1

        def solved(one: Floats) -> Floats:
            outside, *slot, server = one.tolist()
            queues = [(slot[0], round(slots)), (server, 1)] if slot else [(server, 1)]
            return closed_throughput(most, think_ms + outside, queues)[rows]

        return np.asarray(customers / np.apply_along_axis(solved, -1, values))


class LoadDependentNetwork(Model):
    """A delay, and worker slots that slow each other down: with j busy, each takes S (1 + α max(0, j − k)).

    The slots and all resources behind them are one flow-equivalent station (Chandy, Herzog & Woo 1975) of rate j / (S
    (1 + α max(0, j − k))) up to its m slots, and constant beyond. α is the contention of Gunther's scalability law,
    here among busy slots instead of clients, so it applies to other numbers of slots. Without an onset, k is 1:
    contention starts with two busy slots. Parameters: `outside_ms`; `slot_ms`, S of a slot alone; `contention`, α;
    `onset`, k (with onset only).
    """

    def __init__(self, *, onset: bool) -> None:
        self.onset = onset
        self.name = "load-dependent network with onset" if onset else "load-dependent network"
        self.parameters = ("outside_ms", "slot_ms", "contention", "onset")[: 4 if onset else 3]

    def starts(self, curve: Curve) -> list[Floats]:
        slot = max(_light_ms(curve) / 2, _LIGHT)
        busy = slot * _capacity(curve)
        start = [slot, slot, min(1.0, max(1e-4, 1 / busy))]
        if not self.onset:
            return [np.array(start)]
        # Contention starts at the load from which throughput stops rising, or with two busy slots.
        return [np.array([*start, onset]) for onset in (max(busy, 1.0), 1.0)]

    def network(self, values: Floats, customers: int, think_ms: float, slots: float) -> Network:
        rates = self._rates(values, customers if np.isnan(slots) else min(customers, round(slots)), slots)
        return Network([Delay("outside", float(values[0])), LoadDependent("slots", rates.tolist())], think_ms)

    def cycle_ms(self, values: Floats, customers: Floats, think_ms: float, slots: float) -> Floats:
        """The same solution as :func:`knee.queueing.solve_closed`, in N steps for each count instead of N² in total.

        The number n of requests in the slots is a birth–death process with birth rate (N − n) / D and the slots' rate
        as death rate. D is the time outside the slots. This is the machine repairman model (Kleinrock 1975, §3.8) with
        state-dependent rates.
        """
        counts, place = np.unique(customers, return_inverse=True)
        most = int(counts[-1])
        if values.ndim > 1 and most * len(values) > _STATES_MAX:
            return np.stack([self.cycle_ms(one, customers, think_ms, slots) for one in values])
        rates = self._rates(values, most, slots)
        logs = np.log((think_ms + columns(values)[0]) * rates)
        cycles = np.empty((*values.shape[:-1], counts.size))
        for i, count in enumerate(counts):
            there = int(count)
            weights = np.cumsum(np.log(np.arange(count, 0, -1)) - logs[..., :there], axis=-1)
            # Probabilities relative to the most likely n, which may be zero.
            likeliest = np.maximum(0.0, weights.max(axis=-1))
            shares = np.exp(weights - likeliest[..., np.newaxis])
            served = (shares * rates[..., :there]).sum(axis=-1)
            cycles[..., i] = count * (np.exp(-likeliest) + shares.sum(axis=-1)) / served
        return cycles[..., place]

    def _rates(self, values: Floats, customers: int, slots: float) -> Floats:
        """Service rate of the slots in requests/ms with 1, …, `customers` requests present."""
        _, slot, contention, *onset = columns(values)
        busy = np.minimum(np.arange(1.0, customers + 1), np.inf if np.isnan(slots) else round(slots))
        return np.asarray(busy / (slot * (1 + contention * np.maximum(0, busy - (onset[0] if self.onset else 1.0)))))


class CollapsingNetwork(LoadDependentNetwork):
    """A delay, and k servers that lose speed with the x requests beyond k: their rate is k / (S (1 + (β x)^p)).

    Throughput falls towards zero as x^−p: with p = 1 each further request costs as much as the last (Gunther's
    coherency, for requests at the servers), with p = 2 pairs of requests disturb each other. Parameters: `outside_ms`;
    `slot_ms`, S; `servers`, k; `coherency`, β.
    """

    parameters = ("outside_ms", "slot_ms", "servers", "coherency")
    falls = True

    def __init__(self, power: int) -> None:
        self.power = power
        self.name = f"collapsing network of order {power}"

    def starts(self, curve: Curve) -> list[Floats]:
        slot, last = max(_light_ms(curve) / 2, _LIGHT), float(curve.customers.max())
        busy = max(1.0, slot * _capacity(curve))
        return [np.array([slot, slot, busy, 1 / last]), np.array([slot / 10, 2 * slot, 2 * busy, 1 / last])]

    def _rates(self, values: Floats, customers: int, slots: float) -> Floats:
        _, slot, servers, coherency = columns(values)
        busy = np.minimum(np.arange(1.0, customers + 1), np.inf if np.isnan(slots) else round(slots))
        lost = (coherency * np.maximum(0, busy - servers)) ** self.power
        return np.asarray(np.minimum(busy, servers) / (slot * (1 + lost)))


class ScalabilityLaw(Model):
    """The universal scalability law X = γ N / (1 + α (N − 1) + β N (N − 1)) (Gunther 2007, ch. 4).

    Parameters: `alone_ms`, 1 / γ, a client's whole cycle alone; `contention`, α; `coherency`, β.
    """

    name = "universal scalability law"
    parameters: tuple[str, ...] = ("alone_ms", "contention", "coherency")
    falls = True

    def starts(self, curve: Curve) -> list[Floats]:
        alone = _light_ms(curve) + float(curve.think_ms.min())
        return [np.array([alone, min(1.0, 1 / (alone * _capacity(curve))), 1e-6])]

    def cycle_ms(self, values: Floats, customers: Floats, think_ms: float, slots: float) -> Floats:
        alone, contention, coherency = columns(values)
        return np.asarray(alone * (1 + contention * (customers - 1) + coherency * customers * (customers - 1)))

    def outside_ms(self, values: Floats) -> Floats:
        return np.zeros((*values.shape[:-1], 1))


def candidates(curve: Curve, *, slots_matter: bool = False, think_matters: bool = False) -> list[Model]:
    """The models for which a curve has enough data: without any one client count, at least as many measurements as
    parameters.

    Models with fewer parameters come first. Among models with equally many, closed networks come before their
    approximations. If the number of worker slots differs, or `slots_matter` (a prediction is for another number), only
    models with slots remain. The universal scalability law has neither slots nor think times. Collapsing networks need
    a measured fall.
    """
    slots_matter |= curve.knows_slots and bool(np.ptp(curve.slots))
    one_think = not np.ptp(curve.think_ms) and not think_matters
    tried: list[tuple[Model, bool]] = [
        (ClosedNetwork(slots=False), not slots_matter),
        (OpenMM1(), not slots_matter),
        (OpenMMm(), curve.knows_slots),
        (ClosedNetwork(slots=True), curve.knows_slots),
        (LoadDependentNetwork(onset=False), curve.knows_slots or not slots_matter),
        (ScalabilityLaw(), curve.view == "client" and one_think and not slots_matter),
        (LoadDependentNetwork(onset=True), curve.knows_slots or not slots_matter),
        (CollapsingNetwork(1), curve.falls and (curve.knows_slots or not slots_matter)),
        (CollapsingNetwork(2), curve.falls and (curve.knows_slots or not slots_matter)),
    ]
    facts = curve.facts_a_point * curve.points_left
    return [model for model, suits in tried if suits and len(model.parameters) <= facts]
