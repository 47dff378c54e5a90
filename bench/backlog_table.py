"""What removing the top message takes, whatever lies behind it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import pgmq
from bench.outcome import Outcome, aligned
from bench.postgresql import SLACK_S, Cluster, Script, migrated, pgbench
from bench.programs import BenchError
from bench.queue_load import CHARACTERS, before, load, summary
from bench.samples import Ratio
from bench.table import Plan

BACKLOGS = (10, 300_000, 1_000_000)
# A percentile needs more requests than a mean: of a second's, eleven decide. Stretches of so many of the plan's.
STRETCH = 3.0
RATIO_MAX = 1.2
OURS, PGMQ = "knee-queue", "pgmq"
STORED_PER_S = 60_000
TITLE = "Removing the top message of a backlog"
_CONTENT = "m" * CHARACTERS


@dataclass(frozen=True)
class Times:
    """One stretch of removes."""

    p50_us: float
    p99_us: float


@dataclass
class Table:
    """By queue and backlog, the stretches, one a turn."""

    samples: dict[str, list[Times]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def ratio(self, queue: str, backlog: int) -> Ratio:
        """The p99 at a backlog over that at the smallest one, turn by turn."""
        p99s = ([times.p99_us for times in self.samples[_name(queue, one)]] for one in (backlog, BACKLOGS[0]))
        return Ratio.of(*p99s)


def compare_backlogs(plan: Plan, programs: Path | None, disk: Path) -> list[Outcome]:
    """All backlogs are there at once, in databases of one cluster, and are asked in turns."""
    table, plan = Table(), replace(plan, seconds=STRETCH * plan.seconds)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files,
            Cluster(Path(files), durable=False) as cluster,
            ExitStack() as stack,
        ):
            contestants = {
                _name(queue, backlog): prepare(plan, programs, cluster, Path(files), backlog, stack)
                for queue, prepare in ((OURS, _ours), (PGMQ, _pgmq))
                for backlog in BACKLOGS
            }
            cluster.sql("postgres", "CHECKPOINT")
            for warm_up in contestants.values():
                warm_up()
            plan.progress(TITLE)
            table.samples = plan.in_turns(contestants, lambda measure: measure())
    except BenchError as error:
        table.failures.append(f"{TITLE}: {error}")
    return [Outcome(TITLE, _text(table), _verdict(table), _content(table), table.failures)]


def estimate_s(plan: Plan) -> float:
    """How long it takes."""
    stored_s = 2 * sum(BACKLOGS) / STORED_PER_S
    return stored_s + 2 * len(BACKLOGS) * (plan.rounds + 1) * (STRETCH * plan.seconds + 0.3)


def _name(queue: str, backlog: int) -> str:
    return f"{queue}, {backlog:,}"


def _ours(
    plan: Plan, programs: Path | None, cluster: Cluster, files: Path, backlog: int, stack: ExitStack
) -> Callable[[], Times]:
    plan.progress(f"{TITLE}: storing {backlog:,} messages")
    database = f"ours_{backlog}"
    migrated(cluster, database, programs)
    client, queue = cluster.sql(
        database, "SELECT knee_queue.register_client(0); SELECT id FROM knee_queue.create_queue(1, NULL, 0, NULL);"
    ).split()
    cluster.sql(
        database,
        "INSERT INTO knee_queue.message (id, queue, sender, receiver, arrived_at, content) "
        f"SELECT nextval('knee_queue.message_id'), {queue}, {client}, {client}, now(), '{_CONTENT}' "
        f"FROM generate_series(1, {backlog})",
    )
    cluster.sql(database, "VACUUM ANALYZE knee_queue.message")
    server = stack.enter_context(before(programs, cluster, database, connections=1, clients=1))

    def measure() -> Times:
        with load(programs, server, "send-remove", 1, plan.seconds, "--as", f"{client}:{queue}") as program:
            found = summary(program, plan.seconds)
        (times,) = (one for one in found["histograms"] if one["op"] == "remove" and one["stage"] == "response")
        return Times(times["p50"] / 1e3, times["p99"] / 1e3)

    return measure


def _pgmq(
    plan: Plan, programs: Path | None, cluster: Cluster, files: Path, backlog: int, stack: ExitStack
) -> Callable[[], Times]:
    plan.progress(f"{TITLE}: storing {backlog:,} messages in pgmq")
    database = f"pgmq_{backlog}"
    pgmq.install(cluster, database, files)
    cluster.sql(
        database,
        "SELECT pgmq.create('q'); INSERT INTO pgmq.q_q (vt, message) "
        f"""SELECT now(), '"{_CONTENT}"'::jsonb FROM generate_series(1, {backlog})""",
    )
    cluster.sql(database, "VACUUM ANALYZE pgmq.q_q")
    # One file for both, as pgbench times transactions and not statements: every other one is a pop.
    turns = files / "turns.sql"
    send = f"""SELECT * FROM pgmq.send('q', '"{_CONTENT}"'::jsonb);"""
    turns.write_text(f"\\set pops 1 - :pops\n\\if :pops\nSELECT * FROM pgmq.pop('q');\n\\else\n{send}\n\\endif\n")
    return partial(_time_pops, plan, cluster, Script(database, turns, 1), files)


def _time_pops(plan: Plan, cluster: Cluster, script: Script, files: Path) -> Times:
    log = files / script.database
    flags = ("--define", "pops=0", "--log", "--log-prefix", str(log))
    with pgbench(cluster, script, 1, plan.seconds, *flags) as program:
        program.read_to_end(plan.seconds + SLACK_S)
        if program.process.returncode != 0:
            raise BenchError(f"pgbench has failed: {program.messages()}")
    (file,) = files.glob(f"{script.database}.*")
    took_us = [float(line.split()[2]) for line in file.read_text().splitlines()[::2]]
    file.unlink()
    percentiles = quantiles(took_us, n=100)
    return Times(percentiles[49], percentiles[98])


def _text(table: Table) -> str:
    lines = [["queue, messages stored", "p50", "p99", "p99 of that at 10", "range"]]
    for queue in (OURS, PGMQ):
        for backlog in BACKLOGS if table.samples else ():
            several, ratio = table.samples[_name(queue, backlog)], table.ratio(queue, backlog)
            lines.append(
                [
                    _name(queue, backlog),
                    f"{median(times.p50_us for times in several):,.0f} µs",
                    f"{median(times.p99_us for times in several):,.0f} µs",
                    f"{ratio.median:.2f}",
                    f"{ratio.low:.2f} to {ratio.high:.2f}",
                ]
            )
    return "\n".join(
        [
            TITLE,
            f"One client sends and removes in turns, messages of {CHARACTERS} characters; the times of the removes, of "
            f"{OURS} through the middleware, of {PGMQ} by pgbench past any. No commit waits for the disk, which would "
            "hide the rest.",
            "p50, p99: medians of all stretches; of that at 10: median of p99 over that at 10 in the same turn.",
            "",
            *aligned(lines),
            "",
        ]
    )


def _verdict(table: Table) -> str:
    if not table.samples:
        return f"{TITLE}: not measured"
    ratios = {f"{backlog:,}": table.ratio(OURS, backlog).median for backlog in BACKLOGS[1:]}
    reached = "yes" if max(ratios.values()) <= RATIO_MAX else "no"
    told = ", ".join(f"{ratio:.2f} at {backlog}" for backlog, ratio in ratios.items())
    return f"{TITLE}: p99 at most {RATIO_MAX:g} times that at {BACKLOGS[0]}: {reached}; {told}"


def _content(table: Table) -> dict[str, Any]:
    return {
        "title": TITLE,
        "samples": {name: [vars(times) for times in several] for name, several in table.samples.items()},
    }
