"""The processes of a system that Knee watches, and their use of processors in a run."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from knee.data.usage import Part, ProcessUse, Usage
from knee.errors import SpecError
from knee.lab.probe import Thread, host_totals, threads_of

_CGROUPS = Path("/sys/fs/cgroup")
_STEADY = (0.25, 0.95)
"""The steady part of a load, as shares of its length: clients connect before it."""
_BEFORE = 0.1
"""This share of the load is no steady part, after the latest time at which the load may have begun."""
_STEADY_MIN = 0.2
"""A shorter steady part is taken from the end of the run instead."""
_SAMPLES = 20
_PERIOD_MIN_S = 0.1
_PROCESSES_KEPT = 5
_PID_DIGITS = 9


class Watched(Protocol):
    """Processes of a part of the system.

    name  the part's name; empty if that of its busiest process is better
    """

    @property
    def name(self) -> str: ...

    def members(self) -> list[psutil.Process]:
        """Its living processes."""

    def cpu_s(self) -> float | None:
        """CPU time of all its processes, ended ones included; None if only that of each process is known."""


@dataclass(frozen=True)
class Tree:
    """Processes with their descendants."""

    roots: tuple[int, ...]
    name: str = ""

    def members(self) -> list[psutil.Process]:
        """See Watched."""
        found: dict[int, psutil.Process] = {}
        for pid in self.roots:
            with suppress(psutil.Error):
                root = psutil.Process(pid)
                found |= {each.pid: each for each in (root, *root.children(recursive=True))}
        return list(found.values())

    def cpu_s(self) -> float | None:
        """See Watched."""
        return None


@dataclass(frozen=True)
class Cgroup:
    """The processes of a control group and of the groups below: a systemd unit, or a container."""

    path: Path

    @property
    def name(self) -> str:
        """See Watched."""
        return self.path.name

    def members(self) -> list[psutil.Process]:
        """See Watched."""
        found = []
        for file in self.path.rglob("cgroup.procs"):
            with suppress(OSError):
                for pid in file.read_text(encoding="ascii").split():
                    with suppress(psutil.Error):
                        found.append(psutil.Process(int(pid)))
        return found

    def cpu_s(self) -> float | None:
        """See Watched. Only version 2 counts it there."""
        with suppress(OSError):
            for line in (self.path / "cpu.stat").read_text(encoding="ascii").splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
        return None


def parse(text: str) -> Watched:
    """A target of `--watch`. Raises SpecError if it does not exist, or has another form."""
    kind, _, name = text.partition(":")
    if kind in ("pid", "port") and name.isdecimal():
        if kind == "port":
            if not (roots := listening(int(name))):
                raise SpecError(f"--watch {text}: no process that this user may see listens there; start it first")
            return Tree(roots)
        if len(name) > _PID_DIGITS or not psutil.pid_exists(int(name)):
            raise SpecError(f"--watch {text}: no such process; start it first")
        return Tree((int(name),))
    if kind == "unit" and re.fullmatch(r"[\w:.@\\-]+", name):
        groups = [each for each in sorted(_CGROUPS.rglob(name)) if (each / "cgroup.procs").is_file()]
        if not groups:
            raise SpecError(f"--watch {text}: no such unit runs: systemctl status {name} shows its state")
        return Cgroup(groups[0])
    if kind == "cgroup" and name:
        below = name.removeprefix(str(_CGROUPS)).lstrip("/")
        for top in (_CGROUPS, _CGROUPS / "unified"):
            if (top / below / "cgroup.procs").is_file():
                return Cgroup(top / below)
        raise SpecError(f"--watch {text}: no such group below {_CGROUPS}: /proc/PID/cgroup shows that of a process")
    raise SpecError(f"--watch {text}: expected pid:NUMBER, port:NUMBER, unit:NAME or cgroup:PATH")


def listening(port: int) -> tuple[int, ...]:
    """The processes that listen at a TCP port, each without its parents of the same name, such as a master process.
    Empty if none does, or if this user may not see it."""
    with suppress(psutil.Error):
        found = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        pids = {each.pid for each in found if each.laddr and each.laddr.port == port}
        return tuple(sorted({_master(pid) for pid in pids if pid}))
    return ()


def _master(pid: int) -> int:
    """The furthest ancestor with the same name that did not start Knee."""
    with suppress(psutil.Error):
        process, own = psutil.Process(pid), psutil.Process()
        beyond = {own, *own.parents()}
        while (parent := process.parent()) and parent not in beyond and parent.name() == process.name():
            process = parent
        return process.pid
    return pid


def is_here(host: str) -> bool:
    """Whether a host name is this machine's."""
    own = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return all(address in own or ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


@dataclass(frozen=True)
class _Process:
    name: str
    cpu_s: float
    threads: Mapping[int, Thread]


@dataclass(frozen=True)
class _State:
    """The counters of a part, with the processes by their identity."""

    cpu_s: float | None
    processes: Mapping[psutil.Process, _Process]


class Meter:
    """Reads the counters of parts during a run of about `seconds`, from `start` to `stop`."""

    def __init__(self, parts: Mapping[str, Watched], seconds: float) -> None:
        self._parts = parts
        self._seconds = seconds
        self._samples: list[tuple[float, Mapping[str, float], dict[str, _State]]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._began_s = time.monotonic()
        self._thread.start()

    def stop(self) -> Usage | None:
        """End, and return the use between the first and the last sample of the steady part; None if it has fewer."""
        elapsed_s = time.monotonic() - self._began_s
        self._stopping.set()
        self._thread.join()
        begin_s, end_s = _steady(elapsed_s, min(self._seconds, elapsed_s))
        steady = [sample for sample in self._samples if begin_s <= sample[0] - self._began_s <= end_s]
        if len(steady) < 2:
            return None
        (first_s, host, _), (last_s, host_last, _) = steady[0], steady[-1]
        grown = {name: host_last[name] - host[name] for name in ("cpu_user_s", "cpu_system_s", "cpu_steal_s")}
        states = {name: [states[name] for _, _, states in steady] for name in self._parts}
        return Usage(
            seconds=last_s - first_s,
            host_cpu_s=grown["cpu_user_s"] + grown["cpu_system_s"],
            host_steal_s=grown["cpu_steal_s"],
            host_cores=int(host_last["cpu_count"]),
            parts=tuple(_part(name, self._parts[name].name, of) for name, of in states.items()),
        )

    def _sample_until_stopped(self) -> None:
        period_s = max(_PERIOD_MIN_S, self._seconds / _SAMPLES)
        while not self._stopping.wait(period_s):
            before_s = time.monotonic()
            states = {name: _state(part) for name, part in self._parts.items()}
            host = host_totals()
            self._samples.append(((before_s + time.monotonic()) / 2, host, states))


def _steady(elapsed_s: float, load_s: float) -> tuple[float, float]:
    """Begin and end of the steady part of a run that contains a load. Programs take time to start and to end, so the
    load may lie anywhere in the run; most take longer to start."""
    begin_s = max(_STEADY[0] * load_s, elapsed_s - (1 - _BEFORE) * load_s)
    end_s = _STEADY[1] * load_s
    if end_s - begin_s < _STEADY_MIN * load_s:
        first, last = _STEADY
        return elapsed_s - (1 - first) * load_s, elapsed_s - (1 - last) * load_s
    return begin_s, end_s


def _state(part: Watched) -> _State:
    processes = {}
    for process in part.members():
        with suppress(psutil.Error, OSError), process.oneshot():
            times = process.cpu_times()
            processes[process] = _Process(process.name(), times.user + times.system, threads_of(process))
    return _State(part.cpu_s(), processes)


def _part(name: str, label: str, states: Sequence[_State]) -> Part:
    """The use of a part between its first and its last state. A process that ended between counts up to its end."""
    first, last = states[0], states[-1]
    latest = {process: use for state in states for process, use in state.processes.items()}
    uses = []
    for process, use in latest.items():
        before = first.processes.get(process)
        grown = [
            thread.since(None if before is None else before.threads.get(number))
            for number, thread in use.threads.items()
        ]
        busiest = max(grown, key=lambda thread: thread.cpu_s, default=Thread(0.0, 0.0, 0.0))
        wait_s = 0.0 if math.isnan(busiest.wait_s) else busiest.wait_s
        # A thread that began between may have waited before.
        is_whole = before is not None and not math.isnan(busiest.wakeups)
        sleeps = round(busiest.wakeups) if is_whole else None
        cpu_s = use.cpu_s - (0.0 if before is None else before.cpu_s)
        uses.append(ProcessUse(use.name, process.pid, cpu_s, len(use.threads), busiest.cpu_s, wait_s, sleeps))
    uses.sort(key=lambda use: -use.cpu_s)
    cpu_s = sum(use.cpu_s for use in uses)
    if first.cpu_s is not None and last.cpu_s is not None:
        cpu_s = last.cpu_s - first.cpu_s
    cores, count = _cores(list(last.processes)), len(last.processes)
    return Part(name, label, cpu_s, cores, count, tuple(uses[:_PROCESSES_KEPT]))


def _cores(processes: Sequence[psutil.Process]) -> float:
    """Processors that some processes may use: those that they may run on, or the quota of the group of one."""
    allowed: set[int] = set()
    quota = math.inf
    for process in processes:
        with suppress(psutil.Error, OSError):
            allowed.update(process.cpu_affinity() or ())
    for process in processes[:1]:
        with suppress(OSError):
            quota = quota_of(Path(f"/proc/{process.pid}/cgroup").read_text(encoding="ascii"), _CGROUPS)
    return min(float(len(allowed) or os.cpu_count() or 1), quota)


def quota_of(groups: str, top: Path) -> float:
    """The smallest quota in processors of a process's groups of version 2 (cgroups(7)); infinite without one. `groups`
    is the text of /proc/PID/cgroup, and `top` the root of the groups."""
    path = next((line[3:] for line in groups.splitlines() if line.startswith("0::")), "/")
    group = Path(f"{top}{path}")
    quota = math.inf
    for each in (group, *group.parents):
        with suppress(OSError, ValueError):
            limit, period, *_ = (each / "cpu.max").read_text(encoding="ascii").split()
            quota = min(quota, int(limit) / int(period))
    return quota
