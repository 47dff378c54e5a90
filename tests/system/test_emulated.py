"""Emulated hosts: what their links let through, and that they leave nothing behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import psutil
import pytest
from systems import is_gone, wait_until

from knee import spec
from knee.data import Dataset
from knee.data.observations import observations
from knee.data.utilization import utilizations
from knee.errors import ProcessError
from knee.lab.hosts import Link, emulated, meter
from knee.lab.hosts.emulated import EmulatedHosts
from knee.lab.hosts.meter import LinkCheck, check_links

PATIENCE_S = 120
UNPRIVILEGED = ("unshare", "--user", "--map-root-user")
IS_ROOT = os.geteuid() == 0
EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
PYTHON = Path(__file__).resolve().parents[2] / "python"

EXPERIMENT = """\
[experiment]
name = "emulated"
[system]
load = { hosts = 2, clients = 8, delay_ms = 1 }
store = { hosts = 2, link_mbit = 5, memory_mb = 64 }
[workload]
set_get = "0:1"
value_bytes = 4000
keys = 100
populated = 1.0
[measure]
hosts = "emulated"
repetitions = 1
seconds = 4
warmup_s = 1
cooldown_s = 1
"""


BRIEF = "from knee.lab.hosts import meter; meter._SETTLING_S = meter._MEASURED_S = 0.05; "
"""Before a lab: measures its links for so short a time that this costs little."""


def lab(folder: Path, *arguments: str, before: str = "", is_root: bool = False) -> subprocess.Popen[str]:
    """Knee as root of a user namespace, or of this machine."""
    (folder / "emulated.toml").write_text(EXPERIMENT)
    knee = (sys.executable, "-c", f"{before}from knee.__main__ import main; main()")
    return subprocess.Popen(
        [*(() if is_root and IS_ROOT else UNPRIVILEGED), *knee, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PYTHON)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_store_serves_what_its_link_carries(tmp_path: Path) -> None:
    running = lab(tmp_path, "run", "--no-report", "emulated.toml")
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    (path,) = (tmp_path / "runs" / "emulated").iterdir()
    dataset = Dataset.open(path)
    assert [each["host"] for each in dataset.manifest["links"]] == ["load-0", "store-0"]
    used = utilizations(dataset).filter(role="store", resource="sending link")["utilization"]
    assert len(used) == 2
    assert used.min() > 0.9, used  # type: ignore[operator]
    assert used.max() < 1.03, used  # type: ignore[operator]
    # Two links carry 5 Mbit/s each, at least 4,000 bytes a value.
    assert 0 < observations(dataset)["throughput"][0] < 1.03 * 2 * 5e6 / 8 / 4000


def test_killed_lab_leaves_no_process_and_no_interface(tmp_path: Path) -> None:
    before = set(psutil.net_if_addrs())
    running = lab(tmp_path, "run", "--no-report", "emulated.toml", "--set", "measure.seconds=60")
    wait_until(lambda: list(tmp_path.glob("runs/*/*/points/*/load-0.jsonl")) != [], "clients run", PATIENCE_S)

    def names() -> set[str]:
        found = set()
        for program in psutil.Process(running.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found.add(program.name())
        return found

    # A program is `nsenter` before it is itself.
    wait_until(lambda: {"knee-link", "knee-load", "knee-kv"} <= names(), "all programs run", PATIENCE_S)
    programs = psutil.Process(running.pid).children(recursive=True)
    assert set(psutil.net_if_addrs()) == before
    running.kill()
    running.communicate()
    wait_until(lambda: all(map(is_gone, programs)), "they have ended", PATIENCE_S)


def test_check_measures_delay_and_rate_of_each_host(tmp_path: Path) -> None:
    if not IS_ROOT:
        running = lab(tmp_path, "hosts", "check", "emulated.toml")
        said, _ = running.communicate(timeout=PATIENCE_S)
        assert [line.split()[0] for line in said.splitlines()] == [
            "Rates",
            "host",
            "load-0",
            "load-1",
            "store-0",
            "store-1",
        ]
        return
    hosts = EmulatedHosts()
    try:
        near, far = check_links(hosts, [("near", Link(10, 20)), ("far", Link(delay_ms=5))])
    finally:
        hosts.close(0)
    assert near.sending_mbit <= 10.3 and near.receiving_mbit <= 20.6, near
    assert near.sending_mbit > 5 and near.receiving_mbit > 10.3, near
    assert near.round_trip_ms < 10 <= far.round_trip_ms, (near, far)


@pytest.fixture
def hosts() -> Iterator[EmulatedHosts]:
    if not IS_ROOT:
        pytest.skip("only root emulates hosts in this process")
    hosts = EmulatedHosts()
    yield hosts
    hosts.close(0)


def test_frame_to_a_near_host_does_not_wait_for_one_to_a_far_host(hosts: EmulatedHosts) -> None:
    for name, delay_ms in (("client", 0), ("near", 1), ("far", 200)):
        hosts.place(name, Link(delay_ms=delay_ms))
    client, near, far = map(hosts.placed, ("client", "near", "far"))
    with meter._connected(client, far) as (to_far, at_far), meter._connected(client, near) as (to_near, at_near):
        begun = time.monotonic()
        to_far.send(b"x")
        to_near.send(b"x")
        at_near.recv(1)
        near_s = time.monotonic() - begun
        at_far.recv(1)
        far_s = time.monotonic() - begun
    assert near_s < 0.1 < 0.19 < far_s


def test_emulated_host_controls_congestion_with_reno(hosts: EmulatedHosts) -> None:
    hosts.place("near", Link())
    chosen = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    assert hosts.placed("near").namespace.call(chosen.read_text) == "reno\n"


def test_end_of_the_emulation_is_named(hosts: EmulatedHosts) -> None:
    hosts.place("far", Link(delay_ms=1))
    hosts.placed("far")
    hosts.check()
    switch = hosts.relays["links"]
    os.kill(switch, signal.SIGKILL)
    # All its threads have ended, and its exit code is left for `check`.
    os.waitid(os.P_PID, switch, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessError, match="the emulation of links ended during the run: killed by SIGKILL"):
        hosts.check()


def test_link_that_is_not_as_declared_is_named() -> None:
    check = LinkCheck("store-0", Link(100, 100, 2), sending_mbit=99.9, receiving_mbit=90.0, round_trip_ms=4.1)
    (problem,) = check.problems
    assert problem.startswith("store-0 receives 90.0 Mbit/s in place of 100;")
    (problem,) = LinkCheck("store-0", Link(delay_ms=2), 10.0, 10.0, 5.0).problems
    assert problem == "a round trip to store-0 takes 5.00 ms in place of 4 ms"


def test_missing_rights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(emulated, "Namespace", refuse)
    with pytest.raises(ProcessError, match="Operation not permitted; run Knee as root or under `unshare"):
        EmulatedHosts().place("store-0", Link())


PUBLISHED = (
    "baseline-one-store",
    "baseline-two-stores",
    "baseline-one-middleware",
    "baseline-two-middlewares",
    "throughput-for-writes",
    "one-store-against-three",
    "gets-and-multigets",
    "multigets-of-many-keys",
    "factorial-reads",
    "factorial-writes",
)


@pytest.mark.parametrize("name", [*PUBLISHED, "queue-workers"])
def test_published_experiment_runs_on_emulated_hosts(tmp_path: Path, name: str) -> None:
    """One point of each experiment of the first report, and one with PostgreSQL."""
    levels = spec.load(EXPERIMENTS / f"{name}.toml").factors
    short = {"seconds": 1, "warmup_s": 0, "cooldown_s": 0, "repetitions": 1, "hosts": "emulated"}
    overrides = {factor: each[0] for factor, each in levels.items()} | {f"measure.{k}": v for k, v in short.items()}
    overrides["workload.think_ms"] = 20
    # The set-up writes a queue for each client, or the keys.
    overrides |= {"store.durability": "none"} if name.startswith("queue") else {"workload.keys": 500}
    given = [f"--set={key}={json.dumps(value)}" for key, value in overrides.items()]
    (tmp_path / f"{name}.toml").write_text(spec.read(EXPERIMENTS / f"{name}.toml"))
    running = lab(tmp_path, "run", "--no-report", f"{name}.toml", *given, before=BRIEF, is_root=True)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    (path,) = (tmp_path / "runs" / name).iterdir()
    dataset = Dataset.open(path)
    assert observations(dataset)["throughput"][0] > 0
    limited = utilizations(dataset).filter(pl.col("resource").is_in(["sending link", "receiving link"]))
    # Frames in a bucket may leave beyond the rate.
    assert limited["utilization"].is_between(0, 1.1).all()
