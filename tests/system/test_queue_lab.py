"""The experiments on queues over the real programs: PostgreSQL of the lab's own, SQLite, and pgbench."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import polars as pl
import psutil
import pytest
from credentials import Watch
from labs import knee_run

from knee.data import Dataset
from knee.data.pools import connection_pools
from knee.lab.deploy.pgbench import OPERATION
from knee.laws import TOLERANCE, laws_of_run

REPOSITORY = Path(__file__).resolve().parents[2]
SHORT = ("measure.repetitions=1", "measure.seconds=2", "measure.warmup_s=0", "measure.cooldown_s=0")
UNSYNCED = "store.durability=none"
"""Other tests keep the disk busy: a commit may take seconds there."""
VERIFIED = "workload.verify=true"
STEPS = {"send", "list_queues", "read_all", "remove"}
"""The requests of a round, by default."""

OTHER_DATABASE = {
    "PGPASSWORD": "of another database",
    "PGSSLMODE": "verify-full",
    "PGHOSTADDR": "192.0.2.1",
    "PGOPTIONS": "-c no_such_setting=1",
}
"""Variables of libpq for another database than the lab's."""


def run(folder: Path, experiment: str, *overrides: str) -> tuple[Dataset, str]:
    """`knee run` of a shortened experiment in a folder of its own: its run folder and its standard error."""
    flags = [flag for override in (*SHORT, *overrides) for flag in ("--set", override)]
    file = str(REPOSITORY / "experiments" / f"{experiment}.toml")
    # An absolute path, which is in the command lines of the processes.
    code, said = knee_run(folder, "--runs-dir", str(folder / "runs"), file, *flags, **OTHER_DATABASE)
    assert code == 0, said
    (path,) = (folder / "runs" / experiment).iterdir()
    return Dataset.open(path), said


def started(dataset: Dataset) -> set[str]:
    """The programs that the lab started for its only measurement, by the manifest."""
    (commands,) = dataset.manifest["commands"].values()
    return {Path(word).name for command in commands.values() for word in command}


def left_behind(folder: Path) -> list[psutil.Process]:
    """Processes with a folder in their command lines."""
    named = (process for process in psutil.process_iter(["cmdline"]) if process.pid != os.getpid())
    return [process for process in named if any(str(folder) in part for part in process.info["cmdline"] or ())]


def test_messages_pass_through_two_middlewares_and_a_database(tmp_path: Path) -> None:
    factors = (
        "load.clients=4",
        "workload.characters=200",
        "workload.think_ms=10",
        "middleware.connections=4",
        "middleware.hosts=2",
        UNSYNCED,
        "store.indexes=arrival",
    )
    with Watch(tmp_path) as watch:
        dataset, _ = run(tmp_path, "queue-factorial-system", *factors, "workload.backlog=400", VERIFIED)
    asked = dataset.totals.filter(role="load").group_by("op").agg(pl.col("count").sum(), pl.col("errors").sum())
    assert set(asked["op"]) >= STEPS
    assert asked["errors"].sum() == 0
    # Each client gets its own messages, in order and unchanged.
    assert dataset.summaries.filter(role="load")["wrong_values"].to_list() == [0, 0]
    # The backlog is read: some 100 messages in each queue, removed one at a time.
    totals = dataset.totals.filter(role="load", op="read_all").select("count", "items").sum().row(0, named=True)
    assert totals["items"] > 10 * totals["count"]
    # There are fewer connections than slots, so that slots wait for them.
    waited = dataset.windows.filter(role="middleware").select("connection_sum_ns", "service_sum_ns").sum().row(0)
    assert 0 < waited[0] < waited[1]
    assert (connection_pools(dataset)["connections"].to_list()) == [2, 2]
    laws = laws_of_run(dataset)
    (check,) = [one for one in laws.conservation if one.tier == "middlewares"]
    assert check.verdict == "holds", check
    assert {one.request_type for one in laws.interactive if one.visits_declared} == STEPS
    # The database prints nothing, and is watched with all its processes.
    assert dataset.probes.filter(target="store-0")["cpu_user_s"].sum() > 0
    assert not left_behind(tmp_path)
    assert not list(tmp_path.rglob("PG_VERSION")) and not list(tmp_path.rglob("password"))
    assert {"initdb", "postgres", "knee-queue", "knee-load"} <= started(dataset)
    assert {"postgres", "knee-queue"} <= watch.programs
    watch.assert_kept()


def test_a_middleware_serves_sqlite(tmp_path: Path) -> None:
    dataset, _ = run(
        tmp_path,
        "queue-middleware-alone",
        "store.kind=sqlite",
        "load.hosts=1",
        "load.clients=4",
        "workload.think_ms=4",
        VERIFIED,
    )
    totals = dataset.totals.filter(role="load")
    assert totals["count"].sum() > 0 and totals["errors"].sum() == 0
    assert dataset.summaries.filter(role="load")["wrong_values"].to_list() == [0]


@pytest.mark.alone
def test_the_interactive_law_holds_for_each_type(tmp_path: Path) -> None:
    # Some rounds find no message to remove: the types do not occur equally often.
    factors = ("store.kind=sqlite", "load.hosts=1", "load.clients=[3, 6, 9]", "workload.receivers=any")
    # One run has all three loads, a second apart: a stall spoils the ends of one only.
    measured = ("workload.think_ms=2", "measure.seconds=4", "measure.warmup_s=1", "measure.ramp=true")
    dataset, _ = run(tmp_path, "queue-middleware-alone", *factors, *measured)
    checks = [one for one in laws_of_run(dataset).interactive if one.view == "client"]
    types = {request_type: [one for one in checks if one.request_type == request_type] for request_type in STEPS}
    for request_type, of_type in types.items():
        assert len(of_type) == 3 and all(one.visits_declared for one in of_type)
        residuals = [one.throughput.residual.estimate for one in of_type]
        # The law is an identity but for requests in flight at both ends of the observation. These are many where the
        # machine stalls there, which it does in one run but not in all.
        assert statistics.median(map(abs, residuals)) <= TOLERANCE, (request_type, residuals)


def test_pgbench_asks_the_database_itself(tmp_path: Path) -> None:
    # On a busy machine, pgbench connects for up to two seconds.
    factors = ("load.clients=2", "workload.level=2", "store.indexes=none", UNSYNCED)
    with Watch(tmp_path) as watch:
        dataset, said = run(tmp_path, "queue-database-alone", *factors, "workload.backlog=50", "measure.seconds=3")
    assert {"initdb", "postgres", "psql", "pgbench"} <= started(dataset)
    assert {"postgres", "pgbench"} <= watch.programs
    watch.assert_kept()
    (total,) = dataset.totals.filter(role="load").iter_rows(named=True)
    assert (total["op"], total["errors"]) == (OPERATION, 0)
    assert total["count"] > 0
    # pgbench logs its transactions, but prints no rate.
    assert "  repetition 1  done  (" in said
    assert not left_behind(tmp_path)
