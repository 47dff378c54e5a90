"""Which fields apply to a protocol and a store, and which they require. Pure: a point in, problems out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from knee.spec.positions import Path, Problem
from knee.spec.tables import OF_SYSTEM, TIERS, Configuration, Graph, Store, System, Table, Workload, settings

_WORKLOAD: Path = ("workload",)
_MIDDLEWARE: Path = ("system", "middleware")
_STORE: Path = ("system", "store")
_OF_MEMCACHED = {
    "set_get": "give the requests in mix",
    "multiget": "each read has one key",
    "pipeline": "each client has one request in flight",
}
_OF_ITEMS = ("value_bytes", "keys", "populated", "ttl_s", "key_choice")
_OF_KV = ("interface", "mix", "own_keys", "key_draws", "scan_keys", "bulk_keys", "large_bytes", "graph")
_OF_QUEUE = ("loop", "characters", "receivers", "backlog", "level")
_OF_NBD = ("block_bytes", "writes")
_OF_KNEE_LOAD = ("loop", "receivers", "rate", "think_ms", "think", "arrivals")
_OF_SYNCS = ("dally_us", "batch_max")
_OF_KNEE_KV = ("consistency", "history_s", "trace", *_OF_SYNCS)
_OF_POSTGRESQL = ("cpus", "indexes")
_OF_POSTGRESQL_ELSEWHERE = ("user", "database", "reset")
_OF_PROXY = ("pipelined", "multiget", "batch_max", "cache_mb", "cache_ms")
_OF_PROGRAMS = ("threads", "memory_mb")
_ELSEWHERE = "cannot be set: this tier already runs elsewhere (address = …)"
_DURABLE = ("knee-kv", "postgresql", "sqlite")
_DATABASES = ("postgresql", "sqlite", "null")
_OF_GRPC = ("scan", "atomic_scan", "bulk_put")


def check_applicable(point: Configuration) -> Iterator[Problem]:
    """Problems: fields of a point that do not apply to its protocol or its store, and missing fields."""
    system, workload = point.system, point.workload
    yield from _check_fields(workload)
    if system.store is not None:
        yield from _check_store(system.store)
    if workload.protocol == "kv":
        yield from _check_kv(point)
    if workload.protocol == "nbd":
        yield from _check_nbd(system)
    else:
        yield from _check_no_space(system)
    if workload.protocol == "queue":
        yield from _check_queue(point)
    else:
        yield from _check_no_database(system)


def inapplicable(point: Configuration) -> set[str]:
    """Settings that a point does not give, and that do not apply to it or belong to an external tier."""
    system, workload = point.system, point.workload
    # If Knee would refuse a field as given, the field does not apply when left out.
    every = Configuration.model_validate(point.model_dump())
    names = {".".join(map(str, path)).removeprefix("system.") for path, _ in check_applicable(every)}
    names |= {"load.command", "load.script", "workload.scale", "workload.prepare"}
    names |= {f"system.{name}" for name in OF_SYSTEM}
    names |= {"workload.arrivals"} if workload.rate is None else {"workload.think_ms", "workload.think"}
    for tier in TIERS:
        there = getattr(system, tier)
        if getattr(there, "address", None) is not None:
            names |= {f"{tier}.{field}" for field in type(there).model_fields}
    if workload.graph is not None:
        names.add("workload.keys")
    return names - set(settings(point, given=True))


def _given(table: Table, path: Path, fields: Iterable[str]) -> dict[str, Path]:
    """The paths of those fields that a table has."""
    return {field: (*path, field) for field in fields if field in table.model_fields_set}


def _check_fields(workload: Workload) -> Iterator[Problem]:
    protocol = workload.protocol
    for name, fields in (("kv", _OF_KV), ("queue", _OF_QUEUE), ("nbd", _OF_NBD)):
        for path in _given(workload, _WORKLOAD, fields if protocol != name else ()).values():
            yield path, f'applies to protocol = "{name}" alone'
    refused = {
        "kv": _OF_MEMCACHED,
        "queue": dict.fromkeys((*_OF_MEMCACHED, *_OF_ITEMS), "its clients pass messages"),
        "nbd": dict.fromkeys((*_OF_MEMCACHED, *_OF_ITEMS), "its clients use blocks"),
    }.get(protocol, {})
    for field, path in _given(workload, _WORKLOAD, refused).items():
        yield path, f'does not apply to protocol = "{protocol}": {refused[field]}'


def _check_kv(point: Configuration) -> Iterator[Problem]:
    system, workload = point.system, point.workload
    if system.middleware is not None:
        yield _MIDDLEWARE, 'does not apply to protocol = "kv": its clients call the stores directly'
    if system.store is not None and system.store.kind != "knee-kv":
        yield (*_STORE, "kind"), f'should be "knee-kv" with protocol = "kv", not "{system.store.kind}"'
    yield from _check_mix(workload)
    if workload.graph is not None:
        yield from _check_graph(workload, workload.graph, system.store)


def _check_nbd(system: System) -> Iterator[Problem]:
    middleware, store = system.middleware, system.store
    if middleware is None:
        yield _MIDDLEWARE, 'missing: protocol = "nbd" needs a middleware'
        return
    for path in _given(middleware, _MIDDLEWARE, ("workers", *_OF_PROXY)).values():
        yield path, 'does not apply to protocol = "nbd"'
    if "layout" in middleware.model_fields_set and middleware.address is not None:
        yield (*_MIDDLEWARE, "layout"), _ELSEWHERE
    if store is not None and store.kind != "knee-space":
        yield (*_STORE, "kind"), f'should be "knee-space" with protocol = "nbd", not "{store.kind}"'
    elif store is not None and "threads" in store.model_fields_set:
        yield (*_STORE, "threads"), 'does not apply to "knee-space": it has one thread'
    if store is not None and store.address is None and middleware.layout == "shift" and store.memory_mb.bit_count() > 1:
        yield (*_STORE, "memory_mb"), f'should be a power of two with layout = "shift", not {store.memory_mb}'


def _check_no_space(system: System) -> Iterator[Problem]:
    if system.store is not None and system.store.kind == "knee-space":
        yield (*_STORE, "kind"), '"knee-space" needs protocol = "nbd"'
    if system.middleware is not None and "layout" in system.middleware.model_fields_set:
        yield (*_MIDDLEWARE, "layout"), 'applies to protocol = "nbd" alone'


def _check_queue(point: Configuration) -> Iterator[Problem]:
    system, workload = point.system, point.workload
    middleware, store = system.middleware, system.store
    if system.load.kind == "pgbench":
        yield from _check_pgbench(system, workload)
        return
    if "level" in workload.model_fields_set:
        yield (*_WORKLOAD, "level"), 'applies to kind = "pgbench" alone: loop chooses the requests of knee-load'
    if middleware is None:
        yield _MIDDLEWARE, 'missing: protocol = "queue" needs a middleware'
        return
    if store is None or middleware.address is not None:
        return
    for path in _given(middleware, _MIDDLEWARE, _OF_PROXY).values():
        yield path, 'does not apply to protocol = "queue"'
    if store.kind not in _DATABASES:
        names = ", ".join(f'"{name}"' for name in _DATABASES[:-1])
        yield (*_STORE, "kind"), f'should be {names} or "{_DATABASES[-1]}" with protocol = "queue", not "{store.kind}"'
        return
    if store.kind != "postgresql":
        if middleware.connections is not None:
            yield (*_MIDDLEWARE, "connections"), f'applies to PostgreSQL alone: "{store.kind}" has no connections'
        of_postgresql = _given(middleware, _MIDDLEWARE, ["combine"]) | _given(store, _STORE, ["memory_mb"])
        for path in of_postgresql.values():
            yield path, f'applies to PostgreSQL alone: "{store.kind}" is within the middleware'
        if store.address is not None:
            yield (*_STORE, "address"), f'cannot be given: "{store.kind}" is within the middleware'
    if store.kind == "sqlite" and middleware.hosts > 1:
        yield (*_MIDDLEWARE, "hosts"), 'should be 1: only one middleware can open a file of "sqlite"'
    if middleware.connections is not None and middleware.connections % middleware.hosts:
        expected = f"should divide evenly over {middleware.hosts} middlewares, not {middleware.connections}"
        yield (*_MIDDLEWARE, "connections"), expected
    yield from _check_database(store, "all middlewares share one database")
    if workload.backlog and store.kind == "null":
        yield (*_WORKLOAD, "backlog"), 'does not apply to "null": it keeps no messages'
    if workload.backlog and store.kind == "sqlite" and not store.on_disk:
        # An earlier middleware process stores the backlog. A database in memory would end with that process.
        yield (*_WORKLOAD, "backlog"), 'needs a file on disk: give "sqlite" a durability of "always" or "none"'


def _check_database(store: Store, why_one: str) -> Iterator[Problem]:
    if "threads" in store.model_fields_set:
        yield (*_STORE, "threads"), f'does not apply to "{store.kind}"'
    if store.address is not None and len(store.address) > 1:
        yield (*_STORE, "address"), f"should be one: {why_one}"
    if store.hosts > 1:
        yield (*_STORE, "hosts"), f"should be 1: {why_one}"


def _check_pgbench(system: System, workload: Workload) -> Iterator[Problem]:
    if system.middleware is not None:
        yield _MIDDLEWARE, 'does not apply to kind = "pgbench": it calls the database directly'
    if system.load.hosts > 1:
        yield ("system", "load", "hosts"), 'should be 1 with kind = "pgbench"'
    if system.store is not None and (system.store.kind != "postgresql" or system.store.address is not None):
        yield (*_STORE, "kind"), 'should be "postgresql", started here, with kind = "pgbench"'
    elif system.store is not None:
        yield from _check_database(system.store, 'kind = "pgbench" calls one database')
    for path in _given(workload, _WORKLOAD, _OF_KNEE_LOAD).values():
        yield path, 'does not apply to kind = "pgbench": level chooses the transactions'
    if "verify" in workload.model_fields_set:
        yield (*_WORKLOAD, "verify"), 'does not apply to kind = "pgbench": it does not read its answers'


def _check_no_database(system: System) -> Iterator[Problem]:
    if system.store is not None and system.store.kind in _DATABASES:
        yield (*_STORE, "kind"), f'"{system.store.kind}" needs protocol = "queue"'
    if system.load.kind == "pgbench":
        yield ("system", "load", "kind"), '"pgbench" needs protocol = "queue"'
    if system.middleware is not None:
        for path in _given(system.middleware, _MIDDLEWARE, ("connections", "combine")).values():
            yield path, 'applies to protocol = "queue" alone'


def _check_store(store: Store) -> Iterator[Problem]:
    for field, path in _given(store, _STORE, (*_OF_KNEE_KV, "durability", *_OF_POSTGRESQL)).items():
        kinds = ("postgresql",) if field in _OF_POSTGRESQL else _DURABLE if field == "durability" else ("knee-kv",)
        if store.kind not in kinds:
            names = " or ".join(f'"{kind}"' for kind in kinds)
            yield path, f'applies to kind = {names} alone, not to "{store.kind}"'
        elif store.address is not None:
            yield path, _ELSEWHERE
        elif field in _OF_SYNCS and store.durability != "always":
            yield path, 'needs durability = "always": otherwise no answer waits for a sync'
    for path in _given(store, _STORE, _OF_PROGRAMS if store.address is not None else ()).values():
        yield path, _ELSEWHERE
    is_postgresql_elsewhere = store.kind == "postgresql" and store.address is not None
    for path in _given(store, _STORE, () if is_postgresql_elsewhere else _OF_POSTGRESQL_ELSEWHERE).values():
        yield path, 'applies only to a "postgresql" that runs elsewhere (address = …)'
    durability: Path = (*_STORE, "durability")
    if store.durability is not None and store.durability.startswith("interval") and store.kind != "knee-kv":
        yield durability, f'should be "always" or "none" with kind = "{store.kind}", not "{store.durability}"'
    if store.durability == "memory" and store.kind == "postgresql":
        yield durability, 'should be "always" or "none" with kind = "postgresql", not "memory"'


def _check_mix(workload: Workload) -> Iterator[Problem]:
    path: Path = (*_WORKLOAD, "mix")
    names = [name for name, _ in workload.operations]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        yield path, f"should name each operation once; {twice[0]} occurs several times"
    if not any(weight for _, weight in workload.operations):
        yield path, f'should have a share above 0, not "{workload.mix}"'
    lacking = [name for name, weight in workload.operations if weight and name in _OF_GRPC]
    if workload.interface == "memcached" and lacking:
        yield path, f'cannot contain {lacking[0]} with interface = "memcached": that protocol lacks it'
    appends = any(weight for name, weight in workload.operations if name == "append")
    if workload.interface == "grpc" and workload.ttl_s is not None and appends:
        why = "an append to an expired key makes one that never expires"
        yield (*_WORKLOAD, "ttl_s"), f"cannot be given together with append over gRPC: {why}"


def _check_graph(workload: Workload, graph: Graph, store: Store | None) -> Iterator[Problem]:
    if graph.largest >= graph.users:
        yield ("workload", "graph", "largest"), f"should be less than the {graph.users} users, not {graph.largest}"
    if workload.interface == "memcached":
        yield (*_WORKLOAD, "graph"), 'needs interface = "grpc": the memcached protocol cannot load one'
    if store is not None and store.address is not None:
        yield (*_WORKLOAD, "graph"), "cannot be loaded into stores that already run elsewhere (address = …)"
    for field, reason in (
        ("populated", "the graph has all keys"),
        ("own_keys", "all clients share its keys"),
        ("verify", "its values are lists of followers"),
        ("ttl_s", "its lists do not expire"),
    ):
        if field in workload.model_fields_set and getattr(workload, field) not in (False, None):
            yield (*_WORKLOAD, field), f"cannot be given together with graph: {reason}"
