"""Experiments on a PostgreSQL that somebody else has started: what the lab makes there, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from credentials import Watch
from systems import free_port, wait_until

from knee import report
from knee.data import Dataset
from knee.lab import commands_queue, programs, schema
from knee.lab.commands_queue import Cluster
from knee.lab.hosts.local import LocalHost
from knee.lab.scratch import scratch
from knee.spec import Store

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
"""For what takes some ten seconds where nothing else does."""

PASSWORD = "kept-to-themselves"
HAS_LEFT = "SELECT to_regclass('knee_queue.left_behind') IS NOT NULL"
HAS_SCHEMA = "SELECT to_regnamespace('knee_queue') IS NOT NULL"
MIGRATING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"

EXPERIMENT = """\
[experiment]
name = "elsewhere"
[system]
load = {{ clients = 4 }}
middleware = {{ workers = 4, connections = 2 }}
store = {{ kind = "postgresql", address = ["{address}"], user = "bench", database = "messages" }}
[workload]
protocol = "queue"
[measure]
repetitions = {repetitions}
seconds = {seconds}
warmup_s = 0
cooldown_s = 0
"""

OF_ANOTHER = {"PGHOSTADDR": "192.0.2.1", "PGUSER": "nobody", "PGOPTIONS": "-c no_such_setting=1"}
"""The environment of whoever asks yet another database."""


@dataclass(frozen=True)
class Elsewhere:
    """A PostgreSQL with a user of its own, who has a database."""

    address: str
    pgpass: Path

    def sql(self, text: str, user: str = "bench", database: str = "messages") -> str:
        """What is answered."""
        with self.session(user, database) as session:
            answer, _ = session.communicate(text)
        assert session.returncode == 0, answer
        return answer.strip()

    def session(self, user: str = "bench", database: str = "messages") -> subprocess.Popen[str]:
        """One that makes what comes on its standard input."""
        return subprocess.Popen(
            [
                str(programs.find_postgresql("psql")),
                *("--no-psqlrc", "-qAt", "--set", "ON_ERROR_STOP=1"),
                *("--dbname", f"postgresql://{user}@{self.address}/{database}"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PGPASSFILE": str(self.pgpass)},
            text=True,
        )


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    host = LocalHost()
    with scratch(folder / "room") as room:
        try:
            lines, log = folder / "lines", folder / "log"
            cluster = Cluster(room.data_path("store-0"), room.password_path)
            made = host.start(commands_queue.initdb("initdb", cluster), lines, log, lambda *_: None)
            assert made.wait(PATIENCE_S) == 0, made.describe()
            tier = Store(kind="postgresql", memory_mb=16, durability="none")
            command = commands_queue.postgresql("store-0", tier, cluster, host.free_address(), 20)
            # The programs under test end with their lab, and this one with none of them.
            served = host.start(replace(command, process="elsewhere"), lines, log, lambda *_: None)
            address = served.wait_ready(PATIENCE_S)
            assert address is not None
            own = room.path / "pgpass-of-both"
            own.touch(mode=0o600)
            own.write_text(f"*:*:*:bench:{PASSWORD}\n{room.pgpass_path.read_text()}")
            here = Elsewhere(address, own)
            here.sql(f"CREATE ROLE bench LOGIN PASSWORD '{PASSWORD}'", "knee", "postgres")
            here.sql("CREATE DATABASE messages OWNER bench", "knee", "postgres")
            yield here
        finally:
            host.close(PATIENCE_S)


@contextmanager
def begun(folder: Path, elsewhere: Elsewhere, seconds: int, repetitions: int = 1) -> Iterator[subprocess.Popen[str]]:
    """`knee run` on it, by somebody who has the password in his environment."""
    file = folder / "elsewhere.toml"
    file.write_text(EXPERIMENT.format(address=elsewhere.address, seconds=seconds, repetitions=repetitions))
    with running(folder, "--runs-dir", str(folder / "runs"), str(file)) as process:
        yield process


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **OF_ANOTHER, "PGPASSWORD": PASSWORD, "PYTHONPATH": str(REPOSITORY / "python")}
    process = subprocess.Popen(
        [sys.executable, "-m", "knee", "run", "--no-report", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def dataset(folder: Path) -> Dataset:
    (path,) = (path for path in (folder / "runs" / "elsewhere").iterdir() if not path.name.startswith("."))
    return Dataset.open(path)


def works(process: subprocess.Popen[str]) -> bool:
    """Whether clients are at work."""
    assert process.poll() is None, process.communicate()[0]
    with suppress(psutil.NoSuchProcess):
        return any("--start-at" in one.cmdline() for one in psutil.Process(process.pid).children())
    return False


def test_what_was_made_there_is_gone_after_each_run(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with (
        Watch(tmp_path, PASSWORD) as watch,
        begun(tmp_path, elsewhere, seconds=2, repetitions=2) as process,
    ):
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert PASSWORD not in said
    assert watch.programs, "it looked while the lab was there"
    measured = dataset(tmp_path)
    report.write(measured, measured.report_path)
    watch.assert_kept()
    assert measured.points["status"].to_list() == ["done", "done"]
    totals = measured.totals.filter(role="load")
    assert totals["count"].sum() > 0 and totals["errors"].sum() == 0
    # Each found a database with no client in it: the second as many as the first.
    assert elsewhere.sql(HAS_SCHEMA) == "f"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_made_there_is_gone_when_the_run_is_interrupted(
    tmp_path: Path, elsewhere: Elsewhere, number: signal.Signals
) -> None:
    with begun(tmp_path, elsewhere, seconds=600) as process:
        wait_until(lambda: works(process), "clients are at work", PATIENCE_S)
        assert elsewhere.sql(HAS_SCHEMA) == "t"
        process.send_signal(number)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert elsewhere.sql(HAS_SCHEMA) == "f", said
    assert dataset(tmp_path).points["reason"].to_list() == ["interrupted"]


def test_who_is_interrupted_while_he_migrates_leaves_nothing_either(tmp_path: Path, elsewhere: Elsewhere) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
    removes = f"{waiting} AND application_name = 'psql'"
    with elsewhere.session() as holder, begun(tmp_path, elsewhere, seconds=600) as process:
        print(f"SELECT pg_advisory_lock({schema.MIGRATING});", file=holder.stdin, flush=True)
        wait_until(lambda: elsewhere.sql(waiting) == "1", "it waits for whoever migrates", PATIENCE_S)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: int(elsewhere.sql(removes)) > 0, "it waits to remove the schema", PATIENCE_S)
        assert elsewhere.sql(HAS_SCHEMA) == "t"
        holder.communicate()
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert elsewhere.sql(HAS_SCHEMA) == "f", said


def test_what_somebody_has_made_there_is_left_alone(tmp_path: Path, elsewhere: Elsewhere) -> None:
    elsewhere.sql("CREATE SCHEMA knee_queue; CREATE TABLE knee_queue.message AS SELECT 'theirs' AS content")
    with elsewhere.session() as holder:
        # They are at work on it: whoever wanted to remove what is theirs would wait, and fail.
        print(f"SELECT pg_advisory_lock({schema.MIGRATING});", file=holder.stdin, flush=True)
        wait_until(lambda: elsewhere.sql(MIGRATING) == "1", "they migrate", PATIENCE_S)
        with begun(tmp_path, elsewhere, seconds=2) as process:
            said, _ = process.communicate(timeout=PATIENCE_S)
        holder.communicate()
    assert process.returncode == 1, said
    assert "may be left" not in dataset(tmp_path).points["reason"][0]
    assert "database messages has a schema knee_queue (not by knee run), which this run folder does not know" in said
    assert elsewhere.sql("SELECT content FROM knee_queue.message") == "theirs"
    # Nor what another run has made, which may be at work.
    elsewhere.sql("COMMENT ON SCHEMA knee_queue IS 'made by knee run other 1'")
    for statement in schema.release("made by knee run other 2"):
        elsewhere.sql(statement)
    assert elsewhere.sql("SELECT content FROM knee_queue.message") == "theirs"
    elsewhere.sql(schema.release("made by knee run other 1")[-1])
    assert elsewhere.sql(HAS_SCHEMA) == "f"


def test_what_a_lab_that_was_killed_has_left_there_is_removed_by_whoever_goes_on_with_its_run_alone(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    with begun(tmp_path, elsewhere, seconds=600) as process:
        wait_until(lambda: works(process), "clients are at work", PATIENCE_S)
        process.kill()
    elsewhere.sql("CREATE TABLE knee_queue.left_behind ()")
    (folder,) = (tmp_path / "runs" / "elsewhere").iterdir()
    # Whoever has copied the folder may be at work, too.
    copy = shutil.copytree(folder, tmp_path / "copy")
    with running(tmp_path, "--resume", str(copy)) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, said
    assert "database messages has a schema knee_queue (made by knee run elsewhere " in said
    assert elsewhere.sql(HAS_LEFT) == "t"
    with running(tmp_path, "--resume", str(folder)) as process:
        wait_until(lambda: works(process), "clients are at work", PATIENCE_S)
        assert elsewhere.sql(HAS_SCHEMA) == "t" and elsewhere.sql(HAS_LEFT) == "f"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert elsewhere.sql(HAS_SCHEMA) == "f", said


@pytest.mark.parametrize("mark", [None, "made by knee run x 0123456789abcdef-1", "made by knee run x 01-12 3"])
def test_what_another_folder_has_left_there_is_nobodys_own(mark: str | None, elsewhere: Elsewhere) -> None:
    elsewhere.sql("CREATE SCHEMA knee_queue")
    if mark is not None:
        elsewhere.sql(f"COMMENT ON SCHEMA knee_queue IS '{mark}'")
    with elsewhere.session() as session:
        claim = schema.claim("made by knee run x 0123456789abcdef-1 7", "made by knee run x 0123456789abcdef-1 ")
        said, _ = session.communicate(";\n".join([*claim, ""]))
    assert session.returncode != 0
    assert f"has a schema knee_queue ({mark or 'not by knee run'}), which this run folder does not know" in said


def test_where_nobody_serves_a_database_nothing_is_said_to_be_left(tmp_path: Path) -> None:
    with begun(tmp_path, Elsewhere(f"127.0.0.1:{free_port()}", tmp_path / "pgpass"), seconds=2) as process:
        said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, said
    (reason,) = dataset(tmp_path).points["reason"]
    assert reason.startswith("postgresql://bench@127.0.0.1:") and "knee_queue" not in reason, reason
    assert " cannot be connected to: exit code 2" in reason and "password" not in reason, reason


def test_what_the_user_lacks_is_told_of(tmp_path: Path, elsewhere: Elsewhere) -> None:
    grants, lets_in, wanted = "GRANT CREATE ON DATABASE", "GRANT CONNECT ON DATABASE", "a password is looked for in"

    def reason(folder: str) -> str:
        (tmp_path / folder).mkdir()
        with begun(tmp_path / folder, elsewhere, seconds=2) as process:
            said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and PASSWORD not in said, said
        return str(dataset(tmp_path / folder).points["reason"][0])

    def hints_in(told: str) -> list[str]:
        return [hint for hint in (grants, lets_in, wanted) if hint in told]

    elsewhere.sql("ALTER DATABASE messages OWNER TO knee", "knee", "postgres")
    told = reason("may-not-create")
    assert " makes no schema for the messages: exit code 1" in told and hints_in(told) == [grants], told
    elsewhere.sql("REVOKE CONNECT ON DATABASE messages FROM PUBLIC", "knee", "postgres")
    told = reason("may-not-connect")
    assert " cannot be connected to: exit code 2" in told and hints_in(told) == [lets_in], told
    elsewhere.sql("ALTER ROLE bench PASSWORD 'another'", "knee", "postgres")
    told = reason("has-another-password")
    assert " cannot be connected to: exit code 2" in told and hints_in(told) == [wanted], told
    elsewhere.sql("ALTER DATABASE messages RENAME TO passwords", "knee", "postgres")
    elsewhere.sql(f"ALTER ROLE bench PASSWORD '{PASSWORD}'", "knee", "postgres")
    told = reason("has-no-such-database")
    assert 'database "messages" does not exist' in told and hints_in(told) == [], told


def test_what_could_not_be_removed_is_told(tmp_path: Path, elsewhere: Elsewhere) -> None:
    with begun(tmp_path, elsewhere, seconds=600) as process:
        wait_until(lambda: works(process), "clients are at work", PATIENCE_S)
        # From now on nobody is let in.
        elsewhere.sql("ALTER ROLE bench NOLOGIN", "knee", "postgres")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    # It stays an interrupt.
    assert process.returncode == 130, said
    for told in (said, dataset(tmp_path).points["reason"][0]):
        assert f"the schema knee_queue may be left in postgresql://bench@{elsewhere.address}/messages" in told
        assert 'if the comment on knee_queue there is "made by knee run elsewhere ' in told
        assert "DROP SCHEMA knee_queue CASCADE" in told
    assert elsewhere.sql(HAS_SCHEMA, "knee") == "t"


def test_what_could_not_be_removed_is_told_where_the_run_folder_cannot_be_written_either(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    with begun(tmp_path, elsewhere, seconds=600) as process:
        wait_until(lambda: works(process), "clients are at work", PATIENCE_S)
        (folder,) = (tmp_path / "runs" / "elsewhere").iterdir()
        folder.rename(tmp_path / "moved")
        folder.touch()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)
    # It stays an interrupt.
    assert process.returncode == 130, said
    assert f"the schema knee_queue may be left in postgresql://bench@{elsewhere.address}/messages" in said
    assert "DROP SCHEMA knee_queue CASCADE" in said
    assert "cannot be written: Not a directory" in said
    assert elsewhere.sql(HAS_SCHEMA) == "t"


def test_what_could_not_be_removed_is_told_to_whoever_did_not_wait_for_it(tmp_path: Path, elsewhere: Elsewhere) -> None:
    removes = "FROM pg_stat_activity WHERE wait_event = 'advisory' AND application_name = 'psql'"
    with elsewhere.session() as holder, begun(tmp_path, elsewhere, seconds=600) as process:
        wait_until(lambda: works(process), "clients are at work", PATIENCE_S)
        print(f"SELECT pg_advisory_lock({schema.MIGRATING});", file=holder.stdin, flush=True)
        wait_until(lambda: elsewhere.sql(MIGRATING) == "1", "somebody migrates", PATIENCE_S)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: elsewhere.sql(f"SELECT count(*) {removes}") == "1", "it waits to remove it", PATIENCE_S)
        process.send_signal(signal.SIGINT)
        elsewhere.sql(f"SELECT pg_terminate_backend(pid) {removes}")
        said, _ = process.communicate(timeout=PATIENCE_S)
        holder.communicate()
    assert process.returncode == 130, said
    for told in (said, dataset(tmp_path).points["reason"][0]):
        assert "the schema knee_queue may be left in" in told
    assert elsewhere.sql(HAS_SCHEMA) == "t"
