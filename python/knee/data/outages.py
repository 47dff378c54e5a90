"""Connections that clients lost, as load generators count them.

A connection is *cut* if it is lost with a request in flight, or if the first try to reopen it fails. It is *missing*
until it is open again. If a server closes an idle connection, that connection is not cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.once import once
from knee.data.trim import COVERED_S, RUN, trim

if TYPE_CHECKING:
    from knee.data import Dataset

_PROCESS = [*RUN, "process"]


@once
def connections(dataset: Dataset) -> pl.DataFrame:
    """Connections of the load generators in each window of finished runs. Each client has one connection. Load
    generators that do not count connections have no row.

    Returns
    -------
    `point, repetition, process, second, elapsed_s, seconds, clients` and

    ======= ================================================
    cut     connections that were cut within the window
    missing connections that were missing at the window's end
    ======= ================================================
    """
    is_load = pl.col("role") == "load"
    done = dataset.points.filter(pl.col("status") == "done")
    clients = dataset.summaries.filter(is_load).select(*_PROCESS, "clients").drop_nulls("clients")
    return (
        dataset.stations.filter(is_load)
        .join(clients, on=_PROCESS)
        .join(done, on=RUN, how="semi")
        .drop_nulls(["cut", "missing"])
        .sort(*_PROCESS, "second")
        .select(*_PROCESS, "second", "elapsed_s", "seconds", "clients", "cut", "missing")
    )


@once
def outages(dataset: Dataset) -> pl.DataFrame:
    """The connections that each finished run lost over its trimmed windows.

    Connections that were cut in warm-up count as cut: a restarted server has lost its data.

    Returns
    -------
    `point, repetition`, of runs whose load generators count their connections, and

    =================== ================================================================
    connections_missing the largest number of missing connections at the end of a window
    connections_wanted  the number of clients
    connections_cut     connections cut from the start of the run to the end of the trimmed windows
    outage_s            total length of the windows that ended with missing connections
    outage_share        share of the clients' total time without a connection
    outage_process      the load generator with the most missing connections; the first if there are none
    =================== ================================================================
    """
    done = dataset.points.filter(pl.col("status") == "done")
    ends_s = done.select(*RUN, (pl.col("seconds") - pl.col("cooldown_s")).alias("_ends_s"))
    known = connections(dataset)
    cut = known.join(ends_s, on=RUN).filter(pl.col("elapsed_s") + COVERED_S <= pl.col("_ends_s"))
    measured = trim(known, dataset.points)
    each = (
        measured.group_by(_PROCESS)
        .agg(
            pl.col("clients").first(),
            (pl.col("missing") * pl.col("seconds")).sum().alias("missing_s"),
            (pl.col("clients") * pl.col("seconds")).sum().alias("clients_s"),
            pl.col("seconds").filter(pl.col("missing") > 0).sum().alias("outage_s"),
        )
        .join(cut.group_by(_PROCESS).agg(pl.col("cut").sum()), on=_PROCESS)
        .sort([*RUN, "missing_s", "cut", "process"], descending=[False, False, True, True, False])
    )
    together = measured.group_by(*RUN, "second").agg(pl.col("missing").sum())
    most = together.group_by(RUN).agg(pl.col("missing").max().alias("connections_missing"))
    return (
        each.group_by(RUN, maintain_order=True)
        .agg(
            pl.col("clients").sum().alias("connections_wanted"),
            pl.col("cut").sum().alias("connections_cut"),
            pl.col("outage_s").max(),
            (pl.col("missing_s").sum() / pl.col("clients_s").sum()).alias("outage_share"),
            pl.col("process").first().alias("outage_process"),
        )
        .join(most, on=RUN)
        .select(
            *RUN,
            "connections_missing",
            "connections_wanted",
            "connections_cut",
            "outage_s",
            "outage_share",
            "outage_process",
        )
        .sort(RUN)
    )
