"""The result of the measurements, and its form as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from knee.stats.intervals import Interval


class Figure(NamedTuple):
    """A measured quantity: its name in the JSON, its title and printed unit, and the factor to this unit."""

    name: str
    title: str
    unit: str
    factor: float = 1.0


FIGURES: Mapping[str, tuple[Figure, ...]] = {
    "Clock": (
        Figure("clock_read_ns", "reading the clock", "ns"),
        Figure("clock_step_ns", "smallest step of the clock", "ns"),
        Figure("sleep_late_us", "delay of a sleep of 100 µs", "µs"),
    ),
    "Loopback, one TCP connection": (
        Figure("loopback_bytes_per_s", "throughput", "GB/s", 1e-9),
        Figure("loopback_round_trip_us", "round trip of 1 byte", "µs"),
    ),
    "File mapped into memory, read in order": (
        Figure("mapped_uncached_bytes_per_s", "from the disk", "GB/s", 1e-9),
        Figure("mapped_uncached_major_faults_per_1000_pages", "from the disk, major faults", "per 1,000 pages"),
        Figure("mapped_uncached_minor_faults_per_1000_pages", "from the disk, minor faults", "per 1,000 pages"),
        Figure("mapped_cached_bytes_per_s", "from the page cache", "GB/s", 1e-9),
        Figure("mapped_cached_major_faults_per_1000_pages", "from the page cache, major faults", "per 1,000 pages"),
        Figure("mapped_cached_minor_faults_per_1000_pages", "from the page cache, minor faults", "per 1,000 pages"),
        Figure("mapped_again_bytes_per_s", "again, without faults", "GB/s", 1e-9),
    ),
    "Disk, one request at a time": (
        Figure("disk_random_read_per_s", "random reads of 4 KiB", "1/s"),
        Figure("disk_random_write_per_s", "random writes of 4 KiB", "1/s"),
        Figure("disk_random_synced_write_per_s", "random writes of 4 KiB, each synced", "1/s"),
        Figure("disk_sync_per_s", "writes of 4 KiB in order, each synced", "1/s"),
        Figure("disk_read_bytes_per_s", "sequential reads of 1 MiB", "MB/s", 1e-6),
        Figure("disk_write_bytes_per_s", "sequential writes of 1 MiB", "MB/s", 1e-6),
        Figure("disk_synced_write_bytes_per_s", "sequential writes of 1 MiB, each synced", "MB/s", 1e-6),
    ),
}
"""All quantities but those of working sets, by the heading of their table."""


@dataclass(frozen=True)
class WorkingSet:
    """What one thread gets from the memory, over `size_bytes`."""

    size_bytes: int
    latency_ns: Interval
    read_bytes_per_s: Interval
    write_bytes_per_s: Interval
    copy_bytes_per_s: Interval


@dataclass(frozen=True)
class Machine:
    """Medians over the rounds.

    caches   bytes by name
    memory   in ascending order of size
    figures  by name, see `FIGURES`; a quantity that the machine does not have is absent
    notes    what limits the meaning of the figures
    """

    caches: Mapping[str, int]
    memory: tuple[WorkingSet, ...]
    figures: Mapping[str, Interval]
    rounds: int
    notes: tuple[str, ...]

    @property
    def beyond_caches(self) -> WorkingSet | None:
        """The largest working set; None if it may fit into a cache."""
        return self.memory[-1] if self.memory[-1].size_bytes >= 2 * max(self.caches.values(), default=0) else None

    def content(self) -> dict[str, Any]:
        """The result for JSON, in base units."""
        return {
            "caches_bytes": dict(self.caches),
            "rounds": self.rounds,
            "level": self.memory[0].latency_ns.level,
            "memory": [
                {name: ends(value) if isinstance(value, Interval) else value for name, value in vars(each).items()}
                for each in self.memory
            ],
            "figures": {name: ends(value) for name, value in self.figures.items()},
            "notes": list(self.notes),
        }


def ends(interval: Interval) -> dict[str, float | None]:
    """A median and its interval for JSON."""
    return {"median": interval.estimate, "low": interval.low, "high": interval.high}
