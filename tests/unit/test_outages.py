"""Connections that clients lost while they were measured: what is known of them, and what it makes of the laws."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset

from knee.data import Dataset
from knee.data.observations import observations
from knee.data.outages import outages
from knee.laws import laws_of_run
from knee.laws.causes import likely_causes, traces
from knee.verdict import words
from knee.verdict.health import Unsent, lost_connections, warnings_of_folder

ON_LOAD = pl.col("role") == "load"


def standing(connections: pl.Expr, reconnects: pl.Expr | None = None, *, clients: int = 8) -> Dataset:
    """Runs of 30 s, seconds 5 to 25 count. `connections` stand in each second; the others are missing."""
    dataset = synthetic_dataset(System(), (clients,), noise=0.0)
    counts = {
        "connections": connections,
        "missing": clients - connections,
        "cut": pl.lit(0),
        "reconnects": pl.lit(0) if reconnects is None else reconnects,
    }
    columns = {name: pl.when(ON_LOAD).then(count).cast(pl.Int64) for name, count in counts.items()}
    dataset.stations = dataset.stations.with_columns(**columns)
    return dataset


def gone(first_s: int, until_s: int, *, repetition: int = 2, left: int = 0, clients: int = 8) -> pl.Expr:
    """The connections of a repetition in which all but some are missing for so long."""
    away = (pl.col("elapsed_s") >= first_s) & (pl.col("elapsed_s") < until_s) & (pl.col("repetition") == repetition)
    return pl.when(away).then(left).otherwise(clients)


def cutting(cut: pl.Expr, *, clients: int = 8) -> Dataset:
    """The same with all connections; some are cut and opened again at once."""
    dataset = standing(pl.lit(clients), clients=clients)
    dataset.stations = dataset.stations.with_columns(pl.when(ON_LOAD).then(cut).cast(pl.Int64).alias("cut"))
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
    assert said.startswith("In 1 of 3 runs, clients were without 8 of 8 connections for 5 s.")
    assert "points/000-r2/load-0.log may name the server" in said


@pytest.mark.parametrize(
    "connections",
    [
        pl.lit(8),
        # Warm-up and cool-down, and before the start.
        gone(0, 5),
        gone(25, 30),
        # A load generator that does not count its connections.
        pl.lit(None),
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


def test_cut_connections_that_stand_again_are_counted() -> None:
    dataset = cutting(at(12, 3) + at(14, 2) + at(20, 1, repetition=3))
    (warning,) = lost_connections(dataset)
    assert (warning.affected, warning.missing, warning.lost, warning.clients) == (2, 0, 5, 8)
    assert words.warning(warning).startswith(
        "In 2 of 3 runs, clients lost connections. In the worst run, 8 clients lost 5 connections."
    )
    assert (warning.run, warning.process) == ("points/000-r2", "load-0")
    assert observations(dataset)["connections_missing"].to_list() == [0] * 3


@pytest.mark.parametrize(("second", "warnings"), [(2, 1), (12, 1), (26, 0)])
def test_cuts_count_from_warm_up_to_cool_down(second: int, warnings: int) -> None:
    """A server that was started anew in warm-up has lost what it had stored."""
    assert len(lost_connections(cutting(at(second, 8)))) == warnings


def test_an_outage_within_warm_up_is_not_called_short() -> None:
    dataset = standing(gone(1, 4))
    dataset.stations = dataset.stations.with_columns(pl.when(ON_LOAD).then(at(1, 8)).cast(pl.Int64).alias("cut"))
    (warning,) = lost_connections(dataset)
    assert words.warning(warning).startswith("In 1 of 3 runs, 8 clients lost 8 connections. A server stopped")


def unsent_of(dataset: Dataset) -> list[Unsent]:
    return [one for one in warnings_of_folder(dataset) if isinstance(one, Unsent)]


def test_unsent_requests_without_a_connection_are_not_blamed_on_the_rate() -> None:
    for first_s, until_s in ((12, 30), (26, 30)):
        dataset = standing(gone(first_s, until_s))
        dataset.points = dataset.points.with_columns(rate=pl.lit(10.0))
        unsent = pl.when(ON_LOAD).then(10 ** pl.col("repetition")).cast(pl.Int64)
        dataset.summaries = dataset.summaries.with_columns(unsent=unsent)
        assert unsent_of(dataset) == [Unsent(1010, cut_off=False), Unsent(100, cut_off=True)]


def test_missing_connections_of_generators_add_up() -> None:
    dataset = standing(gone(10, 12, left=3))
    for name in ("stations", "summaries"):
        frame = getattr(dataset, name)
        other = frame.filter(ON_LOAD).with_columns(process=pl.lit("load-1"))
        setattr(dataset, name, pl.concat([frame, other]))
    # Of the second one all stand.
    missing = pl.when(pl.col("process") == "load-1").then(0).otherwise(pl.col("missing"))
    dataset.stations = dataset.stations.with_columns(missing=missing)
    (warning,) = lost_connections(dataset)
    assert (warning.missing, warning.clients, warning.outage_s) == (5, 16, 2.0) and warning.process == "load-0"


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
        "connections were missing, at the worst 8 of 8, for 30 s in 3 of 3 runs: the server was down, and its "
        "clients could send no requests",
    )


def test_short_outage_is_the_first_of_several_causes() -> None:
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    once = pl.when(pl.col("elapsed_s") == 20).then(1).otherwise(0)
    dataset.stations = dataset.stations.with_columns(pl.when(ON_LOAD).then(once).cast(pl.Int64).alias("missing"))
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
    assert f"s in {sum(share > 0 for share in shares)} of 3 runs: the server was down" in causes[0]


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
    dataset.stations = dataset.stations.with_columns(missing=pl.when(ON_LOAD).then(0).cast(pl.Int64))
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    assert client.causes[0] == "6 lost connections: clients sent no requests on them until they were open again"


@pytest.mark.parametrize("name", ["losses", "reconnects"])
@pytest.mark.parametrize(("at_s", "found"), [(2, 0), (27, 0), (12, 6)])
def test_losses_in_warm_up_or_cool_down_break_no_law(name: str, at_s: int, found: int) -> None:
    """Also for a version that reports only connections opened again."""
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    lost = pl.when(ON_LOAD).then(2 * (pl.col("elapsed_s") == at_s).cast(pl.Int64))
    stands = {"reconnects": lost, "missing": pl.when(ON_LOAD).then(0).cast(pl.Int64)}
    dataset.stations = dataset.stations.with_columns(**(stands | {name: lost}))
    dataset.summaries = dataset.summaries.with_columns(pl.lit(2, pl.Int64).alias(name))
    (client, *_) = [check for check in laws_of_run(dataset).interactive if check.verdict == "violated"]
    causes = [cause for cause in client.causes if "lost connection" in cause]
    assert [cause.split(":")[0] for cause in causes] == ([f"{found} lost connections"] if found else [])
    assert "requests that were lost" not in " ".join(client.causes), "they say of each connection what became of it"


def test_unreported_connections_may_have_been_lost() -> None:
    """As pgbench; what connections are missing may be known all the same."""
    dataset = cut_off(standing(pl.when(pl.col("elapsed_s") >= 15).then(0).otherwise(8)))
    stands = {"missing": pl.when(ON_LOAD).then(0), "reconnects": pl.lit(None)}
    dataset.stations = dataset.stations.with_columns(**stands).cast({"missing": pl.Int64, "reconnects": pl.Int64})
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
