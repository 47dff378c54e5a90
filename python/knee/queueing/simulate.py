"""A discrete-event simulator of the solvers' networks, and of finite queues, forks and other distributions.

The kernel is in crates/kernels. Docs: docs/methods/simulation.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from knee import _kernels
from knee.queueing.arguments import checked_whole
from knee.queueing.closed import checked_population
from knee.queueing.errors import ArgumentError, QueueingError
from knee.queueing.network import Delay, Floats, LoadDependent, Network, Queue, Station, refuse_timeless
from knee.queueing.open import UNBOUNDED, checked_rates, refuse_ambiguous, refuse_unstable
from knee.queueing.rounds import Forks, Rounds, per_class, plan_rounds
from knee.queueing.shapes import Exponential, KernelShape, Shape
from knee.queueing.simulation import Estimates, Simulation
from knee.queueing.solution import servers
from knee.stats.intervals import LEVEL
from knee.stats.mser5 import mser5

#: One shape for every class, or one for each.
ShapePerClass = Shape | Sequence[Shape]

Number = TypeVar("Number", int, float)

#: Default number of observed rounds.
ROUNDS = 100_000
REPLICATIONS_MAX = 10_000
ROUNDS_MAX = 10_000_000_000
PLACES_MAX = 2**32 - 2
PLACES_UNLIMITED = 2**32 - 1
SEED_MAX = 2**64 - 1
#: Largest last bit of the clock, as a share of the demand of a round.
CLOCK_TOLERANCE = 1e-3

PILOTS = 5
# First of the streams that no replication uses.
PILOTS_FIRST_STREAM = 2**32


def simulate(
    network: Network,
    *,
    populations: int | Sequence[int | None] | None = None,
    arrival_rates: float | Sequence[float | None] | None = None,
    service: Mapping[str, ShapePerClass] | None = None,
    thinking: ShapePerClass = Exponential(),  # noqa: B008 - it is frozen
    arrivals: ShapePerClass = Exponential(),  # noqa: B008 - it is frozen
    places: Mapping[str, int] | None = None,
    blocking: Collection[str] = (),
    priorities: Mapping[str, Sequence[float]] | None = None,
    forks: Forks | Mapping[str, Forks] = (),
    routing: ArrayLike | Mapping[str, ArrayLike] | None = None,
    rounds: int | None = None,
    time: float | None = None,
    warmup: float | None = None,
    replications: int = 10,
    seed: int = 0,
    level: float = LEVEL,
) -> Simulation:
    """Simulates a network in independent replications, on all processors.

    A round of a customer visits the network's stations in their order, each ⌊V⌋ times, and once more with probability
    V − ⌊V⌋; or it follows `routing`. Queues serve by their discipline, and load-dependent stations first come, first
    served. Closed customers start thinking, and stations empty. A class without customers or arrivals has no
    throughput, and NaN for its times.

    Parameters
    ----------
    populations
        N_c from 0 of each closed class, None for an open one; one number for the only class.
    arrival_rates
        λ_c from 0 of each open class, None for a closed one; one number for the only class.
    service
        By station, the distribution of service times; exponential by default. At load-dependent stations it is the
        distribution of the work, which is served at the current rate.
    thinking, arrivals
        The shapes of think times and of the times between arrivals.
    places
        By station, its capacity, including customers in service. A full station refuses arrivals. A refused customer
        loses its round, and leaves (open) or thinks before its next try (closed).
    blocking
        Stations with `places` for which customers wait instead (blocking after service; Perros 1994): a customer keeps
        its server, busy, until there is a place. Customers from outside wait there, within their response time. Not
        with `forks`, processor sharing and load-dependent stations.
    priorities
        By station, a queue with discipline "fcfs": a number for each class. The lowest is served first, without
        interrupting a service (head of the line; Cobham 1954), and equal ones in the order of arrival.
    forks
        Groups of stations that siblings of a customer visit at the same time. A group has the place of its first
        station in the network. The customer continues when the last sibling is done. If a sibling is refused, the
        others complete their work, and then the round is lost. For all classes, or by class.
    routing
        P_ij, the probability to go from i to j. The first row and column are the outside, the others the stations in
        order; a fork counts as its first station, (K + 1, K + 1). For all classes, or by class; other classes visit the
        stations in order. Its visits must equal those of the network.
    rounds
        Completed rounds of all classes that each replication observes; 100,000 unless `time` is given. The simulation
        stops with an error if over a million rounds are lost, and over 1000 for each completed one.
    time
        Observed time of each replication, instead of `rounds`; only then may a network be unstable.
    warmup
        Warm-up of each replication, in rounds or, with `time`, in time. By default MSER-5 (White 1997) determines it
        from the mean of five pilot replications.
    replications
        R; one gives no intervals.
    seed
        Seed of the random numbers, 0 to 2⁶⁴ − 1. Replication i has its own stream, so the results depend on the seed
        alone. They may change with the version of this package.
    level
        Level of the confidence intervals.

    Raises
    ------
    ArgumentError
        For any invalid argument.
    UnstableError
        Without `time`, for the first station without a limit at which the arrivals of open classes exceed its capacity.
    QueueingError
        If pilots find no steady state, customers wait for each other's places for ever, nearly all rounds are lost
        (without `time`), more than 2²⁴ customers and siblings are present at once, or a replication takes more than 2³⁵
        events.

    References
    ----------
    Law & Kelton (2000), ch. 9; Jain (1991), ch. 24–26.
    """
    customers, rates = _populations(network, populations, arrival_rates), _rates(network, arrival_rates)
    limits = _places(network, places or {}, blocking, customers)
    levels = _levels(network, priorities or {})
    way = plan_rounds(network, forks, routing)
    _refuse_blocking(network, blocking, way)
    closed = [population is not None for population in customers]
    takes = network.think_times + network.demands.sum(axis=0)
    refuse_timeless(np.array(network.classes)[closed].tolist(), takes[closed])
    if time is None:
        _refuse_overload(network, rates, limits, blocking)
    observed, in_time = _length(rounds, time), time is not None
    _refuse_run(warmup, time, replications, seed, level)

    stations = [
        (*_station(station, limit), levels[station.name], station.name in blocking)
        for station, limit in zip(network.stations, limits, strict=True)
    ]
    classes = _classes(network, way, customers, rates, service or {}, thinking, arrivals)

    def run(first_stream: int, count: int, cut: float, *, has_series: bool) -> list[_Replication]:
        try:
            return _kernels.simulate(
                stations,
                way.steps,
                classes,
                seed=int(seed),
                first_stream=first_stream,
                replications=count,
                warmup=cut,
                observed=observed,
                in_time=in_time,
                has_series=has_series,
            )
        except _kernels.LostError as error:
            lost, completed = error.args
            raise QueueingError(
                f"{100 * lost / (lost + completed):.7g} % of the rounds were lost, {lost:,} while {completed:,} were "
                "completed: this many rounds would take too long; give time= instead of rounds, or more places"
            ) from None
        except ValueError as error:
            raise QueueingError(str(error)) from None

    if not any(customers) and not rates.any():
        # No customer ever comes, so any time shows the same.
        observed, in_time = 1.0, True
        return _simulation(network, 0.0, run(0, int(replications), 0.0, has_series=False), level)
    if warmup is None:
        warmup = _found_warmup(run(PILOTS_FIRST_STREAM, PILOTS, 0.0, has_series=True), in_time)
    result = _simulation(network, warmup, run(0, int(replications), warmup, has_series=False), level)
    _refuse_coarse(network, float(result.duration.max()) * (1 + warmup / observed))
    return result


_Replication = tuple[float, bytes, bytes, bytes, list[bytes], tuple[int, bytes, bytes] | None]


def _simulation(network: Network, warmup: float, observed: Sequence[_Replication], level: float) -> Simulation:
    stations, classes = len(network.stations), len(network.classes)
    duration = np.array([one[0] for one in observed])
    completed, lost, response = np.moveaxis(
        np.array([np.frombuffer(one[1]).reshape(classes, 3) for one in observed]), -1, 0
    )
    came, went, refused, stay, area = np.moveaxis(
        np.array([np.frombuffer(one[2]).reshape(stations, classes, 5) for one in observed]), -1, 0
    )
    busy = np.array([np.frombuffer(one[3]) for one in observed])
    visits = per_class(network, [station.visits for station in network.stations])
    at_once = np.where([isinstance(station, LoadDependent) for station in network.stations], 1.0, servers(network))
    with np.errstate(divide="ignore", invalid="ignore"):
        visit = np.where(visits > 0, stay / went, 0.0)
        return Simulation(
            network.names,
            tuple(network.classes),
            warmup,
            duration,
            throughput=Estimates.of(completed / duration[:, np.newaxis], level),
            lost=Estimates.of(lost / (completed + lost), level),
            response_time=Estimates.of(response / completed, level),
            residence_time=Estimates.of(visits * visit, level),
            queue_length=Estimates.of(area / duration[:, np.newaxis, np.newaxis], level),
            utilisation=Estimates.of(busy / duration[:, np.newaxis] / at_once, level),
            refused=Estimates.of(refused / (came + refused), level),
            histograms=[[np.frombuffer(one).reshape(-1, 3) for one in replication[4]] for replication in observed],
        )


def _found_warmup(pilots: Sequence[_Replication], in_time: bool) -> float:
    """The warm-up that MSER-5 finds in the mean of the pilots' response times. Raises QueueingError without a steady
    state."""
    series = [pilot[5] for pilot in pilots if pilot[5] is not None]
    # With equal times, pilots have different numbers of rounds, and windows of more or fewer rounds.
    window = max(rounds for rounds, _, _ in series)
    means, ends = [], []
    for rounds, mean, end in series:
        joined = window // rounds
        count = len(mean) // 8 // joined
        means.append(np.frombuffer(mean)[: count * joined].reshape(count, joined).mean(axis=1))
        ends.append(np.frombuffer(end)[joined - 1 :: joined][:count])
    shortest = min(len(mean) for mean in means)
    truncation = mser5(np.mean([mean[:shortest] for mean in means], axis=0))
    if truncation.windows is None:
        raise ArgumentError("warmup", "a run is too short for MSER-5: simulate 20 rounds or more, or give a warmup")
    if truncation.boundary:
        raise QueueingError(
            "response times still drift in the second half of the pilot replications: simulate more rounds or time, "
            "or give warmup"
        )
    if not in_time:
        return truncation.windows * window
    return float(np.mean([end[truncation.windows - 1] for end in ends])) if truncation.windows else 0.0


def _classes(
    network: Network,
    way: Rounds,
    populations: Sequence[int | None],
    rates: Floats,
    service: Mapping[str, ShapePerClass],
    thinking: ShapePerClass,
    arrivals: ShapePerClass,
) -> list[_kernels.Class]:
    think_shapes = _shape_of_each("thinking", thinking, network)
    arrival_shapes = _shape_of_each("arrivals", arrivals, network)
    _refuse_strangers("service", service, network)
    shapes = [_shape_of_each("service", service.get(name, Exponential()), network) for name in network.names]
    times = per_class(network, [station.service_time for station in network.stations])
    classes: list[_kernels.Class] = []
    for index, population in enumerate(populations):
        if rates[index] > 0:
            outside = (1 / float(rates[index]), arrival_shapes[index])
        else:
            outside, population = (float(network.think_times[index]), think_shapes[index]), population or 0
        at_stations = [(float(row[index]), each[index]) for row, each in zip(times, shapes, strict=True)]
        route = way.routes[index]
        classes.append((population, outside, at_stations, route.steps, route.ways))
    return classes


def _station(station: Station, limit: int) -> tuple[int, list[float], int, bool]:
    match station:
        case Queue():
            return station.servers, [], limit, station.discipline == "ps"
        case Delay():
            return 0, [], limit, False
        case LoadDependent():
            return 1, station.speeds(UNBOUNDED) or [], limit, False
        case _:
            raise ArgumentError("network", f"{station.name!r}: expected a Queue, Delay or LoadDependent station")


def _populations(
    network: Network,
    populations: int | Sequence[int | None] | None,
    arrival_rates: float | Sequence[float | None] | None,
) -> list[int | None]:
    """N_c; None for open classes."""
    each = _each("populations", populations, network)
    refuse_ambiguous(network.classes, each, _each("arrival_rates", arrival_rates, network))
    return [None if value is None else checked_population("populations", value) for value in each]


def _rates(network: Network, arrival_rates: float | Sequence[float | None] | None) -> Floats:
    """λ_c; 0 for closed classes."""
    each = _each("arrival_rates", arrival_rates, network)
    rates = np.zeros(len(each))
    open_ = [index for index, rate in enumerate(each) if rate is not None]
    if open_:
        names = [network.classes[index] for index in open_]
        rates[open_] = checked_rates("arrival_rates", [rate for rate in each if rate is not None], names)
    return rates


def _each(argument: str, values: Number | Sequence[Number | None] | None, network: Network) -> list[Number | None]:
    """A number for each class, or for the only one; None for classes of the other kind."""
    each = list(values) if isinstance(values, Sequence) else [values]
    if values is None:
        each *= len(network.classes)
    if len(each) != len(network.classes):
        raise ArgumentError(argument, f"expected one for each of {list(network.classes)}, not {values}")
    return each


def _shape_of_each(argument: str, shapes: ShapePerClass, network: Network) -> list[KernelShape]:
    each = list(shapes) if isinstance(shapes, Sequence) else [shapes] * len(network.classes)
    if len(each) != len(network.classes):
        raise ArgumentError(argument, f"expected a shape, or one for each of {list(network.classes)}, not {shapes}")
    return [shape.for_kernel() for shape in each]


def _levels(network: Network, priorities: Mapping[str, Sequence[float]]) -> dict[str, list[int]]:
    """By station, the level of each class; empty without priorities."""
    _refuse_strangers("priorities", priorities, network)
    levels: dict[str, list[int]] = {name: [] for name in network.names}
    for station in network.stations:
        if station.name in priorities:
            if not isinstance(station, Queue) or station.discipline != "fcfs":
                raise ArgumentError("priorities", f"{station.name!r} is no queue with discipline='fcfs'")
            numbers = np.array(priorities[station.name], dtype=np.float64)
            if numbers.shape != (len(network.classes),) or not np.isfinite(numbers).all():
                raise ArgumentError("priorities", f"expected a number for each of {list(network.classes)}")
            levels[station.name] = np.unique(numbers, return_inverse=True)[1].tolist()
    return levels


def _refuse_blocking(network: Network, blocking: Collection[str], way: Rounds) -> None:
    if not blocking:
        return
    others = [
        station.name
        for station in network.stations
        if not (isinstance(station, Delay) or (isinstance(station, Queue) and station.discipline == "fcfs"))
    ]
    if others or any(len(step) > 1 for step in way.steps):
        problem = f"not with {', '.join(map(repr, others))}" if others else "not with forks"
        raise ArgumentError("blocking", f"expected delays and queues with discipline='fcfs' only, {problem}")


def _places(
    network: Network, places: Mapping[str, int], blocking: Collection[str], populations: Sequence[int | None]
) -> list[int]:
    """The capacity of each station."""
    _refuse_strangers("places", places, network)
    if not all(one in places for one in blocking):
        raise ArgumentError("blocking", f"expected stations that have places, {list(places)}, not {blocking!r}")
    limits = [PLACES_UNLIMITED] * len(network.stations)
    visits = per_class(network, [station.visits for station in network.stations])
    for index, station in enumerate(network.stations):
        if station.name not in places:
            continue
        limit, least = places[station.name], station.servers if isinstance(station, Queue) else 1
        if isinstance(station, Delay):
            raise ArgumentError("places", f"{station.name!r} is a delay, and has no places to wait")
        limits[index] = checked_whole("places", limit, least, PLACES_MAX)
        for name, population, think, count in zip(
            network.classes, populations, network.think_times, visits[index], strict=True
        ):
            if population is not None and think == 0 and count > 0 and station.name not in blocking:
                raise ArgumentError("places", f"{name!r} would retry {station.name!r} forever: give it a think_time")
    return limits


def _refuse_strangers(argument: str, named: Mapping[str, object], network: Network) -> None:
    unknown = [name for name in named if name not in network.names]
    if unknown:
        raise ArgumentError(argument, f"no station {unknown[0]!r}: expected one of {list(network.names)}")


def _refuse_coarse(network: Network, until: float) -> None:
    """Raise ArgumentError for times below the resolution of the clock's 53 bits: they would become zero or too long."""
    for name, time in zip(network.classes, network.demands.sum(axis=0), strict=True):
        # NaN if the clock overflowed.
        if time > 0 and not np.spacing(until) <= CLOCK_TOLERANCE * time:
            raise ArgumentError(
                "network",
                f"a round of {name!r} takes {time:g}, below the resolution of a clock that reaches {until:g}: simulate "
                "fewer rounds, or times of similar size",
            )


def _refuse_overload(network: Network, rates: Floats, limits: Sequence[int], blocking: Collection[str]) -> None:
    """Raises UnstableError. The check ignores losses before a station, and servers that wait for a place."""
    for station, offered, limit in zip(network.stations, network.demands @ rates, limits, strict=True):
        speeds = station.speeds(UNBOUNDED)
        if speeds is not None and (limit == PLACES_UNLIMITED or station.name in blocking):
            refuse_unstable(station.name, offered, speeds[-1])


def _length(rounds: int | None, time: float | None) -> float:
    if time is None:
        return float(checked_whole("rounds", ROUNDS if rounds is None else rounds, 1, ROUNDS_MAX))
    if rounds is not None:
        raise ArgumentError("time", "expected rounds or time, not both")
    if not 0 < time < math.inf:
        raise ArgumentError("time", f"expected a finite time above 0, not {time}")
    return float(time)


def _refuse_run(warmup: float | None, time: float | None, replications: int, seed: int, level: float) -> None:
    if warmup is not None and time is None:
        checked_whole("warmup", warmup, 0, ROUNDS_MAX)
    elif warmup is not None and not 0 <= warmup < math.inf:
        raise ArgumentError("warmup", f"expected a finite time from 0, not {warmup}")
    checked_whole("replications", replications, 1, REPLICATIONS_MAX)
    checked_whole("seed", seed, 0, SEED_MAX)
    if not 0 < level < 1:
        raise ArgumentError("level", f"expected more than 0 and less than 1, not {level}")
