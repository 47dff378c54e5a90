"""What pgbench logs of its transactions, as the windows and the summary that load generators print. Pure.

pgbench (PostgreSQL documentation, "Per-Transaction Logging") writes a file for each of its threads, with a line for
each transaction: client, its number there, microseconds that it took, script, and the second and microsecond at which
it was over; with a rate, also how late it began. A transaction that failed has a word instead of the microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from knee.errors import ProcessError
from knee.hdr import Histogram, bucket_of

OPERATION = "transaction"
"""What a script is counted as: pgbench times none of its statements alone."""

_COLUMNS = ("client", "number", "took_us", "script", "ended_s", "ended_us")
_Line = dict[str, Any]


def lines(logs: Iterable[Path], clients: int, started_unix_s: float, seconds: int) -> Iterator[_Line]:
    """A window for each second from the start on, and the summary. Raises ProcessError when there is no such log."""
    transactions = _read(logs)
    for second in range(math.floor(started_unix_s), math.floor(started_unix_s) + seconds):
        here = transactions.filter(pl.col("ended_s") == second)
        window = {"type": "window", "role": "load", "second": second, "seconds": 1.0, "ops": {}, "connections": clients}
        if here.height:
            window["ops"] = {OPERATION: {**_counts(here), "response": _histogram(here).encode()}}
        yield window
    yield _summary(transactions, clients, started_unix_s, seconds)


def _read(logs: Iterable[Path]) -> pl.DataFrame:
    frames = []
    for log in logs:
        try:
            frame = pl.read_csv(log, separator=" ", has_header=False, infer_schema=False, truncate_ragged_lines=True)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ProcessError(f"{log}: what pgbench logged cannot be read: {error}") from error
        if frame.width < len(_COLUMNS):
            raise ProcessError(f"{log}: not a log of pgbench's transactions")
        frames.append(frame[:, : len(_COLUMNS)].rename(dict(zip(frame.columns, _COLUMNS, strict=False))))
    if not frames:
        raise ProcessError("pgbench logged no transaction")
    times = pl.concat(frames).select(
        pl.col("took_us").cast(pl.Int64, strict=False),
        pl.col("ended_s", "ended_us").cast(pl.Int64),
    )
    return times.sort("ended_s", "ended_us")


def _counts(transactions: pl.DataFrame) -> _Line:
    took_us = transactions["took_us"]
    return {
        "count": transactions.height,
        "errors": took_us.null_count(),
        "items": transactions.height,
        "hits": 0,
        "misses": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "response_sum_ns": 1000 * int(took_us.sum() or 0),
    }


def _histogram(transactions: pl.DataFrame) -> Histogram:
    """Of those that did not fail."""
    took_ns, counts = np.unique(1000 * transactions["took_us"].drop_nulls().to_numpy(), return_counts=True)
    buckets = np.array([bucket_of(int(time_ns)) for time_ns in took_ns], dtype=np.int64)
    return Histogram(np.bincount(buckets, weights=counts).astype(np.int64))


def _summary(transactions: pl.DataFrame, clients: int, started_unix_s: float, seconds: int) -> _Line:
    histogram = _histogram(transactions)
    described = {
        "op": OPERATION,
        "stage": "response",
        "unit": "ns",
        "count": histogram.total,
        "hdr": histogram.encode(),
    }
    return {
        "type": "summary",
        "role": "load",
        "program": "pgbench",
        "started_unix_s": started_unix_s,
        "ended_unix_s": started_unix_s + seconds,
        "seconds": float(seconds),
        "clients": clients,
        "bottleneck": None,
        "ops": {OPERATION: _counts(transactions)},
        "histograms": [described],
    }
