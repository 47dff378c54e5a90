"""The answer of `knee machine`, as :meth:`knee.machine.findings.Machine.content` and its command print it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Median:
    """The median over the rounds with its interval, in the unit of the name."""

    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class WorkingSet:
    """What one thread gets from the memory, over `size_bytes`."""

    size_bytes: int
    latency_ns: Median
    read_bytes_per_s: Median
    write_bytes_per_s: Median
    copy_bytes_per_s: Median


@dataclass(frozen=True)
class Machine:
    """What a machine can do. `host` describes it, and `media` are the cited storage media of `--media`."""

    knee: str
    measured: str
    host: dict[str, Any]
    filesystem: str
    caches_bytes: dict[str, int]
    rounds: int
    level: float
    memory: list[WorkingSet]
    figures: dict[str, Median]
    notes: list[str]
    media: dict[str, Any] = field(default_factory=dict)
