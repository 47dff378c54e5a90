"""Starting, pinning and ending the programs of a comparison."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from knee.lab.hosts.ports import Ports

ROOT = Path(__file__).resolve().parent.parent
DEBIAN_PACKAGES = {
    "memcached": "memcached",
    "nutcracker": "nutcracker",
    "memcaslap": "libmemcached-tools",
    "redis-server": "redis-server",
    "fio": "fio",
    "nbdkit": "nbdkit",
    "nbd-server": "nbd-server",
}
READY_S = 10.0
# The niceness of started programs, and the addition that puts a program behind ordinary ones.
NICENESS, GIVING_WAY = -15, 25

_PORTS = Ports()
_SESSION = Path("/proc/self/autogroup")
# A program that was killed does not end what it started.
_SPINS = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
if sys.argv[2]:
    open("/proc/self/autogroup", "w").write(sys.argv[2])
"""


class BenchError(Exception):
    """The comparison cannot continue; the message has the remedy."""


@dataclass(frozen=True)
class Cores:
    """The cores of the programs. With two cores, the program under test has one to itself."""

    tested: int | None
    others: int | None

    @classmethod
    def of_this_machine(cls) -> Cores:
        """The first core that this process may use for the program under test, the last for the rest."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[0], usable[-1]) if len(usable) > 1 else cls(None, None)


def find_program(name: str, directory: Path | None) -> str:
    """The path of one of our own programs in `directory`, or else of one that is installed.

    Raises BenchError when there is none, naming the Debian package or the build command.
    """
    if name in DEBIAN_PACKAGES:
        # Debian keeps daemons where an ordinary user's PATH does not look.
        path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if path is None:
            raise BenchError(f"{name} is not installed: apt-get install {DEBIAN_PACKAGES[name]}")
        return path
    candidates = [directory] if directory else [ROOT / "target" / profile for profile in ("release", "fast")]
    for candidate in candidates:
        if (candidate / name).is_file():
            return str(candidate / name)
    looked = " or ".join(str(candidate) for candidate in candidates)
    raise BenchError(f"{name} is not in {looked}: cargo build --release -p knee-bin -p knee-bench")


def environment() -> dict[str, str]:
    """The environment for started programs, without libpq's variables: all databases are the comparison's own.

    libpq prefers some variables, such as PGHOSTADDR, to an address.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


@contextmanager
def before_others() -> Iterator[bool]:
    """Gives started programs priority over all other programs of the machine. Yields whether the user may do so.

    A kernel without preemption leaves a processor to a process for milliseconds. So a process with low priority spins
    on each processor, and takes the remaining time. It also keeps the processor from sleeping.
    """
    usual, of_session = os.getpriority(os.PRIO_PROCESS, 0), _session_niceness()
    try:
        with ExitStack() as spinning:
            allowed = _set_niceness(NICENESS, None if of_session is None else NICENESS)
            for core in os.sched_getaffinity(0):
                spinning.enter_context(spinner(core, of_session))
            yield allowed
    finally:
        _set_niceness(usual, of_session)


def spinner(core: int, of_session: int | None) -> Program:
    """Takes the remaining time of a processor until this process ends, and then restores the session's niceness."""
    rest = "" if of_session is None else str(of_session)
    spins = [sys.executable, "-c", _SPINS, str(os.getpid()), rest]
    return Program(["nice", "-n", str(2 * GIVING_WAY), *spins], core, quiet=True)


def _session_niceness() -> int | None:
    """The niceness by which sessions share processors (sched(7)); None if the kernel does not group by session."""
    with suppress(OSError):
        return int(_SESSION.read_text().split()[-1])
    return None


def _set_niceness(own: int, of_session: int | None) -> bool:
    """Sets the niceness of the process and its session. Returns whether the system permits both."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, own)
        if of_session is not None:
            _SESSION.write_text(str(of_session))
    except OSError:
        return False
    return True


def free_port() -> int:
    """A port that nothing listens on, and that no other caller gets while this process lives."""
    return _PORTS.lease()


class Program:
    """A running program; leaving the context ends it, by its process id."""

    def __init__(self, command: Sequence[str], core: int | None, quiet: bool = False, gives_way: bool = False) -> None:
        """`gives_way`: other programs of the comparison get its core at once."""
        self.name = Path(command[0]).name
        pin = [] if core is None else ["taskset", "-c", str(core)]
        if gives_way:
            pin += ["nice", "-n", str(GIVING_WAY)]
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.process = subprocess.Popen(
            [*pin, *command],
            stdin=subprocess.DEVNULL,
            # No reader: a full pipe would stop a quiet program.
            stdout=subprocess.DEVNULL if quiet else subprocess.PIPE,
            stderr=self._messages,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._messages.close()

    @property
    def pid(self) -> int:
        """The process id: taskset becomes the program it starts."""
        return self.process.pid

    def read_to_end(self, timeout_s: float) -> str:
        """Standard output of a program that ends by itself. Raises BenchError if it does not end in time."""
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} has not ended after {timeout_s:.0f} s") from None
        return output.decode()

    def await_line(self, within_s: float = READY_S) -> None:
        """Waits for the line that reports readiness. Raises BenchError if none comes."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(within_s) or not self.process.stdout.readline():
                raise BenchError(f"{self.name} is not ready after {within_s:.0f} s: {self.messages()}")

    def messages(self) -> str:
        """The last lines of the program's standard error."""
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace").strip()[-2000:]

    def summary(self) -> dict[str, Any]:
        """Ends the program. Returns its last line. Raises BenchError if that is no summary."""
        lines = self.stop().splitlines()
        line = json.loads(lines[-1]) if lines else {}
        if line.get("type") != "summary":
            raise BenchError(f"{self.name} has ended without a summary: {self.messages()}")
        summary: dict[str, Any] = line
        return summary

    def stop(self) -> str:
        """Asks the program to end, and kills it after some seconds. Returns its output."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
                # A stopped program would not get the signal.
                self.process.send_signal(signal.SIGCONT)
        try:
            output, _ = self.process.communicate(timeout=READY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, _ = self.process.communicate()
        return (output or b"").decode()


class Server(Program):
    """A program that listens on a port of this machine; it is ready when the constructor returns."""

    def __init__(self, command: Sequence[str], core: int | None, port: int, *, announces: bool) -> None:
        """`announces`: the program prints a line when it is ready, and little more, which is read at its end."""
        super().__init__(command, core, quiet=not announces)
        self.port = port
        try:
            if announces:
                self.await_line()
            self._await()
        except BaseException:
            # The benchmark ends before the caller has entered the context.
            self.__exit__()
            raise

    @property
    def address(self) -> str:
        """HOST:PORT, as in the flags of all programs."""
        return f"127.0.0.1:{self.port}"

    def stat(self, name: str) -> int:
        """One counter of a memcached server's ``stats``. Raises BenchError when there is none of that name."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=READY_S) as connection:
            connection.sendall(b"stats\r\nquit\r\n")
            reply = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        for line in reply.splitlines():
            if line.startswith(f"STAT {name} "):
                return int(line.split()[2])
        raise BenchError(f"{self.name} has no statistic {name}")

    def _await(self) -> None:
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise BenchError(f"{self.name} ended with {self.process.returncode}: {self.messages()}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise BenchError(f"{self.name} does not listen on port {self.port} after {READY_S:.0f} s: {self.messages()}")
