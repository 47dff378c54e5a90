"""Knee and bottleneck against systems whose truth is known (tests/unit/synthetic.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
from synthetic import (
    CLIENTS,
    System,
    closed_system,
    configured,
    elsewhere,
    open_loop,
    pooled,
    repairman,
    synthetic_dataset,
)

from knee.data import Dataset
from knee.data.csv import parse
from knee.data.observations import observations
from knee.data.utilization import cpu_shares, utilizations
from knee.laws import laws_of_run, sentences
from knee.stats.intervals import client_count
from knee.verdict import Findings, analyse, render_text, words
from knee.verdict.analyse import VERDICTS_MAX
from knee.verdict.bottleneck import Bottleneck, find_bottleneck, find_bottleneck_at_rate
from knee.verdict.configuration import Verdict, with_demands
from knee.verdict.evidence import evidence_of_run
from knee.verdict.findings import Unexplained
from knee.verdict.health import (
    HealthWarning,
    LeftElsewhere,
    LeftOut,
    LoadLimited,
    LoadWaited,
    Outsiders,
    SpeedChanged,
    SpeedVaried,
    Stolen,
    Unanswered,
    warnings_of_folder,
    warnings_of_run,
)
from knee.verdict.knee import OPEN_LOOP, Doubt, Knee, Obstacle, find_knee

LEVELS = (2, 4, 8, 16, 24, 32, 48, 64, 96)


modelless = pytest.mark.usefixtures("modelless")


def observed(rows: Iterable[tuple[int, int, float]], think_ms: float = 0.0) -> pl.DataFrame:
    """Observations of clients, repetitions and throughputs, without the windows they would come from."""
    frame = pl.DataFrame(list(rows), schema=["clients", "repetition", "throughput"], orient="row")
    response_ms = 1000 * pl.col("clients") / pl.col("throughput") - think_ms
    return frame.with_columns(response_ms=response_ms, think_ms=pl.lit(think_ms))


def scattered(
    throughput: Callable[[int], float],
    clients: Sequence[int],
    noise: float = 0.0,
    seed: int = 0,
    repetitions: int = 3,
    think_ms: float = 0.0,
) -> pl.DataFrame:
    """Observations of a throughput with normal noise."""
    rng = np.random.default_rng(seed)
    runs = [(count, repetition) for count in clients for repetition in range(repetitions)]
    return observed(
        ((count, run, throughput(count) * (1 + noise * rng.standard_normal())) for count, run in runs), think_ms
    )


def measured(system: System, clients: Sequence[int], *, noise: float, seed: int, repetitions: int = 3) -> pl.DataFrame:
    return scattered(lambda count: system.solve(count).throughput, clients, noise, seed, repetitions, system.think_ms)


def balanced(*clients: int, noise: float = 0.0, seed: int = 0) -> pl.DataFrame:
    """Three equal servers of 1 ms without a delay: X(N) = N / (N + 2) requests/ms, and N* = 3."""
    return scattered(lambda count: 1000 * count / (count + 2), clients, noise, seed)


def curve(*levels: tuple[int, float], noise: float = 0.01) -> pl.DataFrame:
    """Observations of given throughputs at given clients, the repetitions apart by the noise."""
    return observed((clients, run, x * (1 + (run - 1) * noise)) for clients, x in levels for run in range(3))


def only(system: System, clients: tuple[int, ...] = CLIENTS) -> Verdict:
    (verdict,) = findings_of(system, clients).verdicts
    return verdict


@cache
def findings_of(system: System, clients: tuple[int, ...] = CLIENTS) -> Findings:
    """The findings of an unchanged dataset, for tests that only read them."""
    return analyse(synthetic_dataset(system, clients))


def warnings_of(dataset: Dataset) -> list[HealthWarning]:
    return warnings_of_run(dataset, evidence_of_run(dataset))


def only_verdict(dataset: Dataset) -> Verdict:
    (verdict,) = analyse(dataset).verdicts
    return verdict


@pytest.mark.parametrize(
    "system",
    [System(), System(slots=8, middlewares=1), System(slots=4, middlewares=1, think_ms=20.0)],
    ids=["16 slots", "8 slots", "4 slots and thinking"],
)
def test_the_knees_interval_covers_the_truth(system: System) -> None:
    clients = tuple(max(1, round(n * system.knee / 20)) for n in LEVELS)
    knees = [find_knee(measured(system, clients, noise=0.01, seed=seed), seed=seed) for seed in range(12)]
    assert {knee.status for knee in knees} == {"found"}
    covered = sum(_covers(knee, system.knee) for knee in knees)
    # Nominally 95 %: fewer than nine of twelve would be a chance of one in five thousand.
    assert covered >= 9
    assert np.mean([knee.clients.estimate for knee in knees if knee.clients]) == pytest.approx(system.knee, rel=0.02)


def test_the_interval_covers_where_clients_mostly_think() -> None:
    # A response time that is short beside the think time scatters far more than the throughput does.
    system = System(slots=2, service_ms=0.15, gap_ms=0.15, think_ms=2.0)
    knees = [
        find_knee(measured(system, (8, 16, 32, 64, 128, 256), noise=0.01, seed=seed), seed=seed) for seed in range(30)
    ]
    # Nominally 95 %; with the response time's own residuals 70 to 80 %.
    assert sum(_covers(knee, system.knee) for knee in knees) >= 26


def test_interval_with_noisy_equal_levels_covers_knee() -> None:
    # At 10 % of noise N* comes out too high: percentiles, moved up by as much again, cover 85 %.
    knees = [find_knee(measured(System(), LEVELS, noise=0.1, seed=seed), seed=seed) for seed in range(40)]
    found = [knee for knee in knees if knee.status == "found"]
    assert len(found) >= 36
    assert sum(_covers(knee, System().knee) for knee in found) >= 0.9 * len(found)


@pytest.mark.parametrize("repetitions", [2, 3])
def test_a_knee_is_above_zero_however_much_repetitions_differ(repetitions: int) -> None:
    rng = np.random.default_rng(3)
    for seed in range(10):
        even = measured(System(), (2, 8, 24, 48, 96), noise=0, seed=seed, repetitions=repetitions)
        noisy = even.with_columns(throughput=pl.col("throughput") * np.exp(1.2 * rng.standard_normal(even.height)))
        knee = find_knee(noisy.with_columns(response_ms=1000 * pl.col("clients") / pl.col("throughput")), seed=seed)
        assert knee.clients is not None and knee.clients.low is not None and knee.clients.high is not None
        assert 0 < knee.clients.low < knee.clients.estimate < knee.clients.high


def test_levels_without_response_time_are_left_out() -> None:
    levels = ((1, 1000), (2, 2000), (4, 2100), (8, 2100))
    rounded = curve(*levels).with_columns(
        response_ms=pl.when(pl.col("clients") == 1).then(0.0).otherwise("response_ms")
    )
    assert find_knee(rounded) == find_knee(curve(*levels[1:]))


def test_levels_with_response_time_rounded_to_zero_have_no_power() -> None:
    levels = [(1, 10.0), (2, 20.0), (4, 40.0), (8, 80.0), (16, 120.0), (32, 120.0)]
    waiting_ms = pl.when(pl.col("clients") < 16).then(0.0).otherwise(pl.col("response_ms") - 100)
    thinking = curve(*levels).with_columns(response_ms=waiting_ms, think_ms=100.0)
    knee = find_knee(thinking)
    assert knee.status == "found"
    assert knee.clients is not None and knee.clients.estimate == pytest.approx(12, rel=0.02)
    assert knee.power_clients == 16, "the first that has any"
    assert find_knee(thinking.with_columns(response_ms=0.0)).power_clients is None


def doubts(found: Knee | Bottleneck) -> list[str]:
    return [doubt.kind for doubt in found.doubts]


def _covers(knee: Knee, truth: float) -> bool:
    assert knee.clients is not None and knee.clients.low is not None and knee.clients.high is not None
    return knee.clients.low <= truth <= knee.clients.high


def test_full_worker_slots_make_a_knee_between_measured_neighbours() -> None:
    verdict = only(System())
    knee, bottleneck = verdict.knee, verdict.bottleneck
    assert knee.status == bottleneck.status == "found"
    assert knee.between == (16, 24)
    assert knee.level is not None and knee.level.clients == 24
    assert knee.plateau == (24, 48, 96)
    assert knee.confidence == "high"
    assert knee.power_clients in (16, 24)
    assert bottleneck.names == ("the middleware's worker slots",)
    assert bottleneck.components[0].name == "queueing in the middleware"
    assert bottleneck.components[0].share == pytest.approx(1.0, abs=0.02)
    # The laws name processes, the bottleneck tiers: this is no disagreement.
    assert "other demand" not in doubts(bottleneck)


def test_a_knee_that_was_not_reached_is_a_lower_bound() -> None:
    verdict = only(System(), (2, 4, 8, 12))
    assert verdict.knee.status == "not reached"
    assert verdict.knee.clients is not None and verdict.knee.clients.estimate < System().knee
    assert verdict.knee.level is not None and verdict.knee.level.clients == 12
    assert "one level on the plateau" not in [doubt.kind for doubt in verdict.knee.doubts], "it has no plateau"
    assert verdict.bottleneck.status == "cannot tell"


def test_one_client_is_no_clients() -> None:
    sentence = words.knee(find_knee(curve((1, 1000), (2, 1000), (4, 1000))))
    assert "already saturated at 1 client, the smallest" in sentence and "at or below 1 client. Measure" in sentence


def test_run_without_an_answer_gives_a_warning() -> None:
    dataset = synthetic_dataset(System(), (2, 8, 32))
    silent = (pl.col("point") == 1) & (pl.col("repetition") == 2)
    dataset.windows = dataset.windows.with_columns(
        pl.when(silent & pl.col(name).is_not_null()).then(0).otherwise(pl.col(name)).cast(dtype).alias(name)
        for name, dtype in dataset.windows.schema.items()
        if name in ("count", "response_sum_ns")
    )
    assert Unanswered(1, 9) in warnings_of(dataset)
    levels = only_verdict(dataset).knee.levels
    # Without answers there may be no windows, and the run counts alike.
    dataset.windows = dataset.windows.filter(~silent)
    assert only_verdict(dataset).knee.levels == levels


def test_recovering_from_a_dip_is_no_growth() -> None:
    assert find_knee(curve((8, 2000), (16, 4000), (32, 6000), (64, 4000), (128, 6060))).status == "found"
    assert find_knee(curve((8, 2000), (16, 4000), (32, 6000), (64, 4000), (128, 9000))).status == "not reached"


def test_noise_hardly_ever_makes_an_unreached_knee_found() -> None:
    """At 12 clients X_max is 17 % higher, and each doubling still gains 14 %."""
    clients = (1, 2, 4, 6, 9, 12)
    assert find_knee(balanced(*clients)).status == "not reached"
    for noise in (0.02, 0.05, 0.1):
        found = [find_knee(balanced(*clients, noise=noise, seed=seed)).status for seed in range(40)]
        # One in twenty is the error that the test allows.
        assert found.count("found") <= 4, noise
        assert "saturated from the start" not in found


def test_growth_that_noise_cannot_exclude_is_unclear() -> None:
    assert find_knee(balanced(1, 4, 16, 32, noise=0.02)).status == "found"
    unclear = find_knee(balanced(1, 2, 4, 6, 9, 12, noise=0.05))
    assert unclear.status == "cannot tell"
    assert unclear.obstacle is not None and unclear.obstacle.kind == "unclear growth"
    assert (
        "Cannot tell whether throughput still rises at 12 clients: with more clients, it may rise by up to"
        in words.knee(unclear)
    )


@pytest.mark.parametrize(
    ("low", "high", "place"), [(5, 7, ", between the measured 4 and 8 clients."), (3, 7, "."), (5, 9, ".")]
)
def test_neighbours_of_the_knee_are_named_only_around_its_interval(low: float, high: float, place: str) -> None:
    found = find_knee(curve((2, 100), (4, 200), (8, 300), (16, 300)))
    assert found.between == (4, 8) and found.clients is not None
    narrow = replace(found, status="found", obstacle=None, clients=replace(found.clients, low=low, high=high))
    assert words.knee(narrow).startswith(f"The knee is at {client_count(found.clients.estimate)} clients{place}")


def test_waiting_at_the_lightest_load_lowers_the_interval() -> None:
    """At four clients half of the response time is waiting: the asymptotes meet at twice the true knee."""
    knee = find_knee(balanced(4, 8, 16, 32, 64, noise=0.01))
    assert knee.status == "found" and knee.clients is not None
    assert knee.clients.estimate > 5
    assert _covers(knee, 3.0)
    alone = find_knee(balanced(1, 4, 8, 16, 32, 64, noise=0.01))
    assert alone.clients is not None and alone.clients.low is not None and alone.clients.low > 2.7


def test_a_fall_within_the_noise_is_not_called_retrograde() -> None:
    levels = ((4, 1000), (8, 2000), (16, 4000), (32, 4000), (64, 3400))
    assert find_knee(curve(*levels)).retrograde
    noisy = find_knee(curve(*levels, noise=0.12))
    assert not noisy.retrograde
    assert "noisy repetitions" in doubts(noisy)


def test_the_knee_counts_clients_not_requests_in_flight() -> None:
    table = measured(System(), LEVELS, noise=0.01, seed=0)
    deep = find_knee(
        table.with_columns(pl.col("clients") // 2, pl.lit(2).alias("pipeline")).filter(pl.col("clients") > 1)
    )
    plain = find_knee(table.filter(pl.col("clients") > 2))
    assert plain.clients is not None and deep.clients is not None
    assert deep.clients.estimate == pytest.approx(plain.clients.estimate / 2)
    assert deep.bounds(10) == pytest.approx(plain.bounds(20))


def test_system_saturated_from_the_start_has_an_upper_bound() -> None:
    verdict = only(System(), (48, 64, 96))
    assert verdict.knee.status == "saturated from the start"
    assert "at or below 48" in words.knee(verdict.knee)
    assert verdict.bottleneck.names == ("the middleware's worker slots",)


def test_noise_that_hides_the_growth_is_not_a_knee() -> None:
    verdicts = [find_knee(measured(System(), (24, 48, 96), noise=0.25, seed=seed)).status for seed in range(8)]
    assert verdicts.count("cannot tell") >= 6


def test_throughput_that_falls_again_is_called_retrograde() -> None:
    system = System(slowdown=0.004)
    knee = only(system).knee
    assert knee.status == "found"
    assert knee.retrograde
    assert knee.clients is not None and knee.clients.estimate == pytest.approx(system.knee, rel=0.1)


def test_knee_without_levels_or_repetitions_is_unknown() -> None:
    assert find_knee(measured(System(), (8, 64), noise=0.01, seed=0)).status == "cannot tell"
    once = find_knee(measured(System(), LEVELS, noise=0.01, seed=0, repetitions=1))
    assert once.status == "cannot tell" and once.obstacle == Obstacle("one repetition")
    assert once.clients is not None and once.clients.low is None
    unlimited = measured(System(), LEVELS, noise=0.01, seed=0).with_columns(think_ms=pl.lit(None, dtype=pl.Float64))
    assert find_knee(unlimited).obstacle == OPEN_LOOP


def test_bottleneck_at_a_rate_that_may_be_followed_is_doubted() -> None:
    dataset = open_loop({96: 9000.0})
    observed = observations(dataset), utilizations(dataset), cpu_shares(dataset)
    behind, unsure, follows = (find_bottleneck_at_rate(*observed, keeps_up=known) for known in (False, None, True))
    assert behind.names == unsure.names == ("the middleware's worker slots",)
    assert (behind.confidence, behind.doubts) == ("high", ())
    assert unsure.confidence == "medium"
    assert doubts(unsure) == ["may keep up"]
    assert (follows.status, follows.doubts) == ("none", ())


def test_a_rate_that_was_measured_once_is_not_surely_followed() -> None:
    follow = {
        reps: analyse(parse("rate,throughput\n" + "1000,1000\n" * reps, "theirs.csv")).verdicts[0].bottleneck
        for reps in (1, 3)
    }
    assert [(found.status, found.confidence) for found in follow.values()] == [("none", "medium"), ("none", "high")]
    assert follow[1].doubts == (Doubt("few repetitions", 1),)


def test_connections_with_waiting_slots_are_the_bottleneck() -> None:
    # 16 connections of 2 ms each, for 24 slots: the slots are full soon after the connections.
    verdict = only_verdict(pooled(System(), workers=12))
    assert verdict.bottleneck.names == ("the middleware's connections",)
    assert "The middleware's worker slots are full as well, because they wait for the bottleneck." in words.evidence(
        verdict.bottleneck
    )
    assert verdict.bottleneck.confidence == "high", verdict.bottleneck.doubts
    parts = {part.name: part.to_ms.estimate for part in verdict.bottleneck.components}
    # 8 more slots than connections, which are taken 8,000 times a second.
    assert parts["waiting for a connection"] == pytest.approx(1.0, rel=0.02)
    assert parts["service beyond the middleware"] == pytest.approx(2.0, rel=0.02)


def test_wait_for_a_connection_with_free_slots_grows() -> None:
    bottleneck = only_verdict(pooled(System(), workers=64)).bottleneck
    assert bottleneck.names == ("the middleware's connections",)
    assert bottleneck.components[0].name == "waiting for a connection"
    assert bottleneck.components[0].share == pytest.approx(1.0, abs=0.02)


def test_connections_as_many_as_slots_are_no_bottleneck() -> None:
    verdict = only_verdict(pooled(System(), workers=8))
    assert verdict.bottleneck.names == ("the middleware's worker slots",)
    assert not any(c.name == "the middleware's connections" for c in verdict.bottleneck.candidates)
    assert not any("connections" in line for line in words.evidence(verdict.bottleneck))


def test_connections_just_fewer_than_slots_are_the_bottleneck() -> None:
    # 20 connections for 21 slots: who has a slot waits less than five per cent of its time.
    bottleneck = only_verdict(pooled(System(slots=40), workers=21)).bottleneck
    assert bottleneck.names == ("the middleware's connections",)


def assert_pool_and_slots_wait(bottleneck: Bottleneck) -> None:
    (full,) = (line for line in words.evidence(bottleneck) if line.endswith("because they wait for the bottleneck."))
    named, _ = full.removeprefix("The ").split(" are full as well, ")
    assert set(named.split(" and the ")) == {"middleware's connections", "middleware's worker slots"}


def test_saturated_store_outranks_waiting_connections() -> None:
    bottleneck = only_verdict(pooled(System(store_cpu_us=120), workers=12)).bottleneck
    assert bottleneck.names == ("the store's busiest thread",)
    assert_pool_and_slots_wait(bottleneck)


def test_saturated_cpu_share_outranks_waiting_connections() -> None:
    dataset = pooled(System(store_cpu_us=60), workers=12)
    # PostgreSQL tells nothing of itself. 8,000 requests/s at 60 µs each are 48 % of a core.
    for name in ("windows", "stations"):
        setattr(dataset, name, getattr(dataset, name).filter(pl.col("role") != "store"))
    assert only_verdict(dataset).bottleneck.names == ("the middleware's connections",)
    bottleneck = only_verdict(configured(dataset, {"store.cpus": 0.5})).bottleneck
    assert bottleneck.names == ("the store's CPU share",)
    assert bottleneck.confidence == "high", bottleneck.doubts
    assert_pool_and_slots_wait(bottleneck)


def test_connections_shared_by_requests_are_unmeasured() -> None:
    evidence = evidence_of_run(configured(pooled(System(), workers=12), {"middleware.combine": 16}))
    assert "connections" not in evidence.utilizations["resource"]
    assert any(part.startswith("the use of the connections to the database") for part in evidence.unmeasured)


def test_a_saturated_store_outranks_the_slots_that_wait_for_it() -> None:
    # 8,000 requests/s at 120 µs each are 96 % of one thread.
    bottleneck = only(System(store_cpu_us=120)).bottleneck
    assert bottleneck.names == ("the store's busiest thread",)
    assert any("full as well" in line for line in words.evidence(bottleneck))


def test_a_host_that_fills_up_beyond_the_knee_did_not_make_it() -> None:
    dataset = synthetic_dataset(System(cores=2))
    crowded = (pl.col("point") >= 4) & pl.col("target").is_in(["host", "load-0"])
    dataset.probes = dataset.probes.with_columns(pl.when(crowded).then(1.4).otherwise(0.0).alias("cpu_system_s"))
    bottleneck = only_verdict(dataset).bottleneck
    assert bottleneck.names == ("the middleware's worker slots",)
    assert any("The host's CPU becomes full only beyond the knee" in line for line in words.evidence(bottleneck))


def test_two_resources_that_saturate_together_are_both_named() -> None:
    bottleneck = only(System(store_cpu_us=120, middleware_cpu_us=238)).bottleneck
    assert set(bottleneck.names) == {"the store's busiest thread", "the middleware's busiest thread"}


def test_a_knee_of_the_load_generator_is_not_the_systems() -> None:
    system = System(load_bound=True, load_cpu_us=100, slots=64)
    verdict = only(system)
    assert verdict.knee.clients is not None
    assert verdict.knee.clients.estimate == pytest.approx(system.knee, rel=0.03)
    assert verdict.bottleneck.status == "load generator"
    assert verdict.bottleneck.components[0].name == "between client and middleware"
    assert "other demand" not in doubts(verdict.bottleneck)


def test_a_load_generator_that_complains_is_believed() -> None:
    dataset = synthetic_dataset(System(load_bound=True, load_cpu_us=100, slots=64))
    # Its thread looks idle, for instance because it ran on a machine without a probe.
    dataset.stations = dataset.stations.with_columns(pl.lit(None, dtype=pl.Float64).alias("thread_cpu_max_s"))
    dataset.probes = dataset.probes.clear()
    dataset.summaries = dataset.summaries.with_columns(
        bottleneck_reason=pl.lit("cpu"), bottleneck_detail=pl.lit("thread load-0 used 99 % of a core")
    )
    verdict = only_verdict(dataset)
    assert verdict.bottleneck.status == "load generator"
    assert "99 % of a core" in " ".join(words.evidence(verdict.bottleneck))


def complaining(system: System, reason: str) -> Dataset:
    dataset = synthetic_dataset(system)
    dataset.summaries = dataset.summaries.with_columns(
        bottleneck_reason=pl.when(pl.col("point") >= 2).then(pl.lit(reason)), bottleneck_detail=pl.lit("it said so")
    )
    return dataset


def test_generator_waiting_on_a_full_host_is_not_the_limit() -> None:
    findings = analyse(complaining(System(cores=1, store_cpu_us=60, middleware_cpu_us=40), "late"))
    assert LoadWaited(affected=9, runs=15, full=9) in findings.warnings
    (verdict,) = findings.verdicts
    assert verdict.bottleneck.names == ("the host's CPU",)


def test_generator_waiting_beside_idle_cores_is_a_doubt() -> None:
    verdict = only_verdict(complaining(System(), "late"))
    assert verdict.bottleneck.names == ("the middleware's worker slots",)
    assert "load waited" in doubts(verdict.bottleneck)


def test_a_generator_without_cpu_time_left_is_warned_about() -> None:
    assert LoadLimited(9, 15, "it said so") in warnings_of(complaining(System(), "cpu"))


def test_store_elsewhere_is_named_as_unmeasured() -> None:
    verdict = only_verdict(elsewhere(synthetic_dataset(System()), "store"))
    assert verdict.bottleneck.names == ("the middleware's worker slots",)
    assert "Not measured: the stores (they run elsewhere)." in words.evidence(verdict.bottleneck)
    assert verdict.bottleneck.confidence == "medium"


@pytest.mark.parametrize(
    ("kind", "unmeasured"),
    [
        ("null", ()),
        ("sqlite", ("the database, which runs within the middleware",)),
        ("postgresql", ("the database",)),
        ("postgresql elsewhere", ("the database (it runs elsewhere)",)),
        (None, ("the middlewares (they run elsewhere)", "the stores behind them")),
    ],
)
def test_no_store_is_missed_where_middlewares_have_none(kind: str | None, unmeasured: tuple[str, ...]) -> None:
    dataset = elsewhere(synthetic_dataset(System(), (8,)), "store")
    if kind is None:
        configured(elsewhere(dataset, "middleware"), {"store": None})
    else:
        name, *there = kind.split(" ")
        configured(dataset, {"store.kind": name} | ({} if there else {"store.address": None}))
    assert evidence_of_run(configured(dataset, {"workload.protocol": "queue"})).unmeasured == unmeasured


def test_runs_on_middlewares_elsewhere_give_a_warning() -> None:
    def warned(dataset: Dataset) -> list[str]:
        return [words.warning(one) for one in warnings_of(dataset) if isinstance(one, LeftElsewhere)]

    dataset = pooled(System(), workers=16, clients=(2, 8))
    assert warned(dataset) == []
    # One that failed leaves something as well.
    failed = (pl.col("point") == 0) & (pl.col("repetition") == 1)
    dataset.points = dataset.points.with_columns(
        pl.when(failed).then(pl.lit("failed")).otherwise("status").alias("status")
    )
    (said,) = warned(elsewhere(dataset, "middleware"))
    assert said.startswith("Knee cleared nothing between the 6 runs, because another machine runs the middlewares.")
    assert "sends" not in said
    configured(dataset, {"workload.backlog": 1000})
    assert "sends another 1000 messages before it starts" in warned(dataset)[0]


def test_a_store_that_only_the_probe_sees_is_measured() -> None:
    dataset = synthetic_dataset(System(store_cpu_us=120))
    for name in ("windows", "stations"):
        setattr(dataset, name, getattr(dataset, name).filter(pl.col("role") != "store"))
    verdict = only_verdict(dataset)
    assert verdict.bottleneck.names == ("the store's busiest thread",)
    assert not any("Not measured" in line for line in words.evidence(verdict.bottleneck))


def test_links_that_were_not_emulated_are_not_measured() -> None:
    dataset = configured(synthetic_dataset(System(), (8,)), {"load.link_mbit": 100.0})
    assert "the use of the links (link_mbit was not emulated)" in evidence_of_run(dataset).unmeasured


def with_full_link(role: str) -> Dataset:
    """A run whose first process of a tier fills its sending link of 100 Mbit/s."""
    dataset = configured(synthetic_dataset(System()), {f"{role}.link_mbit": 100.0})
    dataset.manifest = {**dataset.manifest, "links_emulated": True}
    # Throughput ends at 8,000 requests/s, whose answers fill the link.
    answered = dataset.windows.filter(role="load").group_by("point", "repetition").agg(pl.col("count").sum())
    rates = answered.select("point", "repetition", (pl.col("count") / answered["count"].max()).alias("_share"))
    sent = (pl.col("target") == f"{role}-0").cast(pl.Float64) * pl.col("_share") * 0.99 * 12.5e6 * pl.col("seconds")
    dataset.probes = (
        dataset.probes.join(rates, on=["point", "repetition"])
        .with_columns(sent.cast(pl.Int64).alias("net_tx_bytes"), pl.lit(0).alias("net_rx_bytes"))
        .drop("_share")
    )
    return dataset


def test_full_link_of_an_emulated_store_is_the_bottleneck() -> None:
    dataset = with_full_link("store")
    verdict = only_verdict(dataset)
    assert verdict.bottleneck.names == ("the store's sending link",)
    assert not any("links" in line for line in words.evidence(verdict.bottleneck))
    (own,) = laws_of_run(dataset).demands
    (link,) = (each for each in own.demands if each.station == "store-0's sending link")
    assert link.capacity.estimate == pytest.approx(8000 / 0.99, rel=0.02)


def test_full_link_of_a_load_generator_is_named() -> None:
    found = only_verdict(with_full_link("load")).bottleneck
    assert words.bottleneck(found).startswith("The load generator's sending link is the limit")
    assert "Give the load generator more hosts or faster links, and measure again." in words.evidence(found)


def test_a_warning_that_begins_with_a_field_keeps_its_spelling() -> None:
    dataset = synthetic_dataset(System(), (8,))
    dataset.manifest = {**dataset.manifest, "notes": ["link_mbit was not emulated", "two notes"]}
    assert {"link_mbit was not emulated.", "Two notes."} <= set(map(words.warning, warnings_of_folder(dataset)))


@modelless
def test_common_obstacle_is_printed_once() -> None:
    text = render_text(analyse(synthetic_dataset(System(), (8,), workers=(4, 8))))
    assert text.count("Only 1 client count was measured") == 1
    assert text.count("Bottleneck  ") == 2


def test_busy_host_names_users_of_its_cpu() -> None:
    bottleneck = only(System(cores=1, store_cpu_us=60, middleware_cpu_us=40)).bottleneck
    assert bottleneck.names == ("the host's CPU",)
    assert bottleneck.cpu_shares["store"] == pytest.approx(0.48, abs=0.01)
    assert bottleneck.cpu_shares["load"] == pytest.approx(0.16, abs=0.01)
    assert bottleneck.confidence != "high"
    assert any("uses the same cores" in line for line in words.evidence(bottleneck))


def test_host_full_of_other_programs_gives_no_bottleneck() -> None:
    dataset = synthetic_dataset(System(cores=2))
    others = pl.when(pl.col("target") == "host").then(2.0 - pl.col("cpu_user_s")).otherwise(0.0)
    dataset.probes = dataset.probes.with_columns(cpu_system_s=others)
    findings = analyse(dataset)
    (verdict,) = findings.verdicts
    assert verdict.bottleneck.status == "cannot tell"
    assert verdict.bottleneck.cause == "other programs"
    (outsiders,) = (one for one in findings.warnings if isinstance(one, Outsiders))
    assert (outsiders.affected, outsiders.runs) == (15, 15)
    assert not any(isinstance(one, Outsiders) for one in findings_of(System(cores=2)).warnings)

    (report,) = findings.laws.demands
    assert "the host's CPU" not in [demand.station for demand in report.demands]
    assert "The service demand of the host's CPU is unknown: programs outside the experiment filled it." in (
        sentences(findings.laws)
    )
    assert not any("By service demand, the host's CPU" in line for line in words.evidence(verdict.bottleneck))

    by_itself = findings_of(System(cores=1, store_cpu_us=60, middleware_cpu_us=40))
    assert "the host's CPU" in [demand.station for demand in by_itself.laws.demands[0].demands]


def test_host_full_of_emulated_links_gives_no_bottleneck() -> None:
    dataset = synthetic_dataset(System(cores=2))
    used = pl.col("cpu_user_s")
    host = dataset.probes.filter(pl.col("target") == "host")
    relay = host.with_columns(target=pl.lit("links"), cpu_user_s=2.0 - used, cpu_system_s=pl.lit(0.0))
    full = dataset.probes.with_columns(
        cpu_system_s=pl.when(pl.col("target") == "host").then(2.0 - used).otherwise(pl.col("cpu_system_s"))
    )
    dataset.probes = pl.concat([full, relay.select(full.columns)], how="vertical_relaxed")
    findings = analyse(dataset)
    (verdict,) = findings.verdicts
    assert verdict.bottleneck.cause == "emulated links"
    assert not any(isinstance(one, Outsiders) for one in findings.warnings)
    assert "emulated links took" in words.bottleneck(verdict.bottleneck)


@pytest.mark.parametrize("most", [0.5, 0.85])
def test_cpu_of_other_programs_is_no_service_demand(most: float) -> None:
    quiet, shared = (synthetic_dataset(System(cores=2)) for _ in range(2))
    # So much of the host is in use, unless the system itself takes more.
    used = pl.max_horizontal(2 * most - pl.col("cpu_user_s"), 0.0)
    host = pl.col("target") == "host"
    shared.probes = shared.probes.with_columns(cpu_system_s=pl.when(host).then(used).otherwise("cpu_system_s"))

    def host_demand(dataset: Dataset) -> tuple[float, float]:
        (report,) = laws_of_run(dataset).demands
        (demand,) = (demand for demand in report.demands if demand.station == "the host's CPU")
        return demand.demand_ms.estimate, demand.servers

    (shared_ms, shared_servers), (quiet_ms, quiet_servers) = host_demand(shared), host_demand(quiet)
    assert shared_ms == pytest.approx(quiet_ms, rel=1e-6)
    assert shared_servers < 2 == quiet_servers


def test_slower_processors_in_one_repetition_give_a_warning() -> None:
    dataset = synthetic_dataset(System(), (8, 16, 32))
    assert not any(isinstance(one, SpeedChanged) for one in warnings_of(dataset))
    slower = pl.when(repetition=2).then(1.6).otherwise(1.0)
    dataset.probes = dataset.probes.with_columns(pl.col("cpu_user_s") * slower)
    (changed,) = (one for one in warnings_of(dataset) if isinstance(one, SpeedChanged))
    assert (changed.affected, changed.points) == (3, 3)
    assert changed.worst == pytest.approx(1.6, rel=0.02)


@pytest.mark.parametrize(
    ("slow", "fails", "warns"),
    [
        (r"^(load|middleware|store)-", False, True),
        (r"^store-", False, False),
        (r"^(load|middleware|store)-", True, False),
    ],
    ids=["all programs", "store alone", "requests fail"],
)
def test_processors_slower_in_one_part_of_a_run_give_a_warning(slow: str, fails: bool, warns: bool) -> None:
    """A store alone may have more work, and failed requests are other work: neither shows slower processors."""
    dataset = synthetic_dataset(System(), (8, 16), seconds=40)
    late = pl.col("target").str.contains(slow) & (pl.col("elapsed_s") >= 20) & (pl.col("repetition") == 1)
    factor = pl.when(late & (pl.col("point") == 0)).then(1.6).otherwise(1.0)
    dataset.probes = dataset.probes.with_columns(pl.col("cpu_user_s", "cpu_system_s") * factor)
    dataset.windows = dataset.windows.with_columns(
        errors=pl.when(pl.lit(fails) & (pl.col("elapsed_s") >= 20)).then(pl.col("count")).otherwise(0)
    )
    found = [one for one in warnings_of(dataset) if isinstance(one, SpeedVaried)]
    assert len(found) == warns
    for varied in found:
        assert (varied.affected, varied.runs) == (1, 6)
        assert varied.worst == pytest.approx(1.6, rel=0.05)
        assert "within 1 of 6 runs: in one part of a run, a request took each program at least" in words.warning(varied)


def test_stolen_cpu_gives_a_warning_and_is_no_capacity() -> None:
    dataset = synthetic_dataset(System(), (2, 8))
    quiet = utilizations(dataset)
    assert not any(isinstance(one, Stolen) for one in warnings_of(dataset))
    host = pl.col("target") == "host"
    dataset.probes = dataset.probes.with_columns(
        pl.when(host).then(0.25 * pl.col("cpu_count") * pl.col("seconds")).alias("cpu_steal_s")
    )
    (stolen,) = (one for one in warnings_of(dataset) if isinstance(one, Stolen))
    assert (stolen.median, stolen.worst) == pytest.approx((0.25, 0.25))
    robbed, before = (frame.filter(resource="host CPU")["utilization"] for frame in (utilizations(dataset), quiet))
    assert robbed.to_list() == pytest.approx((before / 0.75).to_list())


@modelless
def test_run_of_two_factors_has_their_effects_and_a_verdict_for_each_level() -> None:
    findings = analyse(synthetic_dataset(System(), (4, 8, 16, 24, 48), workers=(4, 8)))
    assert [each.response for each in findings.effects] == ["throughput", "response_ms"]
    assert findings.unexplained == ()
    assert "\nFactors     Largest effect on throughput: load.clients." in render_text(findings)
    verdicts = findings.verdicts
    assert [verdict.label for verdict in verdicts] == ["middleware.workers = 4", "middleware.workers = 8"]
    estimates = [verdict.knee.clients.estimate for verdict in verdicts if verdict.knee.clients]
    assert estimates == pytest.approx([10, 20], rel=0.03)


@modelless
def test_the_text_leads_with_the_verdict() -> None:
    findings = findings_of(System())
    assert (findings.effects, findings.unexplained) == ((), ())
    assert "Factors" not in render_text(findings)
    lines = render_text(findings).splitlines()
    assert lines[2].startswith("Knee        The knee is at 20 clients, between the measured 16 and 24 clients.")
    assert any("At 24 clients, the smallest measured number above the knee, throughput is " in line for line in lines)
    assert any(line.startswith("Bottleneck  The bottleneck is the middleware's worker slots") for line in lines)
    assert any(line.startswith("Laws        The interactive law holds within 2%") for line in lines)


@modelless
def test_a_level_that_does_not_keep_up_is_not_the_best() -> None:
    csv = """pool,rate,throughput,response_ms
1,1000,301,1.04
1,1000,301,1.05
8,1000,1000,5.04
8,1000,1001,5.05
"""
    text = render_text(analyse(parse(csv, "theirs.csv")))
    assert "The response time can be judged only with pool = 8" in text
    assert "With 1, throughput does not follow the arrival rate" in text


def test_run_with_missing_points_has_reasons_instead_of_factors() -> None:
    dataset = synthetic_dataset(System(), (4, 16, 48), workers=(4, 8), repetitions=2)
    for name in ("points", "windows", "stations", "probes", "summaries"):
        setattr(dataset, name, getattr(dataset, name).filter(pl.col("point") != 3))
    findings = analyse(dataset)
    assert findings.effects == ()
    assert [one.response for one in findings.unexplained] == ["throughput", "response_ms"]
    assert "1 of 6 cells is missing" in words.unexplained(findings.unexplained[0])


def test_a_table_is_diagnosed_as_a_run_is() -> None:
    verdicts = {verdict.label: verdict for verdict in analyse(parse(closed_system(), "theirs.csv")).verdicts}
    assert list(verdicts) == ["cache = cold", "cache = warm"]
    # N* = (D + Z) / D with one server of demand D and Z = 10 ms.
    for label, truth in (("cache = cold", 6), ("cache = warm", 11)):
        knee = verdicts[label].knee
        assert knee.status == "found" and knee.clients is not None
        assert knee.clients.estimate == pytest.approx(truth, rel=0.05)
        assert verdicts[label].bottleneck.names == ("station disk",)


@modelless
def test_middleware_time_without_its_parts_is_not_divided() -> None:
    rows = "".join(f"{n},{min(n, 8)}000,{max(n, 8) / 8},{min(n, 8)}000,{max(n, 8) / 16}\n" for n in (4, 8, 16, 32))
    header = "clients,throughput,response_ms,middleware_throughput,middleware_response_ms"
    (verdict,) = analyse(parse(f"{header}\n{rows}", "theirs.csv")).verdicts
    assert verdict.knee.levels and verdict.bottleneck.components == ()


@modelless
def test_a_station_that_never_saturates_is_no_bottleneck() -> None:
    text = render_text(analyse(parse(without(closed_system(), "utilization_disk"), "theirs.csv")))
    assert "Cannot tell the bottleneck: no resource is near saturation" in text
    assert "Busiest: station cpu" in text


def without(csv: str, *columns: str) -> str:
    """A CSV less some of its columns."""
    header, *rows = [line.split(",") for line in csv.splitlines()]
    kept = [number for number, name in enumerate(header) if name not in columns]
    return "\n".join(",".join(row[number] for number in kept) for row in (header, *rows))


@modelless
@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (("response_ms",), "Cannot look for a knee without response times (column response_ms)."),
        (("clients",), "Cannot look for a knee without the number of clients (column clients)."),
        (("throughput",), "Cannot look for a knee without throughput (column throughput)."),
        (("clients", "response_ms"), "clients (column clients) and response times (column response_ms)."),
        (("utilization_disk", "utilization_cpu"), "Cannot tell the bottleneck: no utilisation was measured."),
    ],
    ids=["no response times", "no clients", "no throughput", "neither", "no utilisation"],
)
def test_table_without_a_column_names_it(missing: tuple[str, ...], says: str) -> None:
    csv = without(closed_system(), "repetition", *missing)
    text = render_text(analyse(parse(csv, "theirs.csv")))
    assert says in text
    assert "Traceback" not in text and "nan" not in text.lower().split()


@modelless
def test_utilisations_without_a_knee_are_not_judged() -> None:
    text = render_text(analyse(parse(without(closed_system(), "response_ms"), "theirs.csv")))
    assert "the bottleneck saturates at the knee, and the knee is unknown" in text
    assert "Busiest at any load: disk 100%" in text


def test_many_combinations_are_cut_with_a_warning() -> None:
    rows = [f"{clients},{setting},{clients},5" for setting in range(VERDICTS_MAX + 3) for clients in (1, 2, 4)]
    findings = analyse(parse("\n".join(["clients,setting,throughput,response_ms", *rows]), "theirs.csv"))
    assert len(findings.verdicts) == VERDICTS_MAX
    assert LeftOut(VERDICTS_MAX, VERDICTS_MAX + 3) in findings.warnings


def test_a_knee_is_one_of_all_requests_together() -> None:
    header, *rows = closed_system().splitlines()
    reads = [row.replace("cold,", "cold,read,").replace("warm,", "warm,read,") for row in rows]
    both = [*reads, *(row.replace("read,", "All,") for row in reads)]
    csv = "\n".join([header.replace("cache,", "cache,request_type,", 1), *both])
    verdicts = {verdict.label: verdict for verdict in analyse(parse(csv, "theirs.csv")).verdicts}
    assert verdicts["cache = cold, request_type = All"].knee.status == "found"
    assert verdicts["cache = cold, request_type = read"].knee.obstacle == Obstacle("single request type")
    assert len(verdicts) == 4


def test_constant_throughput_of_zero_is_named() -> None:
    rows = "\n".join(f"{a},{clients},0,0" for a in (1, 2) for clients in (1, 2, 4))
    findings = analyse(parse(f"a,clients,throughput,response_ms\n{rows}\n", "theirs.csv"))
    assert findings.has_common_obstacle and findings.verdicts[0].knee.obstacle == Obstacle("no answer")
    assert findings.effects == ()
    assert findings.unexplained[0] == Unexplained("throughput", constant=True)


@cache
def stations_table(**service_ms: float) -> Findings:
    """A system whose database saturates at 1,000 requests/s, 20 ms without waiting, with service times as given."""
    columns = ("clients", "repetition", "throughput", "response_ms", "utilization_db")
    header = ",".join([*columns, *(f"{name}_{station}" for station in service_ms for name in ("service_ms", "visits"))])
    rows = []
    for clients in (1, 5, 10, 20, 40, 80):
        for repetition, noise in enumerate((0.998, 1.0, 1.002), 1):
            throughput = noise * min(1000.0, 50.0 * clients)
            measured = [clients, repetition, throughput, 1000 * clients / throughput, min(1.0, throughput / 1000)]
            rows.append(",".join(map(str, [*measured, *(part for own in service_ms.values() for part in (own, 1))])))
    return analyse(parse("\n".join([header, *rows]), "theirs.csv"))


def test_demands_naming_another_bottleneck_are_a_doubt() -> None:
    """Two verdicts on one page must know of each other."""
    (verdict,) = stations_table(db=1.0, cache=1.4).verdicts
    assert verdict.bottleneck.names == ("station db",)
    assert any("By service demand, cache saturates first" in line for line in words.evidence(verdict.bottleneck))
    assert Doubt("other demand", name="cache") in verdict.bottleneck.doubts
    (agreed,) = stations_table(db=1.0, cache=0.4).verdicts
    assert agreed.bottleneck.names == ("station db",)
    assert not any("By service demand" in line for line in words.evidence(agreed.bottleneck))
    assert len(agreed.bottleneck.doubts) == len(verdict.bottleneck.doubts) - 1


@pytest.mark.parametrize(
    ("station", "says"),
    [
        ("middleware-0's connections", "middleware-0's connections saturate first: they allow at most"),
        ("load-0's threads", "load-0's threads saturate first: they allow at most"),
        ("the stores", "the stores saturate first: they allow at most"),
        ("the host's CPU", "the host's CPU saturates first: it allows at most"),
        ("bus", "bus saturates first: it allows at most"),
        ("the bus's lock", "the bus's lock saturates first: it allows at most"),
    ],
)
def test_stations_of_several_saturate_and_one_saturates(station: str, says: str) -> None:
    found = stations_table(db=1.0, cache=1.4)
    (verdict,) = found.verdicts
    (demands,) = found.laws.demands
    assert demands.bottleneck is not None
    named = replace(demands, bottleneck=replace(demands.bottleneck, station=station))
    said = words.evidence(with_demands(verdict, replace(found.laws, demands=(named,))).bottleneck)[-1]
    assert says in said


def test_demands_without_utilisation_name_a_bottleneck() -> None:
    """Seed 001's own queueing model: nothing but visits and service times."""
    text = "clients,visits_db,service_ms_db,servers_db,visits_web,service_ms_web,servers_web\n2,1,1.4,6,1,0.001,20\n"
    (verdict,) = analyse(parse(text, "theirs.csv")).verdicts
    assert verdict.bottleneck.status == "cannot tell"
    assert any("By service demand, db saturates first" in line for line in words.evidence(verdict.bottleneck))


def test_a_law_violated_besides_the_interactive_one_is_no_secret() -> None:
    """Seed 000, table 21: the interactive law holds, Little's law does not."""
    text = "clients,throughput,response_ms,queue_length,queueing_ms\n"
    rows = ((10, 1000, 10, 0, 5), (20, 1000, 20, 15, 15), (40, 1000, 40, 35, 35))
    found = analyse(parse(text + "\n".join(",".join(map(str, row)) for row in rows), "theirs.csv"))
    first, also = words.law_lines(found.laws)
    assert "holds" in first
    assert also == "Other violated laws: Little's law."


@modelless
@pytest.mark.parametrize("counts", [(4,), (4, 8, 16, 32, 64)], ids=["one count", "one repetition"])
def test_table_gets_no_names_of_run_settings(counts: tuple[int, ...]) -> None:
    rows = [
        f"{n},{1000 * repairman(n, 8, 2.0, 1.0)[0]:.6g},{n / repairman(n, 8, 2.0, 1.0)[0] - 1:.6g},1" for n in counts
    ]
    text = render_text(analyse(parse("\n".join(["clients,throughput,response_ms,think_ms", *rows]), "theirs.csv")))
    assert "Measure more client counts" in text if len(counts) == 1 else "three times or more" in text
    assert "load.clients" not in text and "measure." not in text


def filling(
    throughput: dict[int, float], busy: dict[tuple[str, str], list[float]], load_limits: Sequence[str] = ()
) -> Bottleneck:
    """The bottleneck of three equal repetitions, with the utilisation of each role's resource by client count."""
    runs = [(count, run) for count in throughput for run in range(3)]
    keys = {"point": [count for count, _ in runs], "repetition": [run for _, run in runs]}
    observations = pl.DataFrame({**keys, "clients": keys["point"], "throughput": [throughput[c] for c, _ in runs]})
    utilization = pl.concat(
        pl.DataFrame({**keys, "utilization": np.repeat(values, 3)}).with_columns(
            role=pl.lit(role), process=pl.lit(f"{role}-0"), resource=pl.lit(resource)
        )
        for (role, resource), values in busy.items()
    )
    shares = pl.DataFrame(schema={**dict.fromkeys(keys, pl.Int64), "machine": str, "owner": str, "share": float})
    return find_bottleneck(find_knee(curve(*throughput.items())), observations, utilization, shares, load_limits)


QUEUE = {1: 3910.0, 2: 5127.0, 30: 5686.0, 100: 5686.0}
"""Throughput as in a run of seed 001's loop with 20 slots, on two processors, but flat from 30 clients on."""

SLOTS, POOL = ("middleware", "worker slots"), ("middleware", "connections")


@pytest.mark.parametrize(("at_knee", "is_late"), [(0.08, True), (0.4, True), (0.5, False)])
def test_slots_that_fill_beyond_the_knee_are_no_bottleneck(at_knee: float, is_late: bool) -> None:
    bottleneck = filling(QUEUE, {SLOTS: [at_knee / 2, at_knee, 0.92, 0.92]})
    assert bottleneck.names == (() if is_late else ("the middleware's worker slots",))
    if is_late:
        assert words.bottleneck(bottleneck) == (
            f"Cannot tell the bottleneck: the middleware's worker slots ({at_knee:.0%} busy at 2 clients, 92% at 100) "
            "fill beyond the knee. Requests hold them far longer there, because they wait for another resource."
        )


@pytest.mark.parametrize("also", [("load", "thread"), ("store", "thread"), ("host", "host CPU")])
def test_resource_that_fills_beyond_the_knee_with_slots_is_no_bottleneck(also: tuple[str, str]) -> None:
    slots = {SLOTS: [0.04, 0.08, 0.92, 0.92]}
    bottleneck = filling(QUEUE, slots | {also: [0.2, 0.3, 0.8, 0.92]}, ["threads were late"])
    assert (bottleneck.status, bottleneck.cause) == ("cannot tell", "held longer")
    (named,) = (line for line in words.evidence(bottleneck) if "becomes full only beyond the knee" in line)
    assert "(30% busy at 2 clients, 92% at 100)" in named
    assert "The load generator reports that it was a limit: threads were late." in words.evidence(bottleneck)


def test_slots_before_connections_that_fill_late_are_no_bottleneck() -> None:
    throughput = {1: 1000.0, 4: 2000.0, 8: 2050.0, 100: 2050.0}
    bottleneck = filling(throughput, {SLOTS: [0.2, 0.55, 0.95, 1.0], POOL: [0.15, 0.44, 0.8, 0.95]})
    assert bottleneck.names == ()
    assert [pool.name for pool in bottleneck.held] == ["the middleware's connections"]


def test_slots_with_falling_throughput_stay_the_bottleneck() -> None:
    falling = {1: 700.0, 2: 1000.0, 4: 1000.0, 8: 950.0, 100: 400.0}
    bottleneck = filling(falling, {SLOTS: [0.7, 0.97, 0.99, 1.0, 1.0]})
    assert bottleneck.names == ("the middleware's worker slots",)
