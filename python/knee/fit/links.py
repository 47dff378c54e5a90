"""Links with a rate, which no local run has: from the measured bytes of the messages and the asked rates.

Each host of a tier has a link, with a queue for either direction. A request's time there is its bytes over the rate.
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

FRAME_BYTES = 1448
"""Of a message in one frame: Ethernet's 1,500 without the headers of IP and of TCP with time stamps."""

HEADER_BYTES = 90
"""Of a frame: preamble, addresses, checksum and gap of Ethernet (38), IP (20), TCP with time stamps (32)."""

BYTES_PER_MS = 125
"""Of a megabit per second."""

Rates = tuple[tuple[str, float], ...]
"""Tiers and the rate of their links in Mbit/s."""


def with_wire(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """The table with columns `calls_TIER`, `asked_TIER` and `answered_TIER`: for a client's request, the messages to a
    tier, and their bytes and those of the answers, with headers; null where the tier has no windows."""
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
    return table


def wire_of(rows: pl.DataFrame, tiers: Sequence[str]) -> Floats:
    """Of each tier the calls, bytes asked and bytes answered of a client's request, (tiers, 3); NaN if unknown."""
    names = ("calls", "asked", "answered")
    found = np.array([[rows[f"{name}_{tier}"].fill_null(float("nan")).mean() for name in names] for tier in tiers])
    if "middleware" not in tiers:
        # Clients call the stores.
        found[1] = np.where(np.isnan(found[1]), found[0], found[1])
    return found


def check_links(links: Mapping[str, float], data: Demands) -> Rates:
    """The rates of the links. Raises FitError for a tier that the system lacks, or whose bytes are unknown."""
    for tier in links:
        if tier not in data.tiers:
            raise FitError(f"{tier}.link_mbit: there is no {tier}")
        last = len(data.tiers) - 1
        used = [data.tiers.index(tier), last] if tier == "middleware" else [data.tiers.index(tier)]
        if data.wire is None or np.isnan(data.wire[used]).any():
            raise FitError(
                f"{tier}.link_mbit: no window of the stores has the bytes of their messages; measure with "
                "store.kind = 'knee-kv'"
            )
        if data.spread and np.ptp(data.processes[:, -1]) > 0:
            raise FitError(f"{tier}.link_mbit: the number of stores changed the messages; measure one number of stores")
    return tuple(links.items())


def with_links(network: Layered, links: Rates, processes: Sequence[int], wire: Floats) -> Layered:
    """The network with links as tiers on hosts of their own, two for each rate: for what is asked, and for the answers.
    Requests to several stores use these links at the same time."""
    if not links:
        return network
    names = [tier.name for tier in network.tiers]
    has_slots = "middleware" in names
    hosts, tiers = dict(network.cores), list(network.tiers)
    # The stretch is that of the processors' residence only.
    inside, outside = (
        {name: stage.stretch * share for name, share in stage.shares.items()}
        for stage in (network.inside, network.outside)
    )
    for tier, rate in links:
        own = names.index(tier)
        at_once = max(1.0, wire[-1, 0]) if tier == "store" else 1.0
        for way in (1, 2):
            around = wire[own, way] if tier != "store" or not has_slots else 0.0
            # A middleware gets the stores' answers on the way on which clients ask.
            within = wire[-1, way if tier == "store" else 3 - way] if tier != "load" and has_slots else 0.0
            total, name = within + around, f"{tier} link {way}"
            hosts[name] = processes[own]
            tiers.append(Tier(name, name, processes[own], total / (BYTES_PER_MS * rate)))
            inside[name], outside[name] = within / total / at_once, around / total / at_once
    stages = Stage(outside, network.outside.delay), Stage(inside, network.inside.delay)
    return replace(network, cores=hosts, tiers=tiers, outside=stages[0], inside=stages[1])
