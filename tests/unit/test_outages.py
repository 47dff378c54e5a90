"""Connections that clients lost while they were measured: what is known of them, and what it makes of the laws."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.data import Dataset
from knee.data.observations import observations
from knee.data.outages import connections, outages
from knee.laws import laws_of_run
from knee.laws.causes import likely_causes, traces
from knee.verdict import words
from knee.verdict.health import Unsent, lost_connections, warnings_of_folder

ON_LOAD = pl.col("role") == "load"


def standing(connections: pl.Expr, reconnects: pl.Expr | None = None, *, clients: int = 8) -> Dataset:
    """Runs of 30 s, of which 5 to 25 count, whose load generator reports so many connections in every second."""
    dataset = synthetic_dataset(System(), (clients,), noise=0.0)
    reconnects = pl.lit(0) if reconnects is None else reconnects
    dataset.stations = dataset.stations.with_columns(
        pl.when(ON_LOAD).then(connections).cast(pl.Int64).alias("connections"),
        pl.when(ON_LOAD).then(reconnects).cast(pl.Int64).alias("reconnects"),
    )
    return dataset


def gone(first_s: int, until_s: int, *, repetition: int = 2, left: int = 0, clients: int = 8) -> pl.Expr:
    """The connections of a repetition in which all but some are missing for so long."""
    away = (pl.col("elapsed_s") >= first_s) & (pl.col("elapsed_s") < until_s) & (pl.col("repetition") == repetition)
    return pl.when(away).then(left).otherwise(clients)


def losing(lost: pl.Expr, remade: pl.Expr | None = None, *, clients: int = 8) -> Dataset:
    """The same, with a load generator that reports lost connections; standing ones as well, but unused."""
    dataset = standing(pl.lit(clients), lost if remade is None else remade, clients=clients)
    dataset.stations = dataset.stations.with_columns(pl.when(ON_LOAD).then(lost).cast(pl.Int64).alias("losses"))
    return dataset


def at(second: int, count: int, *, repetition: int = 2) -> pl.Expr:
    """So many in one second of a repetition."""
    return pl.when((pl.col("elapsed_s") == second) & (pl.col("repetition") == repetition)).then(count).otherwise(0)


def cut_off(dataset: Dataset) -> Dataset:
    """The same where clients without a connection ask nothing."""
    counted = ["count", "response_sum_ns", "queueing_sum_ns", "service_sum_ns"]
    missing = dataset.stations.filter(ON_LOAD, pl.col("connections") == 0).select("repetition", "second")
    there = dataset.windows.join(missing, on=["repetition", "second"], how="anti")
    assert there.height < dataset.windows.height and set(counted) <= set(there.columns)
    dataset.windows = there
    return dataset


def test_connections_missing_while_measured_give_a_warning() -> None:
    dataset = standing(gone(20, 30))
    found = outages(dataset).filter(repetition=2).row(0, named=True)
    assert (found["connections_missing"], found["connections_wanted"], found["outage_s"]) == (8, 8, 5.0)
    assert found["outage_share"] == pytest.approx(5 / 20)
    (warning,) = lost_connections(dataset)
    assert (warning.affected, warning.runs, warning.missing, warning.clients, warning.outage_s) == (1, 3, 8, 8, 5.0)
    said = words.warning(warning)
    assert said.startswith("Clients were without 8 of 8 connections for 5 s in 1 of 3 runs.")
    assert "points/000-r2/load-0.log may name it" in said


@pytest.mark.parametrize(
    "connections",
    [
        pl.lit(8),
        # Warm-up and cool-down, and before the start.
        gone(0, 5),
        gone(25, 30),
        # Without a report, and with more connections than clients.
        pl.lit(None),
        pl.lit(9),
    ],
)
def test_connections_missing_outside_the_run_are_no_outage(connections: pl.Expr) -> None:
    assert lost_connections(standing(connections)) == []


def test_unreported_connections_are_unknown() -> None:
    dataset = standing(pl.lit(None))
    assert outages(dataset).is_empty()
    assert observations(dataset)["connections_missing"].to_list() == [None] * 3
    dataset = standing(gone(10, 11))
    dataset.summaries = dataset.summaries.clear()
    assert outages(dataset).is_empty() and lost_connections(dataset) == []


def test_server_back_within_a_second_shows_in_reconnects() -> None:
    again = pl.when((pl.col("elapsed_s") == 12) & (pl.col("repetition") > 1)).then(pl.col("repetition")).otherwise(0)
    dataset = standing(pl.lit(8), again)
    assert lost_connections(dataset) == [], "it cost nothing"
    dataset.windows = failing(dataset, requests=5)
    (warning,) = lost_connections(dataset)
    assert (warning.affected, warning.missing, warning.lost, warning.clients) == (2, 0, 3, 8)
    assert words.warning(warning).startswith("8 clients lost 3 connections, and opened them again at once in the worst")
    assert (warning.run, warning.process) == ("points/000-r3", "load-0")
    during_warm_up = pl.when(pl.col("elapsed_s") == 2).then(3).otherwise(0)
    dataset = standing(pl.lit(8), during_warm_up)
    dataset.windows = failing(dataset)
    assert lost_connections(dataset) == []


@pytest.mark.parametrize("second", [2, 12])
@pytest.mark.parametrize(
    ("middlewares", "lost", "clients", "found"),
    [(1, 8, 8, True), (1, 7, 8, False), (2, 4, 8, True), (2, 3, 8, False), (1, 3, 3, False), (3, 3, 9, False)],
)
def test_server_losing_all_connections_at_once_was_gone(
    second: int, middlewares: int, lost: int, clients: int, found: bool
) -> None:
    """Where clients think nothing fails; what it had stored may be gone in warm-up, too. A few may go by chance."""
    dataset = losing(at(second, lost), clients=clients)
    dataset.points = dataset.points.with_columns(middlewares=pl.lit(middlewares, pl.Int64))
    warnings = lost_connections(dataset)
    assert len(warnings) == found
    if found:
        (warning,) = warnings
        assert (warning.affected, warning.missing, warning.lost) == (1, 0, lost)
        assert (warning.run, warning.process) == ("points/000-r2", "load-0")
    assert observations(dataset)["connections_missing"].to_list() == [0] * 3


def test_losses_of_several_generators_add_up() -> None:
    dataset = losing(at(12, 4), clients=4)
    dataset.points = dataset.points.with_columns(middlewares=pl.lit(1, pl.Int64))
    for name in ("stations", "summaries"):
        frame = getattr(dataset, name)
        setattr(dataset, name, pl.concat([frame, frame.filter(ON_LOAD).with_columns(process=pl.lit("load-1"))]))
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.lost, warning.clients) == (0, 8, 8)
    none = pl.when(pl.col("process") == "load-0").then(pl.col("losses", "reconnects")).otherwise(0)
    dataset.stations = dataset.stations.with_columns(none)
    assert lost_connections(dataset) == [], "those of the other stood"
    dataset.points = dataset.points.with_columns(middlewares=pl.lit(2, pl.Int64))
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.lost, warning.clients) == (0, 4, 8)


def test_stores_without_middlewares_are_servers_too() -> None:
    dataset = losing(at(12, 4))
    dataset.points = dataset.points.with_columns(middlewares=pl.lit(0, pl.Int64), stores=pl.lit(2, pl.Int64))
    assert len(lost_connections(dataset)) == 1
    dataset.points = dataset.points.with_columns(stores=pl.lit(1, pl.Int64))
    assert lost_connections(dataset) == []


def test_losses_after_the_measured_seconds_do_not_count() -> None:
    assert lost_connections(losing(at(26, 8))) == []


def test_an_open_loop_does_not_ask_on_all_of_its_connections() -> None:
    """One of two servers may close all of its own at once; that both do so, only where they are gone."""
    for lost, warnings in ((4, 0), (8, 1)):
        dataset = losing(at(12, lost))
        dataset.points = dataset.points.with_columns(rate=pl.lit(10.0))
        assert len(lost_connections(dataset)) == warnings


def test_idle_connections_closed_every_second_do_not_count() -> None:
    """Some of them are just being opened again when a window ends, each time others."""
    every = pl.lit(40)
    behind = pl.when(pl.col("elapsed_s") == pl.col("elapsed_s").min()).then(37).otherwise(40)
    dataset = losing(every, behind, clients=64)
    known = connections(dataset)
    assert known["missing"].min() == 3 == known["missing"].max()
    assert lost_connections(dataset) == []
    # One that is refused is not all of them.
    dataset.windows = failing(dataset, pl.col("elapsed_s") == 20)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.lost, warning.clients) == (0, 1, 64)


def test_failures_in_another_second_cut_no_connection() -> None:
    dataset = losing(at(12, 3))
    dataset.windows = failing(dataset, pl.col("elapsed_s") == 20)
    assert lost_connections(dataset) == []
    dataset.windows = failing(dataset, pl.col("elapsed_s") == 12, requests=9)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.lost, warning.clients) == (0, 3, 8)


def test_server_that_was_gone_gives_one_warning() -> None:
    dataset = losing(at(12, 5), at(15, 5))
    dataset.windows = failing(dataset, requests=5)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.clients, warning.outage_s) == (5, 8, 3.0)


def test_lost_connections_that_stand_again_are_missing_no_more() -> None:
    """A thread that reports a second too late is missing from its sum of connections."""
    dataset = losing(at(2, 3))
    late = pl.when(ON_LOAD).then(gone(20, 22, left=4)).cast(pl.Int64)
    dataset.stations = dataset.stations.with_columns(late.alias("connections"))
    assert outages(dataset)["connections_missing"].to_list() == [0] * 3
    assert lost_connections(dataset) == []


def test_unused_connections_of_an_open_loop_do_not_count() -> None:
    """An open loop leaves those that a server closed until they are wanted."""
    dataset = standing(gone(10, 25, left=1))
    dataset.points = dataset.points.with_columns(rate=pl.lit(10.0))
    assert lost_connections(dataset) == []
    dataset.windows = failing(dataset)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.clients, warning.outage_s) == (7, 8, 15.0)


def test_open_loop_with_unsent_requests_lacked_connections() -> None:
    dataset = losing(at(12, 3), at(30, 3))
    dataset.points = dataset.points.with_columns(rate=pl.lit(10.0))
    assert lost_connections(dataset) == []
    unsent = pl.when(pl.col("repetition") == 2).then(9).otherwise(0).cast(pl.Int64)
    dataset.summaries = dataset.summaries.with_columns(unsent=pl.when(ON_LOAD).then(unsent))
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.clients, warning.outage_s) == (3, 8, 13.0)


def unsent_of(dataset: Dataset) -> list[Unsent]:
    return [one for one in warnings_of_folder(dataset) if isinstance(one, Unsent)]


def test_requests_unsent_without_connections_do_not_blame_rate() -> None:
    for second in (12, 26):
        dataset = losing(at(second, 8), at(30, 8))
        dataset.points = dataset.points.with_columns(rate=pl.lit(10.0))
        unsent = pl.when(ON_LOAD).then(10 ** pl.col("repetition")).cast(pl.Int64)
        dataset.summaries = dataset.summaries.with_columns(unsent=unsent)
        assert unsent_of(dataset) == [Unsent(1010, cut_off=False), Unsent(100, cut_off=True)]
    # An old version reports only standing connections: these were being opened before the start.
    dataset = standing(pl.when(pl.col("elapsed_s") == 0).then(0).otherwise(8))
    dataset.stations = dataset.stations.with_columns(pl.col("elapsed_s") - 1)
    unsent = pl.when(ON_LOAD).then(7).cast(pl.Int64)
    dataset.summaries = dataset.summaries.with_columns(unsent=unsent)
    assert unsent_of(dataset) == [Unsent(21, cut_off=False)]


def failing(dataset: Dataset, when: pl.Expr | None = None, *, requests: int = 1) -> pl.DataFrame:
    """What was counted, and that requests have failed in each second, or in some."""
    gets = ON_LOAD & (pl.col("op") == "get")
    failed = gets if when is None else gets & when
    return dataset.windows.with_columns(errors=pl.when(failed).then(requests).otherwise(pl.col("errors")))


def test_missing_connections_of_generators_add_up() -> None:
    dataset = standing(gone(10, 12, left=3))
    for name in ("stations", "summaries"):
        frame = getattr(dataset, name)
        other = frame.filter(ON_LOAD).with_columns(process=pl.lit("load-1"))
        setattr(dataset, name, pl.concat([frame, other]))
    # Of the second one all stand.
    steady = pl.when(pl.col("process") == "load-1").then(8).otherwise(pl.col("connections"))
    dataset.stations = dataset.stations.with_columns(connections=steady)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.clients, warning.outage_s) == (5, 16, 2.0) and warning.process == "load-0"
    # A generator that reports too many makes up for none of the others.
    steady = pl.when(pl.col("process") == "load-1").then(9).otherwise(pl.col("connections"))
    dataset.stations = dataset.stations.with_columns(connections=steady)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.clients, warning.outage_s) == (5, 16, 2.0)


def test_outage_is_as_long_as_at_the_worst_generator() -> None:
    """One that is starved prints a line for several seconds."""
    dataset = standing(gone(10, 16))
    for name in ("stations", "summaries"):
        frame = getattr(dataset, name)
        other = frame.filter(ON_LOAD).with_columns(process=pl.lit("load-1"))
        if name == "stations":
            other = other.filter((pl.col("elapsed_s") % 3) == 1).with_columns(seconds=pl.lit(3.0))
        setattr(dataset, name, pl.concat([frame, other]))
    found = outages(dataset).filter(repetition=2).row(0, named=True)
    assert (found["outage_s"], found["connections_missing"], found["connections_wanted"]) == (6.0, 16, 16)


def test_outage_that_explains_enough_is_the_only_cause() -> None:
    dataset = cut_off(standing(gone(15, 30)))
    violated = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert violated == [], "of three repetitions one alone shows nothing surely"
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert client.causes == (
        "connections were missing, at the worst 8 of 8, for 30 s in 3 of 3 runs: the server at the other end was gone, "
        "and its clients could ask nothing",
    )


def test_short_outage_is_the_first_of_several_causes() -> None:
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    once = pl.when(pl.col("elapsed_s") == 20).then(7).otherwise(8)
    dataset.stations = dataset.stations.with_columns(pl.when(ON_LOAD).then(once).cast(pl.Int64).alias("connections"))
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert client.causes[0].startswith("connections were missing, at the worst 1 of 8, for 3 s in 3 of 3 runs")
    assert len(client.causes) > 1


def broken(lacks: list[float], shares: list[float]) -> tuple[float, pl.DataFrame]:
    """Repetitions that lack such shares of their throughput, and whose clients had no connection for such; how far they
    are from the law."""
    runs = pl.DataFrame({"point": 0, "throughput": [800 * (1 - lack) for lack in lacks], "outage_share": shares})
    runs = runs.with_columns(
        clients=pl.lit(8),
        response_ms=pl.lit(10.0),
        rest_ms=pl.lit(0.0),
        connections_missing=pl.when(pl.col("outage_share") > 0).then(8).otherwise(0),
        connections_lost=pl.lit(8),
        outage_s=20 * pl.col("outage_share"),
    )
    return sum(1 / (1 - lack) - 1 for lack in lacks) / len(lacks), runs


@pytest.mark.parametrize(
    ("lacks", "shares", "alone"),
    [
        ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5], True),
        ([0.5, 0.5, 0.5], [0.2, 0.2, 0.2], False),
        # One explains none of the others, not even where no client ever had a connection.
        ([0.5, 0.5, 0.5], [0.0, 0.5, 0.0], False),
        ([0.5, 0.5, 0.5], [0.0, 1.0, 0.0], False),
        ([0.5, 0.5, 0.5], [0.5, 0.5, 0.0], False),
        ([0.9, 0.05, 0.05], [0.9, 0.0, 0.0], False),
        # But where these hold, or nearly.
        ([0.9, 0.0, 0.01], [0.9, 0.0, 0.0], True),
        ([0.9, 0.0, -0.01], [1.0, 0.0, 0.0], True),
    ],
)
def test_outage_in_each_repetition_is_the_only_cause(lacks: list[float], shares: list[float], alone: bool) -> None:
    residual, runs = broken(lacks, shares)
    causes = likely_causes(traces(runs)[0], residual)
    assert (len(causes) == 1) == alone
    assert not any("lost connection" in cause for cause in causes), "the same event twice"
    assert f"s in {sum(share > 0 for share in shares)} of 3 runs: the server at the other end was gone" in causes[0]


def test_outage_does_not_explain_the_middlewares_loss() -> None:
    residual, runs = broken([0.05] * 3, [0.05] * 3)
    assert len(likely_causes(traces(runs)[0], residual)) == 1
    assert len(likely_causes(traces(runs)[0], 10 * residual)) > 1
    for share in (0.01, 0.9, 1.0):
        residual, runs = broken([0.01] * 3, [share] * 3)
        assert len(likely_causes(traces(runs)[0], 0.5)) > 1


def test_where_summaries_tell_of_lost_connections_they_count() -> None:
    """Nothing need have failed on them, and errors are no cause. Beside missing connections they are no other trace."""
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    dataset.summaries = dataset.summaries.with_columns(losses=pl.lit(2, pl.Int64))
    assert observations(dataset)["connections_lost"].to_list() == [2] * 3
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert len(client.causes) == 1 and client.causes[0].startswith("connections were missing")
    dataset.stations = dataset.stations.with_columns(connections=pl.when(ON_LOAD).then(8).cast(pl.Int64))
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert client.causes[0] == "6 lost connections: nothing more was asked on them until they stood again"


@pytest.mark.parametrize("name", ["losses", "reconnects"])
@pytest.mark.parametrize(("at_s", "found"), [(2, 0), (27, 0), (12, 6)])
def test_losses_in_warm_up_or_cool_down_break_no_law(name: str, at_s: int, found: int) -> None:
    """Also for a version that reports only connections opened again."""
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    lost = pl.when(ON_LOAD).then(2 * (pl.col("elapsed_s") == at_s).cast(pl.Int64))
    stands = {"reconnects": lost, "connections": pl.when(ON_LOAD).then(8).cast(pl.Int64)}
    dataset.stations = dataset.stations.with_columns(**(stands | {name: lost}))
    dataset.summaries = dataset.summaries.with_columns(pl.lit(2, pl.Int64).alias(name))
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    causes = [cause for cause in client.causes if "lost connection" in cause]
    assert [cause.split(":")[0] for cause in causes] == ([f"{found} lost connections"] if found else [])
    assert "requests that were lost" not in " ".join(client.causes), "they say of each connection what became of it"


def test_unreported_connections_may_have_been_lost() -> None:
    """As pgbench; what connections are missing may be known all the same."""
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    stands = {"connections": pl.when(ON_LOAD).then(8), "reconnects": pl.lit(None)}
    dataset.stations = dataset.stations.with_columns(**stands).cast({"connections": pl.Int64, "reconnects": pl.Int64})
    dataset.summaries = dataset.summaries.with_columns(reconnects=pl.lit(None, pl.Int64))
    assert observations(dataset)["reconnects"].to_list() == [None] * 3
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert "requests that were lost" in " ".join(client.causes)


def test_generator_with_totals_only_counts() -> None:
    dataset = standing(pl.lit(8))
    second = pl.when(ON_LOAD).then(2 * (pl.col("elapsed_s") == 2).cast(pl.Int64))
    dataset.stations = dataset.stations.with_columns(second.alias("losses"))
    dataset.summaries = dataset.summaries.with_columns(losses=pl.lit(2, pl.Int64))
    for name in ("stations", "summaries"):
        frame = getattr(dataset, name)
        other = frame.filter(ON_LOAD).with_columns(process=pl.lit("load-1"))
        if name == "stations":
            other = other.with_columns(losses=pl.lit(None, pl.Int64))
        setattr(dataset, name, pl.concat([frame, other]))
    assert observations(dataset)["connections_lost"].to_list() == [4] * 3
