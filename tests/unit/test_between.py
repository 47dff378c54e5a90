"""Layered models between two measured sizes or mixes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.synthetic import System, synthetic_dataset
from tests.unit.test_layered import CALIBRATION, TRUE, runs, setup

from knee import fit
from knee.errors import FitError
from knee.fit.between import amount, between, neighbours
from knee.fit.layered import LayeredFit, LayeredSystem, layered_system
from knee.queueing.layered import solve_layered


def grown(factor: float) -> LayeredFit:
    return replace(TRUE, laws=TRUE.laws * factor)


def system(factor: float) -> LayeredSystem:
    return layered_system(runs(CALIBRATION, system=grown(factor), noise=0.01), level=0.95, seed=0)


def asked_of(factors: dict[str, list[object]], **asked: object) -> object:
    dataset = SimpleNamespace(spec=SimpleNamespace(factors=factors))
    return neighbours(dataset, {f"workload.{name}": value for name, value in asked.items()})  # type: ignore[arg-type]


def test_size_between_two_measured_ones_is_predicted() -> None:
    found = between(system(1.0), system(3.0), 0.25)
    for clients in (16, 64, 128):
        asked = setup(clients)
        truth = 1000 * solve_layered(grown(1.5).network(asked), clients).throughput[0]
        forecast = found.forecast(asked)
        assert forecast.throughput.estimate == pytest.approx(truth, rel=0.05)
        assert forecast.throughput.low < truth < forecast.throughput.high


def test_interval_between_levels_is_wider_than_at_one() -> None:
    first, asked = system(1.0), setup(16)
    widths = [each.forecast(asked).throughput.relative_half_width for each in (first, between(first, system(1.0), 0.5))]
    assert widths[0] < widths[1]


@pytest.mark.parametrize(
    ("name", "level", "expected"),
    [
        ("workload.value_bytes", 1024, 1024.0),
        ("workload.set_get", "1:3", 0.25),
        ("workload.set_get", "0:0", None),
        ("workload.value_bytes", "uniform:1:9", None),
        ("workload.keys", 10, None),
    ],
)
def test_amount_is_linear_in_bytes_and_sets(name: str, level: object, expected: float | None) -> None:
    assert amount(name, level) == expected


def test_neighbours_are_the_measured_levels_on_either_side() -> None:
    sizes: dict[str, list[object]] = {"workload.value_bytes": [4096, 128, 1024]}
    assert asked_of(sizes, value_bytes=512) == ("workload.value_bytes", 128, 1024, pytest.approx(384 / 896))
    assert asked_of(sizes, value_bytes=1024) is None
    assert asked_of({"workload.value_bytes": [128]}, value_bytes=512) is None
    mixes: dict[str, list[object]] = {"workload.set_get": ["1:1", "0:1"]}
    assert asked_of(mixes, set_get="1:3") == ("workload.set_get", "0:1", "1:1", 0.5)


def test_size_beyond_the_measured_ones_is_refused() -> None:
    with pytest.raises(FitError, match=r"measured from 128 to 1024; a prediction needs a level on either side"):
        asked_of({"workload.value_bytes": [128, 1024]}, value_bytes=2048)


def test_measured_levels_need_no_layers() -> None:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8), seconds=15)
    assert not fit.needs_layers({"clients": 16}, dataset)
