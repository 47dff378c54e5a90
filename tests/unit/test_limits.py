"""The bottleneck by the layered model: when it decides, and when utilisation does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.test_diagnose import stations_table
from tests.unit.test_layered import CALIBRATION, runs, setup

from knee.fit.layered import CORES, SLOTS, layered_system
from knee.stats.intervals import mean_interval
from knee.verdict import words
from knee.verdict.bottleneck import Bottleneck
from knee.verdict.candidates import Candidate
from knee.verdict.configuration import with_demands
from knee.verdict.knee import Knee
from knee.verdict.limits import Limits, by_limits, limits_of

HOST = ("host", "host CPU", "the host's CPU")
WORKERS = ("middleware", "worker slots", "the middleware's worker slots")
STORE = ("store", "thread", "the store's busiest thread")


def limits_with(workers: int) -> Limits:
    setups = [setup(clients, workers) for clients in (8, 16, 32, 64, 256)]
    system = layered_system(runs(setups), level=0.95, seed=0)
    found = limits_of([system], range(len(setups)), Knee("cannot tell", ()))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def limits() -> Limits:
    """Eight workers in each middleware, whose slots are full because the cores are."""
    return limits_with(8)


def busy(parts: tuple[str, str, str], share: float) -> Candidate:
    role, resource, name = parts
    return Candidate(name, resource, role, name, mean_interval([share]), mean_interval([share]), 64)  # type: ignore[arg-type]


def found(*chosen: Candidate, beside: tuple[Candidate, ...] = (), others: float = 0.0) -> Bottleneck:
    """A verdict by utilisation."""
    candidates = (*chosen, *beside)
    return Bottleneck("found", chosen=chosen, candidates=candidates, confidence="high", cpu_shares={"others": others})


def test_full_slots_in_front_of_full_cores_only_wait(limits: Limits) -> None:
    slots, host = busy(WORKERS, 1.0), busy(HOST, limits.busy[CORES] - 0.1)
    decided, kept = by_limits(found(slots, beside=(host,)), limits)
    assert kept is limits
    assert decided.names == ("the host's CPU",)
    assert decided.waiting == (slots,)
    assert "other utilisation" in {doubt.kind for doubt in decided.doubts}


def held(*beside: Candidate) -> Bottleneck:
    """A verdict by utilisation that knows only that requests hold the slots far longer beyond the knee."""
    slots = busy(WORKERS, 1.0)
    return Bottleneck("cannot tell", "held longer", held=(slots,), candidates=(slots, *beside))


def test_slots_that_requests_hold_longer_wait_for_the_models_cores(limits: Limits) -> None:
    by_utilisation = held(busy(HOST, limits.busy[CORES] - 0.1))
    decided, kept = by_limits(by_utilisation, limits)
    assert kept is limits
    assert decided.names == ("the host's CPU",)
    assert decided.waiting == by_utilisation.held
    assert decided.held == ()


def test_demand_of_slots_that_requests_hold_longer_is_not_named() -> None:
    table = stations_table(db=1.0, cache=1.4)
    (demands,) = table.laws.demands
    assert demands.bottleneck is not None
    named = replace(demands, bottleneck=replace(demands.bottleneck, station="middleware-0's worker slots"))
    laws = replace(table.laws, demands=(named,))
    alone, unknown = replace(table.verdicts[0], bottleneck=held()), Bottleneck("cannot tell", "nothing saturated")
    assert with_demands(alone, laws).bottleneck.by_demand is None
    assert with_demands(replace(alone, bottleneck=unknown), laws).bottleneck.by_demand == named.bottleneck


def test_slots_that_limit_beside_the_cores_do_not_only_wait() -> None:
    both = limits_with(2)
    slots, host = busy(WORKERS, 1.0), busy(HOST, both.busy[CORES])
    decided, _ = by_limits(found(slots, beside=(host,)), both)
    assert decided.waiting == ()
    assert "other utilisation" not in {doubt.kind for doubt in decided.doubts}
    (slot,) = both.also
    said = words.bottleneck_lines(decided, both)[1]
    assert f"Adding 10% to the {SLOTS} raises it by {10 * slot.elasticity.estimate:.1f}%." in said


@pytest.mark.parametrize(("share", "names"), [(0.79, (WORKERS[2], HOST[2])), (0.95, (HOST[2],))])
def test_full_slots_share_the_blame_with_cores_that_are_not_full(share: float, names: tuple[str, ...]) -> None:
    limits = limits_with(2)
    decided, kept = by_limits(found(busy(WORKERS, 1.0), beside=(busy(HOST, share),)), limits)
    assert kept is limits
    assert decided.names == names


@pytest.mark.parametrize("workers", [2, 8])
def test_demand_of_slots_is_a_doubt_only_if_slots_do_not_limit(workers: int) -> None:
    limits = limits_with(workers)
    slots, host = busy(WORKERS, 1.0), busy(HOST, limits.busy[CORES])
    decided, kept = by_limits(found(slots, beside=(host,)), limits)
    assert "the host's CPU" in decided.names
    table = stations_table(db=1.0, cache=1.4)
    (demands,) = table.laws.demands
    assert demands.bottleneck is not None
    named = replace(demands, bottleneck=replace(demands.bottleneck, station="middleware-0's worker slots"))
    verdict = replace(table.verdicts[0], bottleneck=decided, limits=kept)
    doubts = with_demands(verdict, replace(table.laws, demands=(named,))).bottleneck.doubts
    assert ("other demand" in {doubt.kind for doubt in doubts}) == (workers == 8)


def test_saturated_thread_that_the_model_does_not_name_outranks_the_model(limits: Limits) -> None:
    by_utilisation = found(busy(STORE, 0.97), beside=(busy(WORKERS, 1.0), busy(HOST, 0.9)))
    assert by_limits(by_utilisation, limits) == (by_utilisation, None)


def test_model_with_other_utilisation_than_measured_has_no_say(limits: Limits) -> None:
    by_utilisation = found(busy(WORKERS, 1.0), beside=(busy(HOST, limits.busy[CORES] - 0.3),))
    assert by_limits(by_utilisation, limits) == (by_utilisation, None)


def test_cores_that_other_programs_share_are_not_named(limits: Limits) -> None:
    by_utilisation = found(busy(WORKERS, 1.0), beside=(busy(HOST, 0.9),), others=0.3)
    assert by_limits(by_utilisation, limits) == (by_utilisation, None)


def test_load_generator_stays_the_limit(limits: Limits) -> None:
    by_utilisation = replace(found(beside=(busy(WORKERS, 1.0), busy(HOST, 0.9))), status="load generator")
    assert by_limits(by_utilisation, limits) == (by_utilisation, None)


def test_sentence_has_the_gain_of_more_and_of_twice(limits: Limits) -> None:
    said = words.bottleneck_lines(found(busy(HOST, 0.9)), limits)[1]
    assert limits.limits[0].resource == CORES
    gain = 10 * limits.limits[0].elasticity.estimate
    assert said.startswith(f"At 256 clients, adding 10% to the {CORES} raises throughput by {gain:.1f}% (")
    assert f"Doubling the {CORES} gives " in said
    crowded = words.bottleneck_lines(found(busy(HOST, 0.9), others=0.2), limits)[1]
    assert crowded.startswith(said.split(" Doubling")[0]) and "Doubling" not in crowded


def test_doubled_resource_raises_the_throughput_by_its_elasticity() -> None:
    system = layered_system(runs(CALIBRATION), level=0.95, seed=0)
    few = setup(128, 1, cores=8.0)
    (limit,) = [limit for limit in system.limits(few) if limit.resource == SLOTS]
    ratio = system.forecast(system.twice(few, SLOTS)).throughput.estimate / system.forecast(few).throughput.estimate
    # One worker: one slot more is twice as many.
    assert ratio == pytest.approx(2**limit.elasticity.estimate, rel=1e-6)
