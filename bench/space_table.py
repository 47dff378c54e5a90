"""Servers of block devices over NBD: the CPU time of a request."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.programs import BenchError, Cores, Program, Server, find_program, free_port
from bench.table import WARM_UP_S, Plan, Row, Table, median_of, range_of, ratio_of

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


def compare_stores(plan: Plan, cores: Cores, programs: Path | None) -> list[Table]:
    """`knee-space store` and nbdkit's memory plugin."""
    table = _table("knee-space store against nbdkit memory", "store")
    with ExitStack() as running:
        contestants = {
            "store": running.enter_context(_store(cores.tested, programs)),
            "nbdkit": running.enter_context(_nbdkit(cores.tested, "memory", f"{SIZE_MIB}M")),
        }
        _measure_all(plan, cores, table, contestants)
    return [table]


def compare_managers(plan: Plan, cores: Cores, programs: Path | None) -> list[Table]:
    """`knee-space manager` and nbdkit's nbd plugin, each before the same store."""
    table = _table("knee-space manager against nbdkit nbd, one store", "manager")
    with ExitStack() as running:
        store = running.enter_context(_store(cores.others, programs))
        port = free_port()
        command = [find_program("knee-space", programs), "manager", "--listen", f"127.0.0.1:{port}"]
        manager = Server([*command, "--store", store.address, "--stats", "none"], cores.tested, port, announces=True)
        contestants = {
            "manager": running.enter_context(manager),
            "nbdkit": running.enter_context(_nbdkit(cores.tested, "nbd", f"uri=nbd://{store.address}")),
        }
        _measure_all(plan, cores, table, contestants)
    return [table]


def _table(title: str, ours: str) -> Table:
    names = [ours, "nbdkit"]

    def verdict(rows: list[Row]) -> str:
        worst = max((row.ratio(ours, "nbdkit", "cpu_us").median, row.name) for row in rows)
        reached = "reached" if worst[0] <= RATIO_MAX else "missed"
        return f"at most {worst[0]:.2f} of nbdkit's CPU ({worst[1]}); aim {RATIO_MAX}: {reached}"

    return Table(
        title,
        "load",
        ["One client (fio's nbd engine), one connection, random addresses in 256 MiB that were written before."],
        [
            *(median_of(f"{name} µs", name, "cpu_us", ".1f") for name in names),
            ratio_of("of nbdkit", ours, "nbdkit", "cpu_us"),
            range_of("from, to", ours, "nbdkit", "cpu_us"),
            *(median_of(f"{name} /s", name, "per_second") for name in names),
        ],
        lambda rows: verdict(rows) if rows else "not measured",
    )


def _store(core: int | None, programs: Path | None) -> Server:
    port = free_port()
    command = [find_program("knee-space", programs), "store", "--listen", f"127.0.0.1:{port}", "--stats", "none"]
    return Server([*command, "--bytes", f"{SIZE_MIB}M"], core, port, announces=True)


def _nbdkit(core: int | None, *plugin: str) -> Server:
    port = free_port()
    command = [find_program("nbdkit", None), "--foreground", "--ipaddr", "127.0.0.1", "--port", str(port)]
    return Server([*command, *plugin], core, port, announces=False)


def _measure_all(plan: Plan, cores: Cores, table: Table, contestants: dict[str, Server]) -> None:
    for server in contestants.values():
        _fio(server, cores, ["--rw=write", "--bs=1M", "--iodepth=4"], FILLED_S)
    for load in LOADS:

        def measure(load: Load = load) -> dict[str, list[Served]]:
            for server in contestants.values():
                _measure(cores, load, WARM_UP_S, server)
            return plan.in_turns(contestants, partial(_measure, cores, load, plan.seconds))

        table.add(plan, load.name, measure)


def _measure(cores: Cores, load: Load, seconds: float, server: Server) -> Served:
    flags = [f"--rw=rand{load.operation}", f"--bs={load.kib}k", f"--iodepth={load.depth}"]
    before = _cpu_s(server.pid)
    report = _fio(server, cores, [*flags, "--time_based", f"--runtime={seconds * 1000:.0f}ms"], seconds + FILLED_S)
    job = json.loads(report)["jobs"][0]
    done = job[load.operation]
    return Served(done["total_ios"], done["runtime"] / 1000, _cpu_s(server.pid) - before)


def _fio(server: Server, cores: Cores, flags: list[str], timeout_s: float) -> str:
    """fio's report. Raises BenchError if a request fails."""
    uri = f"--uri=nbd://{server.address}"
    common = ["--name=bench", "--ioengine=nbd", uri, f"--size={SIZE_MIB}M", "--output-format=json"]
    with Program([find_program("fio", None), *common, *flags], cores.others) as fio:
        report = fio.read_to_end(timeout_s)
        if fio.process.returncode != 0:
            raise BenchError(f"{server.name}: fio ended with {fio.process.returncode}: {fio.messages()}")
    return report[report.index("{") :]


def _cpu_s(pid: int) -> float:
    """CPU time of a process, also of its ended threads: its CPU clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)
