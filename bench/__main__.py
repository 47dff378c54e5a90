"""The command line of the comparisons."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench import backlog_table, front_table, queue_table, space_table
from bench.cells import CELLS, CONNECTIONS, Cell
from bench.cpu import Disturbance
from bench.drivers import KneeLoad
from bench.durable_table import compare_durable
from bench.generator_table import compare_generators
from bench.programs import BenchError, Cores
from bench.resident_table import compare_resident
from bench.scan_table import compare_scans
from bench.server_tables import compare_proxies, compare_stores
from bench.servers import Servers
from bench.table import Plan, StoreKind, Table

STORE_KINDS: tuple[StoreKind, ...] = ("memcached", "knee-kv")
STORE_COUNTS = (1, 3)
# The keys of the comparison of memory.
RESIDENT_KEYS = 10_000_000
# The most keys that fit the stores' memory.
RESIDENT_KEYS_MAX = 30_000_000


def main() -> int:
    """Measures, prints, and returns the exit code: 1 if a part could not be measured."""
    arguments = _parse_arguments()
    # A terminated run ends its servers, like an interrupted one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    cells = [cell for cell in CELLS if _is_named(cell, arguments.cell)]
    plan = Plan(arguments.rounds, arguments.seconds, cells, lambda message: print(message, file=sys.stderr))
    try:
        measurements = _measurements(arguments, plan)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if not cells or not measurements:
        print("bench: --only or --cell leaves nothing to measure", file=sys.stderr)
        return 2

    print(_circumstances(arguments), flush=True)
    before, began = Disturbance.now(), time.monotonic()
    tables: list[Table] = []
    failures: list[str] = []
    for name, measure in measurements.items():
        try:
            found = measure()
        except BenchError as error:
            failures.append(f"{name}: {error}")
            continue
        for table in found:
            failures += [failure for failure in table.failures if failure not in failures]
            print(table.text, flush=True)
        tables += found
    disturbance = Disturbance.now() - before
    print(_verdict(tables, failures, disturbance, time.monotonic() - began))
    if arguments.json:
        _write_json(arguments, tables, failures, disturbance)
    return 1 if failures else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares the CPU time of a request: knee-proxy with nutcracker, knee-kv with memcached, "
        "knee-load with memaslap, most beside a floor that only moves bytes, in one interleaved run; and of knee-kv "
        "durable puts with Redis, puts during scans with puts alone, and the memory that keys take; and knee-queue "
        "with pgbench on the same functions and with pgmq; and knee-space with nbdkit and nbd-server.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each contestant in each cell (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement (1)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TABLE",
        help="tables whose name begins with this: proxies, proxies-3-knee-kv, generators, kv, kv-memory, kv-durable, "
        "kv-scans, kv-resident, queue-pgbench, queue-pgmq, queue-backlog, queue-alone, queue-memory, "
        "space-stores, space-managers; may be repeated",
    )
    parser.add_argument(
        "--cell",
        action="append",
        default=[],
        metavar="CELL",
        help="cells whose name contains this: 'get, 32 B', 'depth 16', 'set'; may be repeated. Of the tables "
        "that begin with kv, queue or space only kv-memory has cells",
    )
    parser.add_argument("--programs", type=Path, help="where our programs are (target/release or target/fast)")
    parser.add_argument(
        "--disk",
        type=Path,
        default=Path("/var/tmp"),
        metavar="DIR",
        help="durable stores have their files below this, which must be on a disk (/var/tmp)",
    )
    parser.add_argument(
        "--resident-keys", type=int, default=RESIDENT_KEYS, metavar="N", help="keys of kv-resident (10000000)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes every sample, for other programs")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds above 0")
    if not 1 <= arguments.resident_keys <= RESIDENT_KEYS_MAX:
        parser.error(f"--resident-keys must be from 1 to {RESIDENT_KEYS_MAX}")
    return arguments


def _is_named(cell: Cell, wanted: list[str]) -> bool:
    """Whether the name contains any of these; "depth 1" does not name depth 16."""
    return not wanted or any(re.search(rf"{re.escape(words)}\b", cell.name) for words in wanted)


def _measurements(arguments: argparse.Namespace, plan: Plan) -> dict[str, Callable[[], Sequence[Table]]]:
    """The runs, by name; each may fill several tables. Raises BenchError if knee-load is missing."""
    cores, servers = Cores.of_this_machine(), Servers(arguments.programs)
    driver = KneeLoad(arguments.programs, cores)
    disk, keys, programs = arguments.disk, arguments.resident_keys, arguments.programs
    measurements: dict[str, Callable[[], Sequence[Table]]] = {
        f"proxies-{count}-{kind}": partial(compare_proxies, plan, cores, servers, driver, kind, count)
        for kind in STORE_KINDS
        for count in STORE_COUNTS
    }
    measurements |= {
        f"generators-{kind}": partial(compare_generators, plan, cores, servers, kind) for kind in STORE_KINDS
    }
    measurements |= {
        "kv-memory": partial(compare_stores, plan, cores, servers, driver),
        "kv-durable": partial(compare_durable, plan, cores, servers, disk),
        "kv-scans": partial(compare_scans, plan, servers, disk),
        "kv-resident": partial(compare_resident, plan, cores, servers, disk, keys),
        "queue-pgbench": partial(queue_table.compare_pgbench, plan, programs, disk),
        "queue-pgmq": partial(queue_table.compare_pgmq, plan, programs, disk),
        "queue-backlog": partial(backlog_table.compare_backlogs, plan, programs, disk),
        "queue-alone": partial(front_table.measure_alone, plan, cores, programs),
        "queue-memory": partial(front_table.measure_memory, plan, programs),
        "space-stores": partial(space_table.compare_stores, plan, cores, programs),
        "space-managers": partial(space_table.compare_managers, plan, cores, programs),
    }
    wanted = arguments.only
    return {name: one for name, one in measurements.items() if not wanted or name.startswith(tuple(wanted))}


def _circumstances(arguments: argparse.Namespace) -> str:
    cores = Cores.of_this_machine()
    pinned = (
        "nothing is pinned: there is one core"
        if cores.tested is None
        else f"the program under test on core {cores.tested}, everything else on core {cores.others}"
    )
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Linux {platform.release()}, {_cpu_model()}, "
        f"{os.cpu_count()} cores; {pinned}.\n"
        f"{CONNECTIONS} connections, closed loop. {arguments.rounds} rounds of {arguments.seconds:g} s for each "
        "contestant, in turns.\n"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _verdict(tables: list[Table], failures: list[str], disturbance: Disturbance, elapsed_s: float) -> str:
    lines = ["Aims:", *(f"  {table.result}" for table in tables)]
    if disturbance.stolen_s > 0.01 * elapsed_s:
        lines.append(f"warning: the host took {disturbance.stolen_s:.1f} s of CPU from this machine in that time.")
    if disturbance.throttled_periods:
        lines.append(f"warning: a CPU quota stopped this control group {disturbance.throttled_periods} times.")
    return "\n".join([*lines, *(f"not measured: {failure}" for failure in failures)])


def _write_json(
    arguments: argparse.Namespace, tables: list[Table], failures: list[str], disturbance: Disturbance
) -> None:
    content = {
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "connections": CONNECTIONS,
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "stolen_s": disturbance.stolen_s,
        "throttled_periods": disturbance.throttled_periods,
        "tables": [table.content for table in tables],
        "failures": failures,
    }
    arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
