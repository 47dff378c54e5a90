"""The processes of a system that Knee watches, and their use of processors in a run."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from knee.data.usage import Part, ProcessUse, Usage
from knee.errors import SpecError
from knee.lab.probe import Thread, threads_of
from knee.lab.remote import Remote, Sampler
from knee.machine.groups import ROOT, groups_of

_STEADY = (0.25, 0.95)
"""The steady part of a load, as shares of its length: clients connect before it."""
_BEFORE = 0.1
"""This share of the load is no steady part, after the latest time at which the load may have begun."""
_STEADY_MIN = 0.2
"""A shorter steady part may lie outside of the load, and is not used."""
_SAMPLES = 20
_PERIOD_MIN_S = 0.1
"""A run of 1 s that ends 0.5 s late has a steady part of 0.35 s; it needs two samples in it."""
_PROCESSES_KEPT = 5
_BEYOND = 1.05
"""A part that used more than this multiple of its processors has others."""
_FORWARDERS = ("docker-proxy", "init", "kubectl", "rootlesskit", "rootlessport", "ssh", "systemd")
_ANY_ADDRESS = ("0.0.0.0", "::")


class Watched(Protocol):
    """Processes of a part of the system."""

    def members(self) -> list[psutil.Process]:
        """Its living processes."""


@dataclass(frozen=True)
class Tree(Watched):
    """Processes with their descendants."""

    roots: tuple[psutil.Process, ...]

    def members(self) -> list[psutil.Process]:
        found = [root for root in self.roots if root.is_running()]
        for root in self.roots:
            with suppress(psutil.Error):
                found += root.children(recursive=True)
        return list(dict.fromkeys(found))

    def __str__(self) -> str:
        """`nginx (pid 12, 13)`."""
        pids: dict[str, list[str]] = {}
        for root in self.roots:
            with suppress(psutil.Error):
                pids.setdefault(root.name(), []).append(str(root.pid))
        return " and ".join(f"{name} (pid {', '.join(some)})" for name, some in pids.items())


@dataclass(frozen=True)
class Cgroup(Watched):
    """The processes of a control group and of the groups below: a systemd unit, or a container."""

    path: Path

    def members(self) -> list[psutil.Process]:
        found = []
        for group in _groups_below(self.path):
            with suppress(OSError):
                for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
                    with suppress(psutil.Error):
                        found.append(psutil.Process(int(pid)))
        return found


def _groups_below(top: Path) -> Iterator[Path]:
    """A group and those below; groups may end at any time, which rglob does not bear."""
    return (Path(folder) for folder, _, _ in os.walk(top))


def parse(text: str) -> Watched:
    """A target of `--watch`. Raises SpecError if it does not exist, contains Knee, or has another form."""
    found = _parse(text)
    if psutil.Process() in found.members():
        raise SpecError(f"--watch {text}: contains Knee itself; name the system's processes alone")
    return found


def _parse(text: str) -> Watched:
    kind, _, name = text.partition(":")
    if kind == "port" and name.isdecimal():
        if not (roots := listening(int(name), "add --watch {}")):
            raise SpecError(f"--watch {text}: no process that this user may see listens there; start it first")
        return Tree(roots)
    if kind == "pid" and name.isdecimal():
        with suppress(psutil.Error, ValueError):
            return Tree((psutil.Process(int(name)),))
        raise SpecError(f"--watch {text}: no such process; start it first")
    if kind == "unit" and re.fullmatch(r"[\w@\\-][\w:.@\\-]*", name):
        found = [path for path in _groups_below(ROOT) if path.name in (name, f"{name}.service")]
        for path in sorted(found, key=lambda path: (path.name != name, path)):
            if (path / "cgroup.procs").is_file():
                return Cgroup(path)
        raise SpecError(f"--watch {text}: no such unit runs: systemctl status {name} shows its state")
    if kind == "cgroup" and name:
        below = name.removeprefix(str(ROOT)).lstrip("/")
        for top in (ROOT, ROOT / "unified"):
            if (top / below / "cgroup.procs").is_file():
                return Cgroup(top / below)
        raise SpecError(f"--watch {text}: no such group below {ROOT}: /proc/PID/cgroup shows that of a process")
    # An address with a slip may have a secret.
    shown = "" if set("@?#") & set(text) else f" {text}"
    raise SpecError(f"--watch{shown}: expected pid:NUMBER, port:NUMBER, unit:NAME, cgroup:PATH or a URL")


def at(host: str, port: int, *started: int, remedy: str = 'add system.watch = ["{}"]') -> Tree:
    """The processes that Knee started for a system, and those that listen at its host and port. `remedy` names another
    target in messages.

    Raises SpecError if there are none, or if they are not the system.
    """
    addresses = addresses_here(host)
    roots = list(listening(port, remedy, addresses)) if addresses else []
    for pid in started:
        with suppress(psutil.Error):
            roots.insert(0, psutil.Process(pid))
    if not roots and not addresses:
        raise SpecError(f"{host} is another machine; {remedy.format('port:NUMBER')} for a local system")
    if not roots:
        what = f"no process that this user may see listens at port {port}"
        raise SpecError(f"{what}; {remedy.format('pid:NUMBER')}, or run as its user")
    found = Tree(tuple(dict.fromkeys(roots)))
    if psutil.Process() in found.members():
        raise SpecError(f"{found} contains Knee itself; {remedy.format('pid:NUMBER')}")
    return found


def listening(port: int, remedy: str, addresses: Collection[str] = ()) -> tuple[psutil.Process, ...]:
    """The processes that listen at a TCP port of these addresses, or of any. An ancestor with the same name, such as a
    master process, stands for its descendants. Empty if none listens, or if this user may not see it. Raises SpecError
    for a process that only forwards."""
    found: list[psutil.Process] = []
    with suppress(psutil.Error):
        for each in psutil.net_connections("tcp"):
            if each.status != psutil.CONN_LISTEN or not each.laddr or each.laddr.port != port or not each.pid:
                continue
            if not addresses or each.laddr.ip.removeprefix("::ffff:") in (*addresses, *_ANY_ADDRESS):
                with suppress(psutil.NoSuchProcess):
                    found.append(_master(psutil.Process(each.pid)))
    for process in found:
        with suppress(psutil.Error):
            if process.name() in _FORWARDERS:
                raise SpecError(f"port {port}: {process.name()} only forwards; {remedy.format('cgroup:PATH')}")
    return tuple(sorted(set(found), key=lambda process: process.pid))


def _master(process: psutil.Process) -> psutil.Process:
    """The furthest ancestor with the same name that did not start Knee."""
    with suppress(psutil.Error):
        own = psutil.Process()
        beyond = {own, *own.parents()}
        while (parent := process.parent()) and parent not in beyond and parent.name() == process.name():
            process = parent
    return process


def addresses_here(host: str) -> frozenset[str]:
    """The addresses of a host name, if all are this machine's; otherwise none."""
    own = {each.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for each in addresses}
    try:
        found = {str(each[4][0]).partition("%")[0] for each in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return frozenset()
    is_here = all(each in own or ipaddress.ip_address(each).is_loopback for each in found)
    return frozenset(found) if is_here else frozenset()


_Quota = tuple[float, Path | None]


@dataclass(frozen=True)
class _Process:
    """The counters of a process; `quota` in processors with its group, and `allowed` those that each thread may use."""

    name: str
    cpu_s: float
    quota: _Quota
    threads: Mapping[int, Thread]
    allowed: Mapping[int, Collection[int]]


_State = Mapping[psutil.Process, _Process]
_Sample = tuple[float, Mapping[str, float], Mapping[str, _State]]
"""The time, the counters of the machine, and the states of the parts."""


class Meter:
    """Reads the counters of parts during a run of about `seconds`, from `start` to `stop`. A process counts for the
    first of the parts that have it, and Knee's own for none. `remotes` report their own counters."""

    def __init__(
        self, parts: Mapping[str, Watched], seconds: float, remotes: Mapping[str, Remote] | None = None
    ) -> None:
        self._parts = parts
        self._samplers = [Sampler(name, each, seconds) for name, each in (remotes or {}).items()]
        self._seconds = seconds
        self._samples: list[_Sample] = []
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._began_s = time.monotonic()
        self._thread.start()
        for sampler in self._samplers:
            sampler.start()

    def stop(self) -> Usage | None:
        """End, and return the use between the first and the last sample of the steady part; None without two.
        Raises the error that ended the samples."""
        elapsed_s = time.monotonic() - self._began_s
        self._stopping.set()
        for sampler in self._samplers:
            sampler.end()
        self._thread.join()
        begin_s, end_s = _steady(elapsed_s, min(self._seconds, elapsed_s))
        own = [each.stop(self._began_s + begin_s, self._began_s + end_s) for each in self._samplers]
        if self._failure is not None:
            raise self._failure
        steady = [sample for sample in self._samples if begin_s <= sample[0] - self._began_s <= end_s]
        if len(steady) < 2:
            return None
        (first_s, first, _), (last_s, last, _) = steady[0], steady[-1]
        seconds = last_s - first_s
        user, nice, system, irq, softirq, steal = (
            last[name] - first[name] for name in ("user", "nice", "system", "irq", "softirq", "steal")
        )
        parts = (_part(name, [states[name] for _, _, states in steady], seconds) for name in self._parts)
        stations = tuple(station for stations in own for station in stations)
        return Usage(seconds, user + nice + system, irq + softirq, steal, host_cores(), tuple(parts), stations)

    def _sample_until_stopped(self) -> None:
        try:
            while not self._stopping.wait(max(_PERIOD_MIN_S, self._seconds / _SAMPLES)):
                self._samples.append(self._sample())
        except Exception as error:
            self._failure = error

    def _sample(self) -> _Sample:
        before_s = time.monotonic()
        claimed, states = {os.getpid()}, {}
        for name, part in self._parts.items():
            members = [each for each in part.members() if each.pid not in claimed]
            claimed |= {each.pid for each in members}
            states[name] = _state(members)
        host = psutil.cpu_times()._asdict()
        return (before_s + time.monotonic()) / 2, host, states


def host_cores() -> int | None:
    """The processors of this machine; None if Knee may use only some of them."""
    count = psutil.cpu_count() or 1
    quota, _ = quota_of(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    return None if min(len(os.sched_getaffinity(0)), quota) < count else count


def _steady(elapsed_s: float, load_s: float) -> tuple[float, float]:
    """Begin and end of the steady part of a run that contains a load. Programs take time to start and to end, so the
    load may lie anywhere in the run. Empty if no such part is sure to lie within it."""
    begin_s = max(_STEADY[0] * load_s, elapsed_s - (1 - _BEFORE) * load_s)
    end_s = _STEADY[1] * load_s
    return (begin_s, end_s) if end_s - begin_s >= _STEADY_MIN * load_s else (math.inf, 0.0)


def _state(members: Sequence[psutil.Process]) -> _State:
    found, quotas = {}, dict[str, _Quota]()
    for process in members:
        with suppress(psutil.Error, OSError), process.oneshot():
            times, threads = process.cpu_times(), threads_of(process)
            groups = Path(f"/proc/{process.pid}/cgroup").read_text(encoding="utf-8")
            if groups not in quotas:
                quotas[groups] = quota_of(groups)
            allowed = {number: _affinity(number) for number in threads}
            # A name may be no text: the kernel cuts it after 15 bytes.
            name = "".join(each if each.isprintable() else "?" for each in process.name())
            found[process] = _Process(name, times.user + times.system, quotas[groups], threads, allowed)
    return found


def _affinity(thread: int) -> Collection[int]:
    with suppress(OSError):
        return os.sched_getaffinity(thread)
    return ()


def _part(name: str, states: Sequence[_State], seconds: float) -> Part:
    """The use of a part over some states. A process counts from the first to the last of them that has it."""
    first = {process: use for state in reversed(states) for process, use in state.items()}
    uses, allowed, quotas = [], set[int](), set[_Quota]()
    for process, use in {process: use for state in states for process, use in state.items()}.items():
        before = first[process]
        grown = {number: thread.since(before.threads.get(number)).cpu_s for number, thread in use.threads.items()}
        busy = [number for number, cpu_s in grown.items() if cpu_s > 0]
        allowed.update(*(use.allowed[number] for number in busy))
        quotas |= {use.quota} if busy else set()
        top_s = max(grown.values(), default=0.0)
        uses.append(ProcessUse(use.name, process.pid, use.cpu_s - before.cpu_s, len(use.threads), top_s))
    uses.sort(key=lambda use: -use.thread_cpu_s)
    cpu_s = sum(use.cpu_s for use in uses)
    # Processes with quotas of several groups share no set of processors.
    cores = min(float(len(allowed)), *(quota for quota, _ in quotas)) if len(quotas) == 1 else 0.0
    is_known = cores > 0 and cpu_s <= _BEYOND * cores * seconds
    return Part(name, cpu_s, cores if is_known else None, len(states[-1]), tuple(uses[:_PROCESSES_KEPT]))


def quota_of(groups: str, root: Path = ROOT) -> _Quota:
    """The smallest quota in processors of a process's groups, and the group; infinite without one. `groups` is the text
    of /proc/PID/cgroup, and `root` the folder of all groups."""
    quota: _Quota = (math.inf, None)
    for controller, files in (("", ("cpu.max",)), ("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))):
        for group in groups_of(groups, controller, root):
            with suppress(OSError, ValueError):
                limit, period = " ".join((group / file).read_text(encoding="ascii") for file in files).split()
                if 0 < int(limit) / int(period) < quota[0]:
                    quota = (int(limit) / int(period), group)
    return quota
