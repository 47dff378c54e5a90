"""Plans: the fitted network is simulated, agrees with its exact solution, and says what it cannot do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from loops import SLOTS, fitted, table

from knee.errors import FitError
from knee.fit import Assumptions, FittedSystem, Plan, Scenario, parse_shape, render_plan, simulate_plan
from knee.fit.models import ClosedNetwork, LoadDependentNetwork, OpenMM1, ScalabilityLaw
from knee.queueing import Deterministic, Erlang, Exponential, HyperExponential, Lognormal, Shape, simulate, solve_closed

ROUNDS = 20_000


@pytest.fixture(scope="module")
def closed() -> FittedSystem:
    return fitted(table(ClosedNetwork(slots=True), (3.0, 8.0, 0.4), 0.002, view="middleware"), {"workers": SLOTS})


@pytest.fixture(scope="module")
def dependent() -> FittedSystem:
    rows = table(LoadDependentNetwork(onset=False), (3.0, 4.0, 0.08), 0.002, view="middleware")
    return fitted(rows, {"workers": SLOTS})


@pytest.fixture(scope="module", params=["closed", "dependent"])
def system(request: pytest.FixtureRequest) -> FittedSystem:
    found: FittedSystem = request.getfixturevalue(request.param)
    return found


def scenario(clients: int, think_ms: float = 0.0, slots: float = SLOTS) -> Scenario:
    return Scenario(float(clients), 1.0, think_ms, slots)


def holds(plan: Plan) -> None:
    """Both intervals hold the exact solution, four of their half widths wide: seeds are fixed, and chance is not."""
    for interval, exact in zip((plan.throughput, plan.response_ms), plan.exact, strict=True):
        assert interval.half_width is not None
        assert 0 < interval.half_width < 0.05 * exact
        assert abs(interval.estimate - exact) < 2 * interval.half_width


@pytest.mark.parametrize("asked", [scenario(1), scenario(12), scenario(40), scenario(300), scenario(400, 50.0)])
def test_a_simulated_plan_agrees_with_the_exact_solution(system: FittedSystem, asked: Scenario) -> None:
    plan = simulate_plan(system, asked, rounds=ROUNDS)
    assert plan.trial is system.selection.chosen and not plan.instead
    holds(plan)
    median, *_, last = (plan.quantiles_ms[share].estimate for share in (0.5, 0.95, 0.99))
    assert 0 < median < last
    assert plan.refused is None
    assert 0 < plan.utilisation["slots"].estimate <= 1


def test_the_fitted_network_is_there_for_solver_and_simulator(system: FittedSystem) -> None:
    """From Python: the flow-equivalent station itself, as it was fitted."""
    asked = scenario(40, 5.0)
    network = system.network(asked)
    assert network is not None
    exact = solve_closed(network, 40).throughput[-1]
    assert 1000 * exact == pytest.approx(system.forecast(asked).throughput.estimate)
    found = simulate(network, populations=40, rounds=ROUNDS).throughput.interval(0)
    assert found.half_width is not None
    assert abs(found.estimate - exact) < 2 * found.half_width


def test_only_clients_see_the_way_to_the_slots(closed: FittedSystem) -> None:
    rows = table(ClosedNetwork(slots=True), (3.0, 8.0, 0.4), 0.002)
    clients = fitted(rows, {"workers": SLOTS})
    for think_ms in (0.0, 20.0):
        seen = simulate_plan(clients, scenario(8, think_ms), rounds=ROUNDS)
        inside = simulate_plan(closed, scenario(8, think_ms), rounds=ROUNDS)
        holds(seen)
        holds(inside)
        assert 2 < seen.quantiles_ms[0.5].estimate - inside.quantiles_ms[0.5].estimate < 4


def test_contending_slots_slow_down_with_load(dependent: FittedSystem) -> None:
    times = [simulate_plan(dependent, scenario(count), rounds=1000).slot_ms for count in (1, 4, 40, 1000)]
    alone, _, _, full = times
    assert times == sorted(times)  # type: ignore[type-var]
    _, slot, contention = dependent.selection.chosen.fit.values
    assert alone == pytest.approx(slot)
    assert full == pytest.approx(slot * (1 + contention * (SLOTS - 1)))
    # One in a slot is alone for an exponential time: of a single server as fast as all, the median would be less.
    half = simulate_plan(dependent, scenario(1), rounds=ROUNDS).quantiles_ms[0.5].estimate
    assert half == pytest.approx(math.log(2) * slot, rel=0.05)


def test_regular_service_waits_less_and_irregular_more(closed: FittedSystem) -> None:
    shapes: tuple[Shape, ...] = (Deterministic(), Exponential(), HyperExponential(9.0))
    times = [
        simulate_plan(closed, scenario(40, 10.0), Assumptions(shape), rounds=ROUNDS).quantiles_ms[0.99].estimate
        for shape in shapes
    ]
    assert times[0] < 0.8 * times[1] < 0.6 * times[2]


@pytest.mark.parametrize("think_ms", [0.0, 20.0])
def test_limited_places_refuse_and_shorten_waits(dependent: FittedSystem, think_ms: float) -> None:
    free = simulate_plan(dependent, scenario(100, think_ms), rounds=ROUNDS)
    tight = simulate_plan(dependent, scenario(100, think_ms), Assumptions(places=10), rounds=ROUNDS)
    assert tight.refused is not None and tight.refused.estimate > 0.1
    assert tight.response_ms.estimate < free.response_ms.estimate / 2
    assert tight.throughput.estimate == pytest.approx(free.throughput.estimate, rel=0.03)
    words = render_plan(dependent, tight)
    assert "10 places to wait; a refused client thinks" in words and "rounds refused" in words
    assert ("exponential (c² = 1) think times" in words) == bool(think_ms)
    wide = simulate_plan(dependent, scenario(100, think_ms), Assumptions(places=100), rounds=ROUNDS)
    assert wide.refused is not None and wide.refused.estimate == 0


def test_a_model_without_stations_gives_way_to_the_best_with_some() -> None:
    rows = table(OpenMM1(), (4.0, 0.5), 0.002).drop("workers")
    system = fitted(rows)
    assert system.selection.chosen.model.name == "M/M/1"
    assert system.network(scenario(20)) is None
    plan = simulate_plan(system, scenario(20, 0.0, math.nan), rounds=ROUNDS)
    assert plan.trial.model.name == "closed network"
    holds(plan)
    words = render_plan(system, plan)
    assert (
        "Simulated: the closed network, because the M/M/1 has no stations; its error on hidden client counts is"
        in words
    )


def test_uncounted_slots_cannot_be_simulated() -> None:
    rows = table(ScalabilityLaw(), (6.0, 0.05, 0.0008), 0.002).drop("workers")
    system = fitted(rows)
    trial = next(trial for trial in system.selection.trials if trial.model.name == "load-dependent network")
    system = replace(system, selection=replace(system.selection, trials=(trial,), chosen=trial))
    with pytest.raises(FitError, match=r"no network to simulate: .* needs the number of slots"):
        simulate_plan(system, scenario(20, 0.0, math.nan))


def test_a_hundred_thousand_clients_get_past_the_start(dependent: FittedSystem) -> None:
    """All begin thinking and arrive together: the first round of each sees a shorter queue than later ones."""
    plan = simulate_plan(dependent, scenario(100_000), replications=3)
    assert plan.warmup >= 1.5 * plan.rounds == 150_000
    assert plan.response_ms.estimate == pytest.approx(plan.exact[1], rel=0.005)
    assert plan.throughput.estimate == pytest.approx(plan.exact[0], rel=0.005)


def test_the_start_is_left_out_just_short_of_saturation(dependent: FittedSystem) -> None:
    """The queue fills as slowly as clients think: after two rounds of each its mean would be 5 % short."""
    plan = simulate_plan(dependent, scenario(20_000, 1000 * 18_000 / capacity(dependent)), replications=5)
    assert plan.warmup > 5 * 20_000
    assert plan.response_ms.half_width is not None
    assert abs(plan.response_ms.estimate - plan.exact[1]) < 2 * plan.response_ms.half_width < 0.1 * plan.exact[1]


@pytest.mark.parametrize("thinking", [HyperExponential(10.0), Lognormal(10.0)])
def test_the_start_of_irregular_thinking_is_left_out(dependent: FittedSystem, thinking: Shape) -> None:
    """A mean does not depend on how thinking scatters, but its long times are not there at first: after the rounds that
    exponential thinking needs, hyperexponential clients came a third too often and waited six times too long."""
    asked = scenario(4000, 1000 * 4000 / (0.8 * capacity(dependent)))
    plan = simulate_plan(dependent, asked, Assumptions(thinking=thinking), rounds=40_000)
    assert plan.throughput.estimate == pytest.approx(plan.exact[0], rel=0.02)
    assert plan.response_ms.estimate == pytest.approx(plan.exact[1], rel=0.05)


def capacity(system: FittedSystem) -> float:
    """Requests/s that the slots do at most."""
    return system.forecast(scenario(10_000)).throughput.estimate


def test_the_same_seed_gives_the_same_plan(closed: FittedSystem) -> None:
    first, again, other = (simulate_plan(closed, scenario(20), rounds=1000, seed=seed) for seed in (7, 7, 8))
    assert first.throughput == again.throughput != other.throughput
    assert "seed 7" in render_plan(closed, first)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("deterministic", Deterministic()),
        ("exponential", Exponential()),
        ("erlang:4", Erlang(4)),
        ("hyper:2.5", HyperExponential(2.5)),
        ("lognormal:0.5", Lognormal(0.5)),
    ],
)
def test_shapes_as_a_person_writes_them(text: str, shape: Shape) -> None:
    assert parse_shape("--service", text) == shape


@pytest.mark.parametrize(
    "text", ["", "gamma", "erlang", "erlang:", "erlang:0", "erlang:2.5", "hyper:0.5", "lognormal:nan", "exponential:2"]
)
def test_unknown_shapes_are_named(text: str) -> None:
    with pytest.raises(FitError, match=f"^--service.*{text}"):
        parse_shape("--service", text)


@pytest.mark.parametrize(
    ("asked", "assumptions", "options", "says"),
    [
        (scenario(20), Assumptions(places=-1), {}, "places: expected a whole number from 0"),
        (scenario(20), Assumptions(), {"rounds": 10}, "rounds: expected a whole number from 1,000"),
        (scenario(20), Assumptions(), {"replications": 1}, "replications: expected a whole number from 2"),
        (scenario(20), Assumptions(), {"seed": -1}, "seed: expected a whole number from 0"),
        (scenario(20), Assumptions(thinking=Erlang(2)), {}, "thinking: a distribution needs a think time"),
        (scenario(20, 5.0), Assumptions(thinking=Deterministic()), {}, "depends on when each client starts"),
        (scenario(20), Assumptions(), {"rounds": 10**9}, "take fewer rounds"),
        (scenario(10**6), Assumptions(places=0), {}, "because most refused clients retry after 3"),
        (scenario(10**5, 9.0), Assumptions(thinking=Erlang(10**5)), {}, "fewer .*, or think times with more spread"),
        (
            scenario(10**5, 1e4),
            Assumptions(thinking=Lognormal(1e3)),
            {},
            "take fewer .*, or think times with less spread",
        ),
        (scenario(20), Assumptions(), {"rounds": 10**9}, "fewer rounds or replications$"),
    ],
)
def test_impossible_simulations_are_named(
    closed: FittedSystem, asked: Scenario, assumptions: Assumptions, options: dict[str, int], says: str
) -> None:
    with pytest.raises(FitError, match=says):
        simulate_plan(closed, asked, assumptions, **options)


def test_words_name_the_limits_of_the_intervals(closed: FittedSystem) -> None:
    words = render_plan(closed, simulate_plan(closed, scenario(20), Assumptions(Erlang(4)), rounds=1000))
    assert "erlang (c² = 0.25) service times" in words
    assert "contain the simulation's noise only" in words
    assert "The exact solution assumes exponential service times" in words
    assert "as the middleware saw it" in words
