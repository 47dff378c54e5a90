"""The middleware of messages without a database: what a request and a connection cost."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.drivers import Driven
from bench.outcome import Outcome, aligned
from bench.postgresql import SLACK_S
from bench.programs import BenchError, Cores
from bench.queue_load import Middleware, load, per_second, summary
from bench.resident_table import Resident
from bench.samples import Sample, measure_server
from bench.table import Plan

LOOPS = ("send", "send-list-read-remove")
CLIENTS = 64
CONNECTIONS = 10_000
# So many load generators have them: one does not wait long for all of its connections.
LOADS = 10
# Longer than anybody waits here, so that connections stay and ask nothing.
THINK_MS = 600_000
SETTLED_S = 2.0
TITLE = "knee-queue alone (--database null)"
TITLE_MEMORY = f"Memory of knee-queue with {CONNECTIONS:,} connections"


@dataclass
class Table:
    """By loop, its samples."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure_alone(plan: Plan, cores: Cores, programs: Path | None) -> list[Outcome]:
    """Requests of a processor's second."""
    table = Table()
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
            table.samples = plan.in_turns(
                {loop: loop for loop in LOOPS},
                lambda loop: measure_server(server, lambda: driven(loop, plan.seconds)),
            )
    except BenchError as error:
        table.failures.append(f"{TITLE}: {error}")
    return [Outcome(TITLE, _text(table), _verdict(table), _content(table), table.failures)]


def estimate_s(plan: Plan) -> float:
    """How long :func:`measure_alone` takes."""
    return len(LOOPS) * (plan.rounds + 1) * (plan.seconds + 0.3)


def measure_memory(plan: Plan, programs: Path | None) -> list[Outcome]:
    """Connections that have each registered a client and made a queue, and are silent now."""
    plan.progress(TITLE_MEMORY)
    try:
        with Middleware(programs, "null") as server, ExitStack() as stack:
            empty = Resident.of(server.pid)
            for _ in range(LOADS):
                clients = CONNECTIONS // LOADS
                stack.enter_context(load(programs, server, "send", clients, LOADS * SLACK_S, think_ms=THINK_MS))
            time.sleep(SETTLED_S)
            full = Resident.of(server.pid)
    except BenchError as error:
        return [Outcome(TITLE_MEMORY, "", f"{TITLE_MEMORY}: not measured", {}, [f"{TITLE_MEMORY}: {error}"])]
    connection = (full.total - empty.total) / CONNECTIONS
    verdict = (
        f"{TITLE_MEMORY}: {full.total / (1 << 20):,.0f} MiB resident, {empty.total / (1 << 20):,.0f} without any; "
        f"{connection:,.0f} B a connection"
    )
    content = {"title": TITLE_MEMORY, "connections": CONNECTIONS, "empty": vars(empty), "full": vars(full)}
    text = f"{verdict}\nEach has registered a client and made a queue, and is silent.\n"
    return [Outcome(TITLE_MEMORY, text, verdict, content, [])]


def _text(table: Table) -> str:
    lines = [["requests of the loop", "µs", "requests per CPU second", "user", "busy"]]
    for loop, samples in table.samples.items():
        cpu_us = median(sample.cpu_us for sample in samples)
        shares = (median(sample.cpu.user_share for sample in samples), median(sample.busy for sample in samples))
        lines.append([loop, f"{cpu_us:.1f}", f"{1e6 / cpu_us:,.0f}", *(f"{share:.0%}" for share in shares)])
    return "\n".join(
        [
            TITLE,
            f"{CLIENTS} clients, closed loop, one thread, on a core of its own where there are two. Who reads or "
            "removes gets the last message that was sent. µs: CPU time of a request of the loop, median over the "
            "rounds.",
            "",
            *aligned(lines),
            "",
        ]
    )


def _verdict(table: Table) -> str:
    """There is no aim."""
    told = [f"{loop} {1e6 / median(one.cpu_us for one in samples):,.0f}" for loop, samples in table.samples.items()]
    return f"{TITLE}, requests per CPU second: {', '.join(told) or 'not measured'}"


def _content(table: Table) -> dict[str, Any]:
    return {
        "title": TITLE,
        "rows": {loop: [sample.cpu_us for sample in samples] for loop, samples in table.samples.items()},
    }
