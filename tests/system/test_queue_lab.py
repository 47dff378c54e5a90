"""The experiments on queues over the real programs: PostgreSQL of the lab's own, SQLite, and pgbench."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import psutil
import pytest

from knee.dataset import Dataset
from knee.laws import laws_of_run
from knee.pgbench import OPERATION

REPOSITORY = Path(__file__).resolve().parents[2]

SHORT = ("measure.repetitions=1", "measure.seconds=3", "measure.warmup_s=1", "measure.cooldown_s=1")


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
        [sys.executable, "-m", "knee", "run", "--no-report", file, *flags],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **DATABASE_OF_THEIR_OWN, "PYTHONPATH": str(REPOSITORY / "python")},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs" / experiment).iterdir()
    return Dataset.open(path), done.stderr


def left_behind(folder: Path) -> list[psutil.Process]:
    """Processes that have anything to do with a folder."""
    named = (process for process in psutil.process_iter(["cmdline"]) if process.pid != os.getpid())
    return [process for process in named if any(str(folder) in part for part in process.info["cmdline"] or ())]


def test_messages_pass_through_two_middlewares_and_a_database_that_is_gone_afterwards(tmp_path: Path) -> None:
    factors = ("load.clients=8", "workload.characters=200", "middleware.connections=4", "middleware.hosts=2")
    dataset, _ = run(tmp_path, "queue-factorial-system", *factors, "workload.backlog=100")
    asked = dataset.totals.filter(role="load").group_by("op").agg(pl.col("count").sum(), pl.col("errors").sum())
    assert set(asked["op"]) >= {"send", "list_queues", "read_all", "remove"}
    assert asked["errors"].sum() == 0
    (check,) = [one for one in laws_of_run(dataset).conservation if one.tier == "middlewares"]
    assert check.verdict == "holds", check
    # The database has told nothing, and was watched with all its processes.
    assert dataset.probes.filter(target="store-0")["cpu_user_s"].sum() > 0
    assert not left_behind(tmp_path)
    assert not list(tmp_path.rglob("PG_VERSION")) and not list(tmp_path.rglob("password"))


@pytest.mark.parametrize("store", ["sqlite", "null"])
def test_a_middleware_needs_no_database_of_its_own(tmp_path: Path, store: str) -> None:
    dataset, _ = run(tmp_path, "queue-middleware-alone", f"store.kind={store}", "load.hosts=1", "load.clients=4")
    totals = dataset.totals.filter(role="load")
    assert totals["count"].sum() > 0 and totals["errors"].sum() == 0


def test_pgbench_asks_the_database_itself(tmp_path: Path) -> None:
    factors = ("load.clients=2", "workload.level=2", "store.indexes=needed")
    dataset, said = run(tmp_path, "queue-database-alone", *factors, "workload.backlog=50")
    (total,) = dataset.totals.filter(role="load").iter_rows(named=True)
    assert (total["op"], total["errors"]) == (OPERATION, 0)
    assert total["count"] > 0
    # It tells of its transactions at the end only, and so is told of them.
    assert re.search(r" [1-9][\d,]* requests/s", said), said
    assert not left_behind(tmp_path)
