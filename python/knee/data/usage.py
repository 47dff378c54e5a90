"""Processor time that a system, a load generator and their machine used in the steady part of a run.

`knee find` writes it beside the output of the generator, as `c62-r4.cpu.json` beside `c62-r4.txt`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from knee.errors import MeasurementsError

GENERATOR = "load generator"
"""The part that is the generator's."""

SUFFIX = ".cpu.json"

_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class ProcessUse:
    """A process: its CPU time, and that of its busiest thread."""

    name: str
    pid: int
    cpu_s: float
    threads: int
    thread_cpu_s: float


@dataclass(frozen=True)
class Part:
    """A watched part.

    name       GENERATOR, "system" for a system that Knee started or found by its URL, or the target of --watch
    cpu_s      CPU time of all its processes
    cores      processors that it may use, which a quota makes a fraction; None if unknown
    count      number of its processes
    processes  those with the busiest threads, the busiest first
    """

    name: str
    cpu_s: float
    cores: float | None
    count: int
    processes: tuple[ProcessUse, ...]


@dataclass(frozen=True)
class Station:
    """A station whose server reported its own use over `seconds`.

    watched  the target of --watch
    busy_s   CPU time of its threads or processors, or the busy time of a link or of a serial resource
    steal_s  time that a hypervisor took from the processors
    servers  number of its threads or processors
    """

    watched: str
    name: str
    seconds: float
    busy_s: float
    steal_s: float
    servers: float

    @property
    def busy(self) -> float:
        """Busy share. Stolen time is not capacity."""
        return _share(self.busy_s, self.servers * self.seconds - self.steal_s)


@dataclass(frozen=True)
class Usage:
    """Use of the machine over `seconds`.

    host_cpu_s    CPU time of all programs
    host_irq_s    time of interrupts
    host_steal_s  time that the hypervisor took
    host_cores    processors; None if Knee may use only some of them, and shares of the machine are then 0
    """

    seconds: float
    host_cpu_s: float
    host_irq_s: float
    host_steal_s: float
    host_cores: int | None
    parts: tuple[Part, ...]
    stations: tuple[Station, ...] = ()

    @property
    def host_busy(self) -> float:
        """Busy share of the processors."""
        return self._of_host(self.host_cpu_s + self.host_irq_s)

    @property
    def generator(self) -> float:
        """Share of the machine's processors that the load generator took."""
        return self._of_host(sum(part.cpu_s for part in self.parts if part.name == GENERATOR))

    @property
    def system(self) -> float:
        """Share of the machine's processors that the system's parts took."""
        return self._of_host(sum(part.cpu_s for part in self.parts if part.name != GENERATOR))

    @property
    def sees_system(self) -> bool:
        """Whether a part of the system has processes."""
        return any(part.processes for part in self.parts if part.name != GENERATOR)

    @property
    def others(self) -> float:
        """Share of the machine's processors that programs outside the parts took; 0 if no part is a system's."""
        outside_s = self.host_cpu_s - sum(part.cpu_s for part in self.parts)
        return self._of_host(outside_s) if self.sees_system else 0.0

    def _of_host(self, cpu_s: float) -> float:
        """Stolen time is not capacity."""
        return _share(cpu_s, (self.host_cores or 0) * self.seconds - self.host_steal_s)

    def busy(self, part: Part, cores: float) -> float:
        """Busy share of the processors that a part may use."""
        return _share(part.cpu_s, cores * self.seconds)

    def thread_busy(self, part: Part) -> float:
        """Busy share of the busiest thread of a part."""
        return _share(part.processes[0].thread_cpu_s if part.processes else 0.0, self.seconds)

    def to_json(self) -> str:
        """The text of a file."""
        return json.dumps(asdict(self), indent=1) + "\n"


def _share(used_s: float, capacity_s: float) -> float:
    """Counters of a process and of the clock are not read at once, so the ratio may exceed 1."""
    return max(0.0, min(1.0, used_s / capacity_s)) if capacity_s > 0 else 0.0


def usage_beside(output: Path) -> Usage | None:
    """The usage of the run that wrote an output; None without a file. Raises MeasurementsError for a damaged file."""
    path = output.with_suffix(SUFFIX)
    if output.name.endswith(SUFFIX) or not path.is_file():
        return None
    try:
        return _usage(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, *_UNREADABLE) as error:
        raise MeasurementsError(f"{path}: not the processor times of a run ({error!r}); remove the file") from None


def _usage(text: Mapping[str, Any]) -> Usage:
    parts = tuple(
        Part(**{**part, "processes": tuple(ProcessUse(**process) for process in part["processes"])})
        for part in text["parts"]
    )
    stations = tuple(Station(**station) for station in text.get("stations", ()))
    found = Usage(**{**text, "parts": parts, "stations": stations})
    times = [found.host_cpu_s, found.host_irq_s, found.host_steal_s, *(part.cpu_s for part in parts)]
    times += [process.thread_cpu_s for part in parts for process in part.processes]
    times += [time_s for station in stations for time_s in (station.busy_s, station.steal_s)]
    amounts = [found.seconds, found.host_cores, *(part.cores for part in parts)]
    amounts += (amount for station in stations for amount in (station.seconds, station.servers))
    if not (all(map(math.isfinite, times)) and all(each is None or 0 < each < math.inf for each in amounts)):
        raise ValueError("no time, or no processor")
    return found
