"""Servers of block devices over NBD: the CPU time of a request."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench.programs import READY_S, BenchError, Cores, Program, Server, find_program, free_port
from bench.table import WARM_UP_S, Column, Plan, Row, Table, median_of, range_of, ratio_of

SIZE_MIB = 256
FILLED_S = 60.0
RATIO_MAX = 1.0


@dataclass(frozen=True)
class Load:
    """Random requests of one length, with so many in flight on one connection."""

    operation: str
    kib: int
    depth: int

    @property
    def name(self) -> str:
        """The row's name."""
        return f"{self.operation}, {self.kib} KiB, depth {self.depth}"


LOADS = [Load(operation, kib, depth) for kib in (4, 128) for operation in ("read", "write") for depth in (1, 16)]


@dataclass(frozen=True)
class Served:
    """The requests that a server has answered, and the CPU time that its process took."""

    requests: int
    seconds: float
    cpu_s: float

    @property
    def cpu_us(self) -> float:
        """CPU time of a request in µs."""
        return self.cpu_s / self.requests * 1e6

    @property
    def per_second(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


@dataclass(frozen=True)
class Daemon:
    """A server that has left this session. Each connection is a child of its process."""

    name: str
    pid: int
    address: str


def compare_stores(plan: Plan, cores: Cores, programs: Path | None) -> list[Table]:
    """`knee-space store`, nbdkit's memory plugin, and nbd-server with a file in memory."""
    table = _table("knee-space store against nbdkit memory and nbd-server", "store", "nbdkit", "nbd-server")
    with ExitStack() as running:
        contestants: dict[str, Server | Daemon] = {
            "store": running.enter_context(_store(cores.tested, programs)),
            "nbdkit": running.enter_context(_nbdkit(cores.tested, "memory", f"{SIZE_MIB}M")),
            "nbd-server": running.enter_context(_nbd_server(cores.tested)),
        }
        _measure_all(plan, cores, table, contestants)
    return [table]


def compare_managers(plan: Plan, cores: Cores, programs: Path | None) -> list[Table]:
    """`knee-space manager` and nbdkit's nbd plugin, each before the same store."""
    table = _table("knee-space manager against nbdkit nbd, one store", "manager", "nbdkit")
    with ExitStack() as running:
        store = running.enter_context(_store(cores.others, programs))
        port = free_port()
        command = [find_program("knee-space", programs), "manager", "--listen", f"127.0.0.1:{port}"]
        manager = Server([*command, "--store", store.address, "--stats", "none"], cores.tested, port, announces=True)
        contestants: dict[str, Server | Daemon] = {
            "manager": running.enter_context(manager),
            "nbdkit": running.enter_context(_nbdkit(cores.tested, "nbd", f"uri=nbd://{store.address}")),
        }
        _measure_all(plan, cores, table, contestants)
    return [table]


def _table(title: str, ours: str, *peers: str) -> Table:
    names = [ours, *peers]

    def verdict(rows: list[Row]) -> str:
        worst = max((row.ratio(ours, peer, "cpu_us").median, peer, row.name) for row in rows for peer in peers)
        reached = "reached" if worst[0] <= RATIO_MAX else "missed"
        return f"at most {worst[0]:.2f} of {worst[1]}'s CPU ({worst[2]}); aim {RATIO_MAX}: {reached}"

    return Table(
        title,
        "load",
        ["One client (fio's nbd engine), one connection, random addresses in 256 MiB that were written before."],
        [
            *(median_of(f"{name} µs", name, "cpu_us", ".1f") for name in names),
            *(column for peer in peers for column in _ratios(ours, peer)),
            *(median_of(f"{name} /s", name, "per_second") for name in names),
        ],
        lambda rows: verdict(rows) if rows else "not measured",
    )


def _ratios(ours: str, peer: str) -> tuple[Column, Column]:
    return ratio_of(f"of {peer}", ours, peer, "cpu_us"), range_of("from, to", ours, peer, "cpu_us")


def _store(core: int | None, programs: Path | None) -> Server:
    port = free_port()
    command = [find_program("knee-space", programs), "store", "--listen", f"127.0.0.1:{port}", "--stats", "none"]
    return Server([*command, "--bytes", f"{SIZE_MIB}M"], core, port, announces=True)


def _nbdkit(core: int | None, *plugin: str) -> Server:
    port = free_port()
    command = [find_program("nbdkit", None), "--foreground", "--ipaddr", "127.0.0.1", "--port", str(port)]
    return Server([*command, *plugin], core, port, announces=False)


@contextmanager
def _nbd_server(core: int | None) -> Iterator[Daemon]:
    port = free_port()
    with TemporaryDirectory(dir="/dev/shm") as folder:
        disk, number = Path(folder) / "disk", Path(folder) / "pid"
        with disk.open("wb") as file:
            file.truncate(SIZE_MIB << 20)
        pin = [] if core is None else ["taskset", "-c", str(core)]
        command = [
            find_program("nbd-server", None),
            f"127.0.0.1:{port}",
            str(disk),
            "-C",
            "/dev/null",
            "-p",
            str(number),
        ]
        subprocess.run([*pin, *command], check=True, capture_output=True)
        _await(lambda: number.exists() and number.read_text().strip(), "nbd-server: it has not started")
        pid = int(number.read_text())
        try:
            with suppress(OSError):
                # Sessions share processors equally (sched(7)), and the program that takes the rest is in this one.
                Path(f"/proc/{pid}/autogroup").write_text("-20")
            yield Daemon("nbd-server", pid, f"127.0.0.1:{port}")
        finally:
            os.kill(pid, signal.SIGTERM)


def _await(condition: Callable[[], object], message: str) -> None:
    until = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > until:
            raise BenchError(message)
        time.sleep(0.01)


def _measure_all(plan: Plan, cores: Cores, table: Table, contestants: dict[str, Server | Daemon]) -> None:
    for server in contestants.values():
        _fio(server, cores, ["--rw=write", "--bs=1M", "--iodepth=4"], FILLED_S)
    for load in LOADS:

        def measure(load: Load = load) -> dict[str, list[Served]]:
            for server in contestants.values():
                _measure(cores, load, WARM_UP_S, server)
            return plan.in_turns(contestants, partial(_measure, cores, load, plan.seconds))

        table.add(plan, load.name, measure)


def _measure(cores: Cores, load: Load, seconds: float, server: Server | Daemon) -> Served:
    flags = [f"--rw=rand{load.operation}", f"--bs={load.kib}k", f"--iodepth={load.depth}"]
    before = _cpu_s(server.pid)
    report = _fio(server, cores, [*flags, "--time_based", f"--runtime={seconds * 1000:.0f}ms"], seconds + FILLED_S)
    job = json.loads(report)["jobs"][0]
    done = job[load.operation]
    return Served(done["total_ios"], done["runtime"] / 1000, _cpu_s(server.pid) - before)


def _fio(server: Server | Daemon, cores: Cores, flags: list[str], timeout_s: float) -> str:
    """fio's report. Raises BenchError if a request fails."""
    uri = f"--uri=nbd://{server.address}"
    common = ["--name=bench", "--ioengine=nbd", uri, f"--size={SIZE_MIB}M", "--output-format=json"]
    with Program([find_program("fio", None), *common, *flags], cores.others) as fio:
        report = fio.read_to_end(timeout_s)
        if fio.process.returncode != 0:
            raise BenchError(f"{server.name}: fio ended with {fio.process.returncode}: {fio.messages()}")
    _await(lambda: not psutil.Process(server.pid).children(), f"{server.name}: a connection has not ended")
    return report[report.index("{") :]


def _cpu_s(pid: int) -> float:
    """CPU time of a process, also of its ended threads (clock_getcpuclockid(3)); to 10 ms, of ended children."""
    times = psutil.Process(pid).cpu_times()
    return time.clock_gettime((~pid << 3) | 2) + times.children_user + times.children_system
