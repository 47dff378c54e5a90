"""Processes on this machine, which end with the lab.

Knee's programs start with `--tied-to-parent`, foreign ones under `setpriv --pdeathsig`: if the lab is killed, the
kernel ends them. They have process groups of their own, so Ctrl-C reaches only the lab, which stops them in order. The
kernel ties a process to the *thread* that started it, so the main thread starts everything.

The lab is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER): descendants whose parents crash become its children, and it
kills them as well. PostgreSQL's backends call setsid, so a signal to the process group does not reach them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import psutil

from knee.errors import ProcessError, StorageError
from knee.lab import programs
from knee.lab.command import Command, File
from knee.lab.hosts import Host, Link, OnLine, Process
from knee.lab.hosts.namespaces import Namespace
from knee.lab.hosts.ports import Ports
from knee.lab.probe import Probe
from knee.storage import writing

_STDERR_LINES_KEPT = 5
_STDERR_BYTES_KEPT = 4096
_LOG_CHUNK_BYTES = 1 << 16
_POLL_S = 0.02
_KILLED_S = 10
"""Seconds within which the kernel ends a killed process."""
_PRINTED_S = 60
"""Seconds within which the output of an ended process is on disk."""

_PR_SET_CHILD_SUBREAPER = 36
_LIBPQ_PREFIX = "PG"
"""Prefix of libpq's environment variables."""

_STARTED: set[int] = set()
"""Process ids that the hosts of this lab have started. Other children of the lab, in other groups, are orphans of
these."""


class LocalProcess(Process):
    """A process on this machine, and the two threads that write its output to files."""

    def __init__(
        self, command: Command, lines: Path, log: Path, on_line: OnLine, namespace: Namespace | None = None
    ) -> None:
        self.command = command
        self._namespace = namespace
        self._on_line = on_line
        self._stderr = b""
        self._stdout = b""
        self._ready = threading.Event()
        self._listen: str | None = None
        self._storage_error: StorageError | None = None
        argv = _unprivileged(command.argv) if command.never_root and os.geteuid() == 0 else command.argv
        with writing(lines):
            lines_file, log_file = FileIO(lines, "w"), FileIO(log, "w")
        try:
            with _pinned(command.cpus):
                self._popen = subprocess.Popen(
                    argv if namespace is None else namespace.entering(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    process_group=0,
                    env=_environment(command),
                )
        except BaseException as error:
            lines_file.close()
            log_file.close()
            if not isinstance(error, OSError):
                raise
            raise ProcessError(f"{command.process}: {command.argv[0]} cannot be started: {error.strerror}") from error
        assert self._popen.stdout is not None and self._popen.stderr is not None
        self.pid = self._popen.pid
        self._pumps = [
            threading.Thread(target=self._pump_lines, args=(self._popen.stdout, lines_file), daemon=True),
            threading.Thread(target=self._pump_log, args=(self._popen.stderr, log_file), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()

    def wait_ready(self, timeout_s: float) -> str | None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.poll() is not None:
                raise ProcessError(f"{self.command.process} ended before it was ready: {self.describe()}")
            if self.is_ready():
                return self.address
            self._ready.wait(_POLL_S)
        raise ProcessError(f"{self.command.process} was not ready within {timeout_s:.0f} s: {self.describe()}")

    def is_ready(self) -> bool:
        """Whether a server answers, or a client has printed that it is ready."""
        return self._ready.is_set() if self.command.serves is None else self._answers(self.command.serves)

    @property
    def address(self) -> str | None:
        """The address of a server that is ready."""
        return self._listen if self.command.serves is None else self.command.serves

    @property
    def is_written(self) -> bool:
        """Whether the process has ended and its output is on disk."""
        return self.poll() is not None and not any(pump.is_alive() for pump in self._pumps)

    def _answers(self, address: str) -> bool:
        answering = partial(answers, address, self.command.asks)
        return answering() if self._namespace is None else self._namespace.call(answering)

    def poll(self) -> int | None:
        return self._popen.poll()

    def check(self) -> None:
        if self._storage_error is not None:
            raise self._storage_error

    def wait(self, timeout_s: float) -> int:
        try:
            code = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.command.process} did not end within {timeout_s:.0f} s") from None
        deadline = time.monotonic() + _PRINTED_S
        for pump in self._pumps:
            pump.join(max(0.0, deadline - time.monotonic()))
            if pump.is_alive():
                raise ProcessError(
                    f"{self.command.process} ended, but its output was not complete on disk within {_PRINTED_S} s: "
                    "a remaining child process may still print, or the disk stalls"
                )
        return code

    def stop(self, grace_s: float) -> int:
        family = self._family()
        self.ask_to_end(grace_s)
        self._popen.kill()
        kill(family)
        return self.wait(_KILLED_S)

    def ask_to_end(self, grace_s: float) -> None:
        """Signal the process to stop, and wait for its end at most for the grace period."""
        self._popen.send_signal(self.command.ends_by)
        self.wait_ended(grace_s)

    def wait_ended(self, timeout_s: float) -> None:
        """Wait for the end of the process, but not of its output, at most for a time."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)

    def kill(self) -> None:
        """Kill the process and its descendants."""
        family = self._family()
        self._popen.kill()
        kill(family)

    def _family(self) -> list[psutil.Process]:
        """The descendants of the process, while it runs."""
        with suppress(psutil.Error):
            if self.poll() is None:
                return psutil.Process(self.pid).children(recursive=True)
        return []

    def describe(self) -> str:
        code = self.poll()
        if code is None:
            how = "it still runs"
        elif code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        if code is not None:
            for pump in self._pumps:
                pump.join(timeout=1)
        lines = (self._stderr or self._stdout).decode(errors="replace").splitlines()
        said = " / ".join(line.strip() for line in lines[-_STDERR_LINES_KEPT:])
        return f"{how}; last lines: {said}" if said else f"{how}; no output"

    def _pump_lines(self, pipe: IO[bytes], file: FileIO) -> None:
        with pipe, file:
            for line in pipe:
                self._store(file, line)
                try:
                    message = json.loads(line)
                except ValueError:
                    self._stdout = (self._stdout + line)[-_STDERR_BYTES_KEPT:]
                    continue
                if isinstance(message, dict):
                    self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("type") == "ready":
            self._listen = message.get(self.command.answers)
            self._ready.set()
        self._on_line(self.command, message)

    def _pump_log(self, pipe: IO[bytes], file: FileIO) -> None:
        # Buffered, not line by line: a store that traces its requests writes many lines.
        with pipe, file:
            while chunk := os.read(pipe.fileno(), _LOG_CHUNK_BYTES):
                self._store(file, chunk)
                self._stderr = (self._stderr + chunk)[-_STDERR_BYTES_KEPT:]

    def _store(self, file: FileIO, line: bytes) -> None:
        """Write a line. After a failure, discard lines: a full pipe would stall the process."""
        if self._storage_error is not None:
            return
        try:
            with writing(Path(file.name)):
                # A full disk may take the first part of a line before the error.
                rest = memoryview(line)
                while rest:
                    rest = rest[file.write(rest) :]
        except StorageError as error:
            self._storage_error = error


class LocalHost(Host):
    """This machine, without emulation of link rates. Servers listen on `interface`."""

    def __init__(self, interface: str = "127.0.0.1") -> None:
        self._processes: list[LocalProcess] = []
        self._interface = interface
        self._ports = Ports(interface)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    @property
    def processors(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def relays(self) -> Mapping[str, int] | None:
        return None

    def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> LocalProcess:
        for file in command.files:
            _write(file)
        process = LocalProcess(command, lines, log, on_line, self._namespace_of(command))
        self._processes.append(process)
        # Added last: after an interrupt, `close` kills a child that is in neither collection.
        _STARTED.add(process.pid)
        return process

    def has_made(self, command: Command) -> bool:
        return command.makes is not None and command.makes.exists()

    def probe(self, processes: Sequence[Process]) -> Probe:
        families = {process.command.process for process in processes if process.command.is_family}
        return Probe({each.command.process: each.pid for each in processes}, families, relays=self.relays)

    def place(self, name: str, link: Link) -> None:
        """See Host. All hosts are this machine."""

    def free_address(self, name: str) -> str:
        """See Host. The port is leased until the processes are stopped."""
        try:
            return f"{self._interface}:{self._ports.lease()}"
        except OSError as error:
            raise ProcessError(f"no port is free for a server: {error.strerror}") from error

    def _namespace_of(self, command: Command) -> Namespace | None:
        """The network of a command, if it is not the machine's."""
        return None

    def describe(self) -> dict[str, Any]:
        system = os.uname()
        return {
            "name": system.nodename,
            "kernel": f"{system.sysname} {system.release} {system.version}",
            "architecture": system.machine,
            "cpu_model": _cpu_model(),
            "cpu_count": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        }

    def record(self) -> None:
        return

    def check(self) -> None:
        """See Host."""

    def filesystem(self, path: Path) -> str | None:
        above = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
        here = path.resolve()
        return next((above[one] for one in (here, *here.parents) if one in above), None)

    def output(self, argv: Sequence[str]) -> str | None:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    def close(self, grace_s: float) -> None:
        try:
            if grace_s:
                for process in reversed(self._processes):
                    process.ask_to_end(grace_s)
        finally:
            self._kill_all()

    def _kill_all(self) -> None:
        """Kill the remaining processes, and wait until they have ended and their output is on disk."""
        for process in self._processes:
            process.kill()
        deadline = time.monotonic() + _KILLED_S
        # A descendant is an orphan once its parent has ended.
        for process in self._processes:
            process.wait_ended(max(0.0, deadline - time.monotonic()))
        while left := _orphans():
            kill(left)
            if time.monotonic() > deadline:
                break
            psutil.wait_procs(left, timeout=1)
        failures = []
        for process in self._processes:
            try:
                process.wait(_KILLED_S)
            except ProcessError as error:
                failures.append(str(error))
        self._processes.clear()
        self._ports.close()
        if failures:
            raise ProcessError("; ".join(failures))


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill processes; some may have ended already."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def _orphans() -> list[psutil.Process]:
    """Orphans of the started processes, which the lab adopted, and their descendants."""
    group, orphans = os.getpgid(0), list[psutil.Process]()
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError):
            if child.pid not in _STARTED and os.getpgid(child.pid) != group:
                orphans += [child, *child.children(recursive=True)]
    return orphans


@contextmanager
def _pinned(cpus: int | None) -> Iterator[None]:
    """Pin processes that start within the block to this number of processors."""
    allowed = os.sched_getaffinity(0)
    try:
        if cpus is not None:
            os.sched_setaffinity(0, sorted(allowed)[:cpus])
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _write(file: File) -> None:
    """Write a file that only its user may read. It is replaced at once, because another program may read it."""
    partial = file.path.with_name(f"{file.path.name}.partial")
    with writing(file.path):
        partial.touch(mode=0o600)
        partial.write_text(file.text, encoding="utf-8")
        partial.replace(file.path)


def _unprivileged(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line that root runs as user 1 of a user namespace. The files stay root's."""
    unshare = str(programs.find_foreign("unshare"))
    return unshare, "--user", "--map-user=1", "--map-group=1", "--", *argv


def _environment(command: Command) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not (command.own_database and name.startswith(_LIBPQ_PREFIX))
    }
    return {**inherited, **dict(command.environment)}


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def _answers_memcached(address: str) -> bool:
    """Whether a memcached answers: a bound port alone does not mean that it serves."""
    return _answer(address, b"version\r\n").startswith(b"VERSION ")


def _answers_postgresql(address: str) -> bool:
    """Whether a PostgreSQL asks for a password. While it recovers it refuses instead."""
    said = struct.pack(">I", 196_608) + b"user\0knee\0\0"
    return _answer(address, struct.pack(">I", 4 + len(said)) + said).startswith(b"R")


def _answers_http(address: str) -> bool:
    """Whether a server answers at a URL, other than with an error of its own. TLS is not checked beyond its port."""
    url = urlsplit(address)
    port = url.port or (443 if url.scheme == "https" else 80)
    place = f"{url.hostname}:{port}"
    if url.scheme == "https":
        return _accepts(place)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    answer = _answer(place, f"GET {path} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n".encode())
    return answer.startswith(b"HTTP/") and not answer.partition(b" ")[2].startswith(b"5")


def _accepts(address: str) -> bool:
    """Whether a server accepts a connection."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _answer(address: str, said: bytes) -> bytes:
    """The first bytes of the answer at an address; empty without an answer."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(said)
            return connection.recv(64)
    except OSError:
        return b""


def answers(address: str, asks: str) -> bool:
    """Whether a server answers at an address (see :class:`Command`)."""
    return _ANSWERS[asks](address)


_ANSWERS = {
    "memcached": _answers_memcached,
    "postgresql": _answers_postgresql,
    "http": _answers_http,
    "connection": _accepts,
}
