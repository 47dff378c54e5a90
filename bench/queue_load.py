"""The middleware of messages, and load on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.postgresql import SLACK_S, Cluster, Stretch, metered
from bench.programs import BenchError, Program, Server, find_program, free_port

CHARACTERS = 200


class Middleware(Server):
    """`knee-queue`, in front of a database."""

    def __init__(self, programs: Path | None, database: str, *flags: str, core: int | None = None) -> None:
        port = free_port()
        command = [find_program("knee-queue", programs), "--listen", f"127.0.0.1:{port}", "--database", database]
        super().__init__([*command, *flags], core, port, announces=False)


def before(
    programs: Path | None, cluster: Cluster, database: str, connections: int, clients: int, combine: int = 1
) -> Middleware:
    """A middleware with this many connections to PostgreSQL, and a worker for each client."""
    flags = ("--connections", str(connections), "--workers", str(max(clients, connections)), "--combine", str(combine))
    return Middleware(programs, cluster.url(database), *flags)


def load(
    programs: Path | None,
    server: Server,
    loop: str,
    clients: int,
    seconds: float,
    *flags: str,
    core: int | None = None,
    think_ms: int = 0,
) -> Program:
    """`knee-load queue`, once it has begun."""
    command = [
        *(find_program("knee-load", programs), "queue", "--server", server.address, "--loop", loop),
        *("--clients", str(clients), "--threads", "1", "--think-ms", str(think_ms)),
        *("--seconds", str(seconds), "--characters", str(CHARACTERS), *flags),
    ]
    program = Program(command, core)
    try:
        program.await_line(SLACK_S)
    except BaseException:
        program.__exit__()
        raise
    return program


def summary(program: Program, seconds: float) -> dict[str, Any]:
    """The summary of a load. Raises BenchError if a request failed."""
    output = program.read_to_end(seconds + SLACK_S)
    if program.process.returncode != 0:
        raise BenchError(f"{program.name} ended with {program.process.returncode}: {program.messages()}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    errors = sum(operation["errors"] for operation in found["ops"].values())
    if errors:
        raise BenchError(f"{errors} requests failed {program.messages()}".strip())
    return found


def per_second(found: dict[str, Any], operations: Sequence[str] | None = None) -> float:
    """Requests, or those of some kinds."""
    ops = found["ops"]
    return float(sum(ops[name]["count"] for name in operations or ops) / found["seconds"])


def stretch(
    programs: Path | None, cluster: Cluster, server: Server, loop: str, clients: int, seconds: float
) -> Stretch:
    """A stretch in which each of the clients repeats the loop."""
    with load(programs, server, loop, clients, seconds) as program:
        return metered(cluster, server, lambda: per_second(summary(program, seconds)), seconds)
