"""The memory that many small keys take."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cells import Cell
from bench.drivers import KEY_BYTES, KEY_PREFIX, KneeLoad
from bench.programs import BenchError, Cores, Server
from bench.servers import Servers
from bench.table import Column, Plan, Row, Table

VALUE_BYTES = 32
# The stores' limit, above the memory of ten million keys. No store reserves it.
MEMORY_MB = 8192
TITLE = "Resident memory"
# The number of sets that Redis gets before it must answer.
BATCH = 10_000
ANSWER_S = 60.0


@dataclass(frozen=True)
class Resident:
    """The resident memory of a process, in bytes."""

    anonymous: int
    #: Pages of mapped files, which the system can reclaim.
    file: int

    @classmethod
    def of(cls, pid: int) -> Resident:
        """The resident memory of process `pid` now."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        kib = {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")}
        return cls((kib["RssAnon"] + kib["RssShmem"]) * 1024, kib["RssFile"] * 1024)

    @property
    def total(self) -> int:
        """The memory of both kinds."""
        return self.anonymous + self.file


def memory_row(name: str, empty: Resident, full: Resident) -> Row:
    """The memory of a store before and after it was filled."""
    return Row(
        name,
        {},
        {
            f"{when}_{kind}_bytes": getattr(resident, kind)
            for when, resident in (("empty", empty), ("full", full))
            for kind in ("anonymous", "file")
        },
    )


def _bytes(row: Row, when: str) -> float:
    return float(row.facts[f"{when}_anonymous_bytes"] + row.facts[f"{when}_file_bytes"])


def added(row: Row) -> float:
    """Bytes that filling the process has added."""
    return _bytes(row, "full") - _bytes(row, "empty")


def memory_columns() -> list[Column]:
    """Memory when full, its parts, and memory when empty."""
    return [
        ("resident MiB", lambda row: f"{_bytes(row, 'full') / (1 << 20):,.0f}"),
        ("anonymous", lambda row: f"{row.facts['full_anonymous_bytes'] / (1 << 20):,.0f}"),
        ("of files", lambda row: f"{row.facts['full_file_bytes'] / (1 << 20):,.0f}"),
        ("empty MiB", lambda row: f"{_bytes(row, 'empty') / (1 << 20):,.0f}"),
    ]


def compare_resident(plan: Plan, cores: Cores, servers: Servers, disk: Path, keys: int) -> list[Table]:
    """Every store with the same keys, one at a time. There is no aim."""
    table = Table(
        title=TITLE,
        key="store",
        notes=[
            f"{keys:,} keys of {KEY_BYTES} B with values of {VALUE_BYTES} B, one store at a time, each set once, in "
            f"order. Bytes per key: they added to resident memory; {KEY_BYTES + VALUE_BYTES} are key and value. "
            "Of files: the system may take it back."
        ],
        columns=[("bytes per key", lambda row: f"{added(row) / keys:.1f}"), *memory_columns()],
        verdict=lambda rows: "bytes per key: " + ", ".join(f"{row.name} {added(row) / keys:.0f}" for row in rows),
        facts={"keys": keys},
    )
    load = KneeLoad(servers.directory, cores, keys)

    def by_knee_load(server: Server) -> None:
        load.populate([server.address], Cell("set", VALUE_BYTES, 1))

    def by_redis_protocol(server: Server) -> None:
        _populate_redis(server, keys)

    with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files:
        # The time of writes to the disk does not change the memory.
        on_disk, redis = ["--data", f"{files}/data", "--durability", "interval:100"], Path(files)
        stores: list[tuple[str, Callable[[], Server], Callable[[Server], None]]] = [
            ("knee-kv", lambda: servers.knee_kv(cores.tested, memory_mb=MEMORY_MB), by_knee_load),
            ("memcached", lambda: servers.memcached(cores.tested, memory_mb=MEMORY_MB), by_knee_load),
            (
                "versioned, in memory",
                lambda: servers.knee_kv(cores.tested, "--consistency", "linearizable", memory_mb=MEMORY_MB),
                by_knee_load,
            ),
            (
                "versioned, on disk",
                lambda: servers.knee_kv(cores.tested, *on_disk, memory_mb=MEMORY_MB),
                by_knee_load,
            ),
            ("Redis", lambda: servers.redis(cores.tested, redis, durable=False), by_redis_protocol),
        ]
        for name, start, populate in stores:
            table.add(plan, name, partial(_filled, name, start, populate))
    return [table]


def _filled(name: str, start: Callable[[], Server], populate: Callable[[Server], None]) -> Row:
    with start() as server:
        empty = Resident.of(server.pid)
        populate(server)
        return memory_row(name, empty, Resident.of(server.pid))


def _populate_redis(server: Server, keys: int) -> None:
    """The keys and values of `knee-load`, in its protocol."""
    value = b"x" * VALUE_BYTES
    form = b"*3\r\n$3\r\nSET\r\n$%d\r\n%s%%010d\r\n$%d\r\n%s\r\n" % (KEY_BYTES, KEY_PREFIX.encode(), VALUE_BYTES, value)
    with socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_S) as connection:
        for first in range(0, keys, BATCH):
            numbers = range(first, min(first + BATCH, keys))
            connection.sendall(b"".join([form % number for number in numbers]))
            missing = len(numbers) * len(b"+OK\r\n")
            while missing > 0:
                answer = connection.recv(min(missing, 1 << 16))
                if answer.strip(b"+OK\r\n") or not answer:
                    raise BenchError(f"{server.name} has not stored what it was sent: {answer[:100]!r}")
                missing -= len(answer)
