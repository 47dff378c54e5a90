"""What it costs to have every put on the disk before it is answered."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.drivers import FIRST_KEY, KEY_BYTES, Driven, run_generator
from bench.outcome import Outcome, aligned
from bench.programs import BenchError, Cores, Server, find_program
from bench.report import sample_json
from bench.samples import Ratio, Sample, measure_server
from bench.servers import Servers
from bench.table import WARM_UP_S, Plan

WRITERS = (1, 16, 128)
VALUE_BYTES = 100
KEYS = 1_000_000
DIGITS = 10

STORE, FLOOR, REDIS = "knee-kv", "floor-log", "Redis"
OF_FLOOR_MIN = 0.8
OF_REDIS_MIN = 1.0
TITLE = "knee-kv --durability always against a bare log and Redis with appendfsync always"


@dataclass(frozen=True)
class Put:
    """A put on the wire, and the answer to it."""

    request: bytes
    reply: bytes


VALUE = b"x" * VALUE_BYTES
MEMCACHED_PUT = Put(b"set %b 0 0 %d\r\n%b\r\n" % (FIRST_KEY, VALUE_BYTES, VALUE), b"STORED\r\n")
REDIS_PUT = Put(
    b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (KEY_BYTES, FIRST_KEY, VALUE_BYTES, VALUE), b"+OK\r\n"
)
PUTS = {STORE: MEMCACHED_PUT, FLOOR: MEMCACHED_PUT, REDIS: REDIS_PUT}


class Writers:
    """`floor-send`: so many connections, each with one put in flight, keys drawn evenly."""

    def __init__(self, directory: Path | None, cores: Cores, files: Path) -> None:
        self._program = find_program("floor-send", directory)
        self._core = cores.others
        self._request = files / "request"

    def drive(self, server: Server, put: Put, writers: int, seconds: float) -> Driven:
        """Raises BenchError, with the server's name, when an answer had another length than it should."""
        self._request.write_bytes(put.request)
        command = [
            *(self._program, "--server", server.address, "--connections", str(writers), "--seconds", str(seconds)),
            *("--request", str(self._request), "--reply-bytes", str(len(put.reply))),
            *("--digits-at", str(put.request.index(FIRST_KEY) + KEY_BYTES - DIGITS), "--keys", str(KEYS)),
        ]
        try:
            summary, cpu_s = run_generator(command, self._core, seconds)
        except BenchError as error:
            raise BenchError(f"{server.name}: {error} {server.messages()}".strip()) from error
        return Driven(summary["requests"], summary["seconds"], cpu_s)


@dataclass(frozen=True)
class Row:
    """So many writers: every contestant's samples, one a round, and how many puts one fdatasync made safe."""

    writers: int
    samples: dict[str, list[Sample]]
    #: Only of those that say it.
    puts_per_sync: dict[str, float]

    def rate(self, other: str) -> Ratio:
        """Puts per second, ours over another's."""
        return Ratio.of_rate(self.samples[STORE], self.samples[other])

    def cpu(self, other: str) -> Ratio:
        """CPU time of a put, ours over another's."""
        return Ratio.of_cpu(self.samples[STORE], self.samples[other])


@dataclass
class Table:
    """All numbers of writers."""

    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def compare_durable(plan: Plan, cores: Cores, servers: Servers, disk: Path) -> list[Outcome]:
    """`knee-kv --data`, `floor-log` and Redis, each with its files in a directory below `disk`."""
    table = Table()
    for writers in WRITERS:
        plan.progress(f"{TITLE}: {writers} writers")
        try:
            with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files:
                table.rows.append(_row(plan, cores, servers, Path(files), writers))
        except BenchError as error:
            table.failures.append(f"{TITLE}: {writers} writers: {error}")
    return [Outcome(TITLE, _text(table, disk), _verdict(table), _content(table), table.failures)]


def _row(plan: Plan, cores: Cores, servers: Servers, files: Path, writers: int) -> Row:
    load = Writers(servers.directory, cores, files)
    with ExitStack() as stack:
        contestants = {name: stack.enter_context(server) for name, server in _started(cores, servers, files)}
        for name, server in contestants.items():
            load.drive(server, PUTS[name], writers, WARM_UP_S)

        def measure(name: str) -> Sample:
            server = contestants[name]
            return measure_server(server, lambda: load.drive(server, PUTS[name], writers, plan.seconds))

        samples = plan.in_turns({name: name for name in contestants}, measure)
        summaries = {name: contestants[name].summary() for name in (STORE, FLOOR)}
    counted = {name: summary for name, summary in summaries.items() if summary.get("commits")}
    return Row(writers, samples, {name: it["commit_records"] / it["commits"] for name, it in counted.items()})


def _started(cores: Cores, servers: Servers, files: Path) -> Iterator[tuple[str, Server]]:
    yield STORE, servers.knee_kv(cores.tested, "--data", str(files / "data"), "--durability", "always")
    yield FLOOR, servers.floor_log(cores.tested, files / "log", len(MEMCACHED_PUT.request))
    redis = files / "redis"
    redis.mkdir()
    yield REDIS, servers.redis(cores.tested, redis, durable=True)


def _text(table: Table, disk: Path) -> str:
    names = (STORE, FLOOR, REDIS)
    lines = [
        [
            "writers",
            *(f"{name} /s" for name in names),
            *(f"of {name}" for name in names[1:]),
            f"of {FLOOR}, range",
            f"of {REDIS}, range",
            *(f"{name} µs" for name in names),
            *(f"µs of {name}'s" for name in names[1:]),
            *(f"{name} puts/sync" for name in names[:2]),
            "load busy",
        ]
    ]
    for row in table.rows:
        rates = [row.rate(name) for name in names[1:]]
        lines.append(
            [
                str(row.writers),
                *(f"{median(sample.per_second for sample in row.samples[name]):,.0f}" for name in names),
                *(f"{ratio.median:.2f}" for ratio in rates),
                *(f"{ratio.low:.2f} to {ratio.high:.2f}" for ratio in rates),
                *(f"{median(sample.cpu_us for sample in row.samples[name]):.1f}" for name in names),
                *(f"{row.cpu(name).median:.2f}" for name in names[1:]),
                *(f"{row.puts_per_sync[name]:.1f}" if name in row.puts_per_sync else "-" for name in names[:2]),
                f"{median(sample.other_busy for sample in row.samples[STORE]):.0%}",
            ]
        )
    return "\n".join(
        [
            TITLE,
            f"Each writer has a connection and one put in flight; values of {VALUE_BYTES} B, {KEYS:,} keys. Load: "
            f"floor-send on all three. Files below {disk}.",
            f"{FLOOR} is a server that writes each batch of requests behind the last, calls fdatasync and answers: "
            "what the network and the disk alone cost. One thread each; Redis neither dumps nor rewrites its log.",
            "/s: puts per second, median over the rounds; of: median of knee-kv's over the other's, round by round; "
            "µs: CPU time of a put; puts/sync: puts made safe by one fdatasync.",
            "",
            *aligned(lines),
            "",
        ]
    )


def _verdict(table: Table) -> str:
    missed = [
        f"{row.writers} writers: {row.rate(name).median:.2f} of {name}"
        for row in table.rows
        for name, least in ((FLOOR, OF_FLOOR_MIN), (REDIS, OF_REDIS_MIN))
        if row.rate(name).median < least
    ]
    reached = "yes" if table.rows and not missed else "no"
    return (
        f"{TITLE}: at least {OF_FLOOR_MIN:g} of the log's and {OF_REDIS_MIN:g} of Redis's puts per second: {reached}"
        + (f"; {'; '.join(missed)}" if missed else "")
    )


def _content(table: Table) -> dict[str, Any]:
    return {
        "title": TITLE,
        "value_bytes": VALUE_BYTES,
        "keys": KEYS,
        "rows": [
            {
                "writers": row.writers,
                "puts_per_sync": row.puts_per_sync,
                "samples": {name: [sample_json(sample) for sample in samples] for name, samples in row.samples.items()},
            }
            for row in table.rows
        ],
    }
