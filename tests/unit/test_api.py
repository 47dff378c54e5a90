"""`import knee`: a run folder and a CSV as objects."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import polars as pl
import pytest
from synthetic import SAVED, SAVED_CLIENTS, System, closed_system, saved

import knee
from knee.answers.predict import Prediction
from knee.api import Run
from knee.errors import DatasetError, FitError, KneeError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return knee.load(saved(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    path.write_text(closed_system().replace("throughput", "tps", 1))
    return knee.load(str(path), {"tps": "throughput"})


def test_run_has_knee_bottleneck_and_observations(run: Run) -> None:
    assert run.knee.clients is not None and run.knee.clients.low is not None and run.knee.clients.high is not None
    assert run.knee.clients.low < SAVED.knee < run.knee.clients.high
    assert run.bottleneck.names == ("the middleware's worker slots",)
    assert isinstance(run.observations, pl.DataFrame) and run.observations.height == 3 * len(SAVED_CLIENTS)
    assert run.observations["throughput"].max() == run.observations.sort("throughput")["throughput"][-1]
    assert str(run).startswith("synthetic: How many clients")


def test_prediction_of_a_run_is_near_the_truth(run: Run) -> None:
    found = run.predict(clients=64, workers=8)
    truth = System(slots=16, think_ms=2.0).solve(64)
    assert found.throughput.estimate == pytest.approx(truth.throughput, rel=0.03)
    four, eight = run.predictions({"middleware.workers": [4, 8], "load.clients": 64})
    assert four.settings == {"middleware.workers": 4, "load.clients": 64}
    assert four.throughput.estimate < eight.throughput.estimate == found.throughput.estimate
    with pytest.raises(KneeError, match=r"there are 2 predictions; use predictions\(\)"):
        run.predict(workers=[4, 8])


def test_table_with_configurations_has_an_answer_for_each(table: Run) -> None:
    assert list(table.knees) == list(table.bottlenecks) == ["cache = cold", "cache = warm"]
    with pytest.raises(KneeError, match="expected one configuration of 'cache = cold' or 'cache = warm'"):
        _ = table.knee
    found = table.predictions(clients=64)
    assert [type(each) for each in found] == [Prediction, Prediction]
    assert [each.throughput.estimate for each in found] == pytest.approx([500, 1000], rel=0.02)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "predict: needs a setting, such as clients=500"),
        ({"clients": [64, 128]}, "predict: expected one value, not a list: a table has no processor times"),
        ({"wrokers": 4}, "wrokers: no such setting"),
    ],
)
def test_impossible_prediction_is_refused(table: Run, settings: dict[str, object], says: str) -> None:
    with pytest.raises(FitError, match=says):
        table.predictions(settings)


def test_plot_is_an_image_in_the_pages_colours(run: Run, table: Run, tmp_path: Path) -> None:
    drawn = run.plot()
    assert "@" not in str(drawn.spec["vconcat"]) and "#0065a3" in str(drawn.spec)
    for suffix, begins in ((".svg", b"<svg"), (".png", b"\x89PNG"), (".json", b"{"), (".html", b"<!DOCTYPE")):
        drawn.save(tmp_path / f"plot{suffix}")
        assert (tmp_path / f"plot{suffix}").read_bytes().startswith(begins)
    text = " ".join(ElementTree.fromstring(drawn._repr_svg_()).itertext())
    assert "Throughput (requests/s)" in text and "Response time (ms)" in text and "knee " in text
    assert table.plot("cache = warm").spec != table.plot("cache = cold").spec
    with pytest.raises(KneeError, match=r"plot.txt: expected a name that ends in .svg or .png"):
        drawn.save(tmp_path / "plot.txt")


def test_missing_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a run folder"):
        knee.load(tmp_path)
    with pytest.raises(KneeError, match="cannot be read"):
        knee.load(tmp_path / "absent.csv")


def test_other_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'knee' has no attribute 'laod'"):
        _ = knee.laod  # type: ignore[attr-defined]
