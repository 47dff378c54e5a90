"""pgbench as the clients of a database of messages: its scripts, its logs as windows and a summary, its deployment.

pgbench (PostgreSQL documentation, "Per-Transaction Logging") writes a file for each of its threads, with a line for
each transaction: client, its number there, duration in microseconds, script, and the second and microsecond of its end;
with a rate, also its delay. A failed transaction has a word instead of the microseconds. The last line may be
incomplete if pgbench was stopped. Scripts are numbered from 0 in the order of the command line.
"""

from __future__ import annotations

import json
import math
import random
import string
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from knee.data.hdr import Histogram, bucket_of
from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import Command, File, tied
from knee.lab.deploy import postgresql
from knee.lab.deploy.deployment import DRAIN_S, POPULATE_KEYS_PER_S, READY_TIMEOUT_S
from knee.lab.deploy.queue import QueueDeployment
from knee.lab.hosts import Process
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Workload
from knee.storage import writing

OPERATION = "transaction"
"""The operation of a script with several statements, which pgbench does not time one by one."""

_COLUMNS = ("client", "number", "took_us", "script", "ended_s", "ended_us")
_FAILED = "failed"
_Line = dict[str, Any]


@dataclass(frozen=True)
class Script:
    """A transaction of a client: its operation, its number of messages, and its text for pgbench."""

    operation: str
    items: int
    text: str


SESSION = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off -c enable_bitmapscan=off"
"""The settings of each session, equal to those of the middlewares (docs/decisions/0004-queue-keeps-floors.md)."""

ME = "\\set me :client_id + 1"
BEGIN = (ME, "\\set queue :me")
"""Client n has queue n."""
SEND = "SELECT problem, about, id FROM knee_queue.send(:me, :me, :queue, '{content}');"
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
    """A constant message that PostgreSQL cannot compress, so that compression does not affect the measurement."""
    return "".join(random.Random(1).choices(_LETTERS, k=characters))


def preparation(clients: int, workload: Workload, indexes: str) -> str:
    """SQL that registers clients, makes a queue for each, distributes the backlog over them, and sets up the
    indexes."""
    clients_all = f"generate_series(1, {clients})"
    statements = [
        f"SELECT knee_queue.register_client(0) FROM {clients_all};",
        f"SELECT knee_queue.create_queue(n, NULL, 1, NULL) FROM {clients_all} n;",
    ]
    if workload.backlog:
        content = _content(workload.characters)
        statements.append(
            "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content) "
            f"SELECT nextval('knee_queue.message_id'), 1 + n % {clients}, 1 + n % {clients}, 1 + n % {clients}, now(), "
            f"'{content}' FROM generate_series(1, {workload.backlog}) n;"
        )
    return "\n".join([*statements, *postgresql.indexes(indexes), "VACUUM ANALYZE knee_queue.message;", ""])


def scripts(workload: Workload) -> tuple[Script, ...]:
    """The scripts that a client repeats, one drawn at a time. A client sends to itself, in its own queue. At the
    growing level, all clients send to the first client's queue."""
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
    """A window for each second from the start on, and the summary of the transactions that ended in them.

    Raises ProcessError without a valid log of these scripts.
    """
    first = math.floor(started_unix_s)
    frames = [_transactions(log, len(asked)) for log in logs]
    if not frames:
        raise ProcessError("pgbench logged no transaction")
    transactions = pl.concat(frames).filter(pl.col("ended_s").is_between(first, first + seconds, closed="left"))
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
    """The transactions by script, for scripts with transactions."""
    for number, script in enumerate(asked):
        of_script = transactions.filter(pl.col("script") == number)
        if of_script.height:
            yield script, of_script


def _transactions(log: Path, scripts: int) -> pl.DataFrame:
    """A log: `took_us` (null for a failed transaction), `script` and `ended_s`."""
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
        raise ProcessError(f"{log}: the log cannot be read: {error}") from error
    if times["ended_s"].has_nulls() or not times["script"].is_between(0, scripts - 1).fill_null(value=False).all():
        raise ProcessError(f"{log}: not a log of pgbench's transactions")
    return times


def _counts(transactions: pl.DataFrame, script: Script, mean_us: float | None) -> _Line:
    """Counts of a script's transactions. `mean_us` is their mean over the whole run; None without timed ones."""
    took_us = transactions["took_us"]
    failed = took_us.null_count()
    # pgbench does not time failed transactions; each counts in its second.
    here_us = _mean_us(transactions) if failed < transactions.height else mean_us
    return {
        "count": transactions.height,
        "errors": failed,
        # A failed transaction was rolled back.
        "items": script.items * (transactions.height - failed),
        "hits": 0,
        "misses": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "response_sum_ns": None if here_us is None else round(1000 * here_us * transactions.height),
    }


def _mean_us(transactions: pl.DataFrame) -> float | None:
    """Mean time of the successful transactions; None without one."""
    took_us = transactions["took_us"].drop_nulls().to_numpy()
    return float(took_us.mean()) if took_us.size else None


def _histogram(transactions: pl.DataFrame) -> Histogram:
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


def pgbench(
    process: str, configuration: Configuration, url: str, room: Scratch, files: Sequence[File], seconds: int, seed: int
) -> Command:
    """Debian's pgbench: a connection for each client, which runs one script at a time and logs it."""
    tier, clients = configuration.system.load, configuration.clients
    argv = [
        *tied(),
        str(programs.find_postgresql("pgbench")),
        *("--no-vacuum", "--protocol", "prepared"),
        # pgbench reads the text after the last @ of a name as a weight.
        *(part for file in files for part in ("--file", f"{file.path}@1")),
        *("--client", str(clients), "--jobs", str(min(tier.threads, clients)), "--time", str(seconds)),
        *("--log", "--log-prefix", str(room.pgbench_log_path), "--random-seed", str(seed)),
        url,
    ]
    return Command(
        process,
        "load",
        tuple(argv),
        environment=(("PGPASSFILE", str(room.pgpass.path)), ("PGOPTIONS", SESSION)),
        own_database=True,
        files=(room.pgpass, *files),
    )


class PgbenchDeployment(QueueDeployment):
    """The processes of a run in which pgbench uses a database without a middleware."""

    _began_unix_s = 0.0

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        store, workload = configuration.system.store, configuration.workload
        assert store is not None and self._room is not None, "the experiment file was checked"
        databases, url, _ = self._start_database(configuration, store)
        prepared = preparation(configuration.clients, workload, store.indexes)
        self._ask_database("prepare", url, prepared, READY_TIMEOUT_S + workload.backlog / POPULATE_KEYS_PER_S)
        return databases, [], [url]

    def _start_clients(
        self, configuration: Configuration, targets: list[str], start_at: int, lead_s: float
    ) -> list[Process]:
        """Start pgbench at the agreed second; pgbench has no delayed start."""
        assert self._room is not None, "the servers were started"
        time.sleep(max(0.0, start_at - time.time()))
        (url,), seconds = targets, self._spec.measure.seconds
        self._began_unix_s = time.time()
        files = [self._room.script(each.operation, each.text) for each in scripts(configuration.workload)]
        return [self._start(pgbench("load-0", configuration, url, self._room, files, seconds, self._seed))]

    def _finish(self, clients: list[Process], servers: list[Process]) -> None:
        """Convert pgbench's logs to the lines of a load generator."""
        (client,) = clients
        client.wait(DRAIN_S)
        assert self._room is not None, "the servers were started"
        configuration, seconds = self._run.configuration, self._spec.measure.seconds
        logs = sorted(self._room.pgbench_log_path.parent.glob(f"{self._room.pgbench_log_path.name}.*"))
        path = self._folder.lines_path(self._run, client.command.process)
        asked = scripts(configuration.workload)
        printed = list(lines(logs, asked, configuration.clients, self._began_unix_s, seconds))
        with writing(path):
            path.write_text("".join(json.dumps(line) + "\n" for line in printed), encoding="ascii")
        for line in printed:
            self._note(client.command, line)
        super()._finish(clients, servers)
