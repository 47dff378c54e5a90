"""The parts of the response time, and their growth from one client count to another. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from knee.stats.intervals import Interval, difference_interval, mean_interval


@dataclass(frozen=True)
class Component:
    """A part of the response time, at two client counts. `share` is of the whole growth."""

    name: str
    from_ms: Interval
    to_ms: Interval
    growth_ms: Interval
    share: float


def components_of(
    observations: pl.DataFrame, from_clients: int, to_clients: int, level: float
) -> tuple[Component, ...]:
    """Client response = (client − middleware) + queueing + service + the rest of the middleware's response time. If the
    middlewares report the wait for a connection, it is separate from service.
    """
    rows = observations
    needed = {"middleware_response_ms", "queueing_ms", "service_ms"}
    if not needed <= set(rows.columns) or rows["middleware_response_ms"].null_count():
        return ()
    pooled = "connection_ms" in rows.columns and not rows["connection_ms"].null_count()
    waiting_ms = pl.col("connection_ms") if pooled else pl.lit(0.0)
    parts = {
        "queueing in the middleware": pl.col("queueing_ms"),
        **({"waiting for a connection": waiting_ms} if pooled else {}),
        "service beyond the middleware": pl.col("service_ms") - waiting_ms,
        "between client and middleware": pl.col("response_ms") - pl.col("middleware_response_ms"),
        "reply inside the middleware": pl.col("middleware_response_ms") - pl.col("queueing_ms") - pl.col("service_ms"),
    }
    start = rows.filter(pl.col("clients") == from_clients)
    end = rows.filter(pl.col("clients") == to_clients)
    if from_clients == to_clients or start.is_empty() or end.is_empty():
        return ()
    whole = float(end["response_ms"].mean()) - float(start["response_ms"].mean())  # type: ignore[arg-type]
    components: list[Component] = []
    for name, expression in parts.items():
        before = start.select(expression).to_series().drop_nulls().to_numpy()
        after = end.select(expression).to_series().drop_nulls().to_numpy()
        if not before.size or not after.size:
            continue
        growth = difference_interval(after, before, level)
        components.append(
            Component(
                name,
                mean_interval(before, level),
                mean_interval(after, level),
                growth,
                growth.estimate / whole if whole > 0 else 0.0,
            )
        )
    return tuple(sorted(components, key=lambda component: -component.growth_ms.estimate))
