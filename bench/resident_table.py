"""What many small keys take of memory."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cells import Cell
from bench.drivers import KEY_BYTES, KEY_PREFIX, KneeLoad
from bench.outcome import Outcome, aligned
from bench.programs import BenchError, Cores, Server
from bench.servers import Servers
from bench.table import Plan

VALUE_BYTES = 32
# More than ten million keys take, and not reserved by anybody.
MEMORY_MB = 8192
TITLE = "Resident memory"
# Redis gets so many sets at a time, and then is waited for.
BATCH = 10_000
ANSWER_S = 60.0


@dataclass(frozen=True)
class Resident:
    """What a process has in memory, in bytes."""

    anonymous: int
    #: Pages of mapped files, which the system takes back where others need them.
    file: int

    @classmethod
    def of(cls, pid: int) -> Resident:
        """The resident memory of process `pid` now."""
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        kib = {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")}
        return cls((kib["RssAnon"] + kib["RssShmem"]) * 1024, kib["RssFile"] * 1024)

    @property
    def total(self) -> int:
        """Both kinds."""
        return self.anonymous + self.file


@dataclass(frozen=True)
class Row:
    """One store, empty and full."""

    name: str
    empty: Resident
    full: Resident


@dataclass
class Table:
    """All stores with as many keys each."""

    keys: int
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def bytes_per_key(self, row: Row) -> float:
        """What the keys have added."""
        return (row.full.total - row.empty.total) / self.keys


def compare_resident(plan: Plan, cores: Cores, servers: Servers, disk: Path, keys: int) -> list[Outcome]:
    """Every store with the same keys, one at a time."""
    table = Table(keys)
    load = KneeLoad(servers.directory, cores, keys)

    def by_knee_load(server: Server) -> None:
        load.populate([server.address], Cell("set", VALUE_BYTES, 1))

    def by_redis_protocol(server: Server) -> None:
        _populate_redis(server, keys)

    with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files:
        # A million keys need not wait for the disk: when it is written changes nothing about what is in memory.
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
            plan.progress(f"{TITLE}: {name}")
            try:
                with start() as server:
                    empty = Resident.of(server.pid)
                    populate(server)
                    table.rows.append(Row(name, empty, Resident.of(server.pid)))
            except (BenchError, OSError) as error:
                table.failures.append(f"{TITLE}: {name}: {error}")
    return [Outcome(TITLE, _text(table), _verdict(table), _content(table), table.failures)]


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


def _text(table: Table) -> str:
    lines = [["store", "bytes per key", "resident MiB", "anonymous", "of files", "empty MiB"]]
    lines += [
        [
            row.name,
            f"{table.bytes_per_key(row):.1f}",
            *(f"{part / (1 << 20):,.0f}" for part in (row.full.total, row.full.anonymous, row.full.file)),
            f"{row.empty.total / (1 << 20):,.0f}",
        ]
        for row in table.rows
    ]
    return "\n".join(
        [
            f"{TITLE} of {table.keys:,} keys of {KEY_BYTES} B with values of {VALUE_BYTES} B",
            f"One store at a time, each set once, in order. Bytes per key: what they added to the resident memory, of "
            f"which {KEY_BYTES + VALUE_BYTES} are key and value. Of files: the system may take it back.",
            "",
            *aligned(lines),
            "",
        ]
    )


def _verdict(table: Table) -> str:
    """There is no aim."""
    return f"{TITLE}, bytes per key: " + ", ".join(f"{row.name} {table.bytes_per_key(row):.0f}" for row in table.rows)


def _content(table: Table) -> dict[str, Any]:
    return {
        "title": TITLE,
        "keys": table.keys,
        "rows": [
            {
                "store": row.name,
                "bytes_per_key": table.bytes_per_key(row),
                **{
                    f"{when}_{kind}_bytes": getattr(resident, kind)
                    for when, resident in (("empty", row.empty), ("full", row.full))
                    for kind in ("anonymous", "file")
                },
            }
            for row in table.rows
        ],
    }
