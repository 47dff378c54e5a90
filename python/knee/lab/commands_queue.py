"""The command line of every process of a system that passes messages. Pure."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knee.lab import programs
from knee.lab.commands import Command, addressed_to, life, pacing, tied
from knee.lab.pgbench import SESSION
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Middleware, Store

_CONNECTIONS_SPARE = 64
"""Connections beside the clients': populating and reconnecting."""
_DATABASE_CONNECTIONS_SPARE = 16
"""Of a PostgreSQL: who prepares, migrates and probes."""
_MIDDLEWARE_CONNECTIONS_OWN = 5
"""Of a middleware, beside those for requests: who listens, three for upkeep, and one for who begins to wait."""
_AS_MAX = 5_000
"""Clients of one --as: Linux takes 128 KiB in an argument, and a client and its queue may have ten digits each."""
_CHECKPOINT_S = 60.0
"""Seconds that a PostgreSQL may need to write its shared buffers."""
_USER = "knee"
_DATABASE = "postgres"
_OF_WHO_ASKS = ("PGPASSWORD", "PGPASSFILE", "PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY")
"""Of PostgreSQL's variables those that knee-queue looks at, too. Any other would have psql ask another database."""
_CONNECT_S = 10
"""As knee-queue."""
REFUSED, UNCONNECTED = 1, 2
"""What psql ends with when the server refuses a statement, and when there is no connection, or none any more."""

Identity = tuple[int, int]
"""The numbers of a client and of the queue that it was made."""


@dataclass(frozen=True)
class Cluster:
    """A private PostgreSQL cluster: its files, and the file with the password of its only user."""

    data: Path
    password: Path


def initdb(process: str, cluster: Cluster) -> Command:
    """Makes the files of a cluster. Raises ProgramError when PostgreSQL is not installed."""
    argv = [
        *_as_nobody_in_particular(),
        str(programs.find_postgresql("initdb")),
        *("--pgdata", str(cluster.data), "--username", _USER, "--pwfile", str(cluster.password)),
        *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-instructions"),
        # Whatever is in it is made anew for each run.
        "--no-sync",
    ]
    return Command(process, "initdb", tuple(argv), own_database=True)


def postgresql(process: str, tier: Store, cluster: Cluster, address: str, connections: int) -> Command:
    """Serves a cluster at an address. It has to take so many connections.

    Raises ProgramError when PostgreSQL is not installed.
    """
    host, _, port = address.rpartition(":")
    settings = {
        "listen_addresses": host,
        "port": port,
        "unix_socket_directories": "",
        "max_connections": str(connections + _DATABASE_CONNECTIONS_SPARE),
        "shared_buffers": f"{tier.memory_mb}MB",
        # knee-queue would have none of `synchronous_commit = off`.
        "fsync": "off" if tier.durability == "none" else "on",
    }
    argv = [
        *_as_nobody_in_particular(),
        *tied(),
        str(programs.find_postgresql("postgres")),
        *("-D", str(cluster.data)),
        *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
    ]
    return Command(
        process,
        "store",
        tuple(argv),
        serves=address,
        asks="postgresql",
        # Asked so it cuts off its clients, and writes what is in memory.
        ends_by=signal.SIGINT,
        grace_s=_CHECKPOINT_S,
        is_family=True,
        cpus=tier.cpus,
        own_database=True,
    )


def database_url(store: Store, address: str | None, data: Path | None) -> str:
    """What a middleware is told of its database. One of the lab's own, which has `data`, is never encrypted."""
    if store.kind == "postgresql" and data is not None:
        return f"postgresql://{_USER}@{address}/{_DATABASE}?sslmode=disable"
    if store.kind == "postgresql":
        return f"postgresql://{store.user}@{address}/{store.database}"
    if store.kind == "sqlite" and data is not None:
        return f"sqlite:{data}"
    return store.kind


def migrate(process: str, url: str, password: Path | None) -> Command:
    """Installs what middlewares need in a database, and exits."""
    argv = [str(programs.find("knee-queue")), "migrate", *_database(url, password), *life()[2:]]
    return Command(process, "migrate", tuple(argv), own_database=password is not None)


def middleware(
    process: str, tier: Middleware, store: Store, host: str, url: str, password: Path | None, clients: int
) -> Command:
    """A middleware on a port of its own choice, in front of a database."""
    connections = tier.workers if tier.connections is None else tier.connections // tier.hosts
    argv = [
        str(programs.find("knee-queue")),
        *("--listen", f"{host}:0"),
        *_database(url, password),
        *("--workers", str(tier.workers), "--threads", str(tier.threads)),
        *(["--connections", str(connections), "--combine", str(tier.combine)] if store.kind == "postgresql" else []),
        *(
            ["--durability", store.durability]
            if store.kind == "sqlite" and store.durability in ("always", "none")
            else []
        ),
        *("--clients-max", str(clients + _CONNECTIONS_SPARE)),
        *life(),
    ]
    return Command(process, "middleware", tuple(argv), own_database=password is not None)


def _database(url: str, password: Path | None) -> list[str]:
    return ["--database", url, *([] if password is None else ["--database-password-file", str(password)])]


def backlog(process: str, configuration: Configuration, server: str, seed: int) -> Command:
    """Registers the clients, sends the messages between them which are there from the beginning, and exits."""
    workload = configuration.workload
    argv = [
        str(programs.find("knee-load")),
        "queue",
        *addressed_to([server]),
        *("--backlog", str(workload.backlog), "--clients", str(configuration.clients)),
        *("--receivers", workload.receivers, "--characters", str(workload.characters), "--seed", str(seed)),
        *life(),
    ]
    return Command(process, "populate", tuple(argv))


def load(
    index: int,
    configuration: Configuration,
    servers: Sequence[str],
    start_at: int,
    seconds: int,
    seed: int,
    registered: Sequence[Identity] = (),
) -> Command:
    """The clients of one load host, dealt to the middlewares in turn, each host beginning with another one.

    `registered` are the clients of all hosts, where they are registered already: each host has its share of them.
    """
    tier, workload = configuration.system.load, configuration.workload
    first, clients = index % len(servers), configuration.clients // tier.hosts
    own = registered[index * clients : (index + 1) * clients]
    argv = [
        str(programs.find("knee-load")),
        "queue",
        *addressed_to([*servers[first:], *servers[:first]]),
        *("--clients", str(clients), "--threads", str(min(tier.threads, clients))),
        *("--seconds", str(seconds), "--start-at", str(start_at), "--seed", str(seed + index)),
        *pacing(workload, tier.hosts),
        *("--loop", workload.loop, "--characters", str(workload.characters), "--receivers", workload.receivers),
        *(word for place in range(0, len(own), _AS_MAX) for word in ("--as", _pairs(own[place : place + _AS_MAX]))),
        *(["--verify"] if workload.verify else []),
        *life(),
    ]
    return Command(f"load-{index}", "load", tuple(argv))


def _pairs(identities: Sequence[Identity]) -> str:
    return ",".join(f"{client}:{queue}" for client, queue in identities)


def psql(process: str, url: str, pgpass: Path, script: Path) -> Command:
    """Runs a script in a database, up to its first error."""
    argv = [
        *tied(),
        str(programs.find_postgresql("psql")),
        *("--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url, "--file", str(script)),
    ]
    environment = (("PGPASSFILE", str(pgpass)),)
    return Command(process, "prepare", tuple(argv), environment=environment, own_database=True)


def ask_elsewhere(process: str, url: str, statements: Sequence[str]) -> Command:
    """Makes statements in a database that runs elsewhere, up to the first error, each as a transaction.

    Says "connected" before the first of them. Ends with REFUSED or UNCONNECTED when they could not be made.
    """
    argv = [
        *tied(),
        str(programs.find_postgresql("psql")),
        *("--no-psqlrc", "--no-password", "--quiet", "--set", "ON_ERROR_STOP=1", "--set", "SHOW_CONTEXT=never"),
        *("--dbname", url, "--command", '\\echo {"type":"connected"}'),
        *(part for statement in statements for part in ("--command", statement)),
    ]
    # What psql itself says is looked at, and so in English; what the server says is in a language of its own.
    environment = (("PGCONNECT_TIMEOUT", str(_CONNECT_S)), ("LC_ALL", "C"))
    return Command(process, "prepare", tuple(argv), environment=environment, own_database=True, keeps=_OF_WHO_ASKS)


def pgbench(
    process: str,
    configuration: Configuration,
    url: str,
    room: Scratch,
    scripts: Sequence[Path],
    seconds: int,
    seed: int,
) -> Command:
    """Debian's pgbench, with a connection for each client, which asks for one script at a time and is logged by it."""
    tier, clients = configuration.system.load, configuration.clients
    argv = [
        *tied(),
        str(programs.find_postgresql("pgbench")),
        *("--no-vacuum", "--protocol", "prepared"),
        # Whatever is behind the last @ of such a name is a weight.
        *(part for script in scripts for part in ("--file", f"{script}@1")),
        *("--client", str(clients), "--jobs", str(min(tier.threads, clients)), "--time", str(seconds)),
        *("--log", "--log-prefix", str(room.pgbench_log_path), "--random-seed", str(seed)),
        url,
    ]
    environment = (("PGPASSFILE", str(room.pgpass_path)), ("PGOPTIONS", SESSION))
    return Command(process, "load", tuple(argv), environment=environment, own_database=True)


def connections_of_database(configuration: Configuration) -> int:
    """How many connections all middlewares, or those who do without, have to their database, at most."""
    if configuration.system.load.kind == "pgbench":
        return configuration.clients
    tier = configuration.system.middleware
    if tier is None:
        return 0
    middlewares = configuration.middlewares
    return (tier.connections or middlewares * (tier.workers or 0)) + middlewares * _MIDDLEWARE_CONNECTIONS_OWN


def _as_nobody_in_particular() -> list[str]:
    """PostgreSQL refuses to run as root, who is somebody else in a namespace of his own. The files stay root's."""
    if os.geteuid() != 0:
        return []
    unshare = str(programs.find_foreign("unshare", "util-linux"))
    return [unshare, "--user", "--map-user=1", "--map-group=1", "--"]
