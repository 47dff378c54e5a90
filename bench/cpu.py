"""CPU time of processes, and signs that a measurement of it cannot be trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuTime:
    """The CPU time of a process since it began (or, as a difference, in between).

    `total_s` and `waited_s` (runnable, but another process had the core) come from the scheduler in
    nanoseconds; user and system time are counted in ticks of the clock and serve for their ratio only.
    Threads that have ended are missing from `total_s`: the programs measured here keep theirs.
    """

    total_s: float
    waited_s: float
    user_ticks: int
    system_ticks: int

    @classmethod
    def of(cls, pid: int) -> CpuTime:
        """The CPU time of process `pid`, over all of its threads.

        Raises ProcessLookupError when the process is gone.
        """
        total_ns = waited_ns = 0
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                try:
                    ran, waited, _ = (task / "schedstat").read_text().split()
                except (FileNotFoundError, ProcessLookupError):
                    continue  # this thread has ended since the directory was read
                total_ns += int(ran)
                waited_ns += int(waited)
            # The name of the program, in parentheses, may contain spaces.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError as error:
            raise ProcessLookupError(f"process {pid} has ended") from error
        return cls(total_ns / 1e9, waited_ns / 1e9, int(fields[11]), int(fields[12]))

    def __sub__(self, earlier: CpuTime) -> CpuTime:
        return CpuTime(
            self.total_s - earlier.total_s,
            self.waited_s - earlier.waited_s,
            self.user_ticks - earlier.user_ticks,
            self.system_ticks - earlier.system_ticks,
        )

    @property
    def user_share(self) -> float:
        """The part spent outside the kernel, 0 to 1."""
        ticks = self.user_ticks + self.system_ticks
        return self.user_ticks / ticks if ticks else 0.0


@dataclass(frozen=True)
class Disturbance:
    """CPU time that the machine withheld: stolen by its host, or cut by a quota of its control group."""

    stolen_s: float
    throttled_periods: int

    @classmethod
    def now(cls) -> Disturbance:
        """The counters since the machine started."""
        stolen = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
        return cls(stolen / TICKS_PER_S, _throttled_periods())

    def __sub__(self, earlier: Disturbance) -> Disturbance:
        return Disturbance(self.stolen_s - earlier.stolen_s, self.throttled_periods - earlier.throttled_periods)


def _throttled_periods() -> int:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            root = Path("/sys/fs/cgroup") / ("" if controllers == "" else "cpu")
            stat = root / path.lstrip("/") / "cpu.stat"
            if stat.is_file():
                counters = dict(entry.split() for entry in stat.read_text().splitlines())
                return int(counters.get("nr_throttled", 0))
    return 0
