"""The cost of puts that are answered only once they are on the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.drivers import FIRST_KEY, KEY_BYTES, Driven, run_generator
from bench.programs import BenchError, Cores, Server, find_program
from bench.samples import Sample, measure_server
from bench.servers import Servers
from bench.table import WARM_UP_S, Column, Plan, Row, Table, median_of, range_of, ratio_of

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
    """`floor-send`: connections with one put in flight each, and uniformly drawn keys."""

    def __init__(self, directory: Path | None, cores: Cores, files: Path) -> None:
        self._program = find_program("floor-send", directory)
        self._core = cores.others
        self._request = files / "request"

    def drive(self, server: Server, put: Put, writers: int, seconds: float) -> Driven:
        """Raises BenchError, with the server's name, if an answer has a wrong length."""
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


def compare_durable(plan: Plan, cores: Cores, servers: Servers, disk: Path) -> list[Table]:
    """`knee-kv --data`, `floor-log` and Redis, each with its files in a directory below `disk`."""
    names = (STORE, FLOOR, REDIS)
    table = Table(
        title=TITLE,
        key="writers",
        notes=[
            f"Each writer has a connection and one put in flight; values of {VALUE_BYTES} B, {KEYS:,} keys. Load: "
            f"floor-send on all three. Files below {disk}.",
            f"{FLOOR} is a server that writes each batch of requests behind the last, calls fdatasync and answers: "
            "what the network and the disk alone cost. One thread each; Redis neither dumps nor rewrites its log.",
            "/s: puts per second, median over the rounds; of: median of knee-kv's over the other's, round by round; "
            "µs: CPU time of a put; puts/sync: puts made safe by one fdatasync.",
        ],
        columns=[
            *(median_of(f"{name} /s", name, "per_second") for name in names),
            *(ratio_of(f"of {name}", STORE, name, "per_second") for name in names[1:]),
            *(range_of(f"of {name}, range", STORE, name, "per_second") for name in names[1:]),
            *(median_of(f"{name} µs", name, "cpu_us", ".1f") for name in names),
            *(ratio_of(f"µs of {name}'s", STORE, name, "cpu_us") for name in names[1:]),
            *(_puts_per_sync(name) for name in names[:2]),
            median_of("load busy", STORE, "other_busy", ".0%"),
        ],
        verdict=_verdict,
        facts={"value_bytes": VALUE_BYTES, "keys": KEYS},
    )
    for writers in WRITERS:
        with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files:
            table.add(plan, str(writers), partial(_row, plan, cores, servers, Path(files), writers))
    return [table]


def _puts_per_sync(name: str) -> Column:
    def shown(row: Row) -> str:
        found = row.facts["puts_per_sync"]
        return f"{found[name]:.1f}" if name in found else "-"

    return f"{name} puts/sync", shown


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
    puts_per_sync = {name: it["commit_records"] / it["commits"] for name, it in counted.items()}
    return Row(str(writers), samples, {"writers": writers, "puts_per_sync": puts_per_sync})


def _started(cores: Cores, servers: Servers, files: Path) -> Iterator[tuple[str, Server]]:
    yield STORE, servers.knee_kv(cores.tested, "--data", str(files / "data"), "--durability", "always")
    yield FLOOR, servers.floor_log(cores.tested, files / "log", len(MEMCACHED_PUT.request))
    redis = files / "redis"
    redis.mkdir()
    yield REDIS, servers.redis(cores.tested, redis, durable=True)


def _verdict(rows: list[Row]) -> str:
    aims = ((FLOOR, OF_FLOOR_MIN), (REDIS, OF_REDIS_MIN))
    ratios = [(row, name, row.ratio(STORE, name, "per_second").median, least) for row in rows for name, least in aims]
    missed = [f"{row.name} writers: {ratio:.2f} of {name}" for row, name, ratio, least in ratios if ratio < least]
    reached = "yes" if rows and not missed else "no"
    return "; ".join(
        [f"at least {OF_FLOOR_MIN:g} of the log's and {OF_REDIS_MIN:g} of Redis's puts per second: {reached}", *missed]
    )
