"""Processes on the workers of a cluster, with their output and their samples, as the lab sees them."""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from knee.errors import ProcessError
from knee.lab.command import Command
from knee.lab.hosts import OnLine, Process, Sampler
from knee.lab.hosts.agent import Report
from knee.lab.probe import Sample
from knee.storage import writing

_POLL_S = 0.05
_PULL_S = 0.5
_KILLED_S = 30


@dataclass
class Worker:
    """A worker with an agent. Its machine has the name of the first worker there. The clock is ahead of this machine's
    by `clock_ahead_s`. Its scratch directory has a `path` and a `filesystem`."""

    name: str
    address: str
    boot: str
    machine: str
    host: dict[str, Any]
    processors: int
    scratch: dict[str, str | None]
    clock_ahead_s: float = math.nan
    clock_error_s: float = math.nan
    programs: dict[str, dict[str, str | None]] = field(default_factory=dict)


def chosen(
    name: str, workers: Mapping[str, Mapping[str, Any]], taken: Mapping[str, str], last: str | None = None
) -> str | None:
    """The address of the worker for a host, None without one.

    Parameters
    ----------
    name
        The host, such as "store-0".
    workers
        By address, with `name` and `resources`.
    taken
        The addresses of the hosts that are placed. A resource "store=2" has room for two stores.
    last
        The name of the worker that the host had before: it keeps it if there is room.
    """
    tier = name.rpartition("-")[0]
    named = {worker["name"]: address for address, worker in workers.items()}
    if name in named:
        return named[name]
    of_tier = [address for host, address in taken.items() if host.rpartition("-")[0] == tier]
    room = {
        address: (worker.get("resources") or {}).get(tier, 0) - of_tier.count(address)
        for address, worker in workers.items()
    }
    roomiest = max(room, key=lambda one: (room[one] >= 1 and workers[one]["name"] == last, room[one]), default=None)
    return roomiest if roomiest is not None and room[roomiest] >= 1 else named.get(tier)


class Calls(Protocol):
    """Calls of the workers' agents."""

    def call(self, worker: Worker, method: str, *arguments: Any, timeout_s: float = ...) -> Any:
        """Call a method of a worker's agent. Raises LostWorkerError without an answer."""

    def pull(self, age_s: float) -> None:
        """Take the reports of all processes, unless the last ones are younger."""


class RemoteProcess(Process):
    """A process on a worker."""

    def __init__(self, cluster: Calls, worker: Worker, command: Command, files: Files) -> None:
        self.command = command
        self.pid: int = cluster.call(worker, "start", command)
        self.worker = worker
        self._cluster = cluster
        self._files = files
        self._report = Report(None, False, None, False, "it still runs; no output", b"", b"")

    def take(self, report: Report) -> None:
        """Note a report, and write its output."""
        self._report = report
        self._files.write(report)

    def wait_ready(self, timeout_s: float) -> str | None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._cluster.pull(_POLL_S)
            if self._report.code is not None:
                raise ProcessError(f"{self.command.process} ended before it was ready: {self.describe()}")
            if self._report.is_ready:
                return self._report.address
            time.sleep(_POLL_S)
        raise ProcessError(f"{self.command.process} was not ready within {timeout_s:.0f} s: {self.describe()}")

    def poll(self) -> int | None:
        self._cluster.pull(_PULL_S)
        return self._report.code

    def check(self) -> None:
        """See Process. A failed write has raised an error at once."""

    def wait(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while not self._report.is_whole:
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.command.process} did not end within {timeout_s:.0f} s")
            time.sleep(_POLL_S)
            self._cluster.pull(_POLL_S)
        assert self._report.code is not None
        return self._report.code

    def stop(self, grace_s: float) -> int:
        self._cluster.call(self.worker, "stop", self.command.process, grace_s, timeout_s=grace_s + _KILLED_S)
        return self.wait(_KILLED_S)

    def describe(self) -> str:
        return f"on worker {self.worker.name}: {self._report.ending}"


class Files:
    """The files of a process's output, here."""

    def __init__(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> None:
        with writing(lines):
            self._lines, self._log = FileIO(lines, "w"), FileIO(log, "w")
        self._command = command
        self._on_line = on_line
        self._rest = b""

    def write(self, report: Report) -> None:
        """Append the output of a report, and pass on its JSON lines."""
        for file, text in ((self._lines, report.lines), (self._log, report.log)):
            with writing(Path(os.fsdecode(file.name))):
                rest = memoryview(text)
                while rest:
                    rest = rest[file.write(rest) :]
        *lines, self._rest = (self._rest + report.lines).split(b"\n")
        for line in lines:
            with suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self._on_line(self._command, message)


class RemoteProbe(Sampler):
    """Samples of all workers with processes."""

    def __init__(self, cluster: Calls, processes: Sequence[Process]) -> None:
        self._cluster = cluster
        self._names = defaultdict[str, list[str]](list)
        self._workers: dict[str, Worker] = {}
        for process in processes:
            assert isinstance(process, RemoteProcess)
            self._workers[process.worker.address] = process.worker
            self._names[process.worker.address].append(process.command.process)

    def start(self) -> None:
        for address, worker in self._workers.items():
            self._cluster.call(worker, "probe", self._names[address])

    def stop(self) -> list[Sample]:
        return named([(each.machine, self._cluster.call(each, "samples")) for each in self._workers.values()])


def named(samples: Iterable[tuple[str, list[Sample]]]) -> list[Sample]:
    """The samples of workers with the names of their machines; the agents are "knee-0" and so on. Workers on one
    machine sample the same host, which is kept once.
    """
    kept: list[Sample] = []
    sampled = set[str]()
    for number, (machine, of_worker) in enumerate(samples):
        for one in of_worker:
            if one["target"] == "host" and machine in sampled:
                continue
            target = f"knee-{number}" if one["target"] == "knee" else one["target"]
            kept.append({**one, "target": target, "machine": machine})
        sampled.add(machine)
    return kept
