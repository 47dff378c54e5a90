"""Requests of the clients that failed, by operation.

A failed request counts as completed, as the operational laws require, and the load generator times it. So a fast
refusal shortens the mean response time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.once import once
from knee.data.trim import RUN, trimmed
from knee.verdict.outcomes import OPERATION

if TYPE_CHECKING:
    from knee.data import Dataset


@dataclass(frozen=True)
class Failures:
    """How many requests failed.

    requests, errors  over all trimmed windows; errors are part of the requests
    shares            failed share of the requests by operation, for operations with a failure, the largest first
    operations        number of operations that clients used
    timed             whether response times include failed requests
    """

    requests: int
    errors: int
    shares: tuple[tuple[str, float], ...]
    operations: int
    timed: bool


@once
def requests(dataset: Dataset) -> pl.DataFrame:
    """The clients' trimmed requests: `point, repetition, op, count, errors`; errors are part of the count.

    All reads are one operation, whatever their outcome. An operation without a request has no row.
    """
    return (
        trimmed(dataset, "windows")
        .filter(pl.col("role") == "load")
        .group_by(*RUN, OPERATION)
        .agg(pl.col("count", "errors").sum())
        .filter(pl.col("count") > 0)
        .sort(*RUN, "op")
    )


def failures(dataset: Dataset) -> Failures:
    of_operations = requests(dataset).group_by("op", maintain_order=True).agg(pl.col("count", "errors").sum())
    shares = of_operations.select("op", (pl.col("errors") / pl.col("count")).alias("share"))
    worst = shares.filter(pl.col("share") > 0).sort("share", descending=True, maintain_order=True)
    return Failures(
        requests=int(of_operations["count"].sum()),
        errors=int(of_operations["errors"].sum()),
        shares=tuple((str(op), float(share)) for op, share in worst.iter_rows()),
        operations=of_operations.height,
        timed=dataset.spec.base.system.load.kind != "pgbench",
    )
