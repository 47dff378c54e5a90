"""Where processes run, behind one protocol. Only this package starts any, for :mod:`knee.lab.deploy`.

:class:`~knee.lab.hosts.local.LocalHost` runs them on this machine. A host that is a network namespace or a
machine of a cluster has to offer the same: start a command, say when it is ready and at which address
others reach it, stop it, and leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from knee.lab.command import Command

OnLine = Callable[[Command, dict[str, Any]], None]
"""Called with each JSON line of a process as it comes, from another thread."""


class Process(Protocol):
    """A process that a host has started."""

    command: Command
    pid: int

    def wait_ready(self, timeout_s: float) -> str | None:
        """Block until the process serves; return its address, None for a client.

        Raises ProcessError when it ends before, or is not ready in time.
        """

    def poll(self) -> int | None:
        """The exit code (negative: the signal), None while the process runs."""

    def check(self) -> None:
        """Raise StorageError when what the process printed could not be written."""

    def wait(self, timeout_s: float) -> int:
        """Block until the process ends and everything it printed is on disk; return the exit code.

        Raises ProcessError when either takes longer: a process that it left may still print, or the disk may stall.
        """

    def stop(self, grace_s: float) -> int:
        """Ask the process to finish; after its end, or the grace, kill it and its descendants.

        Return the exit code once everything that it printed is on disk. Raises ProcessError as `wait` does.
        """

    def describe(self) -> str:
        """How the process ended and the last lines it wrote to standard error, for a message."""


class Host(Protocol):
    """A place where processes run."""

    emulates_links: bool

    @property
    def processors(self) -> int:
        """How many processors a process can be pinned to."""

    def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> Process:
        """Start a command; its JSON lines go to one file, its standard error to the other.

        Raises ProcessError when it cannot be started at all.
        """

    def free_address(self) -> str:
        """An address on which nothing listens now, for a program that cannot choose a port itself."""

    def describe(self) -> dict[str, Any]:
        """What the numbers depend on: kernel, CPU model, CPUs, memory."""

    def filesystem(self, path: Path) -> str | None:
        """The kind of file system that a path lies on, such as "ext4"; None when unknown."""

    def output(self, argv: Sequence[str]) -> str | None:
        """What a short program prints, such as its version; None when it fails."""

    def close(self, grace_s: float) -> None:
        """Stop every process that still runs, the last started first, and kill all that descend from them.

        An interrupt ends the grace. Raises ProcessError when a process does not end, or its output is not written.
        """
