"""A private PostgreSQL cluster: made, served, pinned, watched with all of its processes, and gone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
from systems import is_gone, wait_until

from knee.lab.deploy import postgresql
from knee.lab.deploy.postgresql import Cluster
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.probe import Probe
from knee.lab.scratch import scratch
from knee.spec import Store

PATIENCE_S = 60.0
"""For each of making, serving and writing a cluster, which take a second or two on an idle machine."""


def serve(host: LocalHost, folder: Path, cluster: Cluster) -> LocalProcess:
    """Pinned to a processor."""
    tier = Store(kind="postgresql", memory_mb=16, cpus=1)
    command = postgresql.postgresql("store-0", tier, cluster, host.free_address("store-0"), 4)
    process = host.start(command, folder / "lines", folder / "log", lambda *_: None)
    assert process.wait_ready(PATIENCE_S) == command.serves
    return process


def test_a_cluster_is_closed_to_others_and_leaves_no_process(tmp_path: Path) -> None:
    host = LocalHost()
    with scratch(tmp_path / "room") as room:
        cluster = Cluster(room.data_path("store-0"), room.password)
        try:
            made = host.start(
                postgresql.initdb("initdb", cluster), tmp_path / "lines", tmp_path / "log", lambda *_: None
            )
            assert made.wait(PATIENCE_S) == 0, made.describe()
            served = serve(host, tmp_path, cluster)
            family = assert_pinned_and_watched(served)
            assert_closed_to_others(served, tmp_path / "room")
            assert served.stop(served.command.grace_s) == 0, served.describe()
            assert all(map(is_gone, family))
            crashed = psutil.Process(serve(host, tmp_path, cluster).pid)
            family = crashed.children(recursive=True)
            crashed.kill()
        finally:
            host.close(0)
        assert all(map(is_gone, family))


def assert_pinned_and_watched(served: LocalProcess) -> list[psutil.Process]:
    """Also returns the descendants."""
    first = psutil.Process(served.pid)
    family = first.children(recursive=True)
    assert family, "PostgreSQL works in several processes"
    for one in (first, *family):
        with suppress(psutil.NoSuchProcess):
            assert one.cpu_affinity() == [min(os.sched_getaffinity(0))]
    probe = Probe({"store-0": served.pid}, {"store-0"})
    probe.start()
    try:
        wait_until(
            lambda: any(one["target"] == "store-0" for one in probe._samples), "the cluster is sampled", PATIENCE_S
        )
    finally:
        samples = probe.stop()
    sample = next(one for one in samples if one["target"] == "store-0")
    assert sample["cpu_count"] > 1
    assert sample["rss_bytes"] > first.memory_info().rss
    return family


def assert_closed_to_others(served: LocalProcess, room: Path) -> None:
    """Only this machine's processes reach it, and they need the password."""
    listening = [one.laddr for one in psutil.Process(served.pid).net_connections() if one.status == "LISTEN"]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert (room / "password").stat().st_mode & 0o077 == 0
    rules = (room / "data" / "store-0" / "pg_hba.conf").read_text(encoding="utf-8").splitlines()
    assert {line.split()[-1] for line in rules if line and not line.startswith("#")} == {"scram-sha-256"}
