"""Starts the servers of a comparison."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cells import Cell
from bench.drivers import FIRST_KEY
from bench.programs import Server, find_program, free_port

MEMORY_MB = 1024


@dataclass(frozen=True)
class Servers:
    """Starts servers; `directory` is where our own programs are."""

    directory: Path | None

    def memcached(self, core: int | None, memory_mb: int = MEMORY_MB) -> Server:
        """Debian's memcached, one worker thread."""
        port = free_port()
        user = ["-u", "root"] if os.geteuid() == 0 else []
        command = [find_program("memcached", None), "-l", "127.0.0.1", "-p", str(port), "-t", "1"]
        return Server([*command, "-m", str(memory_mb), *user], core, port, announces=False)

    def knee_kv(self, core: int | None, *flags: str, memory_mb: int = MEMORY_MB) -> Server:
        """Our store, one thread; without further flags it is the cache."""
        port = free_port()
        command = [find_program("knee-kv", self.directory), "--listen", f"127.0.0.1:{port}", "--threads", "1"]
        return Server([*command, "--memory-mb", str(memory_mb), *flags], core, port, announces=True)

    def redis(self, core: int | None, directory: Path, *, durable: bool) -> Server:
        """Debian's Redis. If `durable`, every answer waits for fdatasync. It neither dumps nor rewrites its log."""
        port = free_port()
        always = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
        command = [find_program("redis-server", None), "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
        flags = ["--dir", str(directory), *(always if durable else ["--appendonly", "no"])]
        return Server([*command, *flags], core, port, announces=False)

    def floor_log(self, core: int | None, file: Path, request_bytes: int) -> Server:
        """The floor of a durable store, for requests of this length only."""
        port = free_port()
        command = [find_program("floor-log", self.directory), "--listen", f"127.0.0.1:{port}", "--file", str(file)]
        return Server([*command, "--request-bytes", str(request_bytes)], core, port, announces=True)

    def knee_proxy(self, core: int | None, stores: list[str]) -> Server:
        """Our middleware, pipelined, one thread."""
        port = free_port()
        command = [find_program("knee-proxy", self.directory), "--listen", f"127.0.0.1:{port}", "--stats", "none"]
        return Server([*command, "--pipelined", "--threads", "1", *_server_flags(stores)], core, port, announces=True)

    def floor_relay(self, core: int | None, stores: list[str], cell: Cell) -> Server:
        """The floor of a proxy, for requests of this cell only; it replicates what our middleware replicates."""
        port = free_port()
        command = [find_program("floor-relay", self.directory), "--listen", f"127.0.0.1:{port}"]
        sizes = ["--request-bytes", str(len(cell.request(FIRST_KEY))), "--reply-bytes", str(len(cell.reply(FIRST_KEY)))]
        replicate = ["--replicate"] if cell.operation == "set" else []
        return Server([*command, *sizes, *replicate, *_server_flags(stores)], core, port, announces=True)

    @contextmanager
    def nutcracker(self, core: int | None, stores: list[str]) -> Iterator[Server]:
        """Debian's nutcracker (twemproxy): keys are spread over the stores, nothing is replicated."""
        port = free_port()
        pool = [
            "bench:",
            f"  listen: 127.0.0.1:{port}",
            "  hash: fnv1a_64",
            "  distribution: modula",
            "  preconnect: true",
            "  auto_eject_hosts: false",
            "  server_connections: 1",
            "  servers:",
            *(f"    - {store}:1" for store in stores),
        ]
        with tempfile.TemporaryDirectory() as directory:
            configuration = Path(directory) / "nutcracker.yml"
            configuration.write_text("\n".join(pool) + "\n")
            command = [
                *(find_program("nutcracker", None), "-c", str(configuration), "-o", f"{directory}/log", "-v", "0"),
                *("-p", f"{directory}/pid", "-a", "127.0.0.1", "-s", str(free_port())),
            ]
            with Server(command, core, port, announces=False) as server:
                yield server


def _server_flags(stores: list[str]) -> list[str]:
    return [flag for store in stores for flag in ("--server", store)]
