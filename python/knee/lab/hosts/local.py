"""Processes on this machine, which do not outlive the lab.

Our programs are started with `--tied-to-parent`, foreign ones under `setpriv --pdeathsig`: when the lab is
killed, the kernel ends them. They are in process groups of their own, so that Ctrl-C reaches only the lab,
which stops them in order. The kernel ties a process to the *thread* that started it, so everything is to be
started from the main thread.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO, Any

import psutil

from knee.data import writing
from knee.errors import ProcessError, StorageError, UnendedError
from knee.lab.commands import Command
from knee.lab.endings import Ending
from knee.lab.hosts import OnLine
from knee.lab.hosts.cpu_share import CpuShare, processors, shares_cpus
from knee.lab.hosts.ports import Ports
from knee.lab.interrupts import interruptible, interrupts_deferred

_STDERR_LINES_KEPT = 5
_STDERR_BYTES_KEPT = 4096
_LOG_CHUNK_BYTES = 1 << 16
_POLL_S = 0.02
_KILLED_S = 10
_PRINTED_S = 60
"""For what a process has printed to be written down, once it has ended."""

_BEGAN_AFTER_NAME = 19
"""Which field of /proc/pid/stat, of those after the name, says when a process began: see proc_pid_stat(5)."""

_POSTGRESQL_PREFIX = "PG"
"""What the names of libpq's environment variables begin with, and no others' that matter to what the lab starts."""


class LocalProcess:
    """A process on this machine, and the two threads that write down what it prints."""

    def __init__(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> None:
        self.command = command
        self._on_line = on_line
        self._stderr = b""
        self._ready = threading.Event()
        self._listen: str | None = None
        self._folder = lines.parent
        self._storage_error: StorageError | None = None
        self._printed_by = math.inf
        self._descendants: set[psutil.Process] = set()
        with writing(lines):
            lines_file, log_file = FileIO(lines, "w"), FileIO(log, "w")
        self._share = None if command.cpus is None else CpuShare(command.cpus)
        try:
            self._popen = subprocess.Popen(
                [*([] if self._share is None else self._share.words), *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                env=_environment(command),
            )
        except OSError as error:
            lines_file.close()
            log_file.close()
            self.close_share()
            raise ProcessError(f"{command.process}: {command.argv[0]} cannot be started: {error.strerror}") from error
        assert self._popen.stdout is not None and self._popen.stderr is not None
        self.pid = self._popen.pid
        self._began_ticks = _began_ticks(self.pid)
        self._pipes = [f"pipe:[{os.fstat(pipe.fileno()).st_ino}]" for pipe in (self._popen.stdout, self._popen.stderr)]
        self._pumps = [
            threading.Thread(target=self._pump_lines, args=(self._popen.stdout, lines_file), daemon=True),
            threading.Thread(target=self._pump_log, args=(self._popen.stderr, log_file), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()

    def wait_ready(self, timeout_s: float) -> str | None:
        """See Process."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.poll() is not None:
                raise ProcessError(f"{self.command.process} ended before it was ready: {self.describe()}")
            if self.command.serves is None:
                if self._ready.wait(_POLL_S):
                    return self._listen
            elif _ANSWERS[self.command.asks](self.command.serves):
                return self.command.serves
            else:
                time.sleep(_POLL_S)
        raise ProcessError(f"{self.command.process} was not ready within {timeout_s:.0f} s: {self.describe()}")

    def poll(self) -> int | None:
        """See Process."""
        return self._popen.poll()

    def check(self) -> None:
        """See Process."""
        if self._storage_error is not None:
            raise self._storage_error

    def wait(self, timeout_s: float) -> int:
        """See Process."""
        code = self.wait_ended(timeout_s)
        # Before what it printed, which waits for whoever else can still print.
        self.close_share()
        self.wait_printed(time.monotonic() + _PRINTED_S)
        return code

    def wait_ended(self, timeout_s: float) -> int:
        """Block until the process ends, whatever it printed; return the exit code.

        Raises ProcessError when it does not end in time.
        """
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.command.process} did not end within {timeout_s:.0f} s") from None

    def wait_printed(self, deadline_s: float) -> None:
        """Block until everything that a process printed is on disk, which has ended.

        Raises ProcessError when it is not by then (of the monotonic clock), or was not by an earlier time.
        """
        self._printed_by = min(self._printed_by, deadline_s)
        for pump in self._pumps:
            pump.join(max(0.0, self._printed_by - time.monotonic()))
            if pump.is_alive():
                raise ProcessError(
                    f"{self.command.process} ended, but not all of what it printed could be written down within "
                    f"{_PRINTED_S} s: {self._why_unprinted()}"
                )

    def _why_unprinted(self) -> str:
        """What keeps what a process printed from being all written down, once it has ended."""
        if printing := self._printing():
            return f"{_named(printing)} can still print there"
        if self.can_print():
            return "somebody whom the lab cannot see, as another user's process, can still print there"
        return f"the disk below {self._folder} stalls"

    def can_print(self) -> bool:
        """Whether somebody can still print where the process did, even one whom nobody sees: another user's."""
        return any(_has_writers(pipe) for pipe in (self._popen.stdout, self._popen.stderr) if pipe is not None)

    def close_share(self) -> None:
        """Give back its share of the processors, once it has ended, and end what it has left there."""
        if self._share is not None:
            self._share.close()

    def stop(self, grace_s: float) -> int:
        """See Process."""
        self.end(grace_s)
        code = self.wait_ended(_KILLED_S)
        self.close_share()
        # Who was not in its share, and can print for as long as nobody ends them.
        self.end_left(time.monotonic() + _KILLED_S)
        self.wait_printed(time.monotonic() + _PRINTED_S)
        return code

    def end(self, grace_s: float) -> None:
        """Ask the process to finish, and kill it when it does not within the grace."""
        self._note_descendants()
        self._popen.send_signal(self.command.ends_by)
        try:
            self._popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process at once, without waiting until it has."""
        self._note_descendants()
        self._popen.kill()

    def end_left(self, deadline_s: float) -> None:
        """End whom the process has left behind, once it has ended: a query goes on when the database around it crashes.

        Raises ProcessError when somebody goes on by then (of the monotonic clock).
        """
        while self.kill_left():
            is_last = time.monotonic() > deadline_s
            time.sleep(_POLL_S)
            # Who was killed after the deadline has not had the time to end.
            if is_last and (left := self._left()):
                raise ProcessError(f"{self.command.process} ended, but what it started goes on: {_named(left)}")

    def kill_left(self) -> bool:
        """End whom the process has left behind at once, without waiting until they have; whether there was anybody."""
        left = self._left()
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        if left:
            # What they had printed has its time from now on.
            self._printed_by = math.inf
        return bool(left)

    def _note_descendants(self) -> None:
        """Whose children they are can be told only until the process ends."""
        # Its number is nobody else's until it is waited for.
        if self._popen.poll() is None:
            with suppress(psutil.Error):
                self._descendants.update(psutil.Process(self.pid).children(recursive=True))

    def _left(self) -> list[psutil.Process]:
        """Those of its descendants that go on. Where it was killed by others, or crashed, they are those that can still
        print where it did.
        """
        return [one for one in {*self._descendants, *self._printing()} if _goes_on(one)]

    def _printing(self) -> list[psutil.Process]:
        """Who can still print where the process did, of those whom the lab can see."""
        pipes = {name for name, pump in zip(self._pipes, self._pumps, strict=True) if pump.is_alive()}
        return [one for one in _writing(pipes, self._began_ticks) if _goes_on(one)] if pipes else []

    def describe(self) -> str:
        """See Process."""
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
        lines = self._stderr.decode(errors="replace").splitlines()
        said = " / ".join(line.strip() for line in lines[-_STDERR_LINES_KEPT:])
        return f"{how}; it said: {said}" if said else f"{how}; it said nothing"

    def _pump_lines(self, pipe: IO[bytes], file: FileIO) -> None:
        with pipe, file:
            for line in pipe:
                self._store(file, line)
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("type") == "ready":
            self._listen = message.get(self.command.answers)
            self._ready.set()
        self._on_line(self.command, message)

    def _pump_log(self, pipe: IO[bytes], file: FileIO) -> None:
        # Not line by line: a store that traces its requests writes more lines than the lab may take processor time for.
        with pipe, file:
            while chunk := os.read(pipe.fileno(), _LOG_CHUNK_BYTES):
                self._store(file, chunk)
                self._stderr = (self._stderr + chunk)[-_STDERR_BYTES_KEPT:]

    def _store(self, file: FileIO, line: bytes) -> None:
        """Write a line; after a failure go on reading, for a full pipe would stall the process."""
        if self._storage_error is not None:
            return
        try:
            with writing(Path(file.name)):
                # A disk that fills up takes the beginning of a line, and complains only about the rest.
                rest = memoryview(line)
                while rest:
                    rest = rest[file.write(rest) :]
        except StorageError as error:
            self._storage_error = error


class LocalHost:
    """This machine. Its links are those it has: no rate is emulated."""

    emulates_links = False

    def __init__(self) -> None:
        self.shares_cpus = shares_cpus()
        self._processes: list[LocalProcess] = []
        self._ports = Ports()

    def processors(self, cpus: float) -> float:
        """See Host."""
        return processors(cpus, shares=self.shares_cpus)

    def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> LocalProcess:
        """See Host."""
        # An interrupt between the start and the entry would leave a process that nobody stops.
        with interrupts_deferred():
            process = LocalProcess(command, lines, log, on_line)
            self._processes.append(process)
        return process

    def free_address(self) -> str:
        """See Host. Nobody else gets it before the processes are stopped."""
        try:
            return f"127.0.0.1:{self._ports.lease()}"
        except OSError as error:
            raise ProcessError(f"no port is free for a server: {error.strerror}") from error

    def describe(self) -> dict[str, Any]:
        """See Host."""
        system = os.uname()
        return {
            "name": system.nodename,
            "kernel": f"{system.sysname} {system.release} {system.version}",
            "architecture": system.machine,
            "cpu_model": _cpu_model(),
            "cpu_count": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        }

    def filesystem(self, path: Path) -> str | None:
        """See Host."""
        above = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
        here = path.resolve()
        return next((above[one] for one in (here, *here.parents) if one in above), None)

    def output(self, argv: Sequence[str]) -> str | None:
        """See Host."""
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    def close(self, grace_s: float) -> None:
        """See Host."""
        # What they were writing is theirs until they are gone, and then somebody may remove it.
        with interrupts_deferred():
            running = [process for process in reversed(self._processes) if process.poll() is None]
            ending, unended = Ending(), Ending()
            with ending.gathering():
                for process in running if grace_s else ():
                    interruptible(process.end, grace_s)
            # Whoever interrupts that does not want to wait: no grace for those that are left.
            for process in running:
                with ending.gathering():
                    process.kill()
            for process in running:
                # Of one that the kernel does not let go of, the others know nothing.
                with unended.gathering():
                    process.wait_ended(_KILLED_S)
            # Also of those that had ended by themselves, for which nobody has waited.
            for process in self._processes:
                with ending.gathering():
                    process.close_share()
            ended = [process for process in self._processes if process.poll() is not None]
            # All of them first: whom one has left, and nobody can end, takes the time of the others.
            for process in ended:
                with unended.gathering():
                    process.kill_left()
            deadline_s = time.monotonic() + _KILLED_S
            for process in ended:
                with unended.gathering():
                    process.end_left(deadline_s)
            deadline_s = time.monotonic() + _PRINTED_S
            for process in ended:
                printed = Ending()
                with printed.gathering():
                    process.wait_printed(deadline_s)
                # Where nobody can print any more it is the disk that stalls: no reason to make no other run, as each
                # has files of its own.
                with (unended if process.can_print() else ending).gathering():
                    printed.raise_any()
            if isinstance(unended.by, ProcessError):
                unended = Ending(UnendedError(str(unended.by)))
            with ending.gathering():
                unended.raise_any()
            self._processes.clear()
            self._ports.close()
            ending.raise_any()


def _environment(command: Command) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not (command.own_database and name.startswith(_POSTGRESQL_PREFIX)) or name in command.keeps
    }
    return {**inherited, **dict(command.environment)}


def _has_writers(pipe: IO[bytes]) -> bool:
    """Whether anybody can write to a pipe of which this is the end that is read, and may be closed meanwhile."""
    poll = select.poll()
    try:
        # That nobody can write any more is told unasked.
        poll.register(pipe, 0)
    except ValueError:
        return False
    has_none = bool(poll.poll(0))
    # Last, so that it is the pipe that was asked, and nothing that was opened under its number meanwhile.
    return not (pipe.closed or has_none)


def _began_ticks(pid: int) -> int:
    """When a process began, in clock ticks since the machine was booted: nobody sets these, as the time of day."""
    # Its name can have any characters, also what ends it.
    after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
    return int(after_name.split()[_BEGAN_AFTER_NAME])


def _writing(pipes: set[str], since_ticks: int) -> Iterator[psutil.Process]:
    """Who can write to one of some pipes, by their names in /proc; not who reads from one, as the lab does.

    Nor who began before a time, in ticks: whoever was there before a process was not left by it.
    """
    for pid in psutil.pids():
        # Whatever is opened and closed here meanwhile, the lab is none of them.
        if pid == os.getpid():
            continue
        # One that ends meanwhile, or is somebody else's, is none.
        with suppress(OSError, psutil.Error):
            # Before a look at what it has open: should another get its number meanwhile, this one is told from it.
            process = psutil.Process(pid)
            may_be_left = _began_ticks(pid) >= since_ticks
            if may_be_left and any(_is_writing(file, pipes) for file in Path(f"/proc/{pid}/fd").iterdir()):
                yield process


def _is_writing(file: Path, pipes: set[str]) -> bool:
    """Whether a descriptor in /proc is of one of some pipes, and opened to be written to: see proc_pid_fd(5)."""
    try:
        is_written = bool(file.lstat().st_mode & stat.S_IWUSR)
        # Last, so that it is the pipe of which that is so, and no file that was opened under its number meanwhile.
        return is_written and file.readlink().name in pipes and bool(file.lstat().st_mode & stat.S_IWUSR)
    except OSError:
        # Closed meanwhile, as others of the same process need not be.
        return False


def _goes_on(process: psutil.Process) -> bool:
    """Where nobody waits for orphans, one that has ended is a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _named(processes: Sequence[psutil.Process]) -> str:
    """Some processes, by their numbers and programs; not by their arguments, among which a password may be."""
    return ", ".join(f"process {one.pid}{_program(one)}" for one in processes)


def _program(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f" ({process.name()})"
    return ""


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def _answers_memcached(address: str) -> bool:
    """Whether a memcached answers at an address: a bound port alone does not mean that it serves."""
    return _answer(address, b"version\r\n").startswith(b"VERSION ")


def _answers_postgresql(address: str) -> bool:
    """Whether a PostgreSQL asks who is there. One that still recovers refuses instead."""
    said = struct.pack(">I", 196_608) + b"user\0knee\0\0"
    return _answer(address, struct.pack(">I", 4 + len(said)) + said).startswith(b"R")


def _answer(address: str, said: bytes) -> bytes:
    """The beginning of what is answered at an address; nothing if nobody is there."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(said)
            return connection.recv(64)
    except OSError:
        return b""


_ANSWERS = {"memcached": _answers_memcached, "postgresql": _answers_postgresql}
