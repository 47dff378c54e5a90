"""What failed of what the clients asked for, by operation. Pure.

A request that failed is a completed one to whoever counts it, as the laws need it, and a load generator of ours times
it like any other. One that is refused at once is no request that was served fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN, trim
from knee.stats.intervals import listed, number
from knee.verdict.outcomes import OPERATION

if TYPE_CHECKING:
    from knee.data import Dataset


def requests(dataset: Dataset) -> pl.DataFrame:
    """The clients' trimmed requests: `point, repetition, op, count, errors`, the last of which are part of the count.

    Reads are one operation, whatever came of them. What nobody asked for has no row.
    """
    return (
        trim(dataset.windows, dataset.points)
        .filter(pl.col("role") == "load")
        .group_by(*RUN, OPERATION)
        .agg(pl.col("count", "errors").sum())
        .filter(pl.col("count") > 0)
        .sort(*RUN, "op")
    )


def what_failed(asked: pl.DataFrame) -> str:
    """How many of all requests failed, and of which operations; empty where none did.

    `asked` are those of :func:`requests`.
    """
    of_operations = asked.group_by("op", maintain_order=True).agg(pl.col("count", "errors").sum())
    count, errors = (int(of_operations[name].sum()) for name in ("count", "errors"))
    if not errors:
        return ""
    shares = of_operations.with_columns((pl.col("errors") / pl.col("count")).alias("share"))
    worst = shares.filter(pl.col("share") > 0).sort("share", descending=True, maintain_order=True)
    named = [f"{percent(share)} of {op}" for op, share in worst.select("op", "share").iter_rows()]
    where = f": {listed(named)}" if shares.height > 1 else ""
    return f"{errors} of {count} requests ({percent(errors / count)}) failed{where}"


def whose_times(dataset: Dataset) -> str:
    """Whether response times contain those of requests that failed, of which there are some."""
    if dataset.spec.base.system.load.kind == "pgbench":
        return "Response times leave out requests that failed: pgbench does not time them."
    return "Response times contain those of requests that failed."


def note_on_times(dataset: Dataset) -> str:
    """What ends the caption of a figure of response times; empty where nothing failed."""
    return f" {whose_times(dataset)}" if _any_failed(dataset) else ""


def note_on_throughput(dataset: Dataset) -> str:
    """What ends the caption of a figure of throughput; empty where nothing failed."""
    return " Requests that failed are counted." if _any_failed(dataset) else ""


def _any_failed(dataset: Dataset) -> bool:
    return bool(requests(dataset)["errors"].sum())


def percent(share: float) -> str:
    """A share in per cent, so that none is 0 % or 100 % that is not."""
    said = f"{number(100 * share)}%"
    return "more than 99.9%" if share < 1 and said.startswith("100") else said
