"""The cost of removing the first message of a backlog."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import quantiles

from bench import pgmq
from bench.postgresql import SLACK_S, Cluster, Script, migrated, pgbench
from bench.programs import BenchError
from bench.queue_load import CHARACTERS, before, load, summary
from bench.table import Plan, Row, Table, median_of, range_of, ratio_of

BACKLOGS = (10, 300_000, 1_000_000)
# A percentile needs more requests than a mean: in a second, only eleven decide it. So stretches are this much longer.
STRETCH = 3.0
RATIO_MAX = 1.2
OURS, PGMQ = "knee-queue", "pgmq"
# The samples of a row: its own, and those of the smallest backlog in the same turns.
THIS, SMALLEST = "samples", "smallest"
TITLE = "Removing the top message of a backlog"
_CONTENT = "m" * CHARACTERS


@dataclass(frozen=True)
class Times:
    """Times of a stretch of removes."""

    p50_us: float
    p99_us: float


def compare_backlogs(plan: Plan, programs: Path | None, disk: Path) -> list[Table]:
    """Compares backlogs, in turns. Each has its own database in one cluster."""
    table, plan = _table(), replace(plan, seconds=STRETCH * plan.seconds)
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
            samples = plan.in_turns(contestants, lambda measure: measure())
    except BenchError as error:
        table.failures.append(f"{TITLE}: {error}")
    else:
        for queue in (OURS, PGMQ):
            smallest = samples[_name(queue, BACKLOGS[0])]
            table.rows += [
                Row(name, {THIS: samples[name], SMALLEST: smallest})
                for name in (_name(queue, backlog) for backlog in BACKLOGS)
            ]
    return [table]


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
    # pgbench times transactions, not statements, so a single file alternates sends and pops.
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


def _table() -> Table:
    return Table(
        title=TITLE,
        key="queue, messages stored",
        notes=[
            f"One client sends and removes in turns, messages of {CHARACTERS} characters; the times of the removes, of "
            f"{OURS} through the middleware, of {PGMQ} by pgbench past any. No commit waits for the disk, which would "
            "hide the rest.",
            "p50, p99: medians of all stretches; of that at 10: median of p99 over that at 10 in the same turn.",
        ],
        columns=[
            median_of("p50", THIS, "p50_us", unit=" µs"),
            median_of("p99", THIS, "p99_us", unit=" µs"),
            ratio_of("p99 of that at 10", THIS, SMALLEST, "p99_us"),
            range_of("range", THIS, SMALLEST, "p99_us"),
        ],
        verdict=_verdict,
    )


def _verdict(rows: list[Row]) -> str:
    if not rows:
        return "not measured"
    p99s = {row.name: row.ratio(THIS, SMALLEST, "p99_us").median for row in rows}
    ratios = {backlog: p99s[_name(OURS, backlog)] for backlog in BACKLOGS[1:]}
    reached = "yes" if max(ratios.values()) <= RATIO_MAX else "no"
    found = ", ".join(f"{ratio:.2f} at {backlog:,}" for backlog, ratio in ratios.items())
    return f"p99 at most {RATIO_MAX:g} times that at {BACKLOGS[0]}: {reached}; {found}"
