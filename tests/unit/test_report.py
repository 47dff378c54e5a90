"""The report: whole, self-contained, and honest about text it did not write."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from synthetic import System, elsewhere, synthetic_dataset

from knee.distributions import densities, merged, percentiles
from knee.hdr import Histogram
from knee.report import write

LEVELS = (4, 16, 24, 48)


class Links(HTMLParser):
    """Every address that a browser would fetch for the page."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.charts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "data-chart" in given:
            self.charts.append(given["data-chart"] or "")
        for name in ("src", "href", "srcset", "poster", "data"):
            address = given.get(name)
            if address and not (tag == "a" and address.startswith("#")):
                self.fetched.append(address)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    dataset = synthetic_dataset(System(), LEVELS, workers=(4, 8), repetitions=2)
    dataset.question = "Is 1 < 2 & </script><script>alert(1)</script>?"
    dataset.manifest = {"commands": ["knee-kv --listen <any>"], "seed": 7}
    write(dataset, path)
    return path.read_text(encoding="utf-8")


def test_nothing_is_fetched(page: str) -> None:
    links = Links()
    links.feed(page)
    assert links.fetched == []
    assert not re.search(r"@import|url\(", page.split("</style>")[0])


def test_every_chart_has_its_place_and_its_specification(page: str) -> None:
    links = Links()
    links.feed(page)
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    specs = json.loads(found.group(1))
    assert set(specs) == set(links.charts)
    assert {"knee-0", "knee-1", "clients-throughput", "law-residuals", "percentiles", "histogram"} <= set(specs)
    assert {"utilization", "cpu-shares", "timeline-throughput", "cpu-timeline"} <= set(specs)


def test_the_specifications_are_valid_vega_lite(page: str) -> None:
    import vl_convert

    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    for name, spec in json.loads(found.group(1)).items():
        inked = json.loads(re.sub(r'"@\w+"', '"#123456"', json.dumps(spec)))
        svg = vl_convert.vegalite_to_svg(inked | {"width": 400})
        assert "<path" in svg, name


def test_text_of_the_experiment_cannot_become_markup(page: str) -> None:
    assert "<script>alert" not in page
    assert "Is 1 &lt; 2 &amp; &lt;/script&gt;" in page
    assert "knee-kv --listen &lt;any&gt;" in page


def test_the_verdict_stands_before_the_charts(page: str) -> None:
    assert (
        page.index("The knee is at")
        < page.index("Against clients</h2>")
        < page.index("Where the numbers come from</h2>")
    )


def test_the_page_stays_small(page: str) -> None:
    assert len(page) < 2_500_000


def test_a_dataset_without_a_finished_run_still_gives_a_page(tmp_path: Path) -> None:
    dataset = synthetic_dataset(System(), (8, 16), repetitions=1)
    dataset.points = dataset.points.with_columns(status=pl.lit("failed"))
    write(dataset, tmp_path / "report.html")
    assert "nothing to diagnose" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_page_without_servers_of_the_labs_own_says_so(tmp_path: Path) -> None:
    dataset = elsewhere(elsewhere(synthetic_dataset(System(), LEVELS), "store"), "middleware")
    write(dataset, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Not measured: the middlewares (they run elsewhere); the stores (they run elsewhere)." in page
    assert 'data-chart="clients-queueing_ms"' not in page


def test_a_page_of_an_open_loop_has_no_knee_and_no_law(tmp_path: Path) -> None:
    dataset = synthetic_dataset(System(), LEVELS)
    dataset.points = dataset.points.with_columns(think_ms=pl.lit(None, dtype=pl.Float64), rate=pl.lit(1000.0))
    write(dataset, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "it has no knee over clients" in page
    assert 'data-chart="law-throughput"' not in page


def test_a_page_of_one_client_count_draws_no_curve_of_one_dot(tmp_path: Path) -> None:
    write(synthetic_dataset(System(), (8,), workers=(4, 8)), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Only 1 client count was measured" in page
    assert 'data-chart="knee-0"' not in page


def test_percentiles_come_from_merged_histograms_not_from_averages() -> None:
    # 99 fast requests in one repetition, 1 slow one in the other: the mean of both medians would be 50.5 ms.
    fast = Histogram(np.bincount([1000] * 99).astype(np.int64), lowest=1)
    slow = Histogram(np.bincount([2000]).astype(np.int64), lowest=1)
    table = percentiles({(0, 1, "load", "get"): fast, (0, 2, "load", "get"): slow})
    median = table.filter((pl.col("percentile") == 50) & (pl.col("op") == "get")).row(0, named=True)
    assert median["value_ms"] == pytest.approx(0.001)
    assert (median["low_ms"], median["high_ms"]) == pytest.approx((0.001, 0.002))


def test_a_drawn_histogram_holds_every_request_once() -> None:
    dataset = synthetic_dataset(System(), (8,), repetitions=2)
    sums = densities(merged(dataset)).group_by("point", "role", "op").agg(pl.col("share").sum())
    assert set(sums["role"]) == {"load", "middleware"}
    assert sums["share"].to_list() == pytest.approx([1.0] * sums.height)
