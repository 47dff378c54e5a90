"""The comparisons' own PostgreSQL: who is asked, and what is read of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from bench.cpu import TICKS_PER_S, CpuTime
from bench.postgresql import USER, Cluster, Script, migrated, pgbench

from knee.lab import programs
from knee.lab.deploy.pgbench import SESSION

PATIENCE_S = 60.0
SESSIONS = 16
DATABASE_OF_THEIR_OWN = {
    "PGPASSWORD": "of another database",
    "PGSSLMODE": "verify-full",
    "PGHOSTADDR": "192.0.2.1",
    "PGOPTIONS": "-c no_such_setting=1",
    "PGSERVICE": "another",
}
"""Variables for another PostgreSQL: the comparisons ignore them."""
# Time in user space and in the kernel of what has ended are whole ticks each.
ROUNDED_S = 2 / TICKS_PER_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in DATABASE_OF_THEIR_OWN.items():
            patch.setenv(name, value)
        with Cluster(tmp_path_factory.mktemp("cluster"), durable=False) as cluster:
            yield cluster


def await_sessions(cluster: Cluster, count: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while sum(map(is_session, psutil.Process(cluster.pid).children())) != count:
        assert time.monotonic() < until
        time.sleep(0.02)


def is_session(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return f"postgres: {USER} " in " ".join(process.cmdline())
    return False


def test_what_its_processes_have_used_does_not_fall_while_sessions_end(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work.sql").write_text("SELECT count(*) FROM generate_series(1, 100000);\n")
    script = Script("postgres", tmp_path / "work.sql", 1)
    idle_s = cluster.cpu_s()
    with pgbench(cluster, script, SESSIONS, PATIENCE_S) as program:
        await_sessions(cluster, SESSIONS)
        until = time.monotonic() + PATIENCE_S
        while (before_s := cluster.cpu_s()) < idle_s + 0.5:
            assert time.monotonic() < until
        of = CpuTime.of

        def ending(pid: int) -> CpuTime:
            """They end after the first look at anything, and before the second."""
            monkeypatch.setattr(CpuTime, "of", of)
            program.stop()
            await_sessions(cluster, 0)
            return of(pid)

        monkeypatch.setattr(CpuTime, "of", ending)
        assert cluster.cpu_s() > before_s - ROUNDED_S


def test_nobody_asks_another_database(cluster: Cluster, tmp_path: Path) -> None:
    migrated(cluster, "ours", programs.find("knee-queue").parent)
    (tmp_path / "clients.sql").write_text("SELECT knee_queue.register_client(0);\n")
    with pgbench(cluster, Script("ours", tmp_path / "clients.sql", 1, SESSION), 1, PATIENCE_S) as program:
        until = time.monotonic() + PATIENCE_S
        while int(cluster.sql("ours", "SELECT count(*) FROM knee_queue.client")) == 0:
            assert program.process.poll() is None and time.monotonic() < until, program.messages()
            time.sleep(0.02)
