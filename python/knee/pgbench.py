"""What pgbench asks a database of messages for, and what it logs of that, as load generators print it. Pure.

pgbench (PostgreSQL documentation, "Per-Transaction Logging") writes a file for each of its threads, with a line for
each transaction: client, its number there, microseconds that it took, script, and the second and microsecond at which
it was over; with a rate, also how late it began. A transaction that failed has a word instead of the microseconds. Of
the last line there may be a part, where pgbench was ended.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from knee.errors import ProcessError
from knee.hdr import Histogram, bucket_of
from knee.spec import Workload

OPERATION = "transaction"
"""What a script is counted as: pgbench times none of its statements alone."""

_COLUMNS = ("client", "number", "took_us", "script", "ended_s", "ended_us")
_FAILED = "failed"
_Line = dict[str, Any]


_SEND = "SELECT * FROM knee_queue.send(:me, :me, :queue, '{content}');"
_LIST = "SELECT * FROM knee_queue.list_queues(:me);"
_READ = "SELECT * FROM knee_queue.read(:me, :queue, 0, 1000, 262144, 0, 0, 0);"
_REMOVE = "SELECT * FROM knee_queue.take(:me, :queue, 1, 1, NULL, 0, 0, 0);"
_LEVELS = {0: (_SEND,), 1: (_SEND, _LIST), 2: (_SEND, _LIST, _READ, _REMOVE), 4: (_SEND, _REMOVE)}
_GROWS = 3
_SENT_TOGETHER = 10
_LETTERS = string.ascii_letters + string.digits + "-_"


def _content(characters: int) -> str:
    """What a message says: the same always, and nothing that PostgreSQL could compress, which it tries with what is
    long; otherwise its compression would be measured."""
    return "".join(random.Random(1).choices(_LETTERS, k=characters))


def preparation(clients: int, workload: Workload, indexes: str) -> str:
    """SQL that registers the clients, makes a queue for each of them, stores the backlog, dealt to them in turn, and
    has no other indexes of messages than are wanted."""
    everybody = f"generate_series(1, {clients})"
    statements = [
        f"SELECT knee_queue.register_client(0) FROM {everybody};",
        f"SELECT knee_queue.create_queue(n, NULL, 1, NULL) FROM {everybody} n;",
    ]
    if workload.backlog:
        content = _content(workload.characters)
        statements.append(
            "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content) "
            f"SELECT nextval('knee_queue.message_id'), 1 + n % {clients}, 1 + n % {clients}, 1 + n % {clients}, now(), "
            f"'{content}' FROM generate_series(1, {workload.backlog}) n;"
        )
    if indexes == "none":
        statements += [f"DROP INDEX knee_queue.{name};" for name in ("ready", "ready_from", "leased", "leased_until")]
    if indexes == "arrival":
        statements.append("CREATE INDEX arrival ON knee_queue.message (arrived_at);")
    return "\n".join([*statements, "VACUUM ANALYZE knee_queue.message;", ""])


def script(workload: Workload) -> str:
    """What each client does again and again, as pgbench reads it: sends to itself, in its own queue."""
    send = _SEND.format(content=_content(workload.characters))
    if workload.level != _GROWS:
        statements = [statement.replace(_SEND, send) for statement in _LEVELS[workload.level]]
        return "\n".join(["\\set me :client_id + 1", "\\set queue :me", *statements, ""])
    sends = [send] * _SENT_TOGETHER
    return "\n".join(
        [
            # One queue, and one client that sends to itself.
            "\\set me 1",
            "\\set queue 1",
            "\\set grows random(0, 1)",
            "\\if :grows",
            *sends,
            "\\else",
            _REMOVE,
            "\\endif",
            "",
        ]
    )


def lines(logs: Iterable[Path], clients: int, started_unix_s: float, seconds: int) -> Iterator[_Line]:
    """A window for each second from the start on, and the summary of what was over in them.

    Raises ProcessError when there is no such log.
    """
    first = math.floor(started_unix_s)
    transactions = _read(logs).filter(pl.col("ended_s").is_between(first, first + seconds, closed="left"))
    for second in range(first, first + seconds):
        here = transactions.filter(pl.col("ended_s") == second)
        window = {"type": "window", "role": "load", "second": second, "seconds": 1.0, "ops": {}, "connections": clients}
        if here.height:
            window["ops"] = {OPERATION: {**_counts(here), "response": _histogram(here).encode()}}
        yield window
    yield _summary(transactions, clients, started_unix_s, seconds)


def _read(logs: Iterable[Path]) -> pl.DataFrame:
    """What all of them say: `took_us`, null of a transaction that failed, and `ended_s`."""
    frames = [_transactions(log) for log in logs]
    if not frames:
        raise ProcessError("pgbench logged no transaction")
    return pl.concat(frames)


def _transactions(log: Path) -> pl.DataFrame:
    took_us, ended_s = pl.col("took_us"), pl.col("ended_s")
    try:
        whole_lines = log.read_bytes().rpartition(b"\n")[0]
        frame = pl.read_csv(
            whole_lines, separator=" ", has_header=False, infer_schema=False, truncate_ragged_lines=True
        )
        if frame.width < len(_COLUMNS):
            raise ProcessError(f"{log}: not a log of pgbench's transactions")
        frame = frame.rename(dict(zip(frame.columns, _COLUMNS, strict=False)))
        times = frame.select(took_us.replace(_FAILED, None).cast(pl.Int64), ended_s.cast(pl.Int64))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ProcessError(f"{log}: what pgbench logged cannot be read: {error}") from error
    if times["ended_s"].has_nulls():
        raise ProcessError(f"{log}: not a log of pgbench's transactions")
    return times


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
