"""Network namespaces without names: each lives as long as this process or a program inside it.

If the lab is killed, the kernel ends its programs and removes the namespaces, with their interfaces and rules.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from knee.errors import ProcessError
from knee.lab import programs

_CLONE_NEWNET = 0x4000_0000

_HEADER_BYTES = 66
"""Of a frame: Ethernet (14), IP (20), TCP with time stamps (32)."""

_CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")

_T = TypeVar("_T")


class Namespace:
    """A network namespace. Raises OSError without the right to make one.

    Its TCP controls congestion with Reno, which every kernel has, if /proc/sys may be written. BBR, the default of some
    machines, would pace.
    """

    def __init__(self) -> None:
        self._file = _in_thread(_unshared)

    @property
    def path(self) -> str:
        """A path that `ip` and `nsenter` can open while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def entering(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command line of a program inside; the process stays this one's child."""
        return str(programs.find_foreign("nsenter")), f"--net={self.path}", "--", *argv

    def run(self, program: str, lines: Sequence[str]) -> None:
        """Run `ip` or `tc` inside, with a batch of commands. Raises ProcessError with the reason if one fails."""
        argv = self.entering([str(programs.find_foreign(program)), "-batch", "-"])
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


def network_bytes(interfaces: str, protocols: str) -> tuple[int, int]:
    """Bytes of frames received and sent by all interfaces but the loopback one, which is idle.

    `interfaces` and `protocols` are the texts of /proc/PID/net/dev and /proc/PID/net/snmp. Interfaces count a large
    segment as one frame, with one header; TCP counts the frames that it becomes.
    """
    counters = [
        line.split(":")[1].split() for line in interfaces.splitlines()[2:] if line.split(":")[0].strip() != "lo"
    ]
    names, values = (line.split() for line in protocols.splitlines() if line.startswith("Tcp:"))
    tcp = dict(zip(names, values, strict=True))
    ways = ((0, "InSegs"), (8, "OutSegs"))
    received, sent = (
        sum(int(fields[column]) for fields in counters)
        + _HEADER_BYTES * max(0, int(tcp[name]) - sum(int(fields[column + 1]) for fields in counters))
        for column, name in ways
    )
    return received, sent


def _unshared() -> int:
    _checked(ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET))
    with suppress(OSError):
        _CONGESTION_CONTROL.write_text("reno")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _checked(code: int) -> None:
    if code != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _in_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a thread of its own, because only the calling thread changes its namespace."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
