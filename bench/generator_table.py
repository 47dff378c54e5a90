"""Load generators, each with its own store.

A generator is started once a cell, and stopped (SIGSTOP) outside its turns. memaslap fills its store for seconds before
it begins. This must not be measured, nor repeated in each round.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cells import CONNECTIONS, Cell
from bench.cpu_table import CpuTable
from bench.drivers import FIRST_KEY, KEY_BYTES, FloorSend, KneeLoad
from bench.programs import BenchError, Cores, Program, find_program
from bench.samples import Requests, Sample, measure_generator
from bench.servers import Servers
from bench.table import WARM_UP_S, Plan, StoreKind

LONGER_THAN_A_CELL_S = 3600
FILLED_S = 60.0
# Objects that memaslap keeps for each connection, and fills the store with before it reads.
MEMASLAP_WINDOW = "1k"


@dataclass(frozen=True)
class Running:
    """A generator that is stopped except in its turn, and the store that counts what it sends."""

    program: Program
    requests: Requests

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lets the generator run."""
        os.kill(self.program.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(self.program.pid, signal.SIGSTOP)

    def warm_up(self) -> None:
        """Waits until it sends its requests. Raises BenchError if none come."""
        with self.turn():
            before = self.requests.count()
            until = time.monotonic() + FILLED_S
            while self.requests.count() < before + 1000:
                if time.monotonic() > until or self.program.process.poll() is not None:
                    raise BenchError(f"{self.program.name} sends nothing: {self.program.messages()}")
                time.sleep(0.05)
            time.sleep(WARM_UP_S)

    def measure(self, seconds: float) -> Sample:
        """One turn."""
        with self.turn():
            time.sleep(WARM_UP_S)
            return measure_generator(self.program, self.requests, seconds)


def compare_generators(plan: Plan, cores: Cores, servers: Servers, kind: StoreKind) -> list[CpuTable]:
    """`knee-load`, memaslap and `floor-send`."""
    table = CpuTable(
        f"knee-load against memaslap, on {kind}",
        ("knee-load", "memaslap", "floor-send"),
        kind,
        "the contestants themselves",
        [
            "One thread each. CPU is the generator's own; requests are what its store has counted in that time.",
            "memaslap (Debian: memcaslap, in libmemcached-tools) does not pipeline: no entry at depth 16. memcslap of "
            "the same package is no peer: a thread per connection, and sizes that cannot be chosen.",
        ],
    )
    for cell in plan.cells:
        plan.progress(f"{table.title}: {cell.name}")
        with ExitStack() as stack:
            generators = _start(stack, cores, servers, kind, cell)
            for generator in generators.values():
                generator.warm_up()
            samples = plan.in_turns(generators, lambda running: running.measure(plan.seconds))
            table.rows.append(table.row(cell, samples))
    return [table]


def _start(stack: ExitStack, cores: Cores, servers: Servers, kind: StoreKind, cell: Cell) -> dict[str, Running]:
    files = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    request = files / "request"
    request.write_bytes(cell.request(FIRST_KEY))
    memaslap_workload = files / "memaslap.cnf"
    memaslap_workload.write_text(_memaslap_workload(cell))
    load, send = KneeLoad(servers.directory, cores), FloorSend(servers.directory, cores)

    generators = {}
    for name in ["knee-load", "memaslap", "floor-send"]:
        if name == "memaslap" and cell.depth > 1:
            continue
        store = stack.enter_context(
            servers.memcached(cores.others) if kind == "memcached" else servers.knee_kv(cores.others)
        )
        if name == "knee-load":
            load.populate([store.address], cell)
            command = load.load_command(store.address, cell, LONGER_THAN_A_CELL_S)
        elif name == "floor-send":
            send.populate([store.address], cell)
            command = send.load_command(store.address, cell, LONGER_THAN_A_CELL_S, request)
        else:
            command = [
                *(find_program("memcaslap", None), "-s", store.address, "-T", "1", "-c", str(CONNECTIONS)),
                *("-t", f"{LONGER_THAN_A_CELL_S}s", "-w", MEMASLAP_WINDOW, "-F", str(memaslap_workload)),
                *("-X", str(cell.value_bytes), "-d", str(cell.keys_per_request)),
            ]
        requests = Requests(store, cell)
        generators[name] = Running(stack.enter_context(Program(command, cores.tested, quiet=True)), requests)
        os.kill(generators[name].program.pid, signal.SIGSTOP)
    return generators


def _memaslap_workload(cell: Cell) -> str:
    sets, gets = (1, 0) if cell.operation == "set" else (0, 1)
    sizes = f"key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{cell.value_bytes} {cell.value_bytes} 1\n"
    return f"{sizes}cmd\n0 {sets}\n1 {gets}\n"
