"""The report of a store that keeps versions: both views, the outcomes of reads, and the store's own report."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import polars as pl
import pytest
from synthetic import System, synthetic_dataset
from tests.unit.test_report import html
from versioned import SECONDS, versioned_dataset

from knee.verdict import analyse

pytestmark = pytest.mark.usefixtures("scriptless")


def charts(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    charts: dict[str, Any] = json.loads(found[1])
    return charts


@pytest.fixture(scope="module")
def page(scriptless: None) -> str:
    return html(analyse(versioned_dataset((2, 8))))


def test_both_views_are_drawn_and_explained(page: str) -> None:
    assert "Throughput as server and clients see it" in page
    assert "1,000 ± 0 answers/s at 2 clients and 250 ± 0 answers/s at 8: it falls to 25%" in page
    drawn = charts(page)
    each = {row["clients"]: row["value"] for row in drawn["view-each"]["data"]["values"]}
    server = {row["clients"]: row["value"] for row in drawn["view-server"]["data"]["values"]}
    assert each == pytest.approx({2: 1000.0, 8: 250.0}, rel=0.01)
    assert server == pytest.approx({2: 2000.0, 8: 2000.0}, rel=0.01)


@pytest.mark.parametrize(
    ("syncs", "bounds", "says"),
    [
        # 50 commits a second of a disk that syncs up to 75 times: throughput could be half as large again.
        ((60.0, 40.0, 75.0), {1: 1500.0, 8: 3000.0}, "Dashed: the throughput at the disk's fastest syncs"),
        # The median is below the commits that were made.
        ((40.0, 30.0, 75.0), {1: 1500.0, 8: 3000.0}, "the disk took 40.0 synced writes a second (30.0 to 75.0)"),
        ((20.0, 15.0, 25.0), None, "A store made 50.0 commits a second: the disk was busier before the runs"),
    ],
)
def test_bound_by_the_disks_syncs_stands_beside_the_throughput(
    page: str, syncs: tuple[float, float, float], bounds: dict[int, float] | None, says: str
) -> None:
    dataset = versioned_dataset((1, 8))
    dataset.manifest = {"machine": {"disk_sync_per_s": dict(zip(("median", "low", "high"), syncs, strict=True))}}
    bounded = html(analyse(dataset))
    layers = charts(bounded)["clients-throughput"]["layer"]
    dashes = [layer["data"]["values"] for layer in layers if "strokeDash" in layer["mark"]]
    drawn = {row["clients"]: row["value"] for rows in dashes for row in rows}
    assert drawn == pytest.approx(bounds or {}, rel=0.01)
    assert says in unescape(bounded)
    assert "synced writes" in bounded and "synced writes" not in page


def test_unjudged_response_time_has_no_residual(page: str) -> None:
    """A put's own response time is what remains of a cycle."""
    assert "Knee does not test the response times of request types" in unescape(page)
    puts = re.findall(r"<tr>(?:(?!</tr>).)*<td[^>]*>put</td>(?:(?!</tr>).)*</tr>", page[page.index("R by law") :])
    assert puts and all(re.search(r">–</td><td[^>]*>(holds|violated|cannot tell)<", row) for row in puts[:2])


def test_configurations_are_named_by_their_levels() -> None:
    page = html(analyse(synthetic_dataset(System(), (1, 8), workers=(8, 16))))
    assert '<th class="text">middleware.workers</th>' in page and '<td class="text">16</td>' in page
    assert ">1 clients" not in page and '"1 client, middleware.workers = 16"' in page


def test_outcomes_are_drawn_one_colour_each(page: str) -> None:
    chart = charts(page)["outcome-clusters"]
    assert {row["outcome"] for row in chart["data"]["values"]} == {"not found", "ordinary", "very large"}
    # Two ends part three clusters, at both points.
    _, parting = chart["layer"]
    assert [row["point"] for row in parting["data"]["values"]] == [0, 0, 1, 1]
    assert "100 times as long (100 to 100)" in page
    assert "form 3 clusters" in page


def test_failures_without_any_have_no_column(page: str) -> None:
    timed = "Response times include failed requests."
    assert ">failed</th>" not in page and timed not in page
    dataset = versioned_dataset((2, 8))
    puts = (pl.col("role") == "load") & (pl.col("op") == "put")
    dataset.windows = dataset.windows.with_columns(errors=pl.when(puts).then(pl.col("count") // 4).otherwise("errors"))
    failing = html(analyse(dataset))
    table = failing[failing.index('id="operations"') :]
    assert ">failed</th>" in table and ">25.0%</td>" in table and ">0%</td>" in table
    captions = dict(re.findall(r'data-chart="([^"]*)"[^>]*></div><figcaption>(.*?)</figcaption>', failing))
    noted = {name for name, caption in captions.items() if timed in caption}
    of_all = {"clients-response_ms", "percentiles", "histogram", "timeline-response_ms", "timeline-operations"}
    assert noted == {"operation-put", *of_all}
    counted = "Throughput includes failed requests."
    noted = {name for name, caption in captions.items() if counted in caption}
    assert noted == {"clients-throughput", "timeline-throughput"} and counted not in page


def test_unreported_store_quantities_are_not_drawn(page: str) -> None:
    drawn = charts(page)
    assert {row["what"] for row in drawn["store-file"]["data"]["values"]} == {"taken", "live"}
    assert {row["value"] for row in drawn["store-commits"]["data"]["values"]} == {19.0}
    # No snapshot was ever open.
    assert "store-snapshots" not in drawn


def test_several_operations_are_drawn_by_second(page: str) -> None:
    _, lines = charts(page)["timeline-operations"]["layer"]
    drawn = {(row["point"], row["op"], row["middle_s"]) for row in lines["data"]["values"]}
    assert len(drawn) == len(lines["data"]["values"]) == 2 * 2 * SECONDS, "of one repetition"
    assert {op for _, op, _ in drawn} == {"put", "read"}
    dataset = versioned_dataset((2, 8))
    dataset.windows = dataset.windows.with_columns(op=pl.when(role="load").then(pl.lit("put")).otherwise("op"))
    assert "timeline-operations" not in charts(html(analyse(dataset))), "all requests together are one operation's"


def test_where_the_first_repetition_failed_the_next_one_is_drawn() -> None:
    dataset = versioned_dataset((2, 8))
    failed = (pl.col("point") == 0) & (pl.col("repetition") == 1)
    dataset.points = dataset.points.with_columns(
        pl.when(failed).then(pl.lit("failed")).otherwise("status").alias("status")
    )
    for frame in ("windows", "stations"):
        setattr(dataset, frame, getattr(dataset, frame).filter(~failed))
    drawn = charts(html(analyse(dataset)))
    for name in ("timeline-operations", "store-file"):
        values = drawn[name].get("data") or drawn[name]["layer"][1]["data"]
        assert {row["point"] for row in values["values"]} == {0, 1}, name


def test_a_cache_behind_a_middleware_has_none_of_it() -> None:
    page = html(analyse(synthetic_dataset(System(), (8, 16), repetitions=1)))
    assert not {"view-each", "outcome-clusters", "store-file"} & set(charts(page))
    assert "Throughput as server" not in page


def test_commits_without_pause_are_the_bottleneck() -> None:
    """But no more than worker slots are: a group takes all writes that wait."""
    (verdict,) = analyse(versioned_dataset((1, 2, 4, 8))).verdicts
    (commits,) = (one for one in verdict.bottleneck.candidates if one.resource == "commits")
    assert commits.name == "the store's commits to disk"
    assert commits.at_most.estimate == pytest.approx(0.95)
    assert verdict.bottleneck.names == ("the store's commits to disk",)
