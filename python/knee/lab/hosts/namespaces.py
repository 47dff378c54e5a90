"""Network namespaces without names: each lives as long as this process or a program inside it.

If the lab is killed, the kernel ends its programs and removes the namespaces, with their interfaces and rules.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from knee.errors import ProcessError
from knee.lab import programs

_CLONE_NEWNET = 0x4000_0000

_T = TypeVar("_T")


class Namespace:
    """A network namespace. Raises OSError without the right to make one."""

    def __init__(self) -> None:
        self._file = _in_thread(_unshared)

    @property
    def path(self) -> str:
        """A path that `ip` and `nsenter` can open while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def entering(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command line of a program inside; the process stays this one's child."""
        return str(programs.find_foreign("nsenter", "util-linux")), f"--net={self.path}", "--", *argv

    def run(self, program: str, lines: Sequence[str]) -> None:
        """Run `ip` or `tc` inside, with a batch of commands. Raises ProcessError with the reason if one fails."""
        argv = self.entering([str(programs.find_foreign(program, "iproute2")), "-batch", "-"])
        done = subprocess.run(argv, input="\n".join([*lines, ""]), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ProcessError(f"emulated hosts: {program} failed: {' / '.join(done.stderr.split(chr(10))[:3])}")

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function whose sockets belong to this namespace."""

        def inside() -> _T:
            _checked(ctypes.CDLL(None, use_errno=True).setns(self._file, _CLONE_NEWNET))
            return function()

        return _in_thread(inside)

    def close(self) -> None:
        """Let the namespace end with the last process inside."""
        os.close(self._file)


def network_bytes(interfaces: str) -> tuple[int, int]:
    """Bytes received and sent by all interfaces but the loopback one; `interfaces` is the text of /proc/PID/net/dev."""
    received = sent = 0
    for line in interfaces.splitlines()[2:]:
        interface, _, counters = line.partition(":")
        if interface.strip() != "lo":
            fields = counters.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent


def _unshared() -> int:
    _checked(ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _checked(code: int) -> None:
    if code != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _in_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a thread of its own, because only the calling thread changes its namespace."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
