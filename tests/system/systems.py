"""Real servers and clients for a test: started on free ports, ended by their process ids."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from knee.lab.hosts.ports import Ports
from knee.lab.programs import find, find_foreign

READY_S = 60.0
PATIENT = ("--server-timeout-ms", "20000")
"""For tests that expect no error: a server on a loaded machine may be late."""
Address = tuple[str, int]
_PORTS = Ports()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
    """Returns when the condition holds; fails the test when that takes too long."""
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"waited {timeout_s:.0f} s in vain until {what}"
        time.sleep(0.05)


def answers(port: int) -> bool:
    """Whether a process listens at the port."""
    return any(each.laddr.port == port for each in psutil.net_connections("tcp") if each.status == "LISTEN")


def folder_of(cwd: Path) -> Path:
    """The folder of the only search that `knee find` made."""
    (found,) = (cwd / "runs" / "find").iterdir()
    return found


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended, if only to a zombie."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def free_port() -> int:
    """A port on which nothing listens, leased while the tests run."""
    return _PORTS.lease()


class Running:
    """A started program. `messages` are the JSON lines it has printed, `complaints` its standard error."""

    def __init__(self, command: list[str], port: int | None) -> None:
        self.name = Path(command[0]).name
        self.port = port
        self.messages: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self._popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._popen.pid
        assert self._popen.stdout and self._popen.stderr
        self._readers = [
            threading.Thread(target=self._read_messages, args=(self._popen.stdout,)),
            threading.Thread(target=self._read_complaints, args=(self._popen.stderr,)),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self.port is not None, f"{self.name} does not listen"
        return "127.0.0.1", self.port

    @property
    def endpoint(self) -> str:
        """Where it listens, as in the flags of the programs."""
        return "{}:{}".format(*self.address)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary line of a program that has ended."""
        assert self.messages and self.messages[-1]["type"] == "summary", f"{self.name}: {self.complaints}"
        return self.messages[-1]

    def windows(self) -> list[dict[str, Any]]:
        """The lines of whole and partial seconds so far."""
        return [message for message in self.messages if message["type"] == "window"]

    def runs(self) -> bool:
        """Whether the process still runs."""
        return self._popen.poll() is None

    def await_ready(self) -> None:
        """Returns once it serves: our programs say so, the others accept connections.

        A load generator may have ended by then, whatever came of it.
        """
        wait_until(lambda: self._serves() or not self.runs(), f"{self.name} is ready")
        assert self.port is None or self.runs(), f"{self.name} ended: {self.complaints}"

    def _serves(self) -> bool:
        if self.name.startswith("knee-"):
            return bool(self.messages)
        with suppress(OSError), socket.create_connection(self.address, timeout=1):
            return True
        return False

    def resident_mb(self) -> float:
        """Resident memory, in MB of a million bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise AssertionError(f"{self.name} has no memory: it has ended")

    def wait(self, timeout_s: float = 60) -> int:
        """Waits for its end; the exit code."""
        code = self._popen.wait(timeout_s)
        for reader in self._readers:
            reader.join()
        return code

    def stop(self) -> int:
        """Asks it to end, as `kill` does; the exit code."""
        self._popen.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kills it."""
        self._popen.send_signal(signal.SIGKILL)
        self.wait()

    def _read_messages(self, stdout: Any) -> None:
        with stdout:
            for line in stdout:
                with suppress(json.JSONDecodeError):  # memcached's own words
                    self.messages.append(json.loads(line))

    def _read_complaints(self, stderr: Any) -> None:
        with stderr:
            self.complaints.extend(line.rstrip("\n") for line in stderr)


class Systems:
    """Starts programs, and ends those that still run."""

    def __init__(self) -> None:
        self._started: list[Running] = []
        self._folders: list[TemporaryDirectory[str]] = []

    def memcached(self, port: int | None = None, *flags: str) -> Running:
        """Debian's memcached."""
        port = port or free_port()
        user = ["-u", "root"] if os.geteuid() == 0 else []
        program = str(find_foreign("memcached"))
        return self._start([program, "-l", "127.0.0.1", "-p", str(port), *user, *flags], port)

    def kv(self, port: int | None = None, *flags: str) -> Running:
        """Our store."""
        port = port or free_port()
        return self._start([str(find("knee-kv")), "--listen", f"127.0.0.1:{port}", *flags], port)

    def proxy(self, *flags: str, servers: list[str]) -> Running:
        """Our middleware in front of `servers`."""
        port = free_port()
        to = [flag for server in servers for flag in ("--server", server)]
        return self._start([str(find("knee-proxy")), "--listen", f"127.0.0.1:{port}", *to, *flags], port)

    def load(self, server: Running, *flags: str) -> Running:
        """Our load generator on `server`; it may have ended when this returns."""
        return self._start([str(find("knee-load")), "memcached", "--server", server.endpoint, *flags], None)

    def folder(self) -> str:
        """An empty folder, which is gone with the systems."""
        folder = TemporaryDirectory(prefix="knee-")
        self._folders.append(folder)
        return folder.name

    def close(self) -> None:
        """Ends everything, the last started first.

        Foreign programs are killed: memcached takes a second to end when it is asked.
        """
        for running in reversed(self._started):
            if not running.name.startswith("knee-"):
                running.kill()
                continue
            try:
                running.stop()
            except subprocess.TimeoutExpired:
                running.kill()
        self._started.clear()
        for folder in self._folders:
            folder.cleanup()
        self._folders.clear()

    def _start(self, command: list[str], port: int | None) -> Running:
        running = Running(command, port)
        self._started.append(running)
        running.await_ready()
        return running


def converse(address: Address, request: bytes, timeout_s: float = READY_S) -> bytes:
    """What a server answers to `request` sent whole, followed by the end of the input, until it closes."""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))
