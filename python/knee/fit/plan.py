"""A plan: the network that was fitted, simulated with what no formula covers. Docs: docs/methods/fit.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scipy.optimize import brentq

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
"""Of a replication, at the least: with more clients one round of each."""

REPLICATIONS = 10

REPLICATIONS_MAX = 1000

ROUNDS_LEAST = 1000
"""Fewer say nothing of a quantile of 99 %."""

WARMUP_QUEUE, WARMUP_AWAY, WARMUP_IRREGULAR = 1.5, 4.5, 7.0
"""Rounds of each client before anything is counted: a full queue takes one to be met by all; the number of clients that
are away settles as e to the minus rounds, so the second is times the share of a cycle that they are. It settles slower
the further c² of think times is from 1. Below, clients stay in step with how they started. Above, few long times take
the most time, and at first no client is in one: the third, times c², leaves about 1 % of them to come."""

ROUNDS_MAX = 10**9
"""Tries of all replications together, warm-up and refused ones included."""

SHAPES = "deterministic, exponential, erlang:STAGES, hyper:C2 or lognormal:C2"

_SLOT_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Assumptions:
    """What no measurement of throughput and mean response time says.

    service   shape of what every slot and server takes about its mean
    thinking  the same of think times, exponential unless given; refused without a think time
    places    to wait in front of the slots, or of the server where there are none; None without a limit
    """

    service: Shape = Exponential()  # noqa: RUF009 - it is frozen
    thinking: Shape | None = None
    places: int | None = None

    @property
    def exact(self) -> bool:
        """Whether the exact solution is of the same: constant delays and think times of any shape leave it as it is."""
        return isinstance(self.service, Exponential) and self.places is None


@dataclass(frozen=True, eq=False)
class Plan:
    """A simulated scenario. Every interval is of the simulation's own noise, and of nothing else.

    trial             the model whose network this is
    instead           why not the chosen model's, in words; empty where it is
    assumptions       about times and places, the think times' shape included where clients think
    slot_ms           what a slot takes with as many busy as there are then; None where its time is the same always
    exact             throughput (requests/s) and response time (ms) that the model's own solution has
    throughput        requests/s
    response_ms       as the curve's view sees it, and its quantiles by probability
    refused           share of the rounds that found no place; None where there was one for everybody
    utilisation       of every station with a queue, by name
    warmup, rounds    of each replication: what was left out, and what was counted
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
    """A shape as a person writes it: one of SHAPES. Raises FitError, naming the option."""
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
    """Simulate a scenario in the network of the chosen model, or of the best that has stations.

    Slots that slow each other down are simulated as so many servers, each with the service time that gives the model's
    own throughput at this load: a flow-equivalent station knows how much all of them do, not how long one takes. The
    delay outside is taken for constant. A client starts with thinking. A client that finds no place thinks again.

    Raises
    ------
    FitError
        Where no model has stations that can be simulated, for an argument that cannot be right, and for a simulation
        of more than ROUNDS_MAX tries.
    QueueingError
        What :func:`knee.queueing.simulate` refuses.
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
        # A client that finds no place takes the way again before it tries again: that is its thinking.
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
        throughput=_ends(found.throughput.interval(0), factor=1000),
        response_ms=_ends(found.response_time.interval(0), shift=shift),
        quantiles_ms={share: _ends(found.response_quantile(share).interval(0), shift=shift) for share in QUANTILES},
        refused=None if limit is None else found.lost.interval(0),
        utilisation={
            station.name: found.utilisation.interval(found.stations.index(station.name)) for station in queues
        },
        warmup=warmup,
        rounds=rounds,
        replications=replications,
        seed=seed,
    )


def _ends(interval: Interval, *, factor: float = 1.0, shift: float = 0.0) -> Interval:
    """An interval in another unit, or later by so much."""
    low, high = (None if end is None else end * factor + shift for end in (interval.low, interval.high))
    return replace(interval, estimate=interval.estimate * factor + shift, low=low, high=high)


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
        raise FitError("thinking: there is no think time to have a shape: set one with --set think_ms=…")
    if thinking is not None and thinking.scv == 0:
        raise FitError(
            "thinking: clients that all think equally long stay in step with how they started, which no measurement "
            "says: give them some spread, as erlang:20 has"
        )


def _refuse_long(
    network: Network, customers: int, limit: int | None, throughput: float, rounds: int, thinking: Shape
) -> None:
    """Where nearly all are refused and come again soon, a completed round takes many tries."""
    delay = next(station for station in network.stations if isinstance(station, Delay))
    away_ms = float(network.think_times[0]) + float(delay.service_time)  # type: ignore[arg-type]
    tries = rounds
    if limit is not None and customers > limit:
        tries = round(rounds * max(1.0, 1000 * (customers - limit) / away_ms / throughput))
    if tries > ROUNDS_MAX:
        refused = (
            f", as most of those without a place come again after {away_ms:,.3g} ms: give clients a longer think time, "
            "more places,"
            if tries > rounds
            else ": take"
        )
        spread = "" if thinking.scv == 1 else f", or think times of {'less' if thinking.scv > 1 else 'more'} spread"
        raise FitError(
            f"the simulation would take about {tries:,} tries, and {ROUNDS_MAX:,} are allowed{refused} fewer "
            f"rounds or replications{spread}"
        )


def _simulated(system: FittedSystem, scenario: Scenario) -> tuple[Trial, Network, float | None, str]:
    """The trial to simulate, its network with slots one by one, what one takes where that depends on the load, and why
    it is not the chosen one."""
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
        reasons.append(f"the {trial.model.name} does not know how many slots there are, without a column workers")
    raise FitError(f"there is no network to simulate: {'; '.join(reasons)}")


def _slots_of(network: Network, flow: LoadDependent, slots: int, customers: int) -> tuple[Network, float]:
    """Equal servers in the place of a flow-equivalent station, with the same throughput for so many customers."""
    wanted = solve_closed(network, customers).throughput[-1]

    def with_slots(each_ms: float) -> Network:
        queue = Queue(flow.name, each_ms, servers=slots)
        return replace(network, stations=[queue if station is flow else station for station in network.stations])

    def excess(each_ms: float) -> float:
        return float(solve_closed(with_slots(each_ms), customers).throughput[-1] / wanted - 1)

    # One alone is fastest, and slowest are as many as there can be.
    alone, slowest = 1 / flow.rates[0], len(flow.rates) / flow.rates[-1]
    if excess(slowest) > -_SLOT_TOLERANCE:
        each_ms = slowest
    elif excess(alone) < _SLOT_TOLERANCE:
        each_ms = alone
    else:
        each_ms = float(brentq(excess, alone, slowest, xtol=_SLOT_TOLERANCE * alone))
    return with_slots(each_ms), each_ms
