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
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.cells import CELLS, CONNECTIONS, Cell
from bench.cpu import Disturbance
from bench.drivers import DRIVERS
from bench.generator_table import compare_generators
from bench.programs import BenchError, Cores
from bench.report import aim_reached, as_json, render
from bench.server_tables import compare_proxies, compare_stores
from bench.servers import Servers
from bench.table import Plan, StoreKind, Table

STORE_KINDS: tuple[StoreKind, ...] = ("memcached", "knee-kv")
STORE_COUNTS = (1, 3)
# Contestants of each table, for the estimate of the time.
CONTESTANTS = {"proxies": 3, "stores": 2, "generators": 3}


def main() -> int:
    """Measures, prints, and returns the exit code: 1 when something could not be measured."""
    arguments = _parse_arguments()
    # So that a terminated run ends its servers as an interrupted one does.
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

    estimate_s = sum(plan.estimate_s(CONTESTANTS[name.split("-", 1)[0]]) for name in measurements)
    print(_circumstances(arguments, estimate_s), flush=True)
    before, began = Disturbance.now(), time.monotonic()
    tables, failures = [], []
    for name, measure in measurements.items():
        try:
            tables.append(measure())
        except BenchError as error:
            failures.append(f"{name}: {error}")
            continue
        failures += tables[-1].failures
        print(render(tables[-1]), flush=True)
    disturbance = Disturbance.now() - before
    print(_verdict(tables, failures, disturbance, time.monotonic() - began))
    if arguments.json:
        _write_json(arguments, tables, failures, disturbance)
    return 1 if failures else 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares the CPU time of a request: knee-proxy with nutcracker, knee-kv with memcached, "
        "knee-load with memaslap, each beside a floor that only moves bytes, in one interleaved run.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each contestant in each cell (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement (1)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TABLE",
        help="tables whose name contains this: proxies, proxies-3-knee-kv, stores, generators; may be repeated",
    )
    parser.add_argument(
        "--cell",
        action="append",
        default=[],
        metavar="CELL",
        help="cells whose name contains this: 'get, 32 B', 'depth 16', 'set'; may be repeated",
    )
    parser.add_argument(
        "--driver", choices=sorted(DRIVERS), default="knee-load", help="load on the servers (knee-load)"
    )
    parser.add_argument("--programs", type=Path, help="where our programs are (target/release or target/fast)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes every sample, for other programs")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds above 0")
    return arguments


def _is_named(cell: Cell, wanted: list[str]) -> bool:
    """Whether the name contains any of these; "depth 1" does not name depth 16."""
    return not wanted or any(re.search(rf"{re.escape(words)}\b", cell.name) for words in wanted)


def _measurements(arguments: argparse.Namespace, plan: Plan) -> dict[str, Callable[[], Table]]:
    """The tables to measure, by name. Raises BenchError when the driver is missing."""
    cores, servers = Cores.of_this_machine(), Servers(arguments.programs)
    driver = DRIVERS[arguments.driver](arguments.programs, cores)
    measurements: dict[str, Callable[[], Table]] = {
        f"proxies-{count}-{kind}": partial(compare_proxies, plan, cores, servers, driver, kind, count)
        for kind in STORE_KINDS
        for count in STORE_COUNTS
    }
    measurements["stores"] = partial(compare_stores, plan, cores, servers, driver)
    for kind in STORE_KINDS:
        measurements[f"generators-{kind}"] = partial(compare_generators, plan, cores, servers, kind)
    wanted = arguments.only
    return {name: run for name, run in measurements.items() if not wanted or any(part in name for part in wanted)}


def _circumstances(arguments: argparse.Namespace, estimate_s: float) -> str:
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
        f"contestant, in turns. This takes about {estimate_s / 60:.0f} min.\n"
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _verdict(tables: list[Table], failures: list[str], disturbance: Disturbance, elapsed_s: float) -> str:
    lines = ["Aim: less CPU per request than the peer in every cell."]
    for table in tables:
        cells = aim_reached(table)
        missed = [name for name, reached in cells.items() if not reached]
        lines.append(
            f"  {table.title}: {'yes' if not missed else 'no'}, {len(cells) - len(missed)} of {len(cells)} cells"
            + (f"; not in {'; '.join(missed)}" if missed else "")
        )
    if disturbance.stolen_s > 0.01 * elapsed_s:
        lines.append(f"warning: the host took {disturbance.stolen_s:.1f} s of CPU from this machine meanwhile.")
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
        "tables": [as_json(table) for table in tables],
        "failures": failures,
    }
    arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
