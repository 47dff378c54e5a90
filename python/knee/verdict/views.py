"""Throughput as the clients see it and as the server sees it, and why they differ. Pure.

A client's own throughput is how many answers it gets per second that it waits, 1 / R: it falls as others make it wait
longer. The server's is what it is asked per second, between the first request and the last: it can grow with the
clients, for it has to wait for them, until it can do no more; where requests cost more the more clients there are, or
others take its processors, it falls. Both are right, and neither is the other: N clients that wait for R and think for
Z make X = N / (R + Z) (the interactive law; Denning & Buzen 1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN, trim
from knee.stats.intervals import (
    LEVEL,
    Interval,
    between,
    clients_about,
    counted,
    mean_interval,
    number,
    quantity,
    ratio_interval,
)
from knee.verdict.knee import Knee

if TYPE_CHECKING:
    from knee.data import Dataset

AGREE = 0.05
"""How far clients and server may be apart on all requests per second without a word about it."""

MOVES = 0.10
"""Changes from the fewest clients to the most that are surely smaller are called none."""


_FALLS = " Requests cost more with more clients, or others had the processors: see Resources."


@dataclass(frozen=True)
class View:
    """One client count: requests per second of each client as it waits (1 / R), of all clients, and at the server."""

    clients: int
    each: Interval
    together: Interval
    server: Interval


def throughput_views(dataset: Dataset, observations: pl.DataFrame) -> pl.DataFrame:
    """Both views of every run in which the stores told when requests came, and clients that wait talked to them.

    Parameters
    ----------
    observations
        Of the same run folder (:mod:`knee.data.observations`).

    Returns
    -------
    `point, repetition, clients, each, together, server`: requests per second as in :class:`View`. The server's is that
    of all stores, each between its first and its last request within the trimmed windows: so many intervals, one less
    than requests. A client that keeps several requests in flight gets as many answers while it waits.
    """
    stations, windows = (trim(frame, dataset.points) for frame in (dataset.stations, dataset.windows))
    keys = [*RUN, "process"]
    spans = (
        stations.filter((pl.col("role") == "store") & pl.col("first_request_unix_s").is_not_null())
        .group_by(keys)
        .agg(
            (pl.col("last_request_unix_s").max() - pl.col("first_request_unix_s").min()).alias("_span_s"),
        )
        .filter(pl.col("_span_s") > 0)
    )
    counts = windows.filter(pl.col("role") == "store").group_by(keys).agg(pl.col("count").sum())
    server = (
        counts.join(spans, on=keys)
        .group_by(RUN)
        .agg(
            ((pl.col("count") - 1) / pl.col("_span_s")).sum().alias("server"),
            pl.len().cast(pl.Int64).alias("_stores"),
        )
    )
    return (
        # Clients of an open loop do not wait before they ask again: one's answers are no share of all.
        observations.filter((pl.col("middlewares") == 0) & pl.col("rate").is_null() & (pl.col("response_ms") > 0))
        .join(dataset.points.select(*RUN, "stores"), on=RUN)
        .join(server, on=RUN)
        # A store that told nothing is no store without requests.
        .filter(pl.col("stores") == pl.col("_stores"))
        .select(
            *RUN,
            "clients",
            (1000 * pl.col("pipeline") / pl.col("response_ms")).alias("each"),
            pl.col("throughput").alias("together"),
            "server",
        )
        .sort(RUN)
    )


def views(runs: pl.DataFrame, level: float = LEVEL) -> tuple[View, ...]:
    """The means over the repetitions, by clients; `runs` are those of one configuration (:func:`throughput_views`)."""
    return tuple(
        View(
            int(str(clients)), *(mean_interval(rows[name].to_numpy(), level) for name in ("each", "together", "server"))
        )
        for (clients,), rows in runs.sort("clients").group_by("clients", maintain_order=True)
    )


def why_they_differ(found: Sequence[View], knee: Knee) -> list[str]:
    """What the views of one configuration show, in sentences with figures; what they cannot tell is said as well."""
    if not found:
        return []
    first, last = found[0], found[-1]
    if len(found) == 1:
        return [
            f"At {counted(first.clients, 'client')} each gets {quantity(first.each)} answers per second that it waits, "
            f"and the server is asked {quantity(first.server)} times a second by all. How the two change with the "
            "clients cannot be told from one client count.",
            *_disagreement(found),
        ]
    return [
        f"Each client's own throughput, answers per second that it waits, is bounded by the response time: "
        f"{quantity(first.each)} at {counted(first.clients, 'client')}, {quantity(last.each)} at {last.clients}; "
        f"{_change(first.each, last.each)}.",
        f"The server waits for its clients instead: from its first request to its last it was asked "
        f"{quantity(first.server)} times a second at {counted(first.clients, 'client')}, {quantity(last.server)} at "
        f"{last.clients}; {_change(first.server, last.server)}."
        + (_FALLS if _surely_falls(first.server, last.server) else ""),
        _between(last, knee),
        *_disagreement(found),
    ]


def _between(most: View, knee: Knee) -> str:
    """Where one view turns into the other: N*."""
    product = most.clients * most.each.estimate
    identity = (
        f"Both tell of the same requests: {most.clients} clients that get {number(most.each.estimate)}/s each while "
        f"they wait would make {number(product)}/s together, and {number(most.together.estimate)}/s were made"
    )
    if most.together.estimate < (1 - MOVES) * product:
        identity += ": the rest of the time clients did not wait"
    if knee.clients is None:
        return f"{identity}. From how many clients on the server is at its capacity cannot be told."
    star = clients_about(knee.clients)
    if knee.status == "found":
        sure = " (with low confidence)" if knee.confidence == "low" else ""
        return (
            f"{identity}. Up to about N* = {star}{sure} the server has capacity to spare, and clients slow "
            "each other down little; beyond it its throughput grows no more, and each further client takes its "
            "share from others."
        )
    if knee.status == "saturated from the start":
        return (
            f"{identity}. The server was at its capacity from {counted(knee.levels[0].clients, 'client')} on: N* is at "
            f"most {number(knee.clients.estimate)}, so each further client only takes its share from the others."
        )
    if knee.status == "not reached":
        return f"{identity}. The server's capacity was not reached: N* is more than {star}."
    return f"{identity}. Where the server's capacity begins cannot be told with confidence: N* may be {star}."


def _disagreement(found: Sequence[View]) -> list[str]:
    """Clients and server count the same requests over the same seconds; if not, a reader has to know."""
    apart = {
        view.clients: view.server.estimate / view.together.estimate - 1 for view in found if view.together.estimate
    }
    clients, worst = max(apart.items(), key=lambda pair: abs(pair[1]), default=(0, 0.0))
    if abs(worst) <= AGREE:
        return []
    more = "more" if worst > 0 else "fewer"
    return [
        f"The server counted {abs(worst):.1%} {more} requests a second than all clients together at "
        f"{counted(clients, 'client')}: the seconds in which it was asked are not those that the clients measured."
    ]


def _change(first: Interval, last: Interval) -> str:
    """How far it went from the fewest clients to the most; a change that repetitions may hide is none."""
    ratio = ratio_interval(last, first)
    if math.isnan(ratio.estimate):
        return "how far it moves cannot be told from nothing"
    moved = f"it falls to {ratio.estimate:.0%}" if ratio.estimate < 1 else f"it grows {number(ratio.estimate, 2)} times"
    if ratio.low is None or ratio.high is None:
        return f"{moved}, but how surely cannot be told without repetitions"
    if ratio.low >= 1 - MOVES and ratio.high <= 1 + MOVES:
        return "it hardly moves"
    if ratio.low <= 1 <= ratio.high:
        return "but the repetitions differ so much that whether it moves cannot be told"
    if ratio.estimate < 1:
        return f"{moved} ({ratio.low:.0%} to {ratio.high:.0%})"
    return f"{moved} ({between(ratio)})"


def _surely_falls(first: Interval, last: Interval) -> bool:
    """Whether the repetitions agree on less, and on more than would be called none."""
    ratio = ratio_interval(last, first)
    return ratio.low is not None and ratio.high is not None and ratio.high < 1 and ratio.low < 1 - MOVES
