"""The middleware of messages without a database: the cost of a request and of a connection."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from bench.drivers import Driven
from bench.postgresql import SLACK_S
from bench.programs import BenchError, Cores
from bench.queue_load import Middleware, load, per_second, summary
from bench.resident_table import Resident, added, memory_columns, memory_row
from bench.samples import measure_server
from bench.table import Plan, Row, Table, median_of

LOOPS = ("send", "send-list-read-remove")
CLIENTS = 64
CONNECTIONS = 10_000
# The connections are divided among this many load generators, so that none waits long for its connections.
LOADS = 10
# A think time beyond the measurement, so that connections stay silent.
THINK_MS = 600_000
SETTLED_S = 2.0
OURS = "knee-queue"
TITLE = "knee-queue alone (--database null)"
TITLE_MEMORY = f"Memory of knee-queue with {CONNECTIONS:,} connections"


def measure_alone(plan: Plan, cores: Cores, programs: Path | None) -> list[Table]:
    """Requests of a processor's second. There is no aim."""
    table = Table(
        title=TITLE,
        key="requests of the loop",
        notes=[
            f"{CLIENTS} clients, closed loop, one thread, on a core of its own where there are two. A read or a remove "
            "gets the last message that was sent. µs: CPU time of a request of the loop, median over the "
            "rounds."
        ],
        columns=[
            median_of("µs", OURS, "cpu_us", ".1f"),
            ("requests per CPU second", lambda row: f"{1e6 / row.median(OURS, 'cpu_us'):,.0f}"),
            ("user", lambda row: f"{median(sample.cpu.user_share for sample in row.samples[OURS]):.0%}"),
            median_of("busy", OURS, "busy", ".0%"),
        ],
        verdict=lambda rows: (
            "requests per CPU second: "
            + (", ".join(f"{row.name} {1e6 / row.median(OURS, 'cpu_us'):,.0f}" for row in rows) or "not measured")
        ),
    )
    plan.progress(TITLE)
    try:
        with Middleware(programs, "null", "--threads", "1", core=cores.tested) as server:

            def driven(loop: str, seconds: float) -> Driven:
                with load(programs, server, loop, CLIENTS, seconds, core=cores.others) as program:
                    found = summary(program, seconds)
                requests = round(per_second(found) * found["seconds"])
                return Driven(requests, found["seconds"], 0.0)

            for loop in LOOPS:
                driven(loop, plan.seconds)
            samples = plan.in_turns(
                {loop: loop for loop in LOOPS},
                lambda loop: measure_server(server, lambda: driven(loop, plan.seconds)),
            )
    except BenchError as error:
        table.failures.append(f"{TITLE}: {error}")
    else:
        table.rows = [Row(loop, {OURS: several}) for loop, several in samples.items()]
    return [table]


def measure_memory(plan: Plan, programs: Path | None) -> list[Table]:
    """Connections that have each registered a client and made a queue, and are silent. There is no aim."""
    table = Table(
        title=TITLE_MEMORY,
        key="connections",
        notes=["Each connection has registered a client and made a queue, and is silent."],
        columns=[*memory_columns(), ("B a connection", lambda row: f"{added(row) / CONNECTIONS:,.0f}")],
        verdict=lambda rows: (
            ", ".join(f"{added(row) / CONNECTIONS:,.0f} B a connection" for row in rows) or "not measured"
        ),
    )
    table.add(plan, f"{CONNECTIONS:,}", partial(_silent, programs))
    return [table]


def _silent(programs: Path | None) -> Row:
    with Middleware(programs, "null") as server, ExitStack() as stack:
        empty = Resident.of(server.pid)
        for _ in range(LOADS):
            clients = CONNECTIONS // LOADS
            stack.enter_context(load(programs, server, "send", clients, LOADS * SLACK_S, think_ms=THINK_MS))
        time.sleep(SETTLED_S)
        return memory_row(f"{CONNECTIONS:,}", empty, Resident.of(server.pid))
