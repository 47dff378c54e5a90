"""The command line of every server and client of a configuration. Pure.

Every server gets its own address; every key is on every store, so that a read may go to any of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knee.lab import programs
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Graph, Load, Middleware, Store, Workload

_CONNECTIONS_SPARE = 64
"""Connections that a store must have free for populating, probing and reconnecting."""
_VALUE_BYTES_MAX = 1 << 20
"""The largest value that a store takes unless it is told otherwise."""
_CHECKPOINT_S = 60.0
"""Seconds that a store on disk may need to write what is in memory."""

START_PASSED = 75
"""The exit code of `knee-load` whose connections stood only when the agreed start was over (sysexits.h: try again)."""


@dataclass(frozen=True)
class Command:
    """A program to start.

    process  what it is called in lines, logs and tables: "store-0"
    serves   for a program that does not say that it is ready: the address at which to ask it
    asks     in which protocol: "memcached" or "postgresql"
    answers  for a program that does: which of the addresses in its `ready` line is asked
    ends_by  the signal that it is asked to end by
    grace_s  seconds that it then has
    is_family  its work is done by processes that it starts
    cpus     processors that they have together; all of the host's unless given
    environment  what it finds in its environment beside the lab's
    own_database its database is one of the lab's: what the environment says of others (PGHOSTADDR, PGPASSWORD, ...)
                 is kept from it
    keeps    but for these
    """

    process: str
    role: str
    argv: tuple[str, ...]
    serves: str | None = None
    asks: str = "memcached"
    answers: str = "listen"
    ends_by: signal.Signals = signal.SIGTERM
    grace_s: float = 5.0
    is_family: bool = False
    cpus: float | None = None
    environment: tuple[tuple[str, str], ...] = ()
    own_database: bool = False
    keeps: tuple[str, ...] = ()


def store(
    process: str,
    tier: Store,
    free_address: str,
    connections: int,
    workload: Workload | None = None,
    room: Scratch | None = None,
) -> Command:
    """A store that listens on an address of its own choice, or on `free_address` if it cannot choose.

    workload  what it is asked for; without one, the memcached protocol
    room      where it keeps its data, if that is on disk, and finds the workload's graph
    """
    if tier.kind == "memcached":
        return _memcached(process, tier, free_address, connections)
    over_grpc = workload is not None and (workload.protocol, workload.interface) == ("kv", "grpc")
    argv = [
        str(programs.find("knee-kv")),
        "--listen",
        _port_zero(free_address),
        "--threads",
        str(tier.threads),
        "--memory-mb",
        str(tier.memory_mb),
        "--connections-max",
        str(connections + _CONNECTIONS_SPARE),
        *(["--grpc", _port_zero(free_address)] if over_grpc else []),
        *_versions(tier, process, room),
        *([] if workload is None or workload.graph is None else _loadable(workload.graph, room)),
        *(["--trace"] if tier.trace else []),
        *life(),
    ]
    return Command(
        process,
        "store",
        tuple(argv),
        answers="grpc" if over_grpc else "listen",
        grace_s=_CHECKPOINT_S if tier.on_disk else Command.grace_s,
    )


def _versions(tier: Store, process: str, room: Scratch | None) -> list[str]:
    """What makes a store keep versions, and where."""
    argv: list[str] = []
    if tier.on_disk:
        assert room is not None, "whoever starts a store on disk has a place for it"
        argv += ["--data", str(room.data_path(process)), "--durability", str(tier.durability)]
    if tier.durability is not None or tier.consistency is not None:
        argv += ["--consistency", tier.consistency or "linearizable"]
    if tier.history_s is not None:
        argv += ["--history-s", str(tier.history_s)]
    return argv


def _loadable(graph: Graph, room: Scratch | None) -> list[str]:
    """A value is a line for every follower: a user's number and a line feed."""
    assert room is not None, "whoever starts a store that loads a graph has made one"
    value_bytes = graph.largest * (len(str(graph.users)) + 1)
    return ["--init-dir", str(room.path), "--value-bytes-max", str(max(_VALUE_BYTES_MAX, value_bytes))]


def graph(process: str, wanted: Graph, seed: int, file: Path) -> Command:
    """Writes a graph as a file that stores load."""
    argv = [
        *tied(),
        str(programs.find("knee-kv")),
        "graph",
        "--users",
        str(wanted.users),
        "--largest",
        str(wanted.largest),
        *([] if wanted.exponent is None else ["--exponent", str(wanted.exponent)]),
        "--seed",
        str(seed),
        str(file),
    ]
    return Command(process, "graph", tuple(argv))


def init(process: str, server: str, graph: Path) -> Command:
    """A client that has a store load a file, and exits."""
    argv = [str(programs.find("knee-load")), "kv", "--server", server, "--init", graph.name, *life()]
    return Command(process, "init", tuple(argv))


def _memcached(process: str, tier: Store, address: str, connections: int) -> Command:
    host, _, port = address.rpartition(":")
    argv = [
        *tied(),
        str(programs.find_foreign("memcached", "memcached")),
        "-l",
        host,
        "-p",
        port,
        "-U",
        "0",
        "-t",
        str(tier.threads),
        "-m",
        str(tier.memory_mb),
        "-c",
        str(max(1024, connections + _CONNECTIONS_SPARE)),
    ]
    if os.geteuid() == 0:
        # It refuses to run as root unless it is told to.
        argv += ["-u", "root"]
    return Command(process, "store", tuple(argv), serves=address)


def middleware(process: str, tier: Middleware, host: str, stores: Sequence[str], clients: int) -> Command:
    """A middleware on a port of its own choice, in front of the stores at these addresses."""
    mode = ["--pipelined"] if tier.pipelined else ["--workers", str(tier.workers)]
    argv = [
        str(programs.find("knee-proxy")),
        "--listen",
        f"{host}:0",
        *addressed_to(stores),
        *mode,
        "--threads",
        str(tier.threads),
        "--multiget",
        tier.multiget,
        "--connections-max",
        str(clients + _CONNECTIONS_SPARE),
        *life(),
    ]
    return Command(process, "middleware", tuple(argv))


def connections_per_store(configuration: Configuration) -> int:
    """How many connections a store has to accept from the tier in front of it, at most."""
    tier = configuration.system.middleware
    if tier is None:
        return configuration.clients
    return configuration.middlewares * (tier.threads if tier.workers is None else tier.workers)


def populate(process: str, configuration: Configuration, servers: Sequence[str], seed: int) -> Command:
    """A client that sets the populated share of the keys and exits."""
    workload = configuration.workload
    argv = [
        str(programs.find("knee-load")),
        *_protocol(workload),
        *addressed_to(servers),
        *_data(configuration),
        "--populate",
        str(workload.populated),
        "--seed",
        str(seed),
        *life(),
    ]
    return Command(process, "populate", tuple(argv))


def load(
    index: int, configuration: Configuration, servers: Sequence[str], start_at: int, seconds: int, seed: int
) -> Command:
    """The clients of one load host, dealt to the servers in turn.

    Each host starts with another server, so that few clients over many hosts do not all meet the first.
    """
    tier, workload = configuration.system.load, configuration.workload
    first = index % len(servers)
    argv = [
        str(programs.find("knee-load")),
        *_protocol(workload),
        *addressed_to([*servers[first:], *servers[:first]]),
        "--clients",
        str(configuration.clients // tier.hosts),
        "--threads",
        str(_load_threads(tier, configuration.clients)),
        "--seconds",
        str(seconds),
        "--start-at",
        str(start_at),
        "--seed",
        str(seed + index),
        *pacing(workload, tier.hosts),
        *(_operations(workload, index, tier.hosts, seed) if workload.protocol == "kv" else _commands(workload)),
        *_data(configuration),
        "--key-choice",
        workload.key_choice,
        *(["--verify"] if workload.verify else []),
        *life(),
    ]
    return Command(f"load-{index}", "load", tuple(argv))


def _protocol(workload: Workload) -> list[str]:
    return ["kv", "--protocol", workload.interface] if workload.protocol == "kv" else ["memcached"]


def _commands(workload: Workload) -> list[str]:
    """What is asked of the memcached protocol."""
    pipeline = [] if workload.pipeline is None else ["--pipeline", str(workload.pipeline)]
    return ["--set-get", workload.set_get, "--multiget", str(workload.multiget), *pipeline]


def _operations(workload: Workload, index: int, hosts: int, seed: int) -> list[str]:
    """What the load host of this index asks of a store that keeps versions."""
    asked = {name for name, weight in workload.operations if weight}
    argv = ["--mix", workload.mix]
    argv += ["--own-keys"] if workload.own_keys else []
    # Each process numbers its clients from zero: their keys lie in its part of all keys.
    argv += ["--part", f"{index + 1}/{hosts}"] if workload.own_keys and hosts > 1 else []
    # Those of all hosts' clients.
    draws = ["--key-draws", str(workload.key_draws), "--draws-seed", str(seed)]
    argv += [] if workload.key_draws is None else draws
    argv += ["--scan-keys", str(workload.scan_keys)] if asked & {"scan", "atomic_scan"} else []
    argv += ["--bulk-keys", str(workload.bulk_keys)] if "bulk_put" in asked else []
    return argv + ([] if workload.large_bytes is None else ["--large-bytes", str(workload.large_bytes)])


def _load_threads(tier: Load, clients: int) -> int:
    """A thread without a client would have nothing to do."""
    return min(tier.threads, clients // tier.hosts)


def pacing(workload: Workload, hosts: int) -> list[str]:
    """How the clients of one of so many load hosts wait: for their next request, or for nobody."""
    if workload.rate is not None:
        return ["--rate", repr(workload.rate / hosts), "--arrivals", workload.arrivals]
    return ["--think-ms", repr(workload.think_ms), "--think", workload.think]


def _data(configuration: Configuration) -> list[str]:
    """What populating and measuring have to agree on: which keys there are, and which values they have for how long."""
    workload = configuration.workload
    # The users of a graph are plain numbers.
    names = [] if workload.graph is None else ["--key-prefix", "", "--key-format", "plain"]
    expiry = [] if workload.ttl_s is None else ["--ttl-s", str(workload.ttl_s)]
    return [*names, "--keys", str(configuration.key_count), "--value-bytes", str(workload.value_bytes), *expiry]


def addressed_to(addresses: Sequence[str]) -> list[str]:
    """Whom a program asks."""
    return [part for address in addresses for part in ("--server", address)]


def life() -> list[str]:
    """Every program of ours prints JSON lines and ends with the lab."""
    return ["--stats", "json", "--tied-to-parent", str(os.getpid())]


def tied() -> list[str]:
    """For a program that does not end with its parent: setpriv (util-linux) asks the kernel to see to it."""
    return [str(programs.find_foreign("setpriv", "util-linux")), "--pdeathsig", "KILL", "--"]


def _port_zero(address: str) -> str:
    return address.rpartition(":")[0] + ":0"


def start_lead_s(configuration: Configuration) -> float:
    """Seconds that the clients get at least, from being started to the start second: room to connect, and to register
    where a database has to keep that."""
    clients = configuration.clients
    return 1.0 + clients / 100 if configuration.workload.protocol == "queue" else 0.5 + clients / 5000
