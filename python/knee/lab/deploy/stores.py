"""The stores of a run and the clients that populate them. Every server has its own address, and every store holds every
key."""

from __future__ import annotations

import signal
import time

from knee.lab import programs
from knee.lab.command import CHECKPOINT_S, CONNECTIONS_SPARE, Command, addressed_to, life, port_zero, tied
from knee.lab.deploy.deployment import (
    POPULATE_BYTES_PER_S,
    POPULATE_KEYS_PER_S,
    READY_TIMEOUT_S,
    Deployment,
)
from knee.lab.hosts import Process
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Graph, Store, Workload

_VALUE_BYTES_MAX = 1 << 20
"""The largest value that a store takes by default."""


def store(
    process: str,
    tier: Store,
    free_address: str,
    connections: int,
    workload: Workload | None = None,
    room: Scratch | None = None,
) -> Command:
    """A store that listens on an address of its own choice, or on `free_address` if it cannot choose.

    workload  the clients' workload; without one, the store serves the memcached protocol
    room      the scratch directory for data on disk and the workload's graph
    """
    if tier.kind == "memcached":
        return _memcached(process, tier, free_address, connections)
    over_grpc = workload is not None and (workload.protocol, workload.interface) == ("kv", "grpc")
    argv = [
        str(programs.find("knee-kv")),
        *("--listen", port_zero(free_address), "--threads", str(tier.threads), "--memory-mb", str(tier.memory_mb)),
        *("--connections-max", str(connections + CONNECTIONS_SPARE)),
        *(["--grpc", port_zero(free_address)] if over_grpc else []),
        *_versions(tier, process, room),
        *([] if workload is None or workload.graph is None else _loadable(workload.graph, room)),
        *(["--trace"] if tier.trace else []),
        *life(),
    ]
    answers = "grpc" if over_grpc else "listen"
    return Command(
        process, "store", tuple(argv), answers=answers, grace_s=CHECKPOINT_S if tier.on_disk else Command.grace_s
    )


def _versions(tier: Store, process: str, room: Scratch | None) -> list[str]:
    """Flags of a versioned store."""
    argv: list[str] = []
    if tier.on_disk:
        assert room is not None, "a store on disk has a scratch directory"
        argv += ["--data", str(room.data_path(process)), "--durability", str(tier.durability)]
    if tier.durability is not None or tier.consistency is not None:
        argv += ["--consistency", tier.consistency or "linearizable"]
    if tier.dally_us:
        argv += ["--dally-us", str(tier.dally_us)]
    if tier.batch_max != "all":
        argv += ["--batch-max", str(tier.batch_max)]
    if tier.history_s is not None:
        argv += ["--history-s", str(tier.history_s)]
    return argv


def _loadable(graph: Graph, room: Scratch | None) -> list[str]:
    """Flags to load a graph. A value has a line for every follower: a user's number and a line feed."""
    assert room is not None, "a store that loads a graph has a scratch directory"
    value_bytes = graph.largest * (len(str(graph.users)) + 1)
    return ["--init-dir", str(room.path), "--value-bytes-max", str(max(_VALUE_BYTES_MAX, value_bytes))]


def _memcached(process: str, tier: Store, address: str, connections: int) -> Command:
    host, _, port = address.rpartition(":")
    argv = [
        *tied(),
        str(programs.find_foreign("memcached")),
        *("-l", host, "-p", port, "-U", "0", "-t", str(tier.threads), "-m", str(tier.memory_mb)),
        *("-c", str(max(1024, connections + CONNECTIONS_SPARE))),
        # memcached needs this flag to run as root, and ignores it otherwise.
        *("-u", "root"),
    ]
    # It has nothing to save, and would end up to a second after SIGTERM.
    return Command(process, "store", tuple(argv), serves=address, ends_by=signal.SIGKILL)


def connections_per_store(configuration: Configuration) -> int:
    """Largest number of connections from the tier in front of a store."""
    tier = configuration.system.middleware
    if tier is None:
        return configuration.clients
    return configuration.middlewares * (tier.threads if tier.workers is None else tier.workers)


def populate(process: str, configuration: Configuration, server: str, seed: int) -> Command:
    """A client that sets the populated share of the keys and exits."""
    workload = configuration.workload
    argv = [
        str(programs.find("knee-load")),
        workload.protocol,
        *addressed_to([server]),
        *keys(configuration),
        *("--populate", str(workload.populated), "--seed", str(seed)),
        *life(),
    ]
    return Command(process, "populate", tuple(argv))


def keys(configuration: Configuration) -> list[str]:
    """Flags that populating and measuring share: the keys, and the lengths and lifetimes of their values."""
    workload = configuration.workload
    interface = ["--protocol", workload.interface] if workload.protocol == "kv" else []
    # The users of a graph are plain numbers.
    names = [] if workload.graph is None else ["--key-prefix", "", "--key-format", "plain"]
    expiry = [] if workload.ttl_s is None else ["--ttl-s", str(workload.ttl_s)]
    values = ["--keys", str(configuration.key_count), "--value-bytes", str(workload.value_bytes)]
    return [*interface, *names, *values, *expiry]


def populating_s(workload: Workload) -> float:
    """Time limit in seconds for setting every key of one store."""
    # The last number of a distribution is its largest value or its mean.
    value_bytes = float(str(workload.value_bytes).rpartition(":")[2])
    return workload.keys * (1 / POPULATE_KEYS_PER_S + value_bytes / POPULATE_BYTES_PER_S)


class StoresDeployment(Deployment):
    """The processes of a run with key-value stores."""

    def _start_stores(self, configuration: Configuration) -> tuple[list[Process], list[str]]:
        tier = configuration.system.store
        if tier is None:
            return [], []
        if tier.address is not None:
            return [], list(tier.address)
        connections, workload = connections_per_store(configuration), configuration.workload
        return self._start_tier(
            "store", tier.hosts, lambda name, address: store(name, tier, address, connections, workload, self._room)
        )

    def _populate(self, configuration: Configuration, stores: list[str]) -> None:
        """Set the populated share of the keys on every store; unknown stores are populated through a middleware."""
        workload, middleware = configuration.workload, configuration.system.middleware
        if workload.populated == 0:
            return
        targets = stores or list((middleware.address or ())[:1] if middleware is not None else ())
        populating = [
            self._start(populate(f"populate-{index}", configuration, target, self._seed), at=f"store-{index}")
            for index, target in enumerate(targets)
        ]
        deadline = time.monotonic() + READY_TIMEOUT_S + len(targets) * populating_s(workload)
        for process in populating:
            self._populated(process, max(0.0, deadline - time.monotonic()))
