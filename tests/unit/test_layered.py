"""The layered network against exact solutions, and its fit against systems with known parameters."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.optimize import nnls
from tests.unit.synthetic import System, configured, synthetic_dataset

from knee import fit
from knee.data import Dataset
from knee.data.observations import observations
from knee.errors import FitError
from knee.fit.demands import Demands, demands_of, with_demands
from knee.fit.layered import CORES, SLOTS, LayeredFit, Setup, _not_negative, fit_layered, layered_system
from knee.fit.setups import _setup
from knee.queueing import ArgumentError, Delay, Network, Queue, layered, solve_closed
from knee.queueing.layered import Layered, Stage, Tier, settle, solve_layered

LITTLE = 1e-9
"""Processor time of a tier that stands for none."""

TRUE = LayeredFit(
    laws=np.array([[0.018, 0.004], [0.045, 0.008], [0.037, 0.006]]),
    inside=(0.03, 0.9),
    outside=(0.06, 0.8),
    share_out=0.45,
    tiers=("load", "middleware", "store"),
    backends=False,
)
"""A system like the quickstart: two cores serve all tiers."""


def setup(customers: float, workers: int = 1, **settings: float) -> Setup:
    return replace(Setup(customers, 2.0, workers, processes=(1, 2, 3), threads=(1, 1, 1), cores=2.0), **settings)


def runs(
    setups: list[Setup], *, repetitions: int = 3, noise: float = 0.0, seed: int = 0, system: LayeredFit = TRUE
) -> Demands:
    """What runs of a system measure."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, ...]] = []
    cpu = []
    for point, each in enumerate(setups):
        found = solve_layered(system.network(each), each.customers)
        for _ in range(repetitions):
            luck = float(np.exp(noise * rng.standard_normal()))
            x = float(found.throughput[0]) * luck
            inside, outside = float(found.inside[0]), float(found.outside[0])
            waiting = max(0.0, each.customers / x - each.think_ms - inside - outside)
            reply = TRUE.share_out * float(found.demand[0, 1])
            rows.append((point, x, each.customers, 1, each.think_ms, inside, waiting, outside, reply))
            cpu.append(found.demand[0, :3] * np.exp(noise * rng.standard_normal(3)))
    columns = np.array(rows).T
    threads = np.broadcast_to([1.0, 2.0, 3.0], (len(rows), 3))
    slots = np.repeat([float(each.slots or 0) for each in setups], repetitions)
    return Demands(
        TRUE.tiers,
        False,
        False,
        False,
        2.0,
        *columns,
        np.array(cpu),
        np.zeros(len(rows)),
        np.zeros(len(rows)),
        threads,
        threads,
        slots,
        slots,
    )


CALIBRATION = [setup(n) for n in (8, 16, 32, 64, 128)]


@pytest.mark.parametrize("slots", [1, 4, 64])
def test_slots_without_contention_are_the_repairman(slots: int) -> None:
    tiers = [Tier("store", "far", 1, LITTLE)]
    network = Layered({"far": 1.0}, tiers, Stage({}, delay=0.5), Stage({"store": 1.0}, delay=2.0), 1.0, 1, slots)
    counts = [1, 3, 10, 50]
    exact = solve_closed(Network([Queue("slots", 2.0, servers=slots), Delay("outside", 0.5)], 1.0), 50)
    found = solve_layered(network, counts)
    assert found.throughput == pytest.approx([exact.throughput[n - 1] for n in counts], rel=1e-6)


@pytest.fixture
def iterated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The iteration solves networks with product form too."""
    monkeypatch.setattr(layered, "solve_exactly", lambda *_: None)


@pytest.mark.usefixtures("iterated")
@pytest.mark.parametrize("slots", [2, 4, 16])
@pytest.mark.parametrize("clients", [2, 8, 32])
def test_one_store_behind_slots_is_near_its_exact_solution(slots: int, clients: int) -> None:
    # A processor-sharing store that slots hold: its rate is 1 / 0.5 with any number of requests inside.
    tiers = [Tier("store", "far", 1, 0.5)]
    network = Layered({"far": 1.0}, tiers, Stage({}, delay=1.0), Stage({"store": 1.0}), 3.0, 1, slots)
    exact = solve_closed(Network([Queue("store", 0.5), Delay("outside", 1.0)], 3.0), clients)
    assert solve_layered(network, clients).throughput[0] == pytest.approx(exact.throughput[-1], rel=0.08)


@pytest.mark.parametrize("kind", ["exact", "iterated"])
@pytest.mark.parametrize(
    ("customers", "slots", "cores", "line"),
    [
        (5, 2, (1, 1), 2.1085),
        (20, 2, (2, 2), 7.9822),
        (20, 4, (2, 1), 5.0),
        (50, 4, (4, 4), 18.469),
        (50, 8, (4, 2), 10.0),
        (20, 20, (2, 2), 7.9822),
    ],
)
def test_two_layers_are_exact_and_iterated_as_near_as_lines(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    customers: int,
    slots: int,
    cores: tuple[int, int],
    line: float,
) -> None:
    # Clients with processors of their own call a server with some threads; `line` is by LINE 3.0.8 (solver LN).
    monkeypatch.setattr(layered, "TOGETHER", 0.0)
    tiers = [Tier("client", "P1", customers, 0.1), Tier("server", "P2", slots, 0.2, by_slot=True)]
    hosts = {"P1": float(cores[0]), "P2": float(cores[1])}
    network = Layered(hosts, tiers, Stage({"client": 1.0}), Stage({"server": 1.0}), 2.0, 1, slots)
    queues = [Queue("client", 0.1, servers=cores[0]), Queue("server", 0.2, servers=min(slots, cores[1]))]
    exact = solve_closed(Network(queues, 2.0), customers).throughput[-1]
    assert line == pytest.approx(exact, rel=0.04)
    if kind == "iterated":
        request.getfixturevalue(kind)
    found = solve_layered(network, customers).throughput[0]
    assert found == pytest.approx(exact, rel=1e-9 if kind == "exact" else 0.04)


@pytest.mark.usefixtures("iterated")
def test_many_threads_are_hardly_correlated() -> None:
    # LINE's example lqn_basic: 125 threads on 2 and 3 cores, 13.33 requests/s in the exact solution.
    tiers = [Tier("T1", "P1", 50, 0.1), Tier("T2", "P1", 50, 0.05), Tier("T3", "P2", 25, 0.1, by_slot=True)]
    stages = Stage({"T1": 1.0, "T2": 1.0}), Stage({"T3": 1.0})
    network = Layered({"P1": 2.0, "P2": 3.0}, tiers, *stages, 2.0, 1, 25)
    assert solve_layered(network, 50).throughput[0] == pytest.approx(13.33, rel=0.05)


def test_cores_that_are_full_bound_the_throughput() -> None:
    found = solve_layered(TRUE.network(setup(2000, workers=64)), 2000)
    # The middlewares' threads are always active; in the mean field the other threads leave 3 % of the cores idle.
    assert found.busy.max() == pytest.approx(1.0, abs=1e-3)
    assert 0.95 < found.host_busy[0, 0] <= 1
    assert found.throughput[0] <= 2.0 / TRUE.laws[:, 0].sum()


def test_networks_of_other_cores_are_not_solved_together() -> None:
    several = [TRUE.network(setup(8)), TRUE.network(setup(8, cores=4.0))]
    with pytest.raises(ArgumentError, match="networks: expected equal hosts"):
        solve_layered(several, 8)


@pytest.mark.parametrize("customers", [0, -1, float("nan")])
def test_customers_below_zero_are_refused(customers: float) -> None:
    with pytest.raises(ArgumentError, match="customers: expected numbers above 0"):
        solve_layered(TRUE.network(setup(8)), customers)


def test_fit_finds_the_parameters() -> None:
    found = fit_layered(runs(CALIBRATION))
    assert found.laws.sum(axis=1) == pytest.approx(TRUE.laws.sum(axis=1), rel=0.03)
    assert found.laws[:, 0] == pytest.approx(TRUE.laws[:, 0], rel=0.1)
    assert found.inside == pytest.approx(TRUE.inside, rel=0.05)
    assert found.outside == pytest.approx(TRUE.outside, rel=0.05)


def test_one_level_of_workers_predicts_the_others() -> None:
    system = layered_system(runs(CALIBRATION, noise=0.02), level=0.95, seed=0)
    for workers in (2, 4, 8):
        for clients in (64, 128, 256):
            asked = setup(clients, workers)
            truth = 1000 * solve_layered(TRUE.network(asked), clients).throughput[0]
            found = system.forecast(asked)
            assert found.throughput.estimate == pytest.approx(truth, rel=0.05)
            assert found.throughput.low <= truth <= found.throughput.high  # type: ignore[operator]


def test_interval_has_a_degree_of_freedom_for_each_run() -> None:
    system = layered_system(runs(CALIBRATION, repetitions=2), level=0.95, seed=0)
    system = replace(system, draws=(system.fit,) * 60, misfit=np.array([-0.1, 0.1]))
    found = system.forecast(CALIBRATION[1]).response_ms
    # Student's t of 97.5 % with 10 degrees of freedom.
    assert np.log([found.low / found.estimate, found.high / found.estimate]) == pytest.approx(  # type: ignore[operator]
        [-0.2228, 0.2228], rel=1e-3
    )


def test_limits_move_from_slots_to_cores() -> None:
    system = layered_system(runs(CALIBRATION), level=0.95, seed=0)
    few, many = system.forecast(setup(128, 1, cores=8.0)), system.forecast(setup(128, 16))
    assert (few.limits[0][0], many.limits[0][0]) == (SLOTS, CORES)
    assert few.busy[SLOTS] > 0.98
    assert many.busy[CORES] > 0.95


def test_work_is_surer_from_full_loads_than_from_light_ones() -> None:
    # Wake-ups take 0.2 of the 0.3 ms of a lone request.
    shared = replace(TRUE, laws=np.array([[0.018, 0.004], [0.1, 0.2], [0.037, 0.006]]))
    spread, rng = [], np.random.default_rng(0)
    for counts in ((2, 4, 8), (2, 8, 32, 128)):
        data = runs([setup(n) for n in counts], system=shared)
        work = [fit_layered(data, rng=rng).laws[1, 0] for _ in range(60)]
        assert min(work) <= 0.1 <= max(work)
        spread.append(np.std(work))
    assert spread[0] > 3 * spread[1]


def test_two_client_counts_are_too_few() -> None:
    with pytest.raises(FitError, match="3 client counts or more"):
        layered_system(runs(CALIBRATION[:2]), level=0.95, seed=0)


# ------------------------------------------------------------------------------------------- from a run folder


@pytest.fixture(scope="module")
def folder() -> Dataset:
    """Slots of 2 ms whose processors are idle, so that the machine repairman is exact for any number of workers."""
    return synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8, 16, 32), seconds=15)


Systems = list[tuple[str, fit.layered.LayeredSystem]]


@pytest.fixture(scope="module")
def systems(folder: Dataset) -> Systems:
    return fit.layered_systems(folder, [], level=0.95, seed=0)


def forecasts(systems: Systems, **asked: object) -> list[fit.layered.LayeredForecast]:
    ((_, _, found),) = fit.layered_forecasts(systems, asked)  # type: ignore[arg-type]
    return found


def test_more_workers_than_measured_are_predicted(systems: Systems) -> None:
    found = forecasts(systems, workers=[4, 8, 16], clients=64)
    truth = [System(slots=2 * workers, think_ms=2.0).solve(64).throughput for workers in (4, 8, 16)]
    assert [each.throughput.estimate for each in found] == pytest.approx(truth, rel=0.03)


def test_text_names_the_limit_and_the_extrapolation(systems: Systems) -> None:
    ((label, system, found),) = fit.layered_forecasts(systems, {"workers": 8, "clients": 64})
    text = fit.render_layered(label, system, found)
    assert text.startswith("At 64 clients, 8 worker slots in each of 2 middlewares, 2.00 ms of thinking: ")
    assert "The worker slots limit the throughput: adding 10% to them raises throughput by about" in text
    assert "This is an extrapolation: the largest measured throughput is" in text


def test_text_names_the_hosts_and_threads_that_were_not_measured(systems: Systems) -> None:
    quiet = [(label, replace(system, data=replace(system.data, spread=False))) for label, system in systems]
    ((label, system, found),) = fit.layered_forecasts(quiet, {"stores": 4, "middleware.threads": 2})
    text = fit.render_layered(label, system, found)
    assert text.startswith(
        "At 32 clients, 4 worker slots in each of 2 middlewares, 2 threads in each middleware, 4 stores, "
    )


def test_text_names_runs_that_other_programs_disturbed(systems: Systems) -> None:
    ((label, system),) = systems
    foreign = np.where(np.arange(len(system.data)) < 3, 0.45, 0.01)
    ((_, _, found),) = fit.layered_forecasts(systems, {"workers": 8})
    disturbed = replace(system, data=replace(system.data, foreign=foreign))
    text = fit.render_layered(label, disturbed, found)
    said = "Other programs, other guests or emulated links used up to 45% of the host's processors in 3 of 15 runs"
    assert said in text
    assert "Other programs" not in fit.render_layered(label, system, found)
    fewer = replace(system, data=replace(system.data, left_out=1))
    said = "The model leaves out 1 run that other programs or guests disturbed."
    assert said in fit.render_layered(label, fewer, found)


def test_disturbed_run_is_left_out_only_beside_a_quiet_one(folder: Dataset) -> None:
    table = with_demands(folder, observations(folder))
    both = pl.concat([table, table.with_columns(disturbed=pl.lit(value=True))])
    first = pl.col("point") == table["point"].min()
    found = demands_of(both.filter(~first | pl.col("disturbed")))
    in_first = found.point == table["point"].min()
    assert found.disturbed[in_first].all()
    assert in_first.any()
    assert not found.disturbed[~in_first].any()
    assert found.left_out == table.filter(~first).height


def with_time_of(folder: Dataset, owner: str, share: float) -> Dataset:
    """The folder with a share of the host's processors for the hypervisor's other guests, other programs or links."""
    changed, host = copy(folder), pl.col("target") == "host"
    taken = share * pl.col("cpu_count") * pl.col("seconds")
    probes = folder.probes
    if owner == "links":
        relay = probes.filter(host).with_columns(target=pl.lit("links"), cpu_user_s=taken, cpu_system_s=pl.lit(0.0))
        probes = pl.concat([probes, relay])
    name = "cpu_steal_s" if owner == "guests" else "cpu_user_s"
    had = pl.lit(0.0) if owner == "guests" else pl.col(name)
    changed.probes = probes.with_columns(pl.when(host).then(had + taken).otherwise(pl.col(name)).alias(name))
    return changed


@pytest.mark.parametrize(
    ("owner", "share", "disturbed"),
    [
        ("others", 0.08, False),
        ("others", 0.12, True),
        ("guests", 0.04, False),
        ("guests", 0.06, True),
        # More requests use more of the links' time: a run of high throughput is no disturbed one.
        ("links", 0.3, False),
    ],
)
def test_run_is_disturbed_by_programs_and_guests_but_not_by_links(
    folder: Dataset, owner: str, share: float, disturbed: bool
) -> None:
    quiet, table = (with_demands(each, observations(folder)) for each in (folder, with_time_of(folder, owner, share)))
    assert table["disturbed"].to_list() == [disturbed] * table.height
    assert (table["foreign"] - quiet["foreign"]).to_list() == pytest.approx([share] * table.height)


def test_requests_without_slots_wait_outside(folder: Dataset) -> None:
    table = with_demands(folder, observations(folder))
    slots, none = (demands_of(each) for each in (table, table.with_columns(workers=pl.lit(None, dtype=pl.Int64))))
    assert slots.waiting.max() > 1
    assert not none.waiting.any()
    assert none.response == pytest.approx(slots.response)
    assert none.reply == pytest.approx(slots.reply)
    assert none.inside == pytest.approx(slots.inside)


def test_table_has_a_row_for_each_combination(systems: Systems) -> None:
    ((label, system, found),) = fit.layered_forecasts(systems, {"workers": [4, 8], "clients": [16, 64]})
    head, *rows = fit.render_layered(label, system, found).splitlines()[:5]
    assert re.split(r"  +", head) == ["clients", "workers", "requests/s", "response ms", "limit"]
    assert [row.split()[:2] for row in rows] == [["16", "4"], ["64", "4"], ["16", "8"], ["64", "8"]]


@pytest.mark.parametrize(("goal", "name"), [("response_ms < 6", "workers"), ("response_ms < 6", "clients")])
def test_sought_value_is_the_last_that_meets_the_goal(systems: Systems, goal: str, name: str) -> None:
    asked: dict[str, int | float | str | bool] = {"clients": 64} if name == "workers" else {"workers": 8}
    ((_, _, sought),) = fit.seek_settings(systems, asked, name, fit.Goal.parse(goal))
    assert sought.likely is not None
    value, forecast = sought.likely
    beyond = value + 1 if name == "clients" else value - 1
    (next_one,) = forecasts(systems, **asked, **{name: beyond})
    assert forecast.response_ms.estimate < 6 <= next_one.response_ms.estimate


def test_goal_that_no_value_meets_is_reported(systems: Systems) -> None:
    # A slot takes 2 ms and the way 0.5 ms.
    goal = fit.Goal.parse("response_ms < 1")
    ((label, system, sought),) = fit.seek_settings(systems, {"clients": 64}, "workers", goal)
    assert fit.render_sought(label, system, sought).startswith(
        "response_ms < 1.00: no value of workers up to 4,096 meets it"
    )


@pytest.mark.parametrize(
    "goal",
    ["response_ms > 5", "throughput < 5", "p98 < 5", "response_ms < 5 /s", "response_ms < x", "throughput > 1e+e"],
)
def test_wrong_goal_is_refused(goal: str) -> None:
    with pytest.raises(FitError, match="expected a goal such as 'response_ms < 5'"):
        fit.Goal.parse(goal)


def test_think_time_that_varied_needs_a_value(systems: Systems) -> None:
    data = systems[0][1].data
    varied = replace(data, think=np.where(np.arange(len(data)) % 2, 2.0, 8.0))
    with pytest.raises(FitError, match="the think time was a factor: choose one"):
        _setup(varied, {"workers": 4})
    assert _setup(varied, {"workers": 4, "think_ms": 5}).think_ms == 5


def test_tier_without_probes_is_refused(folder: Dataset) -> None:
    blind = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8), seconds=15)
    blind.probes = blind.probes.filter(~blind.probes["target"].str.starts_with("store"))
    with pytest.raises(FitError, match="cpu_store: not measured in every run"):
        demands_of(with_demands(blind, observations(blind)))


def test_only_questions_about_the_system_need_layers() -> None:
    assert fit.needs_layers({"workers": 2})
    assert fit.needs_layers({"clients": [1, 2]})
    assert not fit.needs_layers({"clients": 100, "pipeline": 2})


def test_connections_are_shared_by_middlewares_and_bounded_by_workers() -> None:
    data = runs(CALIBRATION, repetitions=1)
    pooled = replace(data, pooled=True, backends=True, slots=np.full(len(data), 2.0), workers=np.full(len(data), 8.0))
    assert _setup(pooled, {"connections": 8}).slots == 4
    assert _setup(pooled, {"connections": 64}).slots == 8
    assert _setup(pooled, {"middlewares": 4}).slots == 1
    with pytest.raises(FitError, match="connections: 4 do not divide evenly over 3 middlewares"):
        _setup(pooled, {"middlewares": 3})
    with pytest.raises(FitError, match="PostgreSQL has a process for each connection"):
        _setup(pooled, {"store.threads": 2})


def test_sought_clients_end_at_the_largest_value_that_is_tried(systems: Systems) -> None:
    ((label, system, sought),) = fit.seek_settings(systems, {}, "clients", fit.Goal.parse("response_ms < 1e9"))
    assert "is 16,384 or more, by the estimate" in fit.render_sought(label, system, sought)


def test_stores_that_share_requests_are_predicted_only_where_measured() -> None:
    data = runs(CALIBRATION, repetitions=1)
    assert _setup(data, {"stores": 5}).processes == (1, 2, 5)
    with pytest.raises(FitError, match=r"stores: a write .* goes to several stores"):
        _setup(replace(data, spread=True), {"stores": 5})
    assert _setup(replace(data, spread=True), {"stores": 3}).processes == (1, 2, 3)


@pytest.mark.parametrize(("set_get", "spread"), [("0:1", False), ("1:9", True)])
def test_writes_go_to_all_stores(folder: Dataset, set_get: str, spread: bool) -> None:
    table = with_demands(configured(copy(folder), {"workload.set_get": set_get}), observations(folder))
    assert table["spread"].to_list() == [spread] * table.height


def test_activity_of_dear_wakeups_satisfies_its_equation() -> None:
    # A wake-up costs four times a request's work, and the two cores are nearly full.
    threads, hosts, cores = np.array([1, 2, 3]), ["one"] * 3, np.full(3, 2.0)
    used = np.array([[0.6, 0.35, 0.2], [0.7, 0.4, 0.2]])
    wakeups = 4 * used
    active, speed = settle(used, threads, hosts, cores, wakeups)
    needed = np.minimum((used + wakeups * (1 - active)) / speed, 0.999)
    assert np.abs(needed - active).max() < 1e-4


def test_factors_that_are_not_negative_are_those_of_lawson_and_hanson() -> None:
    rng = np.random.default_rng(3)
    edges = 0
    for _ in range(200):
        columns, wanted = rng.uniform(0.1, 1, (8, 2)), rng.normal(0.3, 1, 8)
        found, expected = _not_negative(columns, wanted), nnls(columns, wanted)[0]
        edges += 0 in found
        assert found == pytest.approx(expected, abs=1e-9)
    assert 20 < edges < 180
