"""Processes on the workers of a cluster, with their output and their samples, as the lab sees them."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from knee.data import writing
from knee.errors import ProcessError
from knee.lab.command import Command
from knee.lab.hosts import OnLine, Process
from knee.lab.hosts.agent import Report
from knee.lab.probe import Sample

_POLL_S = 0.05
_PULL_S = 0.5
_KILLED_S = 30

_SUMMED = ("host", "knee")
"""Targets of samples that every agent has."""


@dataclass
class Worker:
    """A worker with an agent. The clock is ahead of this machine's by `clock_ahead_s`."""

    name: str
    address: str
    boot: str
    host: dict[str, Any]
    clock_ahead_s: float
    clock_error_s: float
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


class RemoteProcess:
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
        """See Process."""
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
        """See Process."""
        self._cluster.pull(_PULL_S)
        return self._report.code

    def check(self) -> None:
        """See Process. A failed write has raised an error at once."""

    def wait(self, timeout_s: float) -> int:
        """See Process."""
        deadline = time.monotonic() + timeout_s
        while not self._report.is_whole:
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.command.process} did not end within {timeout_s:.0f} s")
            time.sleep(_POLL_S)
            self._cluster.pull(_POLL_S)
        assert self._report.code is not None
        return self._report.code

    def stop(self, grace_s: float) -> int:
        """See Process."""
        self._cluster.call(self.worker, "stop", self.command.process, grace_s, timeout_s=grace_s + _KILLED_S)
        return self.wait(_KILLED_S)

    def describe(self) -> str:
        """See Process."""
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


class RemoteProbe:
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
        """See Sampler."""
        for address, worker in self._workers.items():
            self._cluster.call(worker, "probe", self._names[address])

    def stop(self) -> list[Sample]:
        """See Sampler."""
        return summed([(each.boot, self._cluster.call(each, "samples")) for each in self._workers.values()])


def summed(samples: Sequence[tuple[str, list[Sample]]]) -> list[Sample]:
    """The samples of workers, each with its machine, as those of one machine: the host and the agents are summed over
    the machines, for the seconds that all have.
    """
    kept = [one for _, of_worker in samples for one in of_worker if one["target"] not in _SUMMED]
    for target in _SUMMED:
        machines: Iterable[list[Sample]] = (
            # Workers on one machine sample the same host.
            dict(samples).values() if target == "host" else [each for _, each in samples]
        )
        series = [{one["second"]: one for one in each if one["target"] == target} for each in machines]
        for second in sorted(set.intersection(*map(set, series)) if series else ()):
            kept.append(_sum([each[second] for each in series]))
    return kept


def _sum(samples: Sequence[Sample]) -> Sample:
    total = dict(samples[0])
    for name in total.keys() - {"second", "target"}:
        values: list[Any] = [sample.get(name) for sample in samples]
        if None in values:
            total[name] = None
        elif name == "seconds":
            total[name] = fmean(values)
        else:
            total[name] = max(values) if name == "thread_cpu_max_s" else sum(values)
    return total
