"""Requests of each store: the fairness index against its published property, and the words and table of a run."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.data import Dataset
from knee.data.columns import STATIONS
from knee.report import balance
from knee.report.sheet import Sheet
from knee.verdict import analyse
from knee.verdict.balance import balances, fairness
from knee.verdict.text import render_text

pytestmark = pytest.mark.usefixtures("modelless")


def with_stores(*middlewares: list[int] | None) -> Dataset:
    """A run of two client counts whose middlewares report these requests, of 1000 bytes each, in a measured second of
    every repetition, and other requests during the warm-up.
    """
    dataset = synthetic_dataset(System(), (4, 8), repetitions=2)
    runs = dataset.points.select("point", "repetition").rows()
    rows = [
        {
            "point": point,
            "repetition": repetition,
            "role": "middleware",
            "elapsed_s": elapsed_s,
            "seconds": 1.0,
            "servers_requests": each and [one * weight for one, weight in zip(each, weights, strict=False)],
            "servers_bytes": each and [1000 * one for one in each],
        }
        for point, repetition in runs
        for each in middlewares
        for elapsed_s, weights in ((0.0, (7, 0)), (10.0, (1, 1)))
    ]
    dataset.stations = pl.concat([dataset.stations, pl.DataFrame(rows, schema=STATIONS)])
    return dataset


@pytest.mark.parametrize(
    ("requests", "index"),
    # Jain, Chiu & Hawe (1984): if k of n get equal shares and the others nothing, the index is k/n.
    [((5, 5, 5), 1.0), ((7, 0, 0, 0), 0.25), ((3, 3, 0, 0), 0.5), ((1, 3, 5), 81 / 105)],
)
def test_fairness_of_equal_shares_is_their_part_of_all(requests: tuple[int, ...], index: float) -> None:
    assert fairness(requests) == pytest.approx(index)


def test_requests_of_several_middlewares_are_summed() -> None:
    found = balances(with_stores([100, 300], [100, 100]), (0, 1))
    assert [one.requests for one in found.values()] == [(400, 800), (400, 800)]
    assert found[0].bytes == (400_000, 800_000)
    assert found[0].fairness.estimate == pytest.approx(0.9)


def test_uneven_stores_are_on_page_and_in_text() -> None:
    findings = analyse(with_stores([100, 300], [100, 100]))
    assert (
        "fairness index of the requests of 2 stores is 0.900 (reads and writes together). 1 means equal shares, and "
        "0.50 means that one store gets all requests." in render_text(findings)
    )
    page = balance.section(Sheet(findings))
    assert "store-1 got 66.7% of the requests. The store with the fewest requests got 33.3%." in page
    assert "<td>400</td><td>800</td><td>0.400</td><td>0.800</td>" in page


@pytest.mark.parametrize("requests", [None, [100], [0, 0]])
def test_stores_without_shares_have_no_section(requests: list[int] | None) -> None:
    assert balance.section(Sheet(analyse(with_stores(requests)))) == ""
