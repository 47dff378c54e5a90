"""What pgbench asks a database of messages for, and what it logs of that, as load generators print it. Pure.

pgbench (PostgreSQL documentation, "Per-Transaction Logging") writes a file for each of its threads, with a line for
each transaction: client, its number there, microseconds that it took, script, and the second and microsecond at which
it was over; with a rate, also how late it began. A transaction that failed has a word instead of the microseconds. Of
the last line there may be a part, where pgbench was ended. Scripts are numbered from 0, as the
command line has them.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from knee.data.hdr import Histogram, bucket_of
from knee.errors import ProcessError
from knee.lab import schema
from knee.spec import Workload

OPERATION = "transaction"
"""What a script of several operations is counted as: pgbench times none of its statements alone."""

_COLUMNS = ("client", "number", "took_us", "script", "ended_s", "ended_us")
_FAILED = "failed"
_Line = dict[str, Any]


@dataclass(frozen=True)
class Script:
    """What a client asks for at a time: what it counts as, how many messages it is about, and how pgbench reads it."""

    operation: str
    items: int
    text: str


SESSION = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off"
"""What the middlewares ask of each session as well (docs/decisions/0004-queue-keeps-floors.md)."""

ME = "\\set me :client_id + 1"
BEGIN = (ME, "\\set queue :me")
"""Each client is that of its number, and so is its queue."""
SEND = "SELECT problem, about, id, watched FROM knee_queue.send(:me, :me, :queue, '{content}');"
LIST = "SELECT problem, about, queue FROM knee_queue.list_queues(:me);"
READ = (
    "SELECT problem, about, id, sender, receiver, arrived_at, content "
    "FROM knee_queue.read(:me, :queue, 0, 1000, 262144, 0, 0, 0);"
)
REMOVE = (
    "SELECT problem, about, epoch, first, first_nobodys, id, sender, receiver, arrived_at, attempt, content "
    "FROM knee_queue.take(:me, :queue, 1, 1, NULL, 0, 0, 0);"
)
_LEVELS = {0: (SEND,), 1: (SEND, LIST), 2: (SEND, LIST, READ, REMOVE), 4: (SEND, REMOVE)}
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
    return "\n".join([*statements, *schema.indexes(indexes), "VACUUM ANALYZE knee_queue.message;", ""])


def scripts(workload: Workload) -> tuple[Script, ...]:
    """What each client does again and again, of several one by chance: it sends to itself, in its own queue, or where
    the queue is to grow all of them send to one of them, in its queue."""
    send = SEND.format(content=_content(workload.characters))
    if workload.level != _GROWS:
        statements = [statement.replace(SEND, send) for statement in _LEVELS[workload.level]]
        return (Script(OPERATION, 1, "\n".join([*BEGIN, *statements, ""])),)
    one_queue = ["\\set me 1", "\\set queue 1"]
    return (
        Script("send", _SENT_TOGETHER, "\n".join([*one_queue, *[send] * _SENT_TOGETHER, ""])),
        Script("remove", 1, "\n".join([*one_queue, REMOVE, ""])),
    )


def lines(
    logs: Iterable[Path], asked: Sequence[Script], clients: int, started_unix_s: float, seconds: int
) -> Iterator[_Line]:
    """A window for each second from the start on, and the summary of what was over in them.

    Raises ProcessError when there is no such log of these scripts.
    """
    first = math.floor(started_unix_s)
    transactions = _read(logs, len(asked)).filter(pl.col("ended_s").is_between(first, first + seconds, closed="left"))
    means_us = {script.operation: _mean_us(of_script) for script, of_script in _by_script(transactions, asked)}
    for second in range(first, first + seconds):
        here = transactions.filter(pl.col("ended_s") == second)
        ops = {
            script.operation: {
                **_counts(of_script, script, means_us[script.operation]),
                "response": _histogram(of_script).encode(),
            }
            for script, of_script in _by_script(here, asked)
        }
        window = {"type": "window", "role": "load", "second": second, "seconds": 1.0, "ops": ops}
        yield {**window, "connections": clients}
    yield _summary(transactions, asked, clients, started_unix_s, seconds)


def _by_script(transactions: pl.DataFrame, asked: Sequence[Script]) -> Iterator[tuple[Script, pl.DataFrame]]:
    """The transactions of each script that has any."""
    for number, script in enumerate(asked):
        of_script = transactions.filter(pl.col("script") == number)
        if of_script.height:
            yield script, of_script


def _read(logs: Iterable[Path], scripts: int) -> pl.DataFrame:
    """What all of them say: `took_us`, null of a transaction that failed, `script` and `ended_s`."""
    frames = [_transactions(log, scripts) for log in logs]
    if not frames:
        raise ProcessError("pgbench logged no transaction")
    return pl.concat(frames)


def _transactions(log: Path, scripts: int) -> pl.DataFrame:
    took_us, whole = pl.col("took_us"), pl.col("script", "ended_s")
    try:
        whole_lines = log.read_bytes().rpartition(b"\n")[0]
        frame = pl.read_csv(
            whole_lines, separator=" ", has_header=False, infer_schema=False, truncate_ragged_lines=True
        )
        if frame.width < len(_COLUMNS):
            raise ProcessError(f"{log}: not a log of pgbench's transactions")
        frame = frame.rename(dict(zip(frame.columns, _COLUMNS, strict=False)))
        times = frame.select(took_us.replace(_FAILED, None).cast(pl.Int64), whole.cast(pl.Int64))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ProcessError(f"{log}: what pgbench logged cannot be read: {error}") from error
    if times["ended_s"].has_nulls() or not times["script"].is_between(0, scripts - 1).fill_null(value=False).all():
        raise ProcessError(f"{log}: not a log of pgbench's transactions")
    return times


def _counts(transactions: pl.DataFrame, script: Script, mean_us: float | None) -> _Line:
    """Counts of a script's transactions, which took `mean_us` on average in the whole run, as far as any was timed."""
    took_us = transactions["took_us"]
    failed = took_us.null_count()
    # One that failed took its time, too, of which pgbench says nothing: as long as the others of its second.
    here_us = _mean_us(transactions) if failed < transactions.height else mean_us
    return {
        "count": transactions.height,
        "errors": failed,
        # One that failed was rolled back, with all of its messages.
        "items": script.items * (transactions.height - failed),
        "hits": 0,
        "misses": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "response_sum_ns": None if here_us is None else round(1000 * here_us * transactions.height),
    }


def _mean_us(transactions: pl.DataFrame) -> float | None:
    """Of those that did not fail; None where all did."""
    took_us = transactions["took_us"].drop_nulls().to_numpy()
    return float(took_us.mean()) if took_us.size else None


def _histogram(transactions: pl.DataFrame) -> Histogram:
    """Of those that did not fail."""
    took_ns, counts = np.unique(1000 * transactions["took_us"].drop_nulls().to_numpy(), return_counts=True)
    buckets = np.array([bucket_of(int(time_ns)) for time_ns in took_ns], dtype=np.int64)
    return Histogram(np.bincount(buckets, weights=counts).astype(np.int64))


def _summary(
    transactions: pl.DataFrame, asked: Sequence[Script], clients: int, started_unix_s: float, seconds: int
) -> _Line:
    ops, described = {}, []
    for script, of_script in _by_script(transactions, asked):
        histogram = _histogram(of_script)
        ops[script.operation] = _counts(of_script, script, _mean_us(of_script))
        described.append(
            {
                "op": script.operation,
                "stage": "response",
                "unit": "ns",
                "count": histogram.total,
                "hdr": histogram.encode(),
            }
        )
    return {
        "type": "summary",
        "role": "load",
        "program": "pgbench",
        "started_unix_s": started_unix_s,
        "ended_unix_s": started_unix_s + seconds,
        "seconds": float(seconds),
        "clients": clients,
        "bottleneck": None,
        "ops": ops,
        "histograms": described,
    }
