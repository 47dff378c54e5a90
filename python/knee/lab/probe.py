"""Resource use of every process and of the host, sampled from outside once a second.

A thread of the lab takes the samples, so that their cost (about 0.1 ms for each process) counts for the target "knee".
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from knee.lab.hosts.namespaces import network_bytes

_LOOPBACK = "lo"

Sample = dict[str, Any]
"""A row of the probes' table, without the columns that name the run."""


class Probe:
    """Samples the host and some processes, aligned to wall-clock seconds, from `start` to `stop`."""

    def __init__(
        self, pids: Mapping[str, int], families: Collection[str] = (), *, relays: Mapping[str, int] | None = None
    ) -> None:
        """`families`: the names of processes that are sampled with their descendants. `relays`: the processes that
        emulate links, by name; None if there are none, and processes have no network of their own with bytes to count.
        """
        self._linked = {} if relays is None else pids
        self._totals_of = {
            name: _Family(pid).totals if name in families else partial(_process_totals, psutil.Process(pid))
            for name, pid in {**pids, **(relays or {}), "knee": os.getpid()}.items()
        }
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Sample]:
        """End, and return all samples; safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._samples

    def _sample_until_stopped(self) -> None:
        before, totals = time.time(), self._totals()
        # Wake shortly after the second: a wake-up before it would make an empty sample.
        while not self._stopping.wait(1.001 - time.time() % 1):
            now, totals_now = time.time(), self._totals()
            for target, after in totals_now.items():
                if target in totals:
                    self._samples.append(_difference(target, before, now, totals[target], after))
            before, totals = now, totals_now

    def _totals(self) -> dict[str, Sample]:
        totals = {"host": _host_totals()}
        for name, process in list(self._totals_of.items()):
            try:
                totals[name] = process()
                if name in self._linked:
                    totals[name] |= _network_totals(self._linked[name])
            except (psutil.Error, OSError):
                del self._totals_of[name]
        return totals


_LEVELS = ("cpu_count", "rss_bytes")
"""Values at the sample time; all other values are counters, and a sample has their growth."""


def _difference(target: str, before_s: float, now_s: float, before: Sample, now: Sample) -> Sample:
    sample: Sample = {"second": math.floor(before_s), "seconds": now_s - before_s, "target": target}
    for name, value in now.items():
        if name == "threads":
            grown = [thread.since(before["threads"].get(number)) for number, thread in value.items()]
            sample["thread_cpu_max_s"] = max((thread.cpu_s for thread in grown), default=None)
            wakeups, wait_s = (sum(getattr(thread, what) for thread in grown) for what in ("wakeups", "wait_s"))
            sample["wakeups"] = None if math.isnan(wakeups) else round(wakeups)
            sample["cpu_wait_s"] = None if math.isnan(wait_s) else wait_s
        elif name in _LEVELS:
            sample[name] = value
        else:
            sample[name] = value - before[name]
    return sample


def _network_totals(pid: int) -> Sample:
    """Bytes of frames through the interfaces of a process's network. Raises OSError if the process has ended."""
    network = Path(f"/proc/{pid}/net")
    received, sent = network_bytes(*((network / name).read_text(encoding="ascii") for name in ("dev", "snmp")))
    return {"net_rx_bytes": received, "net_tx_bytes": sent}


def _host_totals() -> Sample:
    cpu = psutil.cpu_times()
    totals: Sample = {
        "cpu_user_s": cpu.user + cpu.nice,
        "cpu_system_s": cpu.system + cpu.irq + cpu.softirq,
        "cpu_steal_s": cpu.steal,
        "cpu_count": psutil.cpu_count(),
        "rss_bytes": (memory := psutil.virtual_memory()).total - memory.available,
        "net_lo_bytes": 0,
        "net_rx_bytes": 0,
        "net_tx_bytes": 0,
    }
    for interface, counters in psutil.net_io_counters(pernic=True).items():
        if interface == _LOOPBACK:
            totals["net_lo_bytes"] += counters.bytes_sent
        else:
            totals["net_rx_bytes"] += counters.bytes_recv
            totals["net_tx_bytes"] += counters.bytes_sent
    # A machine without a local disk has no such counters.
    if (disk := psutil.disk_io_counters()) is not None:
        totals["disk_read_bytes"] = disk.read_bytes
        totals["disk_write_bytes"] = disk.write_bytes
    return totals


@dataclass(frozen=True)
class Thread:
    """Resource use of a thread: CPU time, voluntary context switches, and time that it waited for a CPU."""

    cpu_s: float
    wakeups: float
    wait_s: float

    def since(self, before: Thread | None) -> Thread:
        if before is None:
            return self
        return Thread(self.cpu_s - before.cpu_s, self.wakeups - before.wakeups, self.wait_s - before.wait_s)


def threads_of(process: psutil.Process) -> dict[int, Thread]:
    """By number, every thread that still lives."""
    found = {}
    for thread in process.threads():
        with suppress(OSError):
            wakeups, ran_s, wait_s = _scheduled(Path(f"/proc/{process.pid}/task/{thread.id}"))
            # The kernel rounds user and system time down to ticks.
            found[thread.id] = Thread(max(ran_s, thread.user_time + thread.system_time), wakeups, wait_s)
    return found


def _scheduled(task: Path) -> tuple[float, float, float]:
    """Voluntary context switches, CPU time and run-queue wait of a thread (proc(5)). If the kernel does not count them,
    the CPU time is 0, and the others are NaN.

    Raises OSError if the thread has ended.
    """
    status = (task / "status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)
    ran_s, wait_s = 0.0, math.nan
    with suppress(FileNotFoundError, ValueError):
        ran, waited, *_ = (task / "schedstat").read_text(encoding="ascii").split()
        ran_s, wait_s = int(ran) / 1e9, int(waited) / 1e9
    return float(found[1]) if found else math.nan, ran_s, wait_s


class _Family:
    """A process and its descendants, with the resource use of ended ones."""

    def __init__(self, pid: int) -> None:
        self._parent = psutil.Process(pid)
        self._used: dict[psutil.Process, Sample] = {}

    def totals(self) -> Sample:
        """Raises psutil.Error if the root process has ended."""
        self._used[self._parent] = _process_totals(self._parent)
        members, shared_bytes = [self._parent], 0
        for child in self._parent.children(recursive=True):
            with suppress(psutil.Error):
                self._used[child] = _process_totals(child)
                members.append(child)
        own_bytes = 0
        for member in members:
            with suppress(psutil.Error):
                memory = member.memory_info()
                # Count shared memory once.
                own_bytes += memory.rss - memory.shared
                shared_bytes = max(shared_bytes, memory.shared)
        summed = {name: sum(used[name] for used in self._used.values()) for name in _FAMILY_SUMS}
        threads = {number: thread for used in self._used.values() for number, thread in used["threads"].items()}
        living = sum(self._used[member]["cpu_count"] for member in members)
        return {**summed, "cpu_count": living, "threads": threads, "rss_bytes": own_bytes + shared_bytes}


_FAMILY_SUMS = ("cpu_user_s", "cpu_system_s", "disk_read_bytes", "disk_write_bytes")


def _process_totals(process: psutil.Process) -> Sample:
    with process.oneshot():
        cpu = process.cpu_times()
        disk = process.io_counters()
        threads = threads_of(process)
        return {
            "cpu_user_s": cpu.user,
            "cpu_system_s": cpu.system,
            "cpu_count": len(threads),
            "threads": threads,
            "rss_bytes": process.memory_info().rss,
            "disk_read_bytes": disk.read_bytes,
            "disk_write_bytes": disk.write_bytes,
        }
