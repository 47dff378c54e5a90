"""A private PostgreSQL cluster: made, served, watched with all of its processes, and gone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from systems import is_gone, wait_until

from knee.lab import commands_queue
from knee.lab.commands import Command, tied
from knee.lab.commands_queue import Cluster
from knee.lab.hosts.cpu_share import shares_cpus
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.probe import Probe
from knee.lab.scratch import scratch
from knee.spec import Store

GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu"))
"""Where control groups of this process's are, by either version, where it is in none itself."""


def own_groups() -> list[Path]:
    """Those that this process has made."""
    return [path for group in GROUPS for path in group.glob(f"knee-{os.getpid()}-*")]


PATIENCE_S = 60.0
"""To make the files of a cluster, to serve them, and to write what is in memory: each a second or two of a machine that
does nothing else."""


@pytest.fixture
def host() -> Iterator[LocalHost]:
    host = LocalHost()
    yield host
    host.close(PATIENCE_S)


def start(host: LocalHost, room: Path, cluster: Cluster, cpus: float | None = None) -> LocalProcess:
    lines, log = room / "lines", room / "log"
    made = host.start(commands_queue.initdb("initdb", cluster), lines, log, lambda *_: None)
    assert made.wait(PATIENCE_S) == 0, made.describe()
    tier = Store(kind="postgresql", memory_mb=16, cpus=cpus)
    command = commands_queue.postgresql("store-0", tier, cluster, host.free_address(), 4)
    return host.start(command, lines, log, lambda *_: None)


def test_a_cluster_is_served_and_leaves_nothing_behind(host: LocalHost, tmp_path: Path) -> None:
    with scratch(tmp_path / "room") as room:
        cluster = Cluster(room.data_path("store-0"), room.password_path)
        process = start(host, tmp_path, cluster)
        try:
            assert process.wait_ready(PATIENCE_S) == process.command.serves
            family = psutil.Process(process.pid).children(recursive=True)
            assert family, "PostgreSQL works in processes of its own"
            probe = Probe({"store-0": process.pid}, {"store-0"})
            probe.start()
            try:
                wait_until(
                    lambda: any(one["target"] == "store-0" for one in probe._samples),
                    "the cluster is sampled",
                    PATIENCE_S,
                )
            finally:
                samples = probe.stop()
            sample = next(one for one in samples if one["target"] == "store-0")
            assert sample["cpu_count"] > 1
            assert sample["rss_bytes"] > psutil.Process(process.pid).memory_info().rss
            # Only this machine's processes reach it.
            listening = [one.laddr for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
            assert {address.ip for address in listening} == {"127.0.0.1"}
            assert process.stop(process.command.grace_s) == 0, process.describe()
        finally:
            host.close(0)
    assert not any(one.is_running() for one in family)
    assert not room.path.exists()


def test_a_cluster_ends_with_the_lab(host: LocalHost, tmp_path: Path) -> None:
    with scratch(tmp_path / "room") as room:
        process = start(host, tmp_path, Cluster(room.data_path("store-0"), room.password_path))
        process.wait_ready(PATIENCE_S)
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert not alive
        host.close(0)


def test_only_who_has_the_password_may_enter(host: LocalHost, tmp_path: Path) -> None:
    with scratch(tmp_path / "room") as room:
        assert room.password_path.stat().st_mode & 0o077 == 0
        cluster = Cluster(room.data_path("store-0"), room.password_path)
        process = start(host, tmp_path, cluster)
        try:
            process.wait_ready(PATIENCE_S)
            methods = [
                line.split()[-1]
                for line in (cluster.data / "pg_hba.conf").read_text(encoding="utf-8").splitlines()
                if line and not line.startswith("#")
            ]
            assert set(methods) == {"scram-sha-256"}
        finally:
            host.close(PATIENCE_S)


def test_without_control_groups_a_cluster_gets_whole_processors(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knee.lab.hosts.cpu_share._made", lambda *_: None)
    with scratch(tmp_path / "room") as room:
        process = start(host, tmp_path, Cluster(room.data_path("store-0"), room.password_path), cpus=0.25)
        try:
            process.wait_ready(PATIENCE_S)
            first = psutil.Process(process.pid)
            family = [first, *first.children(recursive=True)]
            assert len(family) > 2
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    assert len(one.cpu_affinity()) == 1
        finally:
            host.close(PATIENCE_S)


@pytest.mark.skipif(not shares_cpus(), reason="nobody may make control groups here")
def test_a_share_of_the_processors_is_all_that_a_cluster_gets(host: LocalHost, tmp_path: Path) -> None:
    with scratch(tmp_path / "room") as room:
        process = start(host, tmp_path, Cluster(room.data_path("store-0"), room.password_path), cpus=0.25)
        try:
            process.wait_ready(PATIENCE_S)
            (group,) = own_groups()
            members = {int(pid) for pid in (group / "cgroup.procs").read_text(encoding="ascii").split()}
            first = psutil.Process(process.pid)
            family = {one.pid for one in (first, *first.children(recursive=True))}
            # Some of those that it started have ended meanwhile.
            assert process.pid in members and len(members & family) > 2
        finally:
            host.close(PATIENCE_S)
        assert not own_groups()


@pytest.mark.skipif(not shares_cpus(), reason="nobody may make control groups here")
def test_a_share_of_the_processors_is_given_back_when_whoever_had_it_crashes(host: LocalHost, tmp_path: Path) -> None:
    # As a session with a query does, one process goes on.
    command = Command("store-0", "store", ("sh", "-c", "sleep 600 & echo $! >&2; kill -KILL $$"), cpus=0.25)
    process = host.start(command, tmp_path / "lines", tmp_path / "log", lambda *_: None)
    wait_until(lambda: process.poll() is not None, "it has crashed", PATIENCE_S)
    wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"), "it is said who goes on", PATIENCE_S)
    left = psutil.Process(int((tmp_path / "log").read_text()))
    assert own_groups() and left.is_running()
    host.close(PATIENCE_S)
    assert not own_groups()
    assert is_gone(left)


class Overtaken(subprocess.Popen[bytes]):
    """A process of which nobody hears before it has started others, which have written down where they run."""

    written: Path

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        wait_until(self.written.exists, "it is written where they run", PATIENCE_S)


@pytest.mark.parametrize(
    "shares",
    [False, pytest.param(True, marks=pytest.mark.skipif(not shares_cpus(), reason="nobody may make control groups"))],
)
def test_who_is_started_first_is_confined_as_well(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    if not shares:
        monkeypatch.setattr("knee.lab.hosts.cpu_share._made", lambda *_: None)
    monkeypatch.setattr(Overtaken, "written", tmp_path / "written", raising=False)
    monkeypatch.setattr("knee.lab.hosts.local.subprocess.Popen", Overtaken)
    (tmp_path / "first.sh").write_text(
        "(cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status) > writing\n"
        "mv writing written\nexec sleep 600\n"
    )
    first = ("env", "--chdir", str(tmp_path), "sh", "first.sh")
    command = Command("store-0", "store", (*tied(), *first), cpus=0.25)
    process = host.start(command, tmp_path / "lines", tmp_path / "log", lambda *_: None)
    said = (tmp_path / "written").read_text(encoding="ascii")
    if shares:
        (group,) = own_groups()
        assert f"/{group.name}\n" in said, said
    else:
        (allowed,) = re.findall(r"Cpus_allowed_list:\s*(\S+)", said)
        assert allowed.isdigit(), f"one processor, and not {allowed}"
    process.kill()
