"""Hosts that run processes, behind one protocol. Only this package starts processes, for :mod:`knee.lab.deploy`.

:class:`~knee.lab.hosts.local.LocalHost` runs them on this machine. :class:`~knee.lab.hosts.emulated.EmulatedHosts` does
so, too, but gives each host of the experiment a network of its own. :class:`~knee.lab.hosts.cluster.ClusterHost` runs
them on the workers of a Dask cluster. All start a command, report its address once it is ready, stop it, and leave no
process running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from knee.errors import WorkerError
from knee.lab.command import Command

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems in memory."""


@dataclass(frozen=True)
class Link:
    """A host's link to the others: its rates in Mbit/s, None without a limit, and its delay one way in ms."""

    send_mbit: float | None = None
    receive_mbit: float | None = None
    delay_ms: float = 0.0


OnLine = Callable[[Command, dict[str, Any]], None]
"""Called with each JSON line of a process on arrival, from another thread."""


class Process(Protocol):
    """A process that a host has started."""

    command: Command
    pid: int

    def wait_ready(self, timeout_s: float) -> str | None:
        """Block until the process is ready; return its address, or None for a client. Raises ProcessError if it ends
        first, or is not ready in time.
        """

    def poll(self) -> int | None:
        """The exit code (negative: the signal), None while the process runs."""

    def check(self) -> None:
        """Raise StorageError if the process's output could not be written."""

    def wait(self, timeout_s: float) -> int:
        """Block until the process ends and its output is on disk; return the exit code. Raises ProcessError if either
        takes longer: a child process may still print, or the disk may stall.
        """

    def stop(self, grace_s: float) -> int:
        """Signal the process to stop; after its end or the grace period, kill it and its descendants. Return the exit
        code when its output is on disk. Raises ProcessError like `wait`.
        """

    def describe(self) -> str:
        """How the process ended and its last lines on standard error, for a message."""


class LostWorkerError(WorkerError):
    """A worker of a cluster was lost with its processes; another attempt may find a replacement."""


class Sampler(Protocol):
    """Samples the resource use of processes and their machines, from `start` to `stop`."""

    def start(self) -> None:
        """Begin to sample."""

    def stop(self) -> list[dict[str, Any]]:
        """End, and return all samples (:data:`knee.data.columns.PROBES`)."""


class Host(Protocol):
    """A machine that runs processes, or several emulated or real ones."""

    @property
    def relays(self) -> Mapping[str, int] | None:
        """The processes that emulate links, by name; None if hosts have no links."""

    @property
    def processors(self) -> int:
        """Number of processors that a process can be pinned to."""

    def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> Process:
        """Start a command; its JSON lines go to one file, its standard error to the other.

        Raises ProcessError if it cannot be started, and StorageError if its files cannot be written.
        """

    def has_made(self, command: Command) -> bool:
        """Whether the file that a command makes is on its host."""

    def probe(self, processes: Sequence[Process]) -> Sampler:
        """A sampler of these processes."""

    def place(self, name: str, link: Link) -> None:
        """Add a host of the experiment, such as "store-0". Raises ProcessError if it cannot be emulated, and
        WorkerError if no worker can take it."""

    def free_address(self, name: str) -> str:
        """A free address of a host of the experiment, for a program that cannot choose a port itself."""

    def describe(self) -> dict[str, Any]:
        """The environment of a measurement: kernel, CPU model, CPUs, memory."""

    def record(self) -> dict[str, Any] | None:
        """The machines of a cluster, for the manifest; None for a host on this machine."""

    def filesystem(self, path: Path) -> str | None:
        """The type of the file system of the lab's scratch directory at a path, such as "ext4"; None if unknown."""

    def output(self, argv: Sequence[str]) -> str | None:
        """The output of a short program, such as its version; None if it fails."""

    def check(self) -> None:
        """Raise LostWorkerError if a worker of a cluster was lost, ProcessError if the emulation of links ended."""

    def close(self, grace_s: float) -> None:
        """Stop every running process, the last started first, and kill their descendants. A worker of a cluster also
        removes the stores' data. An interrupt ends the grace period. Raises ProcessError if a process does not end, or
        its output is not written.
        """
