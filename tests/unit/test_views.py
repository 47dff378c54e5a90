"""What the clients saw and what the server saw, on a store whose views are known."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from synthetic import System, synthetic_dataset
from versioned import throughput, versioned_dataset

from knee.data.observations import observations
from knee.laws import laws_of_run, sentences
from knee.verdict import words
from knee.verdict.knee import find_knee
from knee.verdict.views import throughput_views, views

CLIENTS = (1, 2, 4, 8)


def test_views_over_clients_fall_and_rise_to_capacity() -> None:
    dataset = versioned_dataset(CLIENTS)
    runs = observations(dataset)
    found = views(throughput_views(dataset, runs))
    assert [view.clients for view in found] == list(CLIENTS)
    for view in found:
        assert view.each.estimate == pytest.approx(throughput(view.clients) / view.clients, rel=0.01)
        assert view.together.estimate == pytest.approx(throughput(view.clients), rel=0.01)
        assert view.server.estimate == pytest.approx(throughput(view.clients), rel=0.01)
    said = words.views(found, find_knee(runs))
    assert said[0].endswith("1,000 ± 0 answers/s at 1 client and 250 ± 0 answers/s at 8: it falls to 25% (25% to 25%).")
    assert said[1].endswith(
        "1,000 ± 0 requests/s at 1 client and 2,000 ± 0 requests/s at 8: it becomes 2.0 times as large (2.0 to 2.0)."
    )
    assert "If 8 clients waited all the time, at 250/s each, they would make 2,000 requests/s together" in said[2]
    assert "Up to about N* = 2.0 clients (2.0 to 2.0) the server" in said[2]
    assert len(said) == 3


def test_views_without_a_knee_name_the_unknown() -> None:
    dataset = versioned_dataset((4,))
    runs = observations(dataset)
    (sentence,) = words.views(views(throughput_views(dataset, runs)), find_knee(runs))
    assert sentence.endswith("One client count cannot show how the two change with the clients.")
    dataset = versioned_dataset(CLIENTS)
    runs = observations(dataset)
    found, knee = views(throughput_views(dataset, runs)), find_knee(runs)
    unknown = words.views(found, replace(knee, clients=None, status="cannot tell"))
    assert "Cannot tell how many clients bring the server to its capacity" in unknown[2]
    unsure = words.views(found, replace(knee, confidence="low"))
    assert "Up to about N* = 2.0 clients (2.0 to 2.0) (with low confidence) the server" in unsure[2]
    assert "its capacity from 1 client on" in words.views(found, replace(knee, status="saturated from the start"))[2]
    assert "capacity was not reached" in words.views(found, replace(knee, status="not reached"))[2]


def said_of(view: str, first: tuple[float, ...], last: tuple[float, ...]) -> list[str]:
    """The sentences on a view whose repetitions are these, at one client and at eight."""
    dataset = versioned_dataset((1, 8))
    runs = observations(dataset)
    measured = throughput_views(dataset, runs).row(0, named=True)
    rows = [measured | {"clients": n, view: value} for n, values in ((1, first), (8, last)) for value in values]
    return words.views(views(pl.DataFrame(rows)), find_knee(runs))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        # Both twice, three times apart, each within a fifth or within a factor of five.
        ((900.0, 1100.0), (290.0, 310.0), "it falls to 30% ("),
        ((300.0, 1700.0), (100.0, 500.0), "too much to tell whether it changes"),
        # Alike is only what is surely alike.
        ((1000.0, 1001.0), (1020.0, 1021.0), "it hardly changes"),
        ((900.0, 1100.0), (950.0, 1070.0), "too much to tell whether it changes"),
        ((1000.0, 1001.0), (0.0, 0.0), "a change from zero has no ratio"),
        ((1000.0,), (3000.0,), "it becomes 3.0 times as large (with one repetition the error is unknown)"),
    ],
)
def test_change_is_as_sure_as_repetitions_allow(
    first: tuple[float, ...], last: tuple[float, ...], expected: str
) -> None:
    each, *_ = said_of("each", first, last)
    assert expected in each


@pytest.mark.parametrize(
    ("first", "last", "falls"),
    [
        ((900.0, 1100.0), (290.0, 310.0), True),
        ((900.0, 1100.0), (2900.0, 3100.0), False),
        # Within what is called no change, or not sure to be one.
        ((1000.0, 1001.0), (980.0, 981.0), False),
        ((300.0, 1700.0), (100.0, 500.0), False),
        ((3000.0,), (1000.0,), False),
    ],
)
def test_falling_server_throughput_names_resources(
    first: tuple[float, ...], last: tuple[float, ...], falls: bool
) -> None:
    _, of_server, *_ = said_of("server", first, last)
    assert ("other programs used the processors: see Resources." in of_server) == falls


def test_requests_part_one_interval_less_than_they_are() -> None:
    """A server that is asked every half a second is asked twice a second, not twice and a quarter."""
    dataset = versioned_dataset((1,))
    is_store = pl.col("role") == "store"
    seldom = pl.when(is_store & (pl.col("op") == "read")).then(2).when(is_store).then(0).otherwise(pl.col("count"))
    dataset.windows = dataset.windows.with_columns(seldom.alias("count"))
    dataset.stations = dataset.stations.with_columns(pl.col("last_request_unix_s") - 0.5)
    (view,) = views(throughput_views(dataset, observations(dataset)))
    assert view.server.estimate == pytest.approx(2.0)


def test_clients_that_do_not_wait_have_no_view_of_their_own() -> None:
    dataset = versioned_dataset()
    runs = observations(dataset)
    assert throughput_views(dataset, runs.with_columns(pl.lit(100.0).alias("rate"))).is_empty()
    # A client with four requests in flight gets four answers in the time of one.
    one, four = (
        throughput_views(dataset, runs.with_columns(pl.lit(pipeline).alias("pipeline")))["each"] for pipeline in (1, 4)
    )
    assert four.to_list() == pytest.approx((4 * one).to_list())


def test_a_server_that_counts_something_else_is_named() -> None:
    dataset = versioned_dataset(CLIENTS, lost=0.1)
    runs = observations(dataset)
    *_, last = words.views(views(throughput_views(dataset, runs)), find_knee(runs))
    assert last.startswith("The server counted 10.0% fewer requests a second than all clients together at")
    (check, *_) = laws_of_run(dataset).conservation
    assert (check.tier, check.verdict, check.apart) == ("stores", "violated", pytest.approx(0.1, rel=0.01))


def test_there_is_no_servers_view_where_no_server_has_one() -> None:
    """Behind a middleware a store sees other requests than the clients made; and of two stores one says nothing."""
    behind = synthetic_dataset(System(), (4, 16), repetitions=1)
    assert throughput_views(behind, observations(behind)).is_empty()
    dataset = versioned_dataset(stores=2)
    assert throughput_views(dataset, observations(dataset)).is_empty()


def test_clients_and_stores_count_the_same_reads() -> None:
    report = laws_of_run(versioned_dataset())
    assert {(check.tier, check.verdict) for check in report.conservation} == {("stores", "holds")}
    assert any(
        sentence.startswith("Clients and stores counted the same number of requests") for sentence in sentences(report)
    )
    types = {check.request_type for check in report.interactive if check.request_type}
    assert types == {"put", "read", "read_missing", "read_large"}
    assert {check.verdict for check in report.interactive} == {"holds"}


def test_requests_that_populate_are_not_the_clients() -> None:
    assert {check.verdict for check in laws_of_run(versioned_dataset(populate_until=-1)).conservation} == {"holds"}
    assert {check.verdict for check in laws_of_run(versioned_dataset(populate_until=1)).conservation} == {"violated"}
