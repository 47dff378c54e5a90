"""Proxies and stores under the same load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from bench.cells import Cell
from bench.cpu_table import CpuTable
from bench.drivers import KneeLoad
from bench.programs import BenchError, Cores, Server
from bench.samples import drive, measure_server
from bench.servers import Servers
from bench.table import WARM_UP_S, Plan, StoreKind

# The distribution of requested keys, as in the store's seed.
ZIPF_THETA = 0.8


def compare_proxies(
    plan: Plan, cores: Cores, servers: Servers, driver: KneeLoad, kind: StoreKind, stores: int
) -> list[CpuTable]:
    """`knee-proxy --pipelined`, nutcracker and `floor-relay` before the same stores."""
    notes = ["One thread each."]
    if stores > 1:
        notes += [
            f"A set goes to {stores} stores with knee-proxy and floor-relay, which replicate, and to one with "
            "nutcracker, which shards: its CPU is also given per request sent to a store.",
            f"nutcracker splits a multi-get over the {stores} stores; knee-proxy and floor-relay send it whole to one.",
        ]
    table = CpuTable(
        f"knee-proxy --pipelined against nutcracker, in front of {stores} x {kind}",
        ("knee-proxy", "nutcracker", "floor-relay"),
        f"{stores} x {kind}",
        driver.name,
        notes,
        {"knee-proxy": stores, "nutcracker": 1, "floor-relay": stores} if stores > 1 else {},
    )
    with ExitStack() as running:
        start = servers.memcached if kind == "memcached" else servers.knee_kv
        addresses = [running.enter_context(start(cores.others)).address for _ in range(stores)]
        proxy = running.enter_context(servers.knee_proxy(cores.tested, addresses))
        nutcracker = running.enter_context(servers.nutcracker(cores.tested, addresses))
        for cell in _populated(plan, driver, addresses):
            with servers.floor_relay(cores.tested, addresses, cell) as relay:
                contestants = {"knee-proxy": proxy, "nutcracker": nutcracker, "floor-relay": relay}
                _add_rows(plan, driver, [table], cell, contestants)
    return [table]


def compare_stores(plan: Plan, cores: Cores, servers: Servers, driver: KneeLoad) -> list[CpuTable]:
    """`knee-kv` as a cache, `knee-kv` with versions in memory, and memcached: one run, a table for each of ours."""
    tables = [
        CpuTable(
            f"{title} against memcached, keys by Zipf {ZIPF_THETA}",
            (ours, "memcached"),
            "the contestants themselves",
            driver.name,
            ["One thread each (memcached -t 1)."],
        )
        for title, ours in (("knee-kv", "knee-kv"), ("knee-kv --consistency linearizable, in memory,", "versioned"))
    ]
    driver = driver.choosing(f"zipf:{ZIPF_THETA}")
    with (
        servers.knee_kv(cores.tested) as cache,
        servers.knee_kv(cores.tested, "--consistency", "linearizable") as versioned,
        servers.memcached(cores.tested) as memcached,
    ):
        contestants = {"knee-kv": cache, "versioned": versioned, "memcached": memcached}
        for cell in _populated(plan, driver, [server.address for server in contestants.values()]):
            _add_rows(plan, driver, tables, cell, contestants)
    return tables


def _populated(plan: Plan, driver: KneeLoad, addresses: list[str]) -> Iterator[Cell]:
    """The cells. Before each, the stores are filled with values of its size."""
    size = None
    for cell in sorted(plan.cells, key=lambda cell: cell.value_bytes):
        if cell.value_bytes != size:
            driver.populate(addresses, cell)
            size = cell.value_bytes
        yield cell


def _add_rows(plan: Plan, driver: KneeLoad, tables: list[CpuTable], cell: Cell, contestants: dict[str, Server]) -> None:
    """One run of a cell, for all the tables that its contestants are in."""
    plan.progress(f"{tables[0].title}: {cell.name}")
    try:
        for server in contestants.values():
            drive(server, driver, cell, WARM_UP_S)
        samples = plan.in_turns(
            contestants,
            lambda server: measure_server(server, lambda: drive(server, driver, cell, plan.seconds)),
        )
    except BenchError as error:
        # A failure in one cell does not concern the other cells.
        for table in tables:
            table.failures.append(f"{table.title}: {cell.name}: {error}")
    else:
        for table in tables:
            table.rows.append(table.row(cell, samples))
