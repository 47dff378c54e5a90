"""Processes on this machine: readiness, logs, stopping, and that none outlives the lab."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from systems import is_gone, wait_until

from knee.errors import ProcessError, StorageError
from knee.lab.command import Command
from knee.lab.deploy import stores
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.hosts.ports import Ports, leasable
from knee.spec import Store


@pytest.fixture
def host() -> Iterator[LocalHost]:
    host = LocalHost()
    yield host
    host.close(grace_s=1)


class Started:
    """Starts shell scripts on a host and keeps what they print."""

    def __init__(self, host: LocalHost, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.messages: list[dict[str, Any]] = []

    def shell(self, script: str) -> LocalProcess:
        return self.start(Command("shell", "store", ("/bin/sh", "-c", script)))

    def start(self, command: Command) -> LocalProcess:
        lines, log = self.folder / f"{command.process}.jsonl", self.folder / f"{command.process}.log"
        return self.host.start(command, lines, log, lambda _, message: self.messages.append(message))


@pytest.fixture
def started(host: LocalHost, tmp_path: Path) -> Started:
    return Started(host, tmp_path)


def test_a_ready_line_has_the_address_and_every_line_is_kept(started: Started, tmp_path: Path) -> None:
    ready = '{"type":"ready","listen":"127.0.0.1:7"}'
    process = started.shell(f"echo complaint >&2; echo '{ready}'; echo '{{\"type\":\"summary\"}}'; exec sleep 60")
    assert process.wait_ready(timeout_s=10) == "127.0.0.1:7"
    while len(started.messages) < 2:
        time.sleep(0.01)
    assert process.stop(grace_s=10) == -signal.SIGTERM
    assert [message["type"] for message in started.messages] == ["ready", "summary"]
    assert (tmp_path / "shell.jsonl").read_text().splitlines()[0] == ready
    assert (tmp_path / "shell.log").read_text() == "complaint\n"


def test_an_early_end_is_reported_with_the_last_lines(started: Started) -> None:
    process = started.shell("echo knee-kv: address in use >&2; exit 1")
    with pytest.raises(ProcessError, match="ended before it was ready: exit code 1; last lines: knee-kv: address"):
        process.wait_ready(timeout_s=10)


def test_a_process_that_never_gets_ready(started: Started) -> None:
    with pytest.raises(ProcessError, match="was not ready within 0 s: it still runs; no output"):
        started.shell("exec sleep 60").wait_ready(timeout_s=0.1)


def test_a_program_that_does_not_exist(started: Started) -> None:
    with pytest.raises(ProcessError, match="/no/such/program cannot be started: No such file"):
        started.start(Command("shell", "store", ("/no/such/program",)))


def test_variables_of_libpq_do_not_reach_the_labs_database(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "another's")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    argv = ("/bin/sh", "-c", 'echo "{\\"seen\\": \\"$PGPASSWORD $PGHOSTADDR $PGOPTIONS\\"}"')
    options = (("PGOPTIONS", "-c jit=off"),)
    for own_database in (True, False):
        command = Command("shell", "load", argv, environment=options, own_database=own_database)
        assert started.start(command).wait(timeout_s=10) == 0
    assert [message["seen"] for message in started.messages] == ["  -c jit=off", "another's 192.0.2.1 -c jit=off"]


def test_stopping_asks_first_and_insists_after_the_grace(started: Started) -> None:
    polite = started.shell('trap "exit 0" TERM; echo "{}"; while :; do sleep 0.05; done')
    stubborn = started.shell('trap "" TERM; echo "{}"; while :; do sleep 0.05; done')
    while len(started.messages) < 2:
        time.sleep(0.01)
    assert polite.stop(grace_s=10) == 0
    assert stubborn.stop(grace_s=0.2) == -signal.SIGKILL


def test_a_full_disk_is_reported_and_stalls_no_process(host: LocalHost, tmp_path: Path) -> None:
    command = Command("shell", "store", ("/bin/sh", "-c", 'i=0; while [ $i -lt 5000 ]; do echo "{}"; i=$((i+1)); done'))
    process = host.start(command, Path("/dev/full"), tmp_path / "log", lambda *_: None)
    assert process.wait(timeout_s=30) == 0
    with pytest.raises(StorageError, match="/dev/full: cannot be written: No space left on device; make room"):
        process.check()


def test_no_address_is_given_twice_or_chosen_by_the_system(host: LocalHost) -> None:
    other = LocalHost()
    addresses = [each.free_address("store-0") for each in (host, host, other)]
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    other.close(1.0)
    assert len(set(ports)) == len(ports)
    assert all(port in leasable() for port in ports)


@pytest.mark.parametrize(
    ("range_text", "first_chosen"),
    [
        ("40000\t60999\n", 40_000),
        ("20000\t60999\n", 20_000),
        # Too few ports would be left.
        ("1024\t65535\n", 32_768),
        ("nothing", 32_768),
    ],
)
def test_leased_ports_are_below_those_of_the_system(
    range_text: str, first_chosen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(range_text)
    monkeypatch.setattr("knee.lab.hosts.ports._RANGE", tmp_path / "range")
    assert leasable() == range(10_000, first_chosen)


def test_a_closed_lease_can_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # No other process leases these.
    two = range(1_000_000 + 2 * os.getpid(), 1_000_002 + 2 * os.getpid())
    monkeypatch.setattr("knee.lab.hosts.ports.leasable", lambda: two)
    monkeypatch.setattr("knee.lab.hosts.ports._is_free", lambda *_: True)
    ours, others = Ports(), Ports()
    given_back, kept = ours.lease(), others.lease()
    with pytest.raises(OSError, match=r"every port from .* is in use"):
        others.lease()
    ours.close()
    assert given_back != kept
    assert others.lease() == given_back
    others.close()


def test_an_interrupt_while_processes_are_stopped_ends_them_all(host: LocalHost, started: Started) -> None:
    # The first process that is asked to stop interrupts the lab.
    script = 'trap "kill -INT $PPID" TERM; echo "{}"; while :; do sleep 0.05; done'
    stubborn = [started.shell(script) for _ in range(2)]
    while len(started.messages) < 2:
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        host.close(grace_s=60)
    assert [process.poll() for process in stubborn] == [-signal.SIGKILL] * 2


def test_a_process_that_is_left_is_not_waited_for(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    process = started.shell("""sleep 600 & echo "{\\"left\\": $!}"; exit 3""")
    monkeypatch.setattr("knee.lab.hosts.local._PRINTED_S", 0.1)
    with pytest.raises(ProcessError, match=r"shell ended, but its output was not complete on disk within 0.1 s"):
        process.wait(timeout_s=60)


@pytest.mark.parametrize("how", ["crashed", "killed", "stopped"])
@pytest.mark.parametrize("prints", ["", ">/dev/null 2>&1"])
def test_the_descendants_of_a_process_end_with_it(host: LocalHost, started: Started, how: str, prints: str) -> None:
    # In a session of its own, as the backends of a database are.
    process = started.shell(f"""trap "" TERM; setsid sleep 600 {prints} & echo "{{\\"left\\": $!}}"; wait""")
    wait_until(lambda: bool(started.messages), "the process has printed its child", 60)
    left = psutil.Process(started.messages[0]["left"])
    if how == "crashed":
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: process.poll() is not None, "the process has ended", 60)
        assert not is_gone(left)
    elif how == "stopped":
        assert process.stop(grace_s=0.1) == -signal.SIGKILL
    host.close(grace_s=0)
    assert is_gone(left)


def test_a_host_leaves_other_processes_alone(host: LocalHost, started: Started, tmp_path: Path) -> None:
    other = LocalHost()
    theirs = other.start(Command("shell", "store", ("sleep", "600")), tmp_path / "l", tmp_path / "e", lambda *_: None)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        started.shell("exec sleep 600")
        host.close(grace_s=0)
        assert (theirs.poll(), bystander.poll()) == (None, None)
        bystander.kill()
    other.close(grace_s=0)


@pytest.mark.parametrize("pumps", [0, 2])
def test_an_interrupt_during_a_start_leaves_no_process(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch, pumps: int
) -> None:
    popen, start = subprocess.Popen, threading.Thread.start
    begun, pumping = list[subprocess.Popen[bytes]](), list[threading.Thread]()

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = popen(*arguments, **options)
        begun.append(process)
        if not pumps:
            raise KeyboardInterrupt
        return process

    def interrupted_later(pump: threading.Thread) -> None:
        start(pump)
        pumping.append(pump)
        if len(pumping) == pumps:
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    monkeypatch.setattr(threading.Thread, "start", interrupted_later)
    with pytest.raises(KeyboardInterrupt):
        started.shell("exec sleep 60")
    (child,) = [one for one in psutil.Process().children() if one.name() in ("sh", "sleep")]
    host.close(grace_s=5)
    assert is_gone(child)
    for pump in pumping:
        pump.join()
    begun[0].communicate()


def test_a_process_can_be_pinned(started: Started) -> None:
    script = 'grep Cpus_allowed_list /proc/self/status | tr -dc 0-9,- | sed \'s/.*/{"cpus": "&"}/\''
    process = started.start(Command("shell", "store", ("/bin/sh", "-c", script), cpus=1))
    assert process.wait(timeout_s=60) == 0
    assert started.messages == [{"cpus": str(min(os.sched_getaffinity(0)))}]


def test_memcached_is_ready_when_it_answers(host: LocalHost, started: Started) -> None:
    process = started.start(
        stores.store("store-0", Store(kind="memcached", memory_mb=64), host.free_address("store-0"), 10)
    )
    address = process.wait_ready(timeout_s=10)
    assert address is not None
    name, _, port = address.rpartition(":")
    with socket.create_connection((name, int(port)), timeout=5) as connection:
        connection.sendall(b"set k 0 0 1\r\nv\r\n")
        assert connection.recv(64) == b"STORED\r\n"
    assert process.stop(grace_s=5) == -signal.SIGKILL


def test_a_host_describes_itself(host: LocalHost) -> None:
    described = host.describe()
    assert described["kernel"].startswith("Linux")
    assert described["cpu_count"] == os.cpu_count()
    assert host.output(["/bin/echo", "1.6"]) == "1.6"
    assert host.output(["/bin/false"]) is None
