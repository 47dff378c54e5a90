"""Experiments on a PostgreSQL that the lab has not started: it makes its schema there, and removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from credentials import Watch
from databases import PASSWORD, Database
from labs import knee_run
from systems import free_port, wait_until

from knee import report
from knee.data import Dataset
from knee.lab import programs
from knee.lab.deploy import postgresql
from knee.verdict import analyse

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
"""For runs that take a few seconds on an idle machine."""

HAS_SCHEMA = "SELECT to_regnamespace('knee_queue') IS NOT NULL"

EXPERIMENT = """\
[experiment]
name = "elsewhere"
[system]
load = {{ clients = 4 }}
middleware = {{ workers = 4, connections = 2 }}
store = {{ kind = "postgresql", address = ["{address}"], user = "bench", database = "{name}" }}
[workload]
protocol = "queue"
think_ms = 20
[measure]
repetitions = {repetitions}
seconds = {seconds}
warmup_s = 0
cooldown_s = 0
"""


def arguments(folder: Path, database: Database, seconds: int = 1, repetitions: int = 1) -> list[str]:
    """Of a `knee run` on a database."""
    file = folder / "elsewhere.toml"
    file.write_text(
        EXPERIMENT.format(address=database.address, name=database.name, seconds=seconds, repetitions=repetitions)
    )
    return ["--runs-dir", str(folder / "runs"), str(file)]


def made(folder: Path, database: Database, *options: str, repetitions: int = 1) -> tuple[int, str]:
    """The exit code and the messages of `knee run`, with the database's password in the environment."""
    return knee_run(folder, *arguments(folder, database, repetitions=repetitions), *options, PGPASSWORD=PASSWORD)


@contextmanager
def begun(folder: Path, database: Database) -> Iterator[subprocess.Popen[str]]:
    """`knee run` that takes long, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "knee", "run", "--no-report", *arguments(folder, database, seconds=600)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "PGPASSWORD": PASSWORD, "PYTHONPATH": str(REPOSITORY / "python")},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_clients(folder: Path) -> None:
    wait_until(lambda: any(folder.glob("runs/elsewhere/*/points/*/load-0.jsonl")), "clients run", PATIENCE_S)


def dataset(folder: Path) -> Dataset:
    (path,) = (path for path in (folder / "runs" / "elsewhere").iterdir() if not path.name.startswith("."))
    return Dataset.open(path)


@pytest.mark.usefixtures("scriptless", "modelless")
def test_each_run_makes_and_removes_its_schema(tmp_path: Path, elsewhere: Database) -> None:
    with Watch(tmp_path, PASSWORD, elsewhere.name) as watch:
        code, said = made(tmp_path, elsewhere, repetitions=2)
    assert code == 0, said
    assert PASSWORD not in said
    assert "knee-queue" in watch.programs
    measured = dataset(tmp_path)
    report.write(analyse(measured), measured.report_path)
    watch.assert_kept()
    assert measured.points["status"].to_list() == ["done", "done"]
    totals = measured.totals.filter(role="load")
    assert totals["count"].sum() > 0 and totals["errors"].sum() == 0
    assert elsewhere.sql(HAS_SCHEMA) == "f"


def test_an_interrupted_run_removes_its_schema(tmp_path: Path, elsewhere: Database) -> None:
    with begun(tmp_path, elsewhere) as process:
        wait_for_clients(tmp_path)
        assert elsewhere.sql(HAS_SCHEMA) == "t"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert elsewhere.sql(HAS_SCHEMA) == "f", said
    assert dataset(tmp_path).points["reason"].to_list() == ["interrupted"]


def test_only_a_reset_drops_a_schema(tmp_path: Path, elsewhere: Database) -> None:
    elsewhere.sql("CREATE SCHEMA knee_queue; CREATE TABLE knee_queue.message AS SELECT 'theirs' AS content")
    code, said = made(tmp_path, elsewhere)
    assert code == 1, said
    assert 'schema "knee_queue" already exists; give a database without this schema' in said
    assert elsewhere.sql("SELECT content FROM knee_queue.message") == "theirs"
    code, said = made(tmp_path, elsewhere, "--set", "store.reset=true")
    assert code == 0, said
    assert elsewhere.sql(HAS_SCHEMA) == "f"


def test_a_database_that_is_not_there_is_reported(tmp_path: Path) -> None:
    nowhere = Database(f"127.0.0.1:{free_port()}", "messages", tmp_path / "pgpass")
    code, said = made(tmp_path, nowhere)
    assert code == 1, said
    (reason,) = dataset(tmp_path).points["reason"]
    assert reason.startswith("store.address: cannot make the schema knee_queue: exit code 2"), reason
    assert PASSWORD not in said


def test_a_schema_that_stays_is_reported(tmp_path: Path, elsewhere: Database) -> None:
    with begun(tmp_path, elsewhere) as process:
        wait_for_clients(tmp_path)
        elsewhere.sql(f"REVOKE CONNECT ON DATABASE {elsewhere.name} FROM PUBLIC, bench", "knee")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    for words in (said, dataset(tmp_path).points["reason"][0]):
        assert "store.address: the schema knee_queue is left there: exit code 2" in words


def test_indexes_are_made_of_those_of_migrate(elsewhere: Database) -> None:
    """The SQL of store.indexes, on what `knee-queue migrate` makes."""
    names = "SELECT string_agg(indexname, ',' ORDER BY indexname) FROM pg_indexes WHERE tablename = 'message'"
    url = f"postgresql://bench@{elsewhere.address}/{elsewhere.name}"
    subprocess.run(
        [str(programs.find("knee-queue")), "migrate", "--database", url],
        env={**os.environ, "PGPASSFILE": str(elsewhere.pgpass)},
        check=True,
    )
    needed = "leased,leased_until,ready,ready_from"
    for wanted, expected in (("needed", needed), ("arrival", f"arrival,{needed}"), ("none", "arrival")):
        elsewhere.sql("\n".join(postgresql.indexes(wanted)))
        assert elsewhere.sql(names) == expected
