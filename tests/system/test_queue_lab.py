"""The experiments on queues over the real programs: PostgreSQL of the lab's own, SQLite, and pgbench."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import polars as pl
import psutil
import pytest
from credentials import Watch

from knee import spec
from knee.data import Dataset, RunFolder
from knee.lab import programs
from knee.lab.deployment import Progress
from knee.lab.design import runs
from knee.lab.hosts.local import LocalHost
from knee.lab.pgbench import OPERATION
from knee.lab.run import Lab
from knee.laws import TOLERANCE, laws_of_run
from knee.verdict.connections import connection_pools

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
"""With runs that take some twenty seconds where nothing else does."""

SHORT = ("measure.repetitions=1", "measure.seconds=6", "measure.warmup_s=1", "measure.cooldown_s=1")
UNSYNCED = "store.durability=none"
"""A disk that others keep busy may take seconds for a commit: what is measured is not how long it does."""
VERIFIED = "workload.verify=true"
STEPS = {"send", "list_queues", "read_all", "remove"}
"""What a client asks for in each round, unless it is told otherwise."""

DATABASE_OF_THEIR_OWN = {
    "PGPASSWORD": "of another database",
    "PGSSLMODE": "verify-full",
    "PGHOSTADDR": "192.0.2.1",
    "PGOPTIONS": "-c no_such_setting=1",
}
"""The environment of whoever uses PostgreSQL besides: none of it is about the lab's."""


def run(folder: Path, experiment: str, *overrides: str) -> tuple[Dataset, str]:
    """`knee run` of an experiment of the project, shortened, in a folder of its own: what it left, and what it said."""
    flags = [flag for override in (*SHORT, *overrides) for flag in ("--set", override)]
    file = str(REPOSITORY / "experiments" / f"{experiment}.toml")
    done = subprocess.run(
        # An absolute path: it is what processes are told by.
        [sys.executable, "-m", "knee", "run", "--no-report", "--runs-dir", str(folder / "runs"), file, *flags],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **DATABASE_OF_THEIR_OWN, "PYTHONPATH": str(REPOSITORY / "python")},
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs" / experiment).iterdir()
    return Dataset.open(path), done.stderr


def started(dataset: Dataset) -> set[str]:
    """What the lab started for its only measurement: the manifest has the whole command line of each."""
    (commands,) = dataset.manifest["commands"].values()
    return {Path(word).name for command in commands.values() for word in command}


def left_behind(folder: Path) -> list[psutil.Process]:
    """Processes that have anything to do with a folder."""
    named = (process for process in psutil.process_iter(["cmdline"]) if process.pid != os.getpid())
    return [process for process in named if any(str(folder) in part for part in process.info["cmdline"] or ())]


def test_messages_pass_through_two_middlewares_and_a_database_that_is_gone_afterwards(tmp_path: Path) -> None:
    factors = ("load.clients=8", "workload.characters=200", "middleware.connections=4", "middleware.hosts=2", UNSYNCED)
    with Watch(tmp_path) as watch:
        dataset, _ = run(tmp_path, "queue-factorial-system", *factors, "workload.backlog=2000", VERIFIED)
    asked = dataset.totals.filter(role="load").group_by("op").agg(pl.col("count").sum(), pl.col("errors").sum())
    assert set(asked["op"]) >= STEPS
    assert asked["errors"].sum() == 0
    # What two middlewares pass on is for who asks, in its order, and as it was sent.
    assert dataset.summaries.filter(role="load")["wrong_values"].to_list() == [0, 0]
    # What was there before is for those who ask: some 30 messages of each for each, of which one goes at a time.
    totals = dataset.totals.filter(role="load", op="read_all").select("count", "items").sum().row(0, named=True)
    assert totals["items"] > 10 * totals["count"]
    # Of a slot's time what is waited for a connection, of which there are fewer.
    waited = dataset.windows.filter(role="middleware").select("connection_sum_ns", "service_sum_ns").sum().row(0)
    assert 0 < waited[0] < waited[1]
    assert (connection_pools(dataset)["connections"].to_list()) == [2, 2]
    laws = laws_of_run(dataset)
    (check,) = [one for one in laws.conservation if one.tier == "middlewares"]
    assert check.verdict == "holds", check
    # How well the law holds for each type is for a test that has the machine to itself.
    assert {one.request_type for one in laws.interactive if one.visits_declared} == STEPS
    # The database has told nothing, and was watched with all its processes.
    assert dataset.probes.filter(target="store-0")["cpu_user_s"].sum() > 0
    assert not left_behind(tmp_path)
    assert not list(tmp_path.rglob("PG_VERSION")) and not list(tmp_path.rglob("password"))
    assert {"initdb", "postgres", "knee-queue", "knee-load"} <= started(dataset)
    assert {"postgres", "knee-queue"} <= watch.programs
    watch.assert_kept()


class Look(Progress):
    """Asks a run's database something, while clients are at work."""

    def __init__(self, folder: RunFolder, question: str) -> None:
        self._room = folder.scratch_path
        self._question = question
        self.answer: str | None = None

    def second(self, elapsed_s: float, requests_per_s: int | None) -> None:
        """See Progress."""
        # Told once more when the database is gone.
        if self.answer is not None:
            return
        port = (self._room / "data/store-0/postmaster.pid").read_text(encoding="ascii").splitlines()[3]
        url = f"postgresql://knee@127.0.0.1:{port}/postgres"
        asked = subprocess.run(
            [str(programs.find_postgresql("psql")), "--no-psqlrc", "-qAt", "--dbname", url, "-c", self._question],
            env={**os.environ, "PGPASSFILE": str(self._room / "pgpass")},
            capture_output=True,
            text=True,
            check=True,
        )
        self.answer = asked.stdout.strip()


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [
        ("needed", "leased,leased_until,ready,ready_from"),
        ("none", ""),
        ("arrival", "arrival,leased,leased_until,ready,ready_from"),
    ],
)
def test_the_database_of_a_middleware_has_the_indexes_that_are_wanted(
    tmp_path: Path, indexes: str, expected: str
) -> None:
    overrides = ("load.clients=2", "middleware.connections=2", "store.cpus=1", f"store.indexes={indexes}", UNSYNCED)
    overrides += ("middleware.workers=2", "workload.backlog=10", "measure.seconds=3", "measure.repetitions=1")
    file = REPOSITORY / "experiments" / "queue-factorial-database.toml"
    experiment = spec.load(file, [*overrides, "measure.warmup_s=0", "measure.cooldown_s=0"])
    folder = RunFolder.create(tmp_path, "indexes", spec.read(file))
    question = "SELECT string_agg(indexname, ',' ORDER BY indexname) FROM pg_indexes WHERE tablename = 'message'"
    look = Look(folder, question)
    tally = Lab(experiment, 1, folder, LocalHost(), look).make(runs(experiment, seed=1), lambda *_: None)
    assert (tally.done, tally.failed) == (1, [])
    assert look.answer == expected


@pytest.mark.parametrize("store", ["sqlite", "null"])
def test_a_middleware_needs_no_database_of_its_own(tmp_path: Path, store: str) -> None:
    factors = (f"store.kind={store}", "load.hosts=1", "load.clients=4", VERIFIED)
    dataset, _ = run(tmp_path, "queue-middleware-alone", *factors)
    totals = dataset.totals.filter(role="load")
    assert totals["count"].sum() > 0 and totals["errors"].sum() == 0
    assert dataset.summaries.filter(role="load")["wrong_values"].to_list() == [0]


@pytest.mark.alone
def test_the_interactive_law_holds_for_each_type_with_the_others_as_think_time(tmp_path: Path) -> None:
    # Who asks for a message of anybody's finds none in some rounds: the types do not occur equally often.
    factors = ("store.kind=sqlite", "load.hosts=1", "load.clients=[4, 8, 16]", "workload.receivers=any")
    dataset, _ = run(tmp_path, "queue-middleware-alone", *factors, "workload.think_ms=1", "measure.seconds=8")
    checks = [one for one in laws_of_run(dataset).interactive if one.view == "client"]
    types = {request_type: [one for one in checks if one.request_type == request_type] for request_type in STEPS}
    for request_type, of_type in types.items():
        assert len(of_type) == 3 and all(one.visits_declared for one in of_type)
        residuals = [one.throughput.residual.estimate for one in of_type]
        # The law is an identity but for what is under way at both ends of the observation: where the machine stands
        # still at one of them, that is much, which it does in one run and not in all.
        assert statistics.median(map(abs, residuals)) <= TOLERANCE, (request_type, residuals)


def test_pgbench_asks_the_database_itself(tmp_path: Path) -> None:
    factors = ("load.clients=2", "workload.level=2", "store.indexes=needed", UNSYNCED)
    with Watch(tmp_path) as watch:
        dataset, said = run(tmp_path, "queue-database-alone", *factors, "workload.backlog=50")
    assert {"initdb", "postgres", "psql", "pgbench"} <= started(dataset)
    assert {"postgres", "pgbench"} <= watch.programs
    watch.assert_kept()
    (total,) = dataset.totals.filter(role="load").iter_rows(named=True)
    assert (total["op"], total["errors"]) == (OPERATION, 0)
    assert total["count"] > 0
    # It tells of its transactions at the end only, when nobody can say any more how fast it went meanwhile.
    assert "  repetition 1  done  (" in said
    assert not left_behind(tmp_path)
