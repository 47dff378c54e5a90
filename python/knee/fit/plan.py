"""A plan: a simulation of the fitted network under assumptions that no formula covers. See docs/methods/fit.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from knee.errors import FitError
from knee.fit.forecast import FittedSystem, network_of
from knee.fit.scenario import Scenario, as_curve
from knee.fit.selection import Trial
from knee.queueing import (
    POPULATION_MAX,
    ArgumentError,
    Delay,
    Deterministic,
    Erlang,
    Exponential,
    HyperExponential,
    LoadDependent,
    Lognormal,
    Network,
    Queue,
    Shape,
    simulate,
    solve_closed,
)
from knee.stats.intervals import Interval

QUANTILES = (0.5, 0.95, 0.99)

ROUNDS = 100_000
"""Least number of rounds (request cycles) of a replication; with more clients than this, one round of each client."""

REPLICATIONS = 10

REPLICATIONS_MAX = 1000

ROUNDS_LEAST = 1000
"""Least number of rounds for an estimate of the 99 % quantile."""

WARMUP_QUEUE, WARMUP_AWAY, WARMUP_IRREGULAR = 1.5, 4.5, 7.0
"""Warm-up: rounds of each client before the simulation counts. (1) A full queue builds up within one round. (2) The
number of clients outside the queue settles as e^(−rounds); this term is multiplied by their share of a cycle. (3) Think
times with c² far from 1 settle more slowly. With small c², clients keep the phase in which they started. With large c²,
rare long think times take most of the time, and none is under way at the start. The third term, times c², leaves about
1 % of them."""

ROUNDS_MAX = 10**9
"""Largest number of tries in all replications together, with warm-up and refused tries."""

SHAPES = "deterministic, exponential, erlang:STAGES, hyper:C2 or lognormal:C2"

_SLOT_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Assumptions:
    """Assumptions that no measurement of throughput and mean response time determines.

    service   distribution of the service times of every slot and server
    thinking  distribution of think times, exponential by default; an error without a think time
    places    waiting places in front of the slots, or of the server without slots; None if unlimited
    """

    service: Shape = Exponential()  # noqa: RUF009 - it is frozen
    thinking: Shape | None = None
    places: int | None = None

    @property
    def exact(self) -> bool:
        """Whether the exact solution has the same assumptions. Think times of any distribution leave that solution
        unchanged."""
        return isinstance(self.service, Exponential) and self.places is None


@dataclass(frozen=True, eq=False)
class Plan:
    """A simulated scenario. Every interval covers only the noise of the simulation.

    trial             the model that has the simulated network
    instead           why the chosen model was not simulated; empty if it was
    assumptions       distributions and waiting places; `thinking` is set if clients think
    slot_ms           service time of a slot at this load, ms; None if it does not depend on the load
    exact             throughput (requests/s) and response time (ms) of the model's analytic solution
    throughput        requests/s
    response_ms       mean response time in the curve's view, and its quantiles by probability
    refused           share of rounds that ended without a waiting place; None without a limit
    utilisation       by name of each station with a queue
    warmup, rounds    rounds of each replication that were discarded, and rounds that were counted
    """

    trial: Trial
    instead: str
    assumptions: Assumptions
    slot_ms: float | None
    exact: tuple[float, float]
    throughput: Interval
    response_ms: Interval
    quantiles_ms: Mapping[float, Interval]
    refused: Interval | None
    utilisation: Mapping[str, Interval]
    warmup: int
    rounds: int
    replications: int
    seed: int


def parse_shape(option: str, text: str) -> Shape:
    """Parse a distribution from the command line: one of SHAPES. Raises FitError that names the option."""
    name, colon, parameter = text.partition(":")
    try:
        match name, bool(colon):
            case "deterministic", False:
                return Deterministic()
            case "exponential", False:
                return Exponential()
            case "erlang", True:
                return Erlang(int(parameter))
            case "hyper", True:
                return HyperExponential(float(parameter))
            case "lognormal", True:
                return Lognormal(float(parameter))
    except ArgumentError as error:
        raise FitError(f"{option} {text}: {error}") from None
    except ValueError:
        pass
    raise FitError(f"{option}: expected {SHAPES}, not {text}; C2 is the variance over the squared mean")


def simulate_plan(
    system: FittedSystem,
    scenario: Scenario,
    assumptions: Assumptions = Assumptions(),
    *,
    rounds: int | None = None,
    replications: int = REPLICATIONS,
    seed: int = 0,
) -> Plan:
    """Simulate a scenario in the network of the chosen model, or of the best model with stations.

    A flow-equivalent station gives the rate of all slots, not the service time of one. So the simulation has one server
    a slot, with the service time that reproduces the model's throughput at this load. The delay outside is constant. A
    client starts by thinking, and thinks again if it finds no place.

    Raises FitError if no model has stations to simulate, an argument is invalid, or the simulation would take more than
    ROUNDS_MAX tries. Raises QueueingError if :func:`knee.queueing.simulate` rejects the network.
    """
    customers, curve = round(scenario.customers), system.selection.curve
    _refuse(scenario, assumptions, rounds, replications, seed)
    trial, network, slot_ms, instead = _simulated(system, scenario)
    throughput, response_ms = (float(each[0]) for each in trial.fit.predict(as_curve(curve, [scenario])))
    thinking = assumptions.thinking or Exponential()
    delay = next(station for station in network.stations if isinstance(station, Delay))
    queues = [station for station in network.stations if isinstance(station, Queue)]
    outside_ms = float(delay.service_time)  # type: ignore[arg-type]
    away = min(1.0, throughput * (scenario.think_ms + outside_ms) / 1000 / customers)
    rounds = max(ROUNDS, customers) if rounds is None else rounds
    settling = WARMUP_IRREGULAR * thinking.scv if thinking.scv > 1 else WARMUP_AWAY
    settled = customers * (WARMUP_QUEUE + settling * away) / min(1.0, thinking.scv)
    warmup = math.ceil(max(settled, rounds / 10))
    limit = None if assumptions.places is None else queues[0].servers + assumptions.places
    _refuse_long(network, customers, limit, throughput, (warmup + rounds) * replications, thinking)
    shapes: dict[str, Shape] = {station.name: assumptions.service for station in queues}
    if scenario.think_ms:
        shapes[delay.name] = Deterministic()
        shift = -outside_ms if curve.view == "middleware" else 0.0
    else:
        # A refused client also spends the delay outside before its next try, so the think time includes that delay.
        network, thinking = Network(queues, outside_ms), Deterministic()
        shift = outside_ms if curve.view == "client" else 0.0
    found = simulate(
        network,
        populations=customers,
        service=shapes,
        thinking=thinking,
        places=None if limit is None else {queues[0].name: limit},
        rounds=rounds,
        warmup=warmup,
        replications=replications,
        seed=seed,
        level=system.level,
    )
    return Plan(
        trial=trial,
        instead=instead,
        assumptions=replace(assumptions, thinking=thinking if scenario.think_ms else None),
        slot_ms=slot_ms,
        exact=(throughput, response_ms),
        throughput=found.throughput.interval(0).scaled(1000),
        response_ms=found.response_time.interval(0).scaled(1, shift),
        quantiles_ms={share: found.response_quantile(share).interval(0).scaled(1, shift) for share in QUANTILES},
        refused=None if limit is None else found.lost.interval(0),
        utilisation={
            station.name: found.utilisation.interval(found.stations.index(station.name)) for station in queues
        },
        warmup=warmup,
        rounds=rounds,
        replications=replications,
        seed=seed,
    )


def _refuse(scenario: Scenario, assumptions: Assumptions, rounds: int | None, replications: int, seed: int) -> None:
    thinking, places = assumptions.thinking, assumptions.places
    for name, value, least, most in (
        ("places", places, 0, POPULATION_MAX),
        ("rounds", rounds, ROUNDS_LEAST, ROUNDS_MAX),
        ("replications", replications, 2, REPLICATIONS_MAX),
        ("seed", seed, 0, 2**64 - 1),
    ):
        if value is not None and not (least <= value <= most and int(value) == value):
            raise FitError(f"{name}: expected a whole number from {least:,} to {most:,}, not {value:,}")
    if thinking is not None and not scenario.think_ms:
        raise FitError("thinking: a distribution needs a think time: set one with --set think_ms=…")
    if thinking is not None and thinking.scv == 0:
        raise FitError(
            "thinking: with constant think times the result depends on when each client starts, which no measurement "
            "shows: choose a distribution with some spread, such as erlang:20"
        )


def _refuse_long(
    network: Network, customers: int, limit: int | None, throughput: float, rounds: int, thinking: Shape
) -> None:
    """Raise FitError if the simulation would take more than ROUNDS_MAX tries, as with many refused clients that retry
    soon."""
    delay = next(station for station in network.stations if isinstance(station, Delay))
    away_ms = float(network.think_times[0]) + float(delay.service_time)  # type: ignore[arg-type]
    tries = rounds
    if limit is not None and customers > limit:
        tries = round(rounds * max(1.0, 1000 * (customers - limit) / away_ms / throughput))
    if tries > ROUNDS_MAX:
        refused = (
            f", because most refused clients retry after {away_ms:,.3g} ms: give clients a longer think time, more "
            "places,"
            if tries > rounds
            else ": take"
        )
        spread = "" if thinking.scv == 1 else f", or think times with {'less' if thinking.scv > 1 else 'more'} spread"
        raise FitError(
            f"the simulation would take about {tries:,} tries, and {ROUNDS_MAX:,} are allowed{refused} fewer "
            f"rounds or replications{spread}"
        )


def _simulated(system: FittedSystem, scenario: Scenario) -> tuple[Trial, Network, float | None, str]:
    """The trial to simulate, its network with one server a slot, the service time of a slot in ms if it depends on the
    load, and why the chosen model is not simulated (empty if it is)."""
    chosen, reasons = system.selection.chosen, []
    for trial in sorted(system.selection.trials, key=lambda trial: (trial is not chosen, trial.score)):
        network = network_of(trial.fit, scenario)
        if network is None:
            reasons.append(f"the {trial.model.name} has no stations")
            continue
        flow = next((station for station in network.stations if isinstance(station, LoadDependent)), None)
        if flow is None:
            return trial, network, None, "".join(reasons[:1])
        if math.isfinite(scenario.slots):
            slots, each_ms = _slots_of(network, flow, round(scenario.slots), round(scenario.customers))
            return trial, slots, each_ms, "".join(reasons[:1])
        reasons.append(f"the {trial.model.name} needs the number of slots, in a column workers")
    raise FitError(f"there is no network to simulate: {'; '.join(reasons)}")


def _slots_of(network: Network, flow: LoadDependent, slots: int, customers: int) -> tuple[Network, float]:
    """The network with equal servers in place of the flow-equivalent station, and their service time in ms. Both
    networks have the same throughput for `customers`."""
    from scipy.optimize import brentq

    wanted = solve_closed(network, customers).throughput[-1]

    def with_slots(each_ms: float) -> Network:
        queue = Queue(flow.name, each_ms, servers=slots)
        return replace(network, stations=[queue if station is flow else station for station in network.stations])

    def excess(each_ms: float) -> float:
        return float(solve_closed(with_slots(each_ms), customers).throughput[-1] / wanted - 1)

    # The service time lies between that of one busy slot and that of all busy slots.
    alone, slowest = 1 / flow.rates[0], len(flow.rates) / flow.rates[-1]
    if excess(slowest) > -_SLOT_TOLERANCE:
        each_ms = slowest
    elif excess(alone) < _SLOT_TOLERANCE:
        each_ms = alone
    else:
        each_ms = float(brentq(excess, alone, slowest, xtol=_SLOT_TOLERANCE * alone))
    return with_slots(each_ms), each_ms
