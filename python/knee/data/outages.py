"""Connections that clients lost while a server was gone, for a while or for good.

A load generator goes on without its server. Its windows report how many connections were lost within them, how many
were opened again, and how many stood at their end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import COVERED_S, RUN, trim

if TYPE_CHECKING:
    from knee.data import Dataset

_PROCESS = [*RUN, "process"]

_TOGETHER_MIN = 4
"""Fewer connections may be closed in the same second by chance, each after a long idle time."""


def connections(dataset: Dataset) -> pl.DataFrame:
    """The clients' connections in each window of finished runs, warm-up included; a client has one.

    Load generators that report neither losses nor standing connections have no row.

    Returns
    -------
    `point, repetition, process, second, elapsed_s, seconds, clients` and

    ======= ======================================================================================
    missing those that were missing at the window's end
    held    those that were missing all through it, at least
    lost    those that were lost within it
    errors  requests that failed within it
    fell    whether all load generators lost as many as clients have to one of the servers; in an open loop, to all
    ======= ======================================================================================
    """
    is_load = pl.col("role") == "load"
    done = dataset.points.filter(pl.col("status") == "done")
    servers = pl.when(pl.col("middlewares") > 0).then("middlewares").otherwise("stores").fill_null(1).clip(1)
    # An open loop does not use all of its connections: a server may close very many at a time.
    servers = pl.when(pl.col("rate").is_null()).then(servers).otherwise(1)
    clients = dataset.summaries.filter(is_load).select(*_PROCESS, "clients").drop_nulls("clients")
    errors = dataset.windows.filter(is_load).group_by(*_PROCESS, "second").agg(pl.col("errors").sum())
    losses, reconnects = pl.col("losses"), pl.col("reconnects")
    is_counted = (losses.is_not_null() & reconnects.is_not_null()).all().over(_PROCESS)
    # Where a thread reports a second too late, its standing connections are missing from the count.
    missing = (
        pl.when(is_counted)
        .then((losses - reconnects).cum_sum().over(_PROCESS))
        .otherwise(pl.col("clients") - pl.col("connections"))
    )
    before = pl.col("missing").shift(1).over(_PROCESS)
    remade = reconnects.fill_null(0)
    lost = pl.when(is_counted).then(losses).otherwise((pl.col("missing") - before).fill_null(0) + remade).clip(0)
    # Where clients think for longer than a server waits for them, it closes some in every second.
    fallen = pl.col("together") - pl.col("together").median().over(RUN)
    owned = pl.col("clients").sum().over(*RUN, "second") // pl.col("_servers")
    return (
        dataset.stations.filter(is_load)
        .join(clients, on=_PROCESS)
        .join(done.select(*RUN, servers.alias("_servers")), on=RUN)
        .join(errors, on=[*_PROCESS, "second"], how="left")
        .sort(*_PROCESS, "second")
        .with_columns(missing.clip(0).alias("missing"))
        .drop_nulls("missing")
        .with_columns(
            lost.alias("lost"), (before.fill_null(0) - remade).clip(0).alias("held"), pl.col("errors").fill_null(0)
        )
        .with_columns(pl.col("lost").sum().over(*RUN, "second").alias("together"))
        .with_columns((fallen >= owned.clip(_TOGETHER_MIN)).alias("fell"))
        .select(*_PROCESS, "second", "elapsed_s", "seconds", "clients", "missing", "held", "lost", "errors", "fell")
    )


def outages(dataset: Dataset) -> pl.DataFrame:
    """What each finished run lost with its clients' connections, over the trimmed windows.

    A server may close idle connections: they are opened again at once, in an open loop when they are needed. So a
    connection counts as cut off only if a request failed in the same second, or a server lost all of its own in one
    second. Connections count as missing only if a client of a closed loop lacked one for a whole second; in an open
    loop, if one was cut off or a request stayed unsent. A server that lost all of its own counts in warm-up, too: it
    may have been started anew, without its data.

    Returns
    -------
    `point, repetition`, of runs whose load generators report their connections, and

    =================== ================================================================
    connections_missing the most that were missing at the end of a window
    connections_wanted  as many as there are clients
    connections_cut     how many were cut off: with requests that failed, or all of a server
    outage_s            seconds of the windows at whose end some were missing
    outage_share        of all clients' time, what those without a connection had of it
    outage_process      the load generator that lost most of them; the first where none did
    =================== ================================================================
    """
    done = dataset.points.filter(pl.col("status") == "done")
    ends_s = pl.col("seconds") - pl.col("cooldown_s")
    unsent = dataset.summaries.filter(pl.col("role") == "load").group_by(RUN).agg(pl.col("unsent").sum())
    known = connections(dataset)
    measured = trim(known, dataset.points)
    fell = known.filter("fell").join(done.select(*RUN, ends_s.alias("_ends_s")), on=RUN)
    fell = fell.filter(pl.col("elapsed_s") + COVERED_S <= pl.col("_ends_s"))
    cut = pl.concat(
        [
            fell.select(*_PROCESS, "lost"),
            measured.filter(~pl.col("fell")).select(*_PROCESS, pl.min_horizontal("lost", "errors").alias("lost")),
        ]
    )
    is_missing = pl.col("missing") > 0
    each = (
        measured.group_by(_PROCESS)
        .agg(
            pl.col("clients").first(),
            (pl.col("missing") * pl.col("seconds")).sum().alias("missing_s"),
            (pl.col("clients") * pl.col("seconds")).sum().alias("clients_s"),
            pl.col("seconds").filter(is_missing).sum().alias("outage_s"),
            (pl.col("held") > 0).any(),
        )
        .join(cut.group_by(_PROCESS).agg(pl.col("lost").sum().alias("cut")), on=_PROCESS)
        .sort([*RUN, "missing_s", "cut", "process"], descending=[False, False, True, True, False])
    )
    whole = (
        each.group_by(RUN, maintain_order=True)
        .agg(
            pl.col("clients").sum().alias("connections_wanted"),
            pl.col("cut").sum().alias("connections_cut"),
            pl.col("outage_s").max(),
            (pl.col("missing_s").sum() / pl.col("clients_s").sum()).alias("outage_share"),
            pl.col("process").first().alias("outage_process"),
            pl.col("held").any(),
        )
        .join(_most_missing(measured), on=RUN)
        .join(done.select(*RUN, "rate"), on=RUN)
        .join(unsent, on=RUN)
    )
    is_gone = (
        pl.when(pl.col("rate").is_null())
        .then("held")
        .otherwise((pl.col("connections_cut") > 0) | (pl.col("unsent") > 0))
    )
    return whole.select(
        *RUN,
        pl.when(is_gone).then("connections_missing").otherwise(0).alias("connections_missing"),
        "connections_wanted",
        "connections_cut",
        *(pl.when(is_gone).then(name).otherwise(0.0).alias(name) for name in ("outage_s", "outage_share")),
        "outage_process",
    ).sort(RUN)


def _most_missing(measured: pl.DataFrame) -> pl.DataFrame:
    """The most connections that all load generators of a run together were missing."""
    together = measured.group_by(*RUN, "second").agg(pl.col("missing").sum())
    return together.group_by(RUN).agg(pl.col("missing").max().alias("connections_missing"))
