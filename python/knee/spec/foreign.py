"""Experiments with another load generator than Knee's: which fields apply. Pure: a point in, problems out."""

from __future__ import annotations

from collections.abc import Iterator

from knee.errors import SpecError
from knee.spec.positions import Path, Problem
from knee.spec.tables import OF_SYSTEM, Configuration, Load, Store, System, Workload
from knee.spec.template import Template, place_of, words_of

NOT_MEASURED = ("warmup_s", "cooldown_s", "hosts")
"""The fields of [measure] that do not apply, but for ramp."""

SETS, GETS = "1:0", "0:1"
"""The values of `set_get` for redis-benchmark, which has one operation in a run."""

_STORES = {"wrk": "nginx", "redis-benchmark": "redis", "pgbench": "postgresql"}
"""The store of each kind of load generator."""

_OF_STORE = {
    "nginx": ("threads",),
    "redis": ("threads", "durability"),
    "postgresql": ("memory_mb", "durability", "cpus"),
}
_OF_WORKLOAD = {
    "nginx": ("value_bytes",),
    "redis": ("value_bytes", "keys"),
    "postgresql": ("scale", "prepare"),
}
"""The fields that apply to each store."""

_DURABLE = {"nginx": (), "redis": ("memory", "always", "none"), "postgresql": ("always", "none")}
_OF_STARTED = ("url", "host", "port")
"""Placeholders that need a store."""
_OF_LOAD = ("clients", "seconds", "output", "requests")
"""The other placeholders of a load generator."""


def check_foreign(point: Configuration) -> Iterator[Problem]:
    """Problems of a point: fields that do not apply, and commands that cannot run."""
    system, workload = point.system, point.workload
    load, store = system.load, system.store
    if system.middleware is not None:
        yield ("system", "middleware"), "does not apply to other load generators: start it with system.command"
    if load.command is not None:
        yield from _check_commands(system)
        for field in sorted(load.model_fields_set - {"clients", "command"}):
            yield ("system", "load", field), "does not apply to load.command: write it into the command"
    else:
        for field in ("command", "ready"):
            if getattr(system, field) is not None:
                yield ("system", field), f'needs load.command: kind = "{load.kind}" calls its store'
        yield from _check_kind(load, store)
    if store is not None:
        yield from _check_store(store)
    yield from _check_workload(workload, load, "" if store is None else store.kind)


def check_no_command(point: Configuration) -> Iterator[Problem]:
    """Problems of a point with Knee's load generator, or with pgbench without a script."""
    system, workload = point.system, point.workload
    for field in OF_SYSTEM:
        if getattr(system, field) is not None:
            yield ("system", field), "needs load.command: knee-load measures the tiers that Knee starts"
    if system.store is not None and system.store.kind in ("nginx", "redis"):
        kinds = " or ".join(f'"{kind}"' for kind, store in _STORES.items() if store == system.store.kind)
        yield ("system", "store", "kind"), f'"{system.store.kind}" needs load.kind = {kinds}, or load.command'
    for field in ("scale", "prepare"):
        if getattr(workload, field) is not None:
            yield ("workload", field), "needs load.script or load.command"


def _check_kind(load: Load, store: Store | None) -> Iterator[Problem]:
    if load.kind not in _STORES:
        yield ("system", "load", "script"), f'applies to kind = "pgbench" alone, not to "{load.kind}"'
        return
    if store is None or store.kind != _STORES[load.kind]:
        found = "" if store is None else f', not "{store.kind}"'
        yield ("system", "store", "kind"), f'should be "{_STORES[load.kind]}" with kind = "{load.kind}"{found}'
    applies = {"clients", "kind", "threads", *(["script"] if load.kind == "pgbench" else [])}
    for field in sorted(load.model_fields_set - applies):
        yield ("system", "load", field), f'does not apply to kind = "{load.kind}"'
    if load.kind == "wrk" and load.clients and load.clients % load.threads:
        expected = f"should be a multiple of the threads of wrk ({load.threads}), not {load.clients}"
        yield ("system", "load", "clients"), expected
    elif load.clients and load.clients < load.threads:
        yield ("system", "load", "clients"), f"should be at least load.threads ({load.threads}), not {load.clients}"


def _check_store(store: Store) -> Iterator[Problem]:
    if store.kind not in _OF_STORE:
        kinds = '"nginx", "redis" or "postgresql"'
        yield ("system", "store", "kind"), f'should be {kinds} with another load generator, not "{store.kind}"'
        return
    for field in sorted(store.model_fields_set - {"kind", *_OF_STORE[store.kind]}):
        yield ("system", "store", field), f'does not apply to "{store.kind}" with another load generator'
    if store.durability not in (None, *_DURABLE[store.kind]) and "durability" in _OF_STORE[store.kind]:
        names = ", ".join(f'"{each}"' for each in _DURABLE[store.kind])
        expected = f'should be {names} with kind = "{store.kind}", not "{store.durability}"'
        yield ("system", "store", "durability"), expected


def _check_workload(workload: Workload, load: Load, store: str) -> Iterator[Problem]:
    is_benchmark = load.command is None and load.kind == "redis-benchmark"
    applies = {*_OF_WORKLOAD.get(store, ()), *(["set_get"] if is_benchmark else [])}
    for field in sorted(workload.model_fields_set - applies):
        yield ("workload", field), "does not apply to another load generator: write the requests into its command"
    if is_benchmark and workload.set_get not in (SETS, GETS):
        yield ("workload", "set_get"), f'should be "{SETS}" or "{GETS}": a run of redis-benchmark has one operation'
    if store in ("nginx", "redis") and not isinstance(workload.value_bytes, int):
        expected = f"should be one size with another load generator, not {workload.value_bytes!r}"
        yield ("workload", "value_bytes"), expected


def _check_commands(system: System) -> Iterator[Problem]:
    path: Path = ("system", "load", "command")
    try:
        template = Template.parse(words_of(system.load.command or ""))
    except SpecError as error:
        yield path, f"{error}"
        return
    if missing := [name for name in _OF_STARTED if system.store is None and template.has(name)]:
        yield path, f"has {{{missing[0]}}}, but no store: give one, or write the address"
    if system.store is not None or system.command is None:
        for field in ("command", "ready"):
            if getattr(system, field) is not None:
                why = "does not apply to a store" if system.store is not None else "needs system.command"
                yield ("system", field), f"{why}: Knee waits only for what a command starts"
        return
    try:
        own = Template(words_of(system.command))
    except SpecError as error:
        yield ("system", "command"), f"{error}"
    else:
        if found := [name for name in (*_OF_LOAD, *_OF_STARTED) if own.has(name)]:
            yield ("system", "command"), f"has {{{found[0]}}}, which applies to load.command alone: write the value"
    ready = system.ready or template.url
    if ready is None:
        yield ("system", "ready"), "missing: load.command has no URL to wait for; give a URL or HOST:PORT"
        return
    try:
        place_of(ready)
    except SpecError as error:
        yield ("system", "ready"), f"{error}, not {ready!r}"
