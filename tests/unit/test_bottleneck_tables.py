"""The bottleneck of a foreign table: it explains the plateau, is the system's own, and waits for nothing behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from bench.bottlenecks import FAMILIES, outcome_of
from synthetic import repairman

from knee.data.csv import parse
from knee.data.measurements import StationKind, kind_by_name
from knee.errors import MeasurementsError
from knee.verdict import analyse, words
from knee.verdict.bottleneck import Bottleneck

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128)
CERTAIN = {"clear", "load generator, by name", "load generator, by flag", "slots by name, the slots limit"}


def written(clients: Sequence[int], throughput: Sequence[float], shares: Mapping[str, Sequence[float]]) -> str:
    """A CSV of three repetitions; `throughput` is in requests/ms, and clients think for 10 ms."""
    lines = ["clients,repetition,throughput,response_ms,think_ms" + "".join(f",utilization_{name}" for name in shares)]
    for at, count in enumerate(clients):
        for repetition, noise in enumerate((0.999, 1.0, 1.001), 1):
            x = throughput[at] * noise
            cells = [count, repetition, 1000 * x, count / x - 10, 10, *(own[at] for own in shares.values())]
            lines.append(",".join(f"{cell:.6g}" for cell in cells))
    return "\n".join(lines)


def diagnosis(text: str, **kinds: StationKind) -> Bottleneck:
    (verdict,) = analyse(parse(text, "theirs.csv").with_kinds(kinds)).verdicts
    return verdict.bottleneck


def beside_limit(clients: Sequence[int] = CLIENTS, /, **demands_ms: float) -> str:
    """A table of stations with these demands; a station without measurements, with a demand of 1 ms, limits."""
    throughput = [repairman(count, 1, 1.0, 10.0)[0] for count in clients]
    return written(clients, throughput, {name: [x * own for x in throughput] for name, own in demands_ms.items()})


@pytest.mark.parametrize("family", FAMILIES)
def test_verdict_on_drawn_tables_is_never_surely_wrong(family: str) -> None:
    number = list(FAMILIES).index(family)
    found = [outcome_of(FAMILIES[family], np.random.default_rng([2, number, k])) for k in range(8)]
    assert "wrong" not in found
    assert found.count("right") >= (7 if family in CERTAIN else 0)


def test_station_below_full_beyond_the_knee_explains_nothing() -> None:
    found = diagnosis(beside_limit(disk=0.94))
    assert (found.status, found.cause) == ("cannot tell", "not explained")
    assert words.bottleneck(found) == (
        "Cannot tell the bottleneck: station disk is at most 94% busy at 64 clients and more, so an unmeasured "
        "resource limits throughput."
    )
    assert diagnosis(beside_limit(disk=0.99)).names == ("station disk",)


def test_station_below_full_near_the_knee_needs_more_clients() -> None:
    found = diagnosis(beside_limit((2, 4, 8, 16, 20), disk=0.93))
    assert found.cause == "not explained"
    assert "Measure at 2 times the clients of the knee" in words.bottleneck(found)


def test_station_that_is_idle_in_some_runs_limits_nothing() -> None:
    throughput = [repairman(count, 1, 1.0, 10.0)[0] for count in CLIENTS]
    busy = [x * 0.99 for x in throughput]
    for idle in ([0.0] * 8, [0.1, 0.2, 0.3, 0.4, 0.0, 0.5, 0.0, 0.5], [0.1, 0.2, 0.3, 0.4, 0.5, 0.0, 0.0, 0.0]):
        assert diagnosis(written(CLIENTS, throughput, {"disk": busy, "log": idle})).names == ("station disk",)


def test_scattered_station_needs_repetitions() -> None:
    rows = beside_limit(disk=0.95).replace("0.95\n", "0.99\n").splitlines()
    scattered = [
        row.rsplit(",", 1)[0] + f",{share}" if row.startswith(("64,", "128,")) else row
        for row, share in zip(rows, [0.0, *([0.91, 0.95, 0.99] * len(CLIENTS))], strict=True)
    ]
    found = diagnosis("\n".join(scattered))
    assert found.cause == "not explained"
    assert words.bottleneck(found).endswith("97% busy. The interval of the utilisation reaches 99%: add repetitions.")


@pytest.mark.parametrize(
    ("station", "kind"),
    [
        *(
            (name, "generator")
            for name in ("load", "client", "Clients", "client-2", "client_cpu", "load.cpu", "loadgen")
        ),
        *((name, "software") for name in ("slots", "db pool", "worker_slots", "connections", "pool2", "workers")),
        *((name, "station") for name in ("load_balancer", "client_db", "disk", "overload", "io_threads", "poolside")),
    ],
)
def test_station_has_a_kind_by_its_name(station: str, kind: StationKind) -> None:
    assert kind_by_name(station) == kind


def test_full_load_generator_is_no_bottleneck_of_the_system() -> None:
    text = beside_limit(injector=1.0, disk=0.6)
    assert diagnosis(text).names == ("station injector",)
    found = diagnosis(text, injector="generator")
    assert found.status == "load generator"
    assert words.bottleneck(found).startswith("The load generator itself is the limit (98% busy at 16 clients, 100% ")
    assert diagnosis(text.replace("injector", "client_cpu")).status == "load generator"


def test_load_generator_as_full_as_a_station_is_a_doubt() -> None:
    found = diagnosis(beside_limit(client=1.0, disk=1.0))
    assert set(found.names) == {"station client", "station disk"}
    assert "load limited" in {doubt.kind for doubt in found.doubts}


FILLING = (0.3, 0.6, 0.9, 0.99, 1.0)
WAITING = (0.1, 0.25, 0.7, 0.98, 1.0)
"""How a pool fills while a store behind it fills as FILLING."""


def test_pool_over_a_full_store_waits() -> None:
    text = written((4, 10, 20, 40, 80), FILLING, {"gate": WAITING, "store": FILLING})
    declared: tuple[dict[str, StationKind], ...] = ({}, {"gate": "software"})
    for kinds in declared:
        found = diagnosis(text, **kinds)
        assert found.names == ("station store",)
        assert "Station gate is full as well, because it waits for the bottleneck." in words.evidence(found)


def test_full_pool_limits_only_if_throughput_follows_it() -> None:
    limiting = diagnosis(written((4, 10, 20, 40, 80), FILLING, {"pool": FILLING}))
    assert (limiting.names, limiting.confidence) == (("station pool",), "medium")
    text = written((4, 10, 20, 40, 80), FILLING, {"gate": WAITING})
    waiting = diagnosis(text, gate="software")
    assert (waiting.status, waiting.cause) == ("cannot tell", "waits")
    reason = "its requests may wait there for an unmeasured resource. Throughput hardly grew while station gate filled."
    assert words.bottleneck(waiting) == f"Cannot tell the bottleneck: station gate is full, but {reason}"
    undeclared = diagnosis(text)
    assert (undeclared.names, undeclared.confidence) == (("station gate",), "low")


def test_station_that_is_full_at_the_lightest_load_polls() -> None:
    x = (0.1, 0.2, 0.4, 0.75, 0.95, 1.0)
    clients = (10, 20, 40, 80, 160, 320)
    found = diagnosis(written(clients, x, {"engine": [1.0] * 6}))
    assert (found.status, found.names) == ("cannot tell", ())
    assert "station engine is as busy at a lighter load, for far fewer requests" in words.bottleneck(found)
    assert diagnosis(written(clients, x, {"engine": [1.0] * 6, "disk": x})).names == ("station disk",)
    from_the_plateau = written((20, 40, 80, 160), (0.8, 0.95, 1.0, 1.0), {"engine": (0.82, 0.96, 1.0, 1.0)})
    assert diagnosis(from_the_plateau).names == ("station engine",)


def test_station_that_is_full_far_before_the_plateau_polls() -> None:
    x = (0.1, 0.2, 0.4, 0.75, 0.95, 1.0)
    clients = (10, 20, 40, 80, 160, 320)
    found = diagnosis(written(clients, x, {"spinner": (0.4, 0.7, 0.99, 1.0, 1.0, 1.0)}))
    assert (found.status, found.names) == ("cannot tell", ())
    assert "station spinner is as busy at a lighter load, for far fewer requests" in words.bottleneck(found)
    batching = written(clients, x, {"engine": (0.4, 0.7, 0.9, 0.99, 1.0, 1.0)})
    assert diagnosis(batching).names == ("station engine",)


def test_station_without_a_value_at_the_knee_limits_beyond() -> None:
    text = beside_limit(disk=1.0)
    at_knee = diagnosis(text).at_knee_clients
    rows = (f"{row.rpartition(',')[0]}," if row.startswith(f"{at_knee},") else row for row in text.splitlines())
    assert diagnosis("\n".join(rows)).names == ("station disk",)


def test_full_station_limits_although_throughput_still_rises() -> None:
    busy = [0.25, 0.5, 0.75, 0.9, 0.985]
    found = analyse(parse(written((3, 6, 9, 11, 12), busy, {"pool": busy}), "theirs.csv")).verdicts[0]
    assert found.knee.status == "not reached"
    assert found.bottleneck.names == ("station pool",)
    below = [0.95 * share for share in busy]
    (rising,) = analyse(parse(written((3, 6, 9, 11, 12), busy, {"pool": below}), "theirs.csv")).verdicts
    assert rising.bottleneck.cause == "still rising"


def test_declared_station_without_columns_is_refused() -> None:
    with pytest.raises(
        MeasurementsError, match=r"--software: theirs\.csv has no columns of a station gate: expected disk"
    ):
        parse(beside_limit(disk=1.0), "theirs.csv").with_kinds({"gate": "software"})


def test_stations_with_a_kind_by_name_are_noted() -> None:
    notes = parse(beside_limit(client_cpu=0.5, pool=0.5, disk=0.9), "theirs.csv").notes
    assert "By their names, these stations count as resources of the load generator: client_cpu." in notes
    assert "By their names, these stations count as software: pool." in notes
