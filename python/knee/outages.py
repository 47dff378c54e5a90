"""Connections that clients lost in the measured seconds: whoever answers them was gone, for a while or for good.

A load generator goes on without its server, as it counts what clients ask for and not who answers: its windows tell how
many connections stood at their end, and how many were made again within them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.trim import RUN, trim

if TYPE_CHECKING:
    from knee.dataset import Dataset


def outages(dataset: Dataset) -> pl.DataFrame:
    """What is known of the clients' connections in each finished run, over the trimmed windows.

    A client has one connection. Runs whose load generators do not tell how many stand have no row. One that says that
    it has lost none has lost none: of a thread that was too late to tell of a second, no connections are counted there.

    Returns
    -------
    `point, repetition`, and

    =================== ================================================================
    connections_missing the most that were missing at the end of a window
    connections_wanted  as many as there are clients
    outage_s            seconds of the windows at whose end some were missing
    outage_share        of all clients' time, what those without a connection had of it
    connections_remade  how many were made again
    outage_process      the load generator that lost most of them; null where none did
    =================== ================================================================
    """
    clients = dataset.summaries.filter(pl.col("role") == "load").select(*RUN, "process", "clients")
    load = dataset.stations.filter(pl.col("role") == "load")
    lossless = load.group_by(*RUN, "process").agg((pl.col("losses").sum() == 0) & pl.col("losses").is_not_null().any())
    each = (
        trim(load, dataset.points)
        .join(clients, on=[*RUN, "process"])
        .join(lossless.rename({"losses": "_lossless"}), on=[*RUN, "process"])
        .drop_nulls(["connections", "clients"])
        .with_columns(
            pl.when("_lossless")
            .then(0)
            .otherwise((pl.col("clients") - pl.col("connections")).clip(0))
            .alias("_missing")
        )
        .with_columns((pl.col("_missing") * pl.col("seconds")).alias("_missing_s"))
    )
    whole = (
        each.group_by(*RUN, "second")
        .agg(
            pl.col("_missing", "_missing_s", "clients").sum(),
            (pl.col("clients") * pl.col("seconds")).sum().alias("_clients_s"),
            pl.col("seconds").filter(pl.col("_missing") > 0).max().fill_null(0.0),
            pl.col("reconnects").sum(),
        )
        .group_by(RUN)
        .agg(
            pl.col("_missing").max().alias("connections_missing"),
            pl.col("clients").max().alias("connections_wanted"),
            pl.col("seconds").sum().alias("outage_s"),
            (pl.col("_missing_s").sum() / pl.col("_clients_s").sum()).alias("outage_share"),
            pl.col("reconnects").sum().alias("connections_remade"),
        )
    )
    lossy = (
        each.group_by(*RUN, "process")
        .agg(pl.col("_missing_s", "reconnects").sum())
        .filter((pl.col("_missing_s") > 0) | (pl.col("reconnects") > 0))
        .sort([*RUN, "_missing_s", "reconnects", "process"], descending=[False, False, True, True, False])
        .group_by(RUN, maintain_order=True)
        .agg(pl.col("process").first().alias("outage_process"))
    )
    return whole.join(lossy, on=RUN, how="left").sort(RUN)


def outage_warnings(dataset: Dataset) -> list[str]:
    """A sentence on the runs in which connections were missing, and one on those in which they were made again at once.

    Only where that has cost something: a server may close connections on which nothing is asked, which are opened when
    they are wanted. Both are without their full stop, as those of :attr:`knee.dataset.Dataset.warnings`.
    """
    done = dataset.points.filter(pl.col("status") == "done")
    runs = done.height
    windows = trim(dataset.windows, dataset.points)
    failed = windows.filter(pl.col("role") == "load").group_by(RUN).agg(pl.col("errors").sum())
    unsent = dataset.summaries.filter(pl.col("role") == "load").group_by(RUN).agg(pl.col("unsent").sum())
    found = outages(dataset).join(done.select(*RUN, "rate"), on=RUN)
    for costs in (failed, unsent):
        found = found.join(costs, on=RUN, how="left")
    is_failing = pl.col("errors").fill_null(0) > 0
    is_costly = pl.col("rate").is_null() | is_failing | (pl.col("unsent").fill_null(0) > 0)
    gone = found.filter((pl.col("connections_missing") > 0) & is_costly)
    gone = gone.sort("outage_share", descending=True, maintain_order=True)
    back = found.filter((pl.col("connections_missing") == 0) & (pl.col("connections_remade") > 0) & is_failing)
    back = back.sort("connections_remade", descending=True, maintain_order=True)
    warnings = []
    for rows, what in ((gone, "were missing"), (back, "were lost and made again")):
        if rows.is_empty():
            continue
        worst = rows.row(0, named=True)
        how = (
            f"{worst['connections_missing']} of {worst['connections_wanted']} for {worst['outage_s']:.3g} s"
            if worst["connections_missing"]
            else f"{worst['connections_remade']} by {worst['connections_wanted']} clients"
        )
        log = f"points/{worst['point']:03d}-r{worst['repetition']}/{worst['outage_process']}.log"
        warnings.append(
            f"In {rows.height} of {runs} run{'s' * (runs != 1)} connections {what}, at the worst {how}: the server at "
            f"the other end was gone, or cut them off ({log} may say which); what was measured then is not the system "
            "under that load"
        )
    return warnings
