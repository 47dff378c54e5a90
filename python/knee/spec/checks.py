"""Checks across several fields of an experiment. Pure: a point in, problems out."""

from __future__ import annotations

from collections.abc import Iterator

from knee.spec.applicable import check_applicable
from knee.spec.foreign import check_foreign, check_no_command
from knee.spec.positions import Path, Problem
from knee.spec.tables import Configuration, Middleware, Store, Workload


def cross_checks(point: Configuration) -> Iterator[Problem]:
    """The problems of one point of the grid."""
    system, workload = point.system, point.workload
    load, middleware, store = system.load, system.middleware, system.store
    clients: Path = ("system", "load", "clients")
    if load.clients is None:
        yield clients, "missing: give it here or as a factor"
    elif load.clients < load.hosts:
        yield clients, f"should be at least one per load host ({load.hosts}), not {load.clients}"
    elif load.clients % load.hosts:
        yield (
            clients,
            f"should divide evenly over {load.hosts} load hosts, not {load.clients}; "
            f"the nearest that do are {_multiples_near(load.clients, load.hosts)}",
        )
    if load.is_foreign:
        yield from check_foreign(point)
        return
    yield from check_no_command(point)
    if middleware is not None:
        if workload.protocol != "nbd":
            yield from _check_middleware(middleware)
        yield from _check_address(("system", "middleware"), middleware)
    if store is None and (middleware is None or middleware.address is None):
        yield ("system", "store"), "missing: give a store"
    if store is not None and store.address is None and middleware is not None and middleware.address is not None:
        yield (
            ("system", "store"),
            "cannot be started here when its middlewares already run elsewhere: give its address, or leave it out",
        )
    if store is not None:
        yield from _check_address(("system", "store"), store)
    yield from check_applicable(point)
    yield from _check_workload(workload)


def _check_middleware(middleware: Middleware) -> Iterator[Problem]:
    workers: Path = ("system", "middleware", "workers")
    if middleware.pipelined and middleware.workers is not None:
        yield workers, "cannot be given together with pipelined = true"
    elif not middleware.pipelined and middleware.workers is None and middleware.address is None:
        yield workers, "missing: give workers = N, or pipelined = true"
    if middleware.batch_max is not None and not middleware.pipelined:
        yield ("system", "middleware", "batch_max"), "needs pipelined = true: a worker slot has one request in flight"
    # A factor may compare no cache (cache_mb = 0) with one.
    if middleware.cache_ms is not None and "cache_mb" not in middleware.model_fields_set:
        yield ("system", "middleware", "cache_ms"), "needs cache_mb = M: without it there is no cache"


def _check_address(path: Path, tier: Middleware | Store) -> Iterator[Problem]:
    if tier.address is None:
        return
    if "hosts" in tier.model_fields_set and tier.hosts != len(tier.address):
        yield ((*path, "address"), f"should name hosts = {tier.hosts} addresses, not {len(tier.address)}")
    for number, address in enumerate(tier.address, start=1):
        if not 0 < int(address.rpartition(":")[2]) < 65_536:
            yield (*path, "address"), f"should have ports from 1 to 65535: number {number} does not"


def _check_workload(workload: Workload) -> Iterator[Problem]:
    if not any(int(part) for part in workload.set_get.split(":")):
        yield ("workload", "set_get"), 'should have a share above 0, not "0:0"'
    if workload.rate is not None and workload.think_ms:
        yield ("workload", "think_ms"), "cannot be given together with rate: an open loop has none"
    kind, _, rest = str(workload.value_bytes).partition(":")
    try:
        numbers = [float(part) for part in rest.split(":")] if rest else []
    except ValueError:
        numbers = [0.0]
    if rest and (min(numbers) < 1 or max(numbers) > 1_000_000):
        yield (("workload", "value_bytes"), f"should lie within 1 and 1000000 bytes, not {workload.value_bytes!r}")
    elif kind == "uniform" and numbers[0] > numbers[1]:
        yield ("workload", "value_bytes"), f"should be LOW:HIGH, not {workload.value_bytes!r}"
    yield from _check_key_choice(workload.key_choice)


def _check_key_choice(choice: str) -> Iterator[Problem]:
    _, _, rest = choice.partition(":")
    try:
        numbers = [float(part) for part in rest.split(":")] if rest else []
    except ValueError:
        yield ("workload", "key_choice"), f"should have plain numbers, not {choice!r}"
        return
    if choice.startswith("hotset") and not all(0 < number <= 1 for number in numbers):
        yield ("workload", "key_choice"), f"should have shares within 0 and 1, not {choice!r}"


def _multiples_near(clients: int, hosts: int) -> str:
    below = clients - clients % hosts
    return f"{below} and {below + hosts}" if below else str(hosts)
