"""Bounds against the exact throughput of product-form networks, and demands against what was put in."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knee.laws import STATIONS, check_laws, render_text, sentences, service_demands, throughput_bounds
from knee.laws.text import bottleneck_sentence
from knee.verdict.words.bottleneck import by_demand

CLIENTS_MAX = 12

stations_ = st.lists(st.tuples(st.floats(1e-3, 10), st.sampled_from([1.0, 1.0, 2.0, 3.0, 8.0])), min_size=1, max_size=5)


def exact(stations: list[tuple[float, float]], think_ms: float) -> list[float]:
    """X(1), …, X(CLIENTS_MAX) of a closed product-form network by convolution (Buzen 1973), in requests/s."""
    constants = [think_ms**n / math.factorial(n) for n in range(CLIENTS_MAX + 1)]
    for demand, servers in stations:
        terms = [1.0]
        for number in range(1, CLIENTS_MAX + 1):
            terms.append(terms[-1] * demand / min(number, servers))
        constants = [sum(constants[n - j] * terms[j] for j in range(n + 1)) for n in range(CLIENTS_MAX + 1)]
    return [1000 * constants[n - 1] / constants[n] for n in range(1, CLIENTS_MAX + 1)]


@given(stations=stations_, think_ms=st.floats(0, 20))
def test_the_exact_throughput_lies_within_all_bounds(stations: list[tuple[float, float]], think_ms: float) -> None:
    for clients, throughput in enumerate(exact(stations, think_ms), 1):
        bounds = throughput_bounds(clients, stations, think_ms)
        for low, high in (bounds.asymptotic, bounds.balanced):
            assert low <= throughput * (1 + 1e-9)
            assert throughput <= high * (1 + 1e-9)
        assert bounds.asymptotic[0] <= bounds.balanced[0] * (1 + 1e-9)
        assert bounds.balanced[1] <= bounds.asymptotic[1] * (1 + 1e-9)


@given(stations=stations_, think_ms=st.floats(0, 20))
def test_knowing_the_busiest_station_alone_is_enough_for_bounds(
    stations: list[tuple[float, float]], think_ms: float
) -> None:
    busiest = max(stations, key=lambda station: station[0] / station[1])
    elsewhere_ms = sum(demand for demand, _ in stations) - busiest[0]
    for clients, throughput in enumerate(exact(stations, think_ms), 1):
        bounds = throughput_bounds(clients, [busiest], think_ms, elsewhere_ms=max(0.0, elsewhere_ms))
        low, high = bounds.balanced
        assert low <= throughput * (1 + 1e-9)
        assert throughput <= high * (1 + 1e-9)


@given(clients=st.integers(1, 100), demand=st.floats(0.01, 10), count=st.integers(1, 6))
def test_a_balanced_system_without_think_time_meets_its_bounds(clients: int, demand: float, count: int) -> None:
    """X = N / (D (N + K − 1) / K): the upper and the lower bound are one (Lazowska et al. 1984, ch. 5)."""
    bounds = throughput_bounds(clients, [(demand, 1.0)] * count)
    throughput = 1000 * clients / (demand * (clients + count - 1))
    assert bounds.balanced == pytest.approx((throughput, throughput))
    assert bounds.response_ms == pytest.approx((demand * (clients + count - 1),) * 2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clients": 0, "demands": [(1.0, 1)]}, "expected one client"),
        ({"clients": math.inf, "demands": [(1.0, 1)]}, "expected one client"),
        ({"clients": 1, "demands": [(-1.0, 1)]}, "times from 0"),
        ({"clients": 1, "demands": [(math.nan, 1)]}, "times from 0"),
        ({"clients": 1, "demands": [(1.0, 0)]}, "one server"),
        ({"clients": 1, "demands": []}, "all are zero"),
        ({"clients": 1, "demands": [(0.0, 1)]}, "all are zero"),
    ],
)
def test_impossible_arguments_are_named(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        throughput_bounds(**arguments)  # type: ignore[arg-type]


def network(levels: dict[int, float], *, repetitions: int = 3, noise: float = 0.0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Measurements of a network of disk (3 ms) and CPU (4 ms on 2 servers), and of its stations."""
    rows, stations = [], []
    for point, (clients, think_ms) in enumerate(levels.items()):
        demands = [(3.0, 1.0), (4.0, 2.0)]
        throughput = exact(demands, think_ms)[clients - 1]
        for repetition in range(1, repetitions + 1):
            x = throughput * (1 + noise * (repetition - 2))
            run = {"point": point, "repetition": repetition}
            rows.append(
                run
                | {"clients": clients, "think_ms": think_ms, "throughput": x}
                | {"response_ms": 1000 * clients / x - think_ms}
            )
            for name, (demand, servers) in zip(("disk", "CPU"), demands, strict=True):
                busy = throughput * demand / 1000 / servers
                stations.append(run | {"station": name, "software": False, "servers": servers, "utilization": busy})
    return pl.DataFrame(rows), pl.DataFrame(stations, schema=STATIONS)


def test_demands_bottleneck_and_saturation_come_out_as_put_in() -> None:
    observations, stations = network(dict.fromkeys((1, 2, 4, 8, 12), 5.0))
    (report,) = service_demands(observations, stations)
    assert [(d.station, d.demand_ms.estimate) for d in report.demands] == [
        ("disk", pytest.approx(3.0)),
        ("CPU", pytest.approx(4.0)),
    ]
    assert report.bottleneck is not None and report.bottleneck.station == "disk"
    assert report.bottleneck.capacity.estimate == pytest.approx(1000 / 3)
    assert report.light_ms is not None and report.light_ms.estimate == pytest.approx(7.0)
    assert report.saturation is not None and report.saturation.estimate == pytest.approx((7 + 5) / 3)
    assert [check.verdict for check in report.bounds] == ["holds"] * 5


def test_bounds_need_a_measured_throughput() -> None:
    observations, stations = network(dict.fromkeys((1, 4, 8), 5.0), noise=0.01)
    lost = ((pl.col("clients") == 4) & (pl.col("repetition") == 1)) | (pl.col("clients") == 8)
    (report,) = service_demands(observations.with_columns(throughput=pl.when(~lost).then("throughput")), stations)
    assert [(check.clients, check.throughput.repetitions) for check in report.bounds] == [(1, 3), (4, 2)]
    assert all(math.isfinite(check.throughput.estimate) for check in report.bounds)


def test_noise_widens_the_interval_of_the_saturation() -> None:
    observations, stations = network(dict.fromkeys((1, 12), 5.0), noise=0.02)
    (report,) = service_demands(observations, stations)
    assert report.saturation is not None
    low, high = report.saturation.low, report.saturation.high
    assert low is not None and high is not None and low < 4.0 < high
    assert report.saturation.half_width == pytest.approx(
        # Both factors have a relative standard error of 2 %/√3, the light one less that of think time.
        4.0 * 2.776 * math.hypot(0.02 / math.sqrt(3), 0.02 / math.sqrt(3)),
        rel=0.05,
    )


@pytest.mark.parametrize("counts", [(1, 12), (12,)], ids=["of different runs", "of the same runs"])
def test_a_saturation_is_above_zero_however_much_repetitions_differ(counts: tuple[int, ...]) -> None:
    observations, stations = network(dict.fromkeys(counts, 0.0), repetitions=2)
    slow = pl.col("repetition") == 2
    stations = stations.with_columns(
        service_ms=pl.when(pl.col("station") == "disk").then(3.0).otherwise(4.0), visits=1.0
    ).with_columns(pl.when(slow & (pl.col("station") == "disk")).then(30.0).otherwise("service_ms").alias("service_ms"))
    (report,) = service_demands(observations, stations.cast(STATIONS))
    assert report.saturation is not None
    low, high = report.saturation.low, report.saturation.high
    assert low is not None and high is not None and 0 < low < report.saturation.estimate < high


@pytest.mark.parametrize(
    ("low", "words"), [(-9.0, "about 333 requests/s (the runs differ"), (300.0, "333 ± 33 requests/s")]
)
def test_capacity_interval_that_reaches_zero_is_left_out(low: float, words: str) -> None:
    observations, stations = network(dict.fromkeys((1, 2, 4), 5.0))
    (report,) = service_demands(observations, stations)
    assert report.bottleneck is not None
    capacity = replace(report.bottleneck.capacity, low=low, high=2 * 1000 / 3 - low)
    noisy = replace(report, bottleneck=replace(report.bottleneck, capacity=capacity))
    assert f"allows at most {words}" in bottleneck_sentence(noisy)


def test_throughput_beyond_constant_demands_is_reported() -> None:
    observations, stations = network(dict.fromkeys((1, 4, 12), 5.0))
    faster = observations.with_columns(
        throughput=pl.when(pl.col("clients") == 4).then(1.3 * pl.col("throughput")).otherwise("throughput")
    )
    (report,) = service_demands(faster, stations.filter(pl.col("point") != 1))
    assert [check.verdict for check in report.bounds] == ["holds", "violated", "holds"]


def test_uncertain_bound_accuses_no_measurement() -> None:
    observations, stations = network(dict.fromkeys((1, 4, 12), 5.0))
    at_four, alone = pl.col("clients") == 4, pl.col("clients") == 1
    scattered = 1 + 0.2 * (pl.col("repetition") - 2)
    noisy = observations.with_columns(
        throughput=pl.when(at_four).then(1.2 * pl.col("throughput")).otherwise("throughput"),
        response_ms=pl.when(alone).then(scattered * pl.col("response_ms")).otherwise("response_ms"),
    )
    (report,) = service_demands(noisy, stations.filter(pl.col("point") == 2))
    assert {check.clients: check.verdict for check in report.bounds}[4] == "cannot tell"
    # In its own runs the response time that makes the bound is no further uncertainty.
    slower = observations.with_columns(
        throughput=pl.when(alone).then(1000 / (scattered * 7 + 5)).otherwise("throughput"),
        response_ms=pl.when(alone).then(scattered * 7).otherwise("response_ms"),
    )
    (report,) = service_demands(slower, stations.filter(pl.col("point") == 2))
    assert {check.clients: check.verdict for check in report.bounds}[1] == "holds"


def test_a_lightest_load_of_several_clients_may_wait_already() -> None:
    observations, stations = network(dict.fromkeys((4, 8, 12), 0.0))
    (report,) = service_demands(observations, stations)
    assert report.light_waits
    assert report.saturation is not None and report.saturation.estimate > 7 / 3
    assert "violated" not in {check.verdict for check in report.bounds}
    said = sentences(check_laws(observations, stations=stations))
    (sentence,) = (sentence for sentence in said if "Saturation begins at or below N* =" in sentence)
    assert sentence.endswith("the response time at 4 clients, which may include waiting.")
    assert not any("exceeds" in sentence for sentence in said)


def test_saturation_counts_clients_not_requests() -> None:
    observations, stations = network(dict.fromkeys((4, 8, 12), 0.0))
    (each_one,) = service_demands(observations, stations)
    deep = observations.with_columns(pl.col("clients") // 4, pipeline=pl.lit(4))
    (each_four,) = service_demands(deep, stations)
    assert each_one.saturation is not None and each_four.saturation is not None
    assert each_four.saturation.estimate == pytest.approx(each_one.saturation.estimate / 4)
    assert each_four.light_waits, "one client with four requests in flight waits for itself"


def test_shared_errors_cancel_in_the_saturation() -> None:
    observations, stations = network({12: 0.0})
    hot = 1 + 0.1 * (pl.col("repetition") - 2)
    both = stations.with_columns(
        service_ms=pl.when(pl.col("station") == "disk").then(3.0).otherwise(4.0) * hot, visits=1.0, utilization=None
    )
    (report,) = service_demands(observations, both.cast(STATIONS))
    assert report.light_source == "the sum of all demands"
    assert report.saturation is not None and report.saturation.estimate == pytest.approx(7 / 3)
    assert report.saturation.half_width == pytest.approx(0, abs=1e-9)


def test_stations_of_different_runs_are_not_compared() -> None:
    observations, stations = network({12: 0.0}, repetitions=2)
    apart = (pl.col("station") == "disk") == (pl.col("repetition") == 1)
    (report,) = service_demands(observations, stations.filter(apart))
    assert report.bottleneck is None
    assert report.doubt == "no run has both disk and CPU"


def test_alike_stations_name_no_bottleneck() -> None:
    observations, stations = network({12: 0.0})
    noisy = stations.with_columns(
        utilization=pl.when(pl.col("station") == "CPU")
        .then(stations.filter(pl.col("station") == "disk")["utilization"][0] * (1 + 0.01 * (pl.col("repetition") - 2)))
        .otherwise("utilization")
    )
    (report,) = service_demands(observations, noisy)
    assert report.bottleneck is None
    assert "scatter too much to distinguish" in report.doubt


def test_each_configuration_has_its_own_bottleneck() -> None:
    observations, stations = network({12: 0.0, 11: 0.0})
    labelled = observations.with_columns(disks=pl.col("point") + 1)
    faster = stations.with_columns(
        utilization=pl.when((pl.col("point") == 1) & (pl.col("station") == "disk"))
        .then(pl.col("utilization") / 4)
        .otherwise("utilization")
    )
    reports = service_demands(labelled, faster, ["disks"])
    assert {report.label: report.bottleneck.station for report in reports if report.bottleneck} == {
        "disks = 1": "disk",
        "disks = 2": "CPU",
    }


def test_uncertain_capacity_has_no_interval_in_sentence_and_table() -> None:
    observations, stations = network({12: 0.0, 11: 0.0})
    report = check_laws(observations, stations=stations)
    (of,) = report.demands
    assert of.bottleneck is not None
    reaching_zero = replace(of.bottleneck.capacity, estimate=14_116.0, low=-8_570.0, high=36_802.0)
    vague = replace(of.bottleneck, capacity=reaching_zero)
    assert "at most about 14,100 requests/s (the runs differ too much" in by_demand(vague)
    demands = tuple(vague if one == of.bottleneck else one for one in of.demands)
    listing = render_text(replace(report, demands=(replace(of, demands=demands, bottleneck=vague),)))
    assert "at most about 14,100 requests/s" in listing
    assert listing.count("14,100") == 2 and "14,116" not in listing


def test_full_slots_yield_to_the_saturated_resource() -> None:
    observations, stations = network({12: 0.0})
    slots = stations.filter(pl.col("station") == "disk").with_columns(
        pl.lit("slots").alias("station"), pl.lit(True).alias("software"), pl.lit(0.999).alias("utilization")
    )
    (report,) = service_demands(observations, pl.concat([stations, slots]))
    assert report.demands[0].station == "slots"
    assert report.bottleneck is not None and report.bottleneck.station == "disk"
    assert "the first station to saturate, apart from software such as worker slots, is disk" in bottleneck_sentence(
        report
    )
    idle = stations.with_columns(utilization=pl.col("utilization") / 2)
    (report,) = service_demands(observations, pl.concat([idle, slots]))
    assert report.bottleneck is not None and report.bottleneck.station == "slots"
    assert "the first station to saturate is slots" in bottleneck_sentence(report)


def test_bottlenecks_of_configurations_are_counted() -> None:
    observations, stations = network({12: 0.0, 11: 0.0, 10: 0.0}, repetitions=3)
    labelled = observations.with_columns(disks=pl.col("point") + 1)
    disk = stations.filter(pl.col("station") == "disk").select("point", "repetition", pl.col("utilization").alias("_u"))
    # At the third point the CPU is as busy as the disk, but for chance.
    alike = (
        stations.join(disk, on=["point", "repetition"])
        .with_columns(
            utilization=pl.when((pl.col("point") == 2) & (pl.col("station") == "CPU"))
            .then(pl.col("_u") * (1 + 0.01 * (pl.col("repetition") - 2)))
            .otherwise("utilization")
        )
        .drop("_u")
    )
    report = check_laws(labelled, stations=alike, by=["disks"])
    assert (
        "By service demand, the first station to saturate is disk in 2 of 3 configurations; unknown in 1 of 3 "
        "configurations." in sentences(report)
    )
