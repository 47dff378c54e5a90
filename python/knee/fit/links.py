"""Links with a rate: those of emulated hosts, and those that a prediction asks for.

Each host of a tier has a link, with a queue for either way. A request's time there is its measured bytes over the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from knee.data.trim import RUN, trim
from knee.errors import FitError
from knee.queueing.layered import Layered, Stage, Tier
from knee.stats.intervals import Floats

if TYPE_CHECKING:
    from knee.data import Dataset
    from knee.fit.demands import Demands

LINKS = {"load": "load generators' links", "middleware": "middlewares' links", "store": "stores' links"}

SENDING, RECEIVING = (
    {tier: name.replace("links", f"{way} links") for tier, name in LINKS.items()} for way in ("sending", "receiving")
)

FRAME_BYTES = 1448
"""Of a message in one frame: Ethernet's 1,500 without the headers of IP and of TCP with time stamps."""

HEADER_BYTES = 66
"""Of a frame: Ethernet (14), IP (20), TCP with time stamps (32)."""

_LEAST_BYTES = 1e-6

_LEAST_GAP = 1e-3
"""Least share of a link that others leave to a request."""

BYTES_PER_MS = 125
"""Of a megabit per second."""

Rates = tuple[tuple[str, float], ...]
"""Tiers and the rate of their links in Mbit/s."""


def with_wire(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """The table with columns of each tier: for a client's request, the messages to it, `calls_TIER`, and the bytes of
    them and of the answers with headers, `asked_TIER` and `answered_TIER`; `mbit_TIER`, the rate of an emulated link;
    `slower_asked_TIER` and `slower_answered_TIER`, how many times slower the link is on their way.

    The bytes are those on emulated links, or else of the windows. Null where the tier has neither, or no rate.
    """
    each = (
        trim(dataset.windows, dataset.points)
        .group_by(*RUN, "role")
        .agg(pl.col("count").sum().cast(pl.Float64), pl.col("bytes_in", "bytes_out").sum())
    )
    clients = each.filter(pl.col("role") == "load").select(*RUN, pl.col("count").alias("_requests"))
    for tier in LINKS:
        asked, answered = ("bytes_out", "bytes_in") if tier == "load" else ("bytes_in", "bytes_out")
        own = each.filter((pl.col("role") == tier) & (pl.col("bytes_in") + pl.col("bytes_out") > 0))
        calls = pl.col("count") / pl.col("_requests")

        def wire(name: str, calls: pl.Expr = calls) -> pl.Expr:
            size = pl.col(name) / pl.col("_requests")
            return size + HEADER_BYTES * pl.max_horizontal(calls, size / FRAME_BYTES)

        found = own.join(clients, on=RUN).select(
            *RUN,
            calls.alias(f"calls_{tier}"),
            wire(asked).alias(f"asked_{tier}"),
            wire(answered).alias(f"answered_{tier}"),
        )
        table = table.join(found, on=RUN, how="left", maintain_order="left")
    if not dataset.manifest.get("links_emulated"):
        return table.with_columns(
            *(pl.lit(None, pl.Float64).alias(f"mbit_{tier}") for tier in LINKS),
            *(pl.lit(1.0).alias(f"slower_{way}_{tier}") for tier in LINKS for way in ("asked", "answered")),
        )
    return _with_emulated(dataset, table)


def _with_emulated(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """The table with the bytes and the rates of emulated links."""
    columns = []
    for tier in LINKS:
        send, receive = (dataset.setting(f"{tier}.{name}").cast(pl.Float64) for name in ("link_mbit", "receive_mbit"))
        rate, receive = pl.coalesce(send, receive), pl.coalesce(receive, send)
        # A way without a rate takes no time.
        sending, receiving = (rate / send).fill_null(0.0), (rate / receive).fill_null(0.0)
        asked_slower, answered_slower = (sending, receiving) if tier == "load" else (receiving, sending)
        columns += [
            rate.alias(f"mbit_{tier}"),
            asked_slower.alias(f"slower_asked_{tier}"),
            answered_slower.alias(f"slower_answered_{tier}"),
        ]
    rates = dataset.points.select(*RUN, *columns)
    each = (
        trim(dataset.probes, dataset.points)
        .filter(pl.col("target") != "host", pl.col("net_tx_bytes").is_not_null())
        .with_columns(pl.col("target").str.replace(r"-\d+$", "").alias("role"))
        .group_by(*RUN, "role")
        .agg(pl.col("net_tx_bytes", "net_rx_bytes").sum() / (pl.col("seconds").sum() / pl.col("target").n_unique()))
    )
    table = table.join(rates, on=RUN, how="left", maintain_order="left")
    for tier in ("load", "store"):
        asked, answered = ("net_tx_bytes", "net_rx_bytes") if tier == "load" else ("net_rx_bytes", "net_tx_bytes")
        own = each.filter(pl.col("role") == tier).select(
            *RUN, pl.col(asked).alias("_asked"), pl.col(answered).alias("_answered")
        )
        table = (
            table.join(own, on=RUN, how="left", maintain_order="left")
            .with_columns(
                pl.coalesce(pl.col(f"_{way}") / pl.col("throughput"), f"{way}_{tier}").alias(f"{way}_{tier}")
                for way in ("asked", "answered")
            )
            .drop("_asked", "_answered")
        )
    # The middlewares' clients are the load generators.
    return table.with_columns(pl.col(f"{way}_load").alias(f"{way}_middleware") for way in ("asked", "answered"))


def wire_of(rows: pl.DataFrame, tiers: Sequence[str]) -> Floats:
    """Of each tier the calls, bytes asked and bytes answered of a client's request, and how many times slower its links
    are on the way of either, (tiers, 5); NaN if unknown.
    """
    names = ("calls", "asked", "answered", "slower_asked", "slower_answered")
    found = np.array([[rows[f"{name}_{tier}"].fill_null(float("nan")).mean() for name in names] for tier in tiers])
    if "middleware" not in tiers:
        # Clients call the stores.
        found[1, :3] = np.where(np.isnan(found[1, :3]), found[0, :3], found[1, :3])
    # A link without bytes has no time.
    found[:, 1:3] = np.maximum(found[:, 1:3], _LEAST_BYTES)
    if np.isnan(found[-1, 0]):
        found[-1, 0] = found[-1, 1] / found[0, 1]
    return found


def rates_of(data: Demands, row: int) -> Rates:
    """The emulated links of a run whose bytes are known."""
    if data.wire is None or data.rates is None:
        return ()
    known = np.isfinite(data.wire[:, 1:].sum(axis=1) + data.wire[-1, 1:].sum() + data.rates[row])
    return tuple((tier, float(data.rates[row, i])) for i, tier in enumerate(data.tiers) if known[i])


def busiest(tier: str, tiers: Sequence[str], wire: Floats) -> str:
    """The name of the way on which a tier's links have more bytes."""
    asked, answered = (sum(parts[:2]) for parts in _ways(tier, tiers, wire))
    return (SENDING if (asked > answered) == (tier == "load") else RECEIVING)[tier]


def _ways(tier: str, tiers: Sequence[str], wire: Floats) -> list[tuple[float, float, float]]:
    """On the way of what is asked, and of the answers: the bytes inside and outside of a slot, times how much slower
    the link is on this way, and how many links of the tier a request uses at a time.
    """
    has_slots = "middleware" in tiers
    at_once = max(1.0, wire[-1, 0]) if tier == "store" else 1.0
    found = []
    for way in (1, 2):
        around = wire[tiers.index(tier), way] if tier != "store" or not has_slots else 0.0
        # A middleware gets the stores' answers on the way on which clients ask.
        within = wire[-1, way if tier == "store" else 3 - way] if tier != "load" and has_slots else 0.0
        slower = wire[tiers.index(tier), 2 + way]
        found.append((slower * within, slower * around, at_once))
    return found


def link_times(data: Demands) -> tuple[Floats, Floats]:
    """The time of a request on the links of the runs, inside and outside of a slot, (runs) each."""
    found = np.zeros((2, len(data)))
    wire, rates = data.wire, data.rates
    if wire is None or rates is None:
        return found[0], found[1]
    there = np.stack([np.fmin(data.slots * data.middlewares, data.customers), data.customers])
    others = 1 - 1 / np.maximum(1, there)
    for i, tier in enumerate(data.tiers):
        capacity = BYTES_PER_MS * rates[:, i]
        for within, around, at_once in _ways(tier, data.tiers, wire):
            used = data.throughput * (within + around) / capacity / data.processes[:, i]
            gap = np.maximum(1 - used * others, _LEAST_GAP)
            parts = np.array([[within], [around]])
            found += np.nan_to_num(parts / capacity / at_once / gap)
    return found[0], found[1]


def asked_links(asked: Mapping[str, float], data: Demands) -> Rates:
    """The asked rates, and the emulated ones of all other tiers.

    Raises FitError for a tier that the system lacks, or whose bytes are unknown, and for rates that varied and are not
    asked.
    """
    for tier in asked:
        if tier not in data.tiers:
            raise FitError(f"{tier}.link_mbit: there is no {tier}")
        last = len(data.tiers) - 1
        used = [data.tiers.index(tier), last] if tier == "middleware" else [data.tiers.index(tier)]
        if data.wire is None or np.isnan(data.wire[used]).any():
            raise FitError(
                f"{tier}.link_mbit: the bytes of the stores' messages are unknown; measure with store.kind = 'knee-kv' "
                "or measure.hosts = 'emulated'"
            )
        if data.spread and np.ptp(data.processes[:, -1]) > 0:
            raise FitError(f"{tier}.link_mbit: the number of stores changed the messages; measure one number of stores")
    for i, tier in enumerate(data.tiers):
        if data.rates is not None and tier not in asked and np.ptp(np.nan_to_num(data.rates[:, i])) > 0:
            raise FitError(f"{tier}.link_mbit was a factor: choose a value with --set {tier}.link_mbit=…")
    rates = {**dict(rates_of(data, 0)), **asked}
    return tuple((tier, rates[tier]) for tier in data.tiers if tier in rates)


def with_links(network: Layered, links: Rates, processes: Sequence[int], wire: Floats) -> Layered:
    """The network with links as tiers on hosts of their own, two for each rate: for what is asked, and for the answers.
    Requests to several stores use these links at the same time."""
    if not links:
        return network
    names = [tier.name for tier in network.tiers]
    hosts, tiers = dict(network.cores), list(network.tiers)
    # The stretch is that of the processors' residence only.
    inside, outside = (
        {name: stage.stretch * share for name, share in stage.shares.items()}
        for stage in (network.inside, network.outside)
    )
    for tier, rate in links:
        count = processes[names.index(tier)]
        for way, (within, around, at_once) in enumerate(_ways(tier, names, wire)):
            total, name = max(within + around, _LEAST_BYTES), f"{tier} link {way}"
            hosts[name] = count
            tiers.append(Tier(name, name, count, total / (BYTES_PER_MS * rate)))
            inside[name], outside[name] = within / total / at_once, around / total / at_once
    stages = Stage(outside, network.outside.delay), Stage(inside, network.inside.delay)
    return replace(network, cores=hosts, tiers=tiers, outside=stages[0], inside=stages[1])
