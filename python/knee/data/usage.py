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
    """A process: its CPU time, and that of its busiest thread, which also waited `thread_wait_s` for a processor, and
    slept `thread_sleeps` times; None if the kernel does not count them."""

    name: str
    pid: int
    cpu_s: float
    threads: int
    thread_cpu_s: float
    thread_wait_s: float
    thread_sleeps: int | None


@dataclass(frozen=True)
class Part:
    """A watched part.

    name       GENERATOR, "system" for a system that Knee started or found by its URL, or the target of --watch
    label      the name of its stations; empty if that of its busiest process is better
    cpu_s      CPU time of all its processes
    cores      processors that it may use, which a quota makes a fraction
    count      number of its processes
    processes  the busiest processes
    """

    name: str
    label: str
    cpu_s: float
    cores: float
    count: int
    processes: tuple[ProcessUse, ...]


@dataclass(frozen=True)
class Usage:
    """Use of the machine over `seconds`: CPU time of all programs, time that the hypervisor took, and of each part."""

    seconds: float
    host_cpu_s: float
    host_steal_s: float
    host_cores: int
    parts: tuple[Part, ...]

    @property
    def host_busy(self) -> float:
        """Busy share of the processors. Stolen time is not capacity."""
        return _share(self.host_cpu_s, self.host_cores * self.seconds - self.host_steal_s)

    @property
    def generator(self) -> float:
        """Share of the machine's processors that the load generator took."""
        return sum(self._of_host(part.cpu_s) for part in self.parts if part.name == GENERATOR)

    @property
    def others(self) -> float:
        """Share of the machine's processors that programs outside the parts took; 0 if no part is a system's."""
        if all(part.name == GENERATOR for part in self.parts):
            return 0.0
        return self._of_host(self.host_cpu_s - sum(part.cpu_s for part in self.parts))

    def _of_host(self, cpu_s: float) -> float:
        return _share(cpu_s, self.host_cores * self.seconds)

    def busy(self, part: Part) -> float:
        """Busy share of the processors that a part may use."""
        return _share(part.cpu_s, part.cores * self.seconds)

    def thread_busy(self, part: Part, *, waits: bool) -> float:
        """Busy share of the busiest thread of a part; with `waits`, its waits for a processor included."""
        return max((_share(self._held_s(each, waits), self.seconds) for each in part.processes), default=0.0)

    def _held_s(self, process: ProcessUse, waits: bool) -> float:
        """Time in which the busiest thread ran or, with `waits`, was ready to run. The kernel counts a wait only at its
        end, but a thread that never slept was ready all the time."""
        if waits and process.thread_cpu_s > 0 and process.thread_sleeps == 0:
            return self.seconds
        return process.thread_cpu_s + (process.thread_wait_s if waits else 0.0)

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
    found = Usage(**{**text, "parts": parts})
    numbers = [found.seconds, found.host_cores, found.host_busy]
    numbers += [
        number for part in parts for number in (part.cores, found.busy(part), found.thread_busy(part, waits=True))
    ]
    if not (all(map(math.isfinite, numbers)) and min(found.seconds, *(part.cores for part in parts)) > 0):
        raise ValueError("no time, or no processor")
    return found
