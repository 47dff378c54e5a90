"""Which fields apply to which protocol and which store, and what they need. Pure: a point in, problems out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from knee.spec.positions import Path
from knee.spec.tables import Configuration, Graph, Store, Workload

_OF_MEMCACHED = {
    "set_get": "mix says what is asked for",
    "multiget": "each of its reads is of one key",
    "pipeline": "each of its clients has one request in flight",
}
_OF_KV = ("interface", "mix", "own_keys", "key_draws", "scan_keys", "bulk_keys", "large_bytes", "graph")
_OF_KNEE_KV = ("durability", "consistency", "history_s", "trace")
_OF_GRPC = ("scan", "atomic_scan", "bulk_put")

Problem = tuple[Path, str]


def check_applicable(point: Configuration) -> Iterator[Problem]:
    """The fields of a point that do not apply to its protocol or its store, and what protocol "kv" needs."""
    system, workload = point.system, point.workload
    given = workload.model_fields_set
    if system.store is not None:
        yield from _check_store(system.store)
    if workload.protocol == "memcached":
        for field in _OF_KV:
            if field in given:
                yield ("workload", field), 'applies to protocol = "kv" alone'
        return
    for field, reason in _OF_MEMCACHED.items():
        if field in given:
            yield ("workload", field), f'does not apply to protocol = "kv": {reason}'
    if system.middleware is not None:
        yield ("system", "middleware"), 'cannot stand before protocol = "kv": its clients talk to the stores themselves'
    if system.store is not None and system.store.kind != "knee-kv":
        yield ("system", "store", "kind"), f'should be "knee-kv" with protocol = "kv", not "{system.store.kind}"'
    yield from _check_mix(workload)
    if workload.graph is not None:
        yield from _check_graph(workload, workload.graph, system.store)


def _check_store(store: Store) -> Iterator[Problem]:
    for field in _OF_KNEE_KV:
        if field not in store.model_fields_set:
            continue
        if store.kind != "knee-kv":
            yield ("system", "store", field), f'applies to kind = "knee-kv" alone, not to "{store.kind}"'
        elif store.address is not None:
            yield ("system", "store", field), "cannot be set: this tier already runs elsewhere (address = …)"


def _check_mix(workload: Workload) -> Iterator[Problem]:
    path: Path = ("workload", "mix")
    names = [name for name, _ in workload.operations]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        yield path, f"should name each operation once, not {twice[0]} several times"
    if not any(weight for _, weight in workload.operations):
        yield path, f'should ask for something, not "{workload.mix}"'
    lacking = [name for name, weight in workload.operations if weight and name in _OF_GRPC]
    if workload.interface == "memcached" and lacking:
        yield path, f'cannot hold {lacking[0]} with interface = "memcached": that protocol has none'
    appends = any(weight for name, weight in workload.operations if name == "append")
    if workload.interface == "grpc" and workload.ttl_s is not None and appends:
        yield (
            ("workload", "ttl_s"),
            "cannot be given together with append over gRPC: of a key that has expired it makes one that never does",
        )


def _check_graph(workload: Workload, graph: Graph, store: Store | None) -> Iterator[Problem]:
    if graph.largest >= graph.users:
        yield ("workload", "graph", "largest"), f"should be less than the {graph.users} users, not {graph.largest}"
    if workload.interface == "memcached":
        yield ("workload", "graph"), 'needs interface = "grpc": the memcached protocol cannot load one'
    if store is not None and store.address is not None:
        yield ("workload", "graph"), "cannot be loaded into stores that already run elsewhere (address = …)"
    for field, reason in (
        ("populated", "the graph says what is there"),
        ("own_keys", "its keys are everybody's"),
        ("verify", "its values are lists of followers"),
        ("ttl_s", "its lists stay"),
    ):
        if field in workload.model_fields_set and getattr(workload, field) not in (False, None):
            yield ("workload", field), f"cannot be given together with graph: {reason}"
