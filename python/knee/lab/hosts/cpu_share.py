"""A share of this machine's processors for a process and what it starts, where cgroups(7) allow one."""

from __future__ import annotations

import errno
import math
import os
import signal
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from knee.lab import programs

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
"""The kernel's own: the share is had in every tenth of a second."""
_QUOTA_MIN_US = 1000
_KILLED_S = 10
_POLL_S = 0.02

_NUMBERS = count()
"""Of the groups of this lab."""


class CpuShare:
    """A control group of the lab's; without one, as many whole processors as the share is at least."""

    def __init__(self, cpus: float) -> None:
        self._group = _made(f"knee-{os.getpid()}-{next(_NUMBERS)}", cpus)
        self._allowed = sorted(os.sched_getaffinity(0))[: int(processors(cpus, shares=False))]

    @property
    def words(self) -> list[str]:
        """What is to stand before a command that is to have it, and all that it starts, from the first of them on.

        Whoever confined a process that runs already would have missed those that it had started.
        """
        if self._group is not None:
            return ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self._group)]
        taskset = str(programs.find_foreign("taskset", "util-linux"))
        return [taskset, "--cpu-list", ",".join(map(str, self._allowed))]

    def close(self) -> None:
        """Remove the group, and end whoever is left in it: a query goes on when the database around it has crashed."""
        if self._group is not None:
            _remove(self._group, ends=True)


def shares_cpus() -> bool:
    """Whether a share may be any number, and not whole processors alone."""
    group = _made(f"knee-{os.getpid()}", 1)
    if group is not None:
        _remove(group, ends=False)
    return group is not None


def _remove(group: Path, *, ends: bool) -> None:
    """Remove a group, once it is not busy any more: what has just ended in it still counts. Somebody else may, too.

    `ends`: whoever is in it is ended. One that may not be removed is left.
    """
    deadline = time.monotonic() + _KILLED_S
    while time.monotonic() < deadline:
        try:
            group.rmdir()
        except OSError as error:
            if ends:
                _end(group)
            if error.errno != errno.EBUSY:
                return
            time.sleep(_POLL_S)
        else:
            return


def _end(group: Path) -> None:
    """End whoever is in a group, which may be gone meanwhile."""
    with suppress(OSError):
        for pid in map(int, (group / "cgroup.procs").read_text(encoding="ascii").split()):
            # One that has just ended, or may not be ended, spares none of the others.
            with suppress(ProcessLookupError, PermissionError):
                # Who cannot be seen from here has the number 0, which kill(2) takes for the lab's own group.
                if pid > 0:
                    os.kill(pid, signal.SIGKILL)


def processors(cpus: float, *, shares: bool) -> float:
    """How many processors a share truly is, by whether it `shares` them or has whole ones."""
    return min(cpus if shares else math.ceil(cpus), len(os.sched_getaffinity(0)))


def _made(name: str, cpus: float) -> Path | None:
    """A new group with a share; None where nobody lets us make one."""
    quota_us = max(_QUOTA_MIN_US, round(cpus * _PERIOD_US))
    ours = _ours()
    for parent, settings in (
        (_ROOT / "cpu" / ours.get("cpu", ""), {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": quota_us}),
        (_ROOT / ours.get("", ""), {"cpu.max": f"{quota_us} {_PERIOD_US}"}),
    ):
        group = parent / name
        # Where groups are made by others, or have no share of the processors to give.
        with suppress(OSError):
            group.mkdir()
            try:
                for file, value in settings.items():
                    _write(group / file, value)
            except OSError:
                group.rmdir()
                raise
            return group
    return None


def _ours() -> dict[str, str]:
    """The path of the lab's own group, by controller; that of the one hierarchy of version 2 by no name."""
    groups = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path.lstrip("/")
    return groups


def _write(file: Path, value: int | str) -> None:
    # A file that is not there is not to be made: where /sys/fs/cgroup is a plain directory it would be.
    with file.open("r+", encoding="ascii") as opened:
        opened.write(str(value))
