"""Messages through the middleware, against pgbench on the same functions and against pgmq."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import pgmq
from bench.postgresql import Cluster, Script, Stretch, migrated, pgbench_stretch
from bench.queue_load import CHARACTERS, before, stretch
from bench.table import Plan, Row, Table, median_of, range_of, ratio_of
from knee.lab.deploy import pgbench

# More clients than connections, so that requests wait for connections and are combined.
CLIENTS_MANY = 64
COMBINE = 64
OURS, COMBINED, PGBENCH, PGMQ = "knee-queue", "combined", "pgbench", "pgmq"
OF_PGBENCH_MIN, OF_PGBENCH_COMBINED = 0.9, 1.0
OF_PGMQ_MIN = 2.5

TITLE_PGBENCH = "knee-queue against pgbench calling the same functions"
TITLE_PGMQ = "knee-queue against pgmq"

_CONTENT = "m" * CHARACTERS
_SEND = pgbench.SEND.format(content=_CONTENT)
#: The loops of knee-load's clients, as scripts of pgbench. Each client and its queue have the client's number.
LOOPS = {
    "send": [_SEND],
    "send-remove": [_SEND, pgbench.REMOVE],
    "send-list-read-remove": [_SEND, pgbench.LIST, pgbench.READ, pgbench.REMOVE],
}
_PAIR_OF_PGMQ = [
    f"""SELECT * FROM pgmq.send('q' || :me, '"{_CONTENT}"'::jsonb);""",
    "SELECT * FROM pgmq.pop('q' || :me);",
]


def compare_pgbench(plan: Plan, programs: Path | None, disk: Path) -> list[Table]:
    """The same loops by clients of the middleware, and by pgbench past it."""
    table = _table(TITLE_PGBENCH, PGBENCH, [f"Every commit waits for the disk. Files below {disk}."])
    cells = [("send-remove", 1), ("send-remove", 4), ("send-remove", 16), ("send", 4), ("send-list-read-remove", 4)]
    with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files, ExitStack() as stack:
        cluster = stack.enter_context(_cluster(Path(files), "on", durable=True))
        _ours(cluster, "ours", programs)
        for loop, connections in cells:
            peer = _script(Path(files), "ours", loop, pgbench.BEGIN, LOOPS[loop], pgbench.SESSION)
            measure = partial(_row, plan, programs, cluster, PGBENCH, loop, connections, peer)
            table.add(plan, f"{loop}, {connections} connections", measure)
            cluster.sql("ours", "TRUNCATE knee_queue.message")
    return [table]


def compare_pgmq(plan: Plan, programs: Path | None, disk: Path) -> list[Table]:
    """Pairs of a send and a remove, with the disk and without."""
    table = _table(
        TITLE_PGMQ,
        PGMQ,
        [
            f"pgmq of its crate {pgmq.VERSION}, its functions called by pgbench (prepared): pgmq.send, pgmq.pop; each "
            "client has a queue of its own, as with us.",
            f"disk: every commit waits for it, files below {disk}. no disk: none does (fsync = off), so "
            "that processors decide.",
        ],
    )
    with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files:
        peer = script_of_pgmq(Path(files))
        for name, durable, counts in (("disk", True, (4, 16)), ("no disk", False, (4, 16))):
            with _cluster(Path(files), name.replace(" ", "-"), durable=durable) as cluster:
                _ours(cluster, "ours", programs)
                pgmq.install(cluster, "pgmq", Path(files))
                cluster.sql("pgmq", f"SELECT pgmq.create('q' || i) FROM generate_series(1, {CLIENTS_MANY}) i")
                for connections in counts:
                    measure = partial(_row, plan, programs, cluster, PGMQ, "send-remove", connections, peer)
                    table.add(plan, f"{name}, {connections} connections", measure)
    return [table]


def _cluster(files: Path, name: str, *, durable: bool) -> Cluster:
    directory = files / name
    directory.mkdir()
    return Cluster(directory, durable=durable)


def _ours(cluster: Cluster, database: str, programs: Path | None) -> None:
    """Our schema, with a client and a queue for each of pgbench's."""
    migrated(cluster, database, programs)
    cluster.sql(
        database,
        f"SELECT count(knee_queue.register_client(0)) FROM generate_series(1, {CLIENTS_MANY});"
        f"SELECT count(q) FROM generate_series(1, {CLIENTS_MANY}) i, knee_queue.create_queue(i, NULL, 0, NULL) q;",
    )


def script_of_pgmq(files: Path) -> Script:
    """Writes pgbench's script for pgmq to a file."""
    return _script(files, "pgmq", "pgmq", [pgbench.ME], _PAIR_OF_PGMQ, "")


def _script(files: Path, database: str, name: str, begin: Sequence[str], statements: list[str], session: str) -> Script:
    file = files / f"{name}.sql"
    file.write_text("\n".join([*begin, *statements]) + "\n")
    return Script(database, file, len(statements), session)


def _row(
    plan: Plan, programs: Path | None, cluster: Cluster, peer: str, loop: str, connections: int, script: Script
) -> dict[str, list[Stretch]]:
    seconds = plan.seconds
    with (
        before(programs, cluster, "ours", connections, connections) as alone,
        before(programs, cluster, "ours", connections, CLIENTS_MANY, COMBINE) as combining,
    ):
        contestants: dict[str, Callable[[], Stretch]] = {
            OURS: partial(stretch, programs, cluster, alone, loop, connections, seconds),
            COMBINED: partial(stretch, programs, cluster, combining, loop, CLIENTS_MANY, seconds),
            peer: partial(pgbench_stretch, cluster, script, connections, seconds),
        }
        for warm_up in contestants.values():
            warm_up()
        return plan.in_turns(contestants, lambda measure: measure())


def _table(title: str, peer: str, notes: list[str]) -> Table:
    names = (OURS, COMBINED, peer)
    return Table(
        title=title,
        key="row",
        header="loop",
        notes=[
            f"{OURS}: as many clients as connections. {COMBINED}: {CLIENTS_MANY} clients over as many connections, "
            f"--combine {COMBINE}. {peer}: a connection for each client. Messages of {CHARACTERS} characters; a client "
            "sends to itself. Nothing is pinned.",
            *notes,
            f"/s: requests per second, median over the rounds; of: median of ours over {peer}'s, round by round; µs: "
            "CPU time of a request in the middleware, and in all processes of PostgreSQL.",
        ],
        columns=[
            *(median_of(f"{name} /s", name, "per_second") for name in names),
            *(ratio_of(f"{name} of {peer}", name, peer, "per_second") for name in names[:2]),
            *(range_of(f"{name}, range", name, peer, "per_second") for name in names[:2]),
            *(median_of(f"{name} µs", name, "middleware_us", ".0f") for name in names[:2]),
            *(median_of(f"PostgreSQL µs, {name}", name, "postgresql_us", ".0f") for name in names),
        ],
        verdict=partial(_verdict, peer),
        facts={"peer": peer, "clients_combined": CLIENTS_MANY},
    )


def _verdict(peer: str, rows: list[Row]) -> str:
    if peer == PGMQ:
        aims = {COMBINED: OF_PGMQ_MIN, OURS: OF_PGMQ_MIN}
    else:
        aims = {OURS: OF_PGBENCH_MIN, COMBINED: OF_PGBENCH_COMBINED}
    verdicts = []
    for name, least in aims.items():
        rates = {row.name: row.ratio(name, peer, "per_second").median for row in rows}
        missed = [f"{row}: {rate:.2f}" for row, rate in rates.items() if rate < least]
        reached = "yes" if rates and not missed else "no"
        verdicts.append("; ".join([f"{name} at least {least:g} times as many: {reached}", *missed]))
    return f"requests per second: {'. '.join(verdicts)}"
