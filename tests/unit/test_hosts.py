"""Processes on this machine: readiness, logs, stopping, and that none outlives the lab."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from systems import is_gone, wait_until

from knee.errors import ProcessError, StorageError, UnendedError
from knee.lab import commands
from knee.lab.commands import Command
from knee.lab.hosts.local import LocalHost, LocalProcess, _began_ticks, _writing
from knee.lab.hosts.ports import Ports, leasable
from knee.spec import Store

REPOSITORY = Path(__file__).resolve().parents[2]
BECOMES_SLEEP = "sleep|setsid|sh"
"""What a child of a shell is called, which is the shell until it has begun."""


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


def test_a_ready_line_says_the_address_and_every_line_is_kept(started: Started, tmp_path: Path) -> None:
    ready = '{"type":"ready","listen":"127.0.0.1:7"}'
    process = started.shell(f"echo complaint >&2; echo '{ready}'; echo '{{\"type\":\"summary\"}}'; exec sleep 60")
    assert process.wait_ready(timeout_s=10) == "127.0.0.1:7"
    while len(started.messages) < 2:
        time.sleep(0.01)
    assert process.stop(grace_s=10) == -signal.SIGTERM
    assert [message["type"] for message in started.messages] == ["ready", "summary"]
    assert (tmp_path / "shell.jsonl").read_text().splitlines()[0] == ready
    assert (tmp_path / "shell.log").read_text() == "complaint\n"


def test_a_process_that_ends_before_it_is_ready_is_told_with_its_last_words(started: Started) -> None:
    process = started.shell("echo knee-kv: address in use >&2; exit 1")
    with pytest.raises(ProcessError, match="ended before it was ready: exit code 1; it said: knee-kv: address in use"):
        process.wait_ready(timeout_s=10)


def test_a_process_that_never_gets_ready(started: Started) -> None:
    with pytest.raises(ProcessError, match="was not ready within 0 s: it still runs; it said nothing"):
        started.shell("exec sleep 60").wait_ready(timeout_s=0.1)


def test_a_program_that_does_not_exist(started: Started) -> None:
    with pytest.raises(ProcessError, match="/no/such/program cannot be started: No such file"):
        started.start(Command("shell", "store", ("/no/such/program",)))


def test_who_asks_a_database_of_the_labs_hears_nothing_of_others(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "another's")
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    argv = ("/bin/sh", "-c", 'echo "{\\"told\\": \\"$PGPASSWORD $PGHOSTADDR $PGOPTIONS\\"}"')
    options = (("PGOPTIONS", "-c jit=off"),)
    for own_database in (True, False):
        command = Command("shell", "load", argv, environment=options, own_database=own_database)
        assert started.start(command).wait(timeout_s=10) == 0
    assert [message["told"] for message in started.messages] == ["  -c jit=off", "another's 192.0.2.1 -c jit=off"]


def test_stopping_asks_first_and_insists_after_the_grace(started: Started) -> None:
    polite = started.shell('trap "exit 0" TERM; echo "{}"; while :; do sleep 0.05; done')
    stubborn = started.shell('trap "" TERM; echo "{}"; while :; do sleep 0.05; done')
    while len(started.messages) < 2:
        time.sleep(0.01)
    assert polite.stop(grace_s=10) == 0
    assert stubborn.stop(grace_s=0.2) == -signal.SIGKILL


def test_a_full_disk_is_told_and_the_process_is_not_stalled(host: LocalHost, tmp_path: Path) -> None:
    command = Command("shell", "store", ("/bin/sh", "-c", 'i=0; while [ $i -lt 5000 ]; do echo "{}"; i=$((i+1)); done'))
    process = host.start(command, Path("/dev/full"), tmp_path / "log", lambda *_: None)
    assert process.wait(timeout_s=30) == 0
    with pytest.raises(StorageError, match="/dev/full: cannot be written: No space left on device; make room"):
        process.check()


def python(program: str, *arguments: str) -> str:
    """What a program of this package prints."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
    ).stdout


_LIMITED = """
import resource, sys
from pathlib import Path
from knee.lab.commands import Command
from knee.errors import StorageError
from knee.lab.hosts.local import LocalHost
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
folder = Path(sys.argv[1])
process = LocalHost().start(
    Command("shell", "store", ("/bin/sh", "-c", "echo 1234567890; sleep 0.1; echo " + 99 * "x")),
    folder / "lines", folder / "log", lambda *_: None)
process.wait(10)
try:
    process.check()
except StorageError as error:
    print(error)
"""


def test_a_line_that_did_not_fit_whole_is_told(tmp_path: Path) -> None:
    said = python(_LIMITED, str(tmp_path))
    assert "lines: cannot be written: File too large; raise the limit of a file's size" in said


def test_no_address_is_given_twice_or_to_whom_the_system_chooses_for(host: LocalHost) -> None:
    other = LocalHost()
    addresses = [each.free_address() for each in (host, host, other)]
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    other.close(1.0)
    assert len(set(ports)) == len(ports)
    assert all(port in leasable() for port in ports)


@pytest.mark.parametrize(
    ("told", "first_chosen"),
    [
        ("40000\t60999\n", 40_000),
        ("20000\t60999\n", 20_000),
        # None would be left, or hardly any.
        ("1024\t65535\n", 32_768),
        ("nothing", 32_768),
    ],
)
def test_leased_ports_are_before_those_the_system_chooses_from(
    told: str, first_chosen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(told)
    monkeypatch.setattr("knee.lab.hosts.ports._RANGE", tmp_path / "range")
    assert leasable() == range(10_000, first_chosen)


def test_a_port_that_was_given_back_can_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # By these names nobody else leases any.
    two = range(1_000_000 + 2 * os.getpid(), 1_000_002 + 2 * os.getpid())
    monkeypatch.setattr("knee.lab.hosts.ports.leasable", lambda: two)
    monkeypatch.setattr("knee.lab.hosts.ports._is_free", lambda _: True)
    ours, others = Ports(), Ports()
    given_back, kept = ours.lease(), others.lease()
    with pytest.raises(OSError, match=r"every port from .* is in use"):
        others.lease()
    ours.close()
    assert given_back != kept
    assert others.lease() == given_back
    others.close()


def test_an_interrupt_while_processes_are_stopped_ends_them_all(host: LocalHost, started: Started) -> None:
    # Whichever is told first to stop interrupts who tells it.
    script = 'trap "kill -INT $PPID" TERM; echo "{}"; while :; do sleep 0.05; done'
    stubborn = [started.shell(script) for _ in range(2)]
    while len(started.messages) < 2:
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        host.close(grace_s=60)
    # Whoever removes what they wrote need not wait for them.
    assert [process.poll() for process in stubborn] == [-signal.SIGKILL] * 2


class Stopped(LocalProcess):
    """Has been told to stop when somebody interrupts, and may then not end."""

    def __init__(self, ends: bool) -> None:
        self.ends, self.waited = ends, False

    def poll(self) -> int | None:
        return None

    def end(self, grace_s: float) -> None:
        raise KeyboardInterrupt

    def kill(self) -> None:
        pass

    def close_share(self) -> None:
        pass

    def end_left(self, deadline_s: float) -> None:
        pass

    def wait_ended(self, timeout_s: float) -> int:
        self.waited = True
        if not self.ends:
            raise ProcessError("it did not end")
        return 0


def test_one_that_does_not_end_when_killed_keeps_nobody_from_waiting_for_the_others() -> None:
    host, stopped = LocalHost(), [Stopped(ends) for ends in (True, False, True)]
    host._processes.extend(stopped)
    with pytest.raises(KeyboardInterrupt) as ended:
        host.close(grace_s=1)
    assert ended.value.args == ("it did not end",)
    assert all(process.waited for process in stopped)


def test_a_process_that_has_ended_is_not_waited_for_while_what_it_started_can_print(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started.shell("""sleep 600 & echo "{\\"left\\": $!}"; exit 3""")
    wait_until(lambda: bool(started.messages), "it has told whom it leaves", 60)
    (left,) = (message["left"] for message in started.messages)
    try:
        monkeypatch.setattr("knee.lab.hosts.local._PRINTED_S", 0)
        with pytest.raises(
            ProcessError,
            match="shell ended, but not all of what it printed could be written down within 0 s: "
            rf"process {left} \({BECOMES_SLEEP}\) can still print there$",
        ):
            process.wait(timeout_s=60)
    finally:
        os.kill(left, signal.SIGKILL)
    wait_until(lambda: not any(pump.is_alive() for pump in process._pumps), "nobody prints any more", 60)
    assert process.wait(timeout_s=60) == 3


def test_whoever_can_still_print_takes_nobody_elses_grace_and_is_waited_for_once(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    polite = started.shell("""trap "exit 0" TERM; echo '{"left": 0}'; while :; do sleep 0.05; done""")
    # Stopped before the other, as it was started after it; with nobody's share, which would end what it leaves.
    leaving = """sleep 600 & trap "exit 0" TERM; echo "{\\"left\\": $!}"; while :; do sleep 0.05; done"""
    leaver = started.start(Command("leaver", "store", ("/bin/sh", "-c", leaving)))
    wait_until(lambda: len(started.messages) == 2, "both can be told to end", 60)
    (left,) = (message["left"] for message in started.messages if message["left"])
    try:
        with monkeypatch.context() as patched:
            patched.setattr("knee.lab.hosts.local._KILLED_S", 0)
            patched.setattr("knee.lab.hosts.local._PRINTED_S", 0)
            patched.setattr(psutil.Process, "kill", lambda _: None)
            # Nothing can be measured beside it.
            with pytest.raises(UnendedError) as ended:
                host.close(grace_s=60)
        told = rf"leaver ended, but what it started goes on: process {left} \({BECOMES_SLEEP}\); leaver ended, "
        assert re.match(told, str(ended.value))
        assert (polite.poll(), leaver.poll()) == (0, 0)
        # Nor is it waited for by whoever has more time.
        with pytest.raises(ProcessError, match="could be written down"):
            leaver.wait_printed(math.inf)
    finally:
        os.kill(left, signal.SIGKILL)


def test_whom_one_leaves_and_nobody_can_end_is_no_reason_to_tell_the_same_of_others(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stubborn", "other"):
        script = f"""setsid sleep 600 & echo "{{\\"{name}\\": $!}}"; wait"""
        started.start(Command(name, "store", ("/bin/sh", "-c", script)))
    wait_until(lambda: len(started.messages) == 2, "both have told whom they leave", 60)
    left = {name: pid for message in started.messages for name, pid in message.items()}
    kill, killed = psutil.Process.kill, list[int]()

    def kill_others(process: psutil.Process) -> None:
        killed.append(process.pid)
        if process.pid != left["stubborn"]:
            kill(process)
            wait_until(lambda: is_gone(process), "it has ended", 60)

    try:
        with monkeypatch.context() as patched:
            patched.setattr("knee.lab.hosts.local._KILLED_S", 0)
            patched.setattr("knee.lab.hosts.local._PRINTED_S", 0)
            patched.setattr(LocalProcess, "wait_ended", lambda process, _: process._popen.wait(60))
            patched.setattr(psutil.Process, "kill", kill_others)
            with pytest.raises(UnendedError) as ended:
                host.close(grace_s=0)
        told = rf"stubborn ended, but what it started goes on: process {left['stubborn']} \({BECOMES_SLEEP}\)"
        assert re.search(told, str(ended.value))
        assert "other ended, but what it started goes on" not in str(ended.value)
        # Before anybody is waited for.
        assert killed[:2] == [left["stubborn"], left["other"]]
    finally:
        os.kill(left["stubborn"], signal.SIGKILL)


def test_a_disk_that_stalls_is_nobody_who_goes_on(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    works_again = threading.Event()
    monkeypatch.setattr(LocalProcess, "_store", lambda *_: works_again.wait())
    process = started.shell("echo '{}'")
    try:
        assert process.wait_ended(timeout_s=60) == 0
        monkeypatch.setattr("knee.lab.hosts.local._PRINTED_S", 0)
        with pytest.raises(ProcessError, match=r"within 0 s: the disk below .* stalls") as ended:
            host.close(grace_s=0)
        assert not isinstance(ended.value, UnendedError)
    finally:
        works_again.set()


def test_who_can_print_and_is_not_seen_goes_on(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started.shell("""sleep 600 & echo "{\\"left\\": $!}\"""")
    wait_until(lambda: bool(started.messages), "it has told whom it leaves", 60)
    try:
        assert process.wait_ended(timeout_s=60) == 0
        # As of another user's.
        monkeypatch.setattr("knee.lab.hosts.local._writing", lambda *_: ())
        monkeypatch.setattr("knee.lab.hosts.local._PRINTED_S", 0)
        with pytest.raises(UnendedError, match="within 0 s: somebody whom the lab cannot see"):
            host.close(grace_s=0)
    finally:
        os.kill(started.messages[0]["left"], signal.SIGKILL)


def test_neither_the_lab_nor_anybody_before_a_process_was_left_by_it() -> None:
    # The lab can be taken for one where it opens something under the number of a pipe that it has just closed.
    reading, writing = os.pipe()
    try:
        pipe = Path(f"/proc/self/fd/{writing}").readlink().name
        assert not list(_writing({pipe}, since_ticks=0))
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=writing) as left:
            began = _began_ticks(left.pid)
            # Two can begin within a tick.
            assert [process.pid for process in _writing({pipe}, since_ticks=began)] == [left.pid]
            # Who was there before a process was not left by it.
            assert not list(_writing({pipe}, since_ticks=began + 1))
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("prints", "is_crashed"),
    [("", True), ("", False), (">/dev/null 2>&1", False)],
    ids=["crashed", "killed", "killed, nobody prints"],
)
def test_whom_a_process_leaves_is_ended_with_it(
    host: LocalHost, started: Started, prints: str, is_crashed: bool
) -> None:
    # In a session of its own, as the backends of a database are.
    process = started.shell(f"""trap "" TERM; setsid sleep 600 {prints} & echo "{{\\"left\\": $!}}"; wait""")
    wait_until(lambda: bool(started.messages), "it has told whom it leaves", 60)
    left = psutil.Process(started.messages[0]["left"])
    if is_crashed:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait_ended(timeout_s=60) == -signal.SIGKILL
    assert not is_gone(left)
    host.close(grace_s=0)
    assert is_gone(left)
    assert not any(pump.is_alive() for pump in process._pumps)


def test_whom_one_that_is_stopped_leaves_is_ended_and_not_waited_for(started: Started) -> None:
    process = started.shell("""trap "" TERM; setsid sleep 600 & echo "{\\"left\\": $!}"; wait""")
    wait_until(lambda: bool(started.messages), "it has told whom it leaves", 60)
    left = psutil.Process(started.messages[0]["left"])
    assert process.stop(grace_s=0) == -signal.SIGKILL
    assert is_gone(left)


def test_who_has_the_number_of_one_that_has_ended_is_not_taken_for_it(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started.shell("sleep 600 >/dev/null 2>&1 & echo '{}'; wait")
    wait_until(lambda: bool(started.messages), "it has told whom it leaves", 60)
    process.kill()
    (left,) = process._descendants
    left.kill()
    wait_until(lambda: is_gone(left), "it has ended", 60)
    with subprocess.Popen(["sleep", "600"]) as bystander:
        monkeypatch.setattr(left, "_pid", bystander.pid)
        host.close(grace_s=0)
        assert bystander.poll() is None
        bystander.kill()


def test_an_interrupt_during_a_start_comes_after_the_process_is_known(
    host: LocalHost, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = popen(*arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        started.shell("exec sleep 60")
    (child,) = [one for one in psutil.Process().children() if one.name() in ("sh", "sleep")]
    host.close(grace_s=5)
    assert not child.is_running()


def test_memcached_is_ready_when_it_answers_and_stops_when_told(host: LocalHost, started: Started) -> None:
    process = started.start(commands.store("store-0", Store(kind="memcached", memory_mb=64), host.free_address(), 10))
    address = process.wait_ready(timeout_s=10)
    assert address is not None
    name, _, port = address.rpartition(":")
    with socket.create_connection((name, int(port)), timeout=5) as connection:
        connection.sendall(b"set k 0 0 1\r\nv\r\n")
        assert connection.recv(64) == b"STORED\r\n"
    assert process.stop(grace_s=5) == 0


_CHILD_OF_A_LAB = """
import sys, time
from pathlib import Path
from knee.lab import commands
from knee.lab.hosts.local import LocalHost
from knee.spec import Store
host, folder = LocalHost(), Path(sys.argv[1])
process = host.start(
    commands.store("store-0", Store(kind="memcached"), host.free_address(), 10),
    folder / "lines", folder / "log", lambda *_: None)
process.wait_ready(10)
print(process.pid, flush=True)
time.sleep(60)
"""


def test_a_foreign_server_dies_with_a_lab_that_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _CHILD_OF_A_LAB, str(tmp_path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
    ) as lab:
        assert lab.stdout is not None
        server = psutil.Process(int(lab.stdout.readline()))
        assert server.name() == "memcached"
        lab.kill()
    wait_until(lambda: is_gone(server), "the server has ended", 60)


def test_what_a_host_says_of_itself(host: LocalHost) -> None:
    described = host.describe()
    assert described["kernel"].startswith("Linux")
    assert described["cpu_count"] == os.cpu_count()
    assert host.output(["/bin/echo", "1.6"]) == "1.6"
    assert host.output(["/bin/false"]) is None
