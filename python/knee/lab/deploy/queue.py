"""Protocol "queue": commands and deployment of middlewares, their database, and clients that pass messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import CONNECTIONS_SPARE, Command, File, addressed_to, life, port_zero
from knee.lab.deploy import postgresql
from knee.lab.deploy.deployment import (
    POPULATE_BYTES_PER_S,
    POPULATE_KEYS_PER_S,
    READY_TIMEOUT_S,
    Deployment,
    address_of,
    finished,
)
from knee.lab.deploy.postgresql import DROP_SCHEMA, MADE_S, Cluster
from knee.lab.hosts import Process
from knee.spec import Configuration, Middleware, Store

_MIDDLEWARE_CONNECTIONS_OWN = 5
"""A middleware's other connections, besides those for requests: one for LISTEN, three for maintenance, one for new
waiters."""
_AS_MAX = 5_000
"""Largest number of clients in one --as: Linux limits an argument to 128 KiB, and a client and its queue may have ten
digits each."""
_CLOSING_S = 2
_STORE = "store-0"

Identity = tuple[int, int]
"""The numbers of a client and of its queue."""


def database_url(store: Store, address: str | None, data: Path | None) -> str:
    """The --database of a middleware. A database of the lab has a directory `data`."""
    if store.kind == "postgresql":
        assert address is not None, "a PostgreSQL listens"
        elsewhere = f"postgresql://{store.user}@{address}/{store.database}"
        return elsewhere if data is None else postgresql.own_url(address)
    return f"sqlite:{data}" if store.kind == "sqlite" and data is not None else store.kind


def migrate(process: str, url: str, password: File | None) -> Command:
    """Installs the schema in a database, and exits."""
    argv = [str(programs.find("knee-queue")), "migrate", *_database(url, password), *life()[2:]]
    return _with(password, Command(process, "migrate", tuple(argv)))


def _with(password: File | None, command: Command) -> Command:
    """A command that uses a database of the lab if there is a password."""
    return command if password is None else replace(command, own_database=True, files=(password,))


def middleware(
    process: str, tier: Middleware, store: Store, free_address: str, url: str, password: File | None, clients: int
) -> Command:
    """A middleware on a port of its own choice, in front of a database."""
    connections = tier.workers if tier.connections is None else tier.connections // tier.hosts
    pool = ["--connections", str(connections), "--combine", str(tier.combine)]
    is_file = store.kind == "sqlite" and store.durability in ("always", "none")
    argv = [
        str(programs.find("knee-queue")),
        *("--listen", port_zero(free_address)),
        *_database(url, password),
        *("--workers", str(tier.workers), "--threads", str(tier.threads)),
        *(pool if store.kind == "postgresql" else []),
        *(["--durability", str(store.durability)] if is_file else []),
        *("--clients-max", str(clients + CONNECTIONS_SPARE)),
        *life(),
    ]
    return _with(password, Command(process, "middleware", tuple(argv)))


def _database(url: str, password: File | None) -> list[str]:
    return ["--database", url, *([] if password is None else ["--database-password-file", str(password.path)])]


def backlog(process: str, configuration: Configuration, server: str, seed: int) -> Command:
    """Registers the clients, sends the backlog of messages between them, and exits."""
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


def requests(index: int, configuration: Configuration, registered: Sequence[Identity] = ()) -> list[str]:
    """Flags of a load host for the requests of its clients. `registered` are the clients that a backlog has registered
    for all hosts; each host takes its part.
    """
    workload, clients = configuration.workload, configuration.clients // configuration.system.load.hosts
    own = registered[index * clients : (index + 1) * clients]
    return [
        *("--loop", workload.loop, "--characters", str(workload.characters), "--receivers", workload.receivers),
        *(word for place in range(0, len(own), _AS_MAX) for word in ("--as", _pairs(own[place : place + _AS_MAX]))),
    ]


def _pairs(identities: Sequence[Identity]) -> str:
    return ",".join(f"{client}:{queue}" for client, queue in identities)


def connections_of_database(configuration: Configuration) -> int:
    """Largest number of connections to a database."""
    tier = configuration.system.middleware
    if configuration.system.load.kind == "pgbench":
        return configuration.clients
    if tier is None:
        return 0
    middlewares = configuration.middlewares
    return (tier.connections or middlewares * (tier.workers or 0)) + middlewares * _MIDDLEWARE_CONNECTIONS_OWN


class QueueDeployment(Deployment):
    """The processes of a run whose clients pass messages."""

    _registered: Sequence[Identity] = ()
    """The clients of the backlog."""

    def _requests(self, index: int, configuration: Configuration) -> list[str]:
        return requests(index, configuration, self._registered)

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        tier, store, workload = configuration.system.middleware, configuration.system.store, configuration.workload
        assert tier is not None, "the experiment file was checked"
        if tier.address is not None:
            self._send_backlog(configuration, tier.address[0])
            return [], [], list(tier.address)
        assert store is not None, "the experiment file was checked"
        databases, url, password = self._start_database(configuration, store)
        # Before the first message, because each message adds to the indexes.
        if wanted := postgresql.indexes(store.indexes):
            self._ask_database("indexes", url, "\n".join([*wanted, ""]), MADE_S)

        def serving(process: str, free_address: str) -> Command:
            return middleware(process, tier, store, free_address, url, password, configuration.clients)

        if workload.backlog:
            # Through a separate middleware, so that the measured ones count only measured requests.
            sending = self._start(serving("populate-middleware", self._host.free_address(_STORE)), at=_STORE)
            self._send_backlog(configuration, address_of(sending))
            sending.stop(sending.command.grace_s)
        middlewares, targets = self._start_tier("middleware", tier.hosts, serving)
        return databases, middlewares, targets

    def _start_database(self, configuration: Configuration, store: Store) -> tuple[list[Process], str, File | None]:
        """Start or prepare the database; return its process if the lab started one, its URL, and its password."""
        address = None if store.address is None else store.address[0]
        data = self._room.data_path("store-0") if self._room is not None and store.on_disk else None
        if store.kind != "postgresql":
            return [], database_url(store, address, data), None
        if address is not None:
            url = database_url(store, address, None)
            self._make_schema(url, reset=store.reset)
            finished(self._start(migrate("migrate", url, None)), MADE_S)
            return [], url, None
        assert self._room is not None and data is not None, "the lab's PostgreSQL has a scratch directory"
        cluster = Cluster(data, self._room.password)
        finished(self._start(postgresql.initdb("initdb", cluster), at=_STORE), MADE_S)
        connections, free = connections_of_database(configuration), self._host.free_address(_STORE)
        process = self._start(postgresql.postgresql(_STORE, store, cluster, free, connections))
        url = database_url(store, address_of(process), data)
        finished(self._start(migrate("migrate", url, cluster.password), at=_STORE), MADE_S)
        return [process], url, cluster.password

    def _make_schema(self, url: str, *, reset: bool) -> None:
        """Make the schema in an external database, and drop it at the end of the run."""
        making = self._start(postgresql.statements("schema", url, postgresql.make_schema(reset=reset)))
        if making.wait(MADE_S) != 0:
            raise ProcessError(
                f"store.address: cannot make the schema knee_queue: {making.describe()}; give a database without this "
                "schema, or store.reset = true, which drops the existing one"
            )
        self._cleanup.callback(self._drop_schema, url)

    def _drop_schema(self, url: str) -> None:
        """Drop the schema that this run has made, even after other failures."""
        try:
            self._host.close(_CLOSING_S)
        finally:
            dropping = self._start(postgresql.statements("drop", url, DROP_SCHEMA))
            if dropping.wait(MADE_S) != 0:
                raise ProcessError(
                    f"store.address: the schema knee_queue is left there: {dropping.describe()}; remove it with DROP "
                    "SCHEMA knee_queue CASCADE"
                )

    def _ask_database(self, process: str, url: str, sql: str, timeout_s: float) -> None:
        """Run a script with psql in a database of the lab."""
        assert self._room is not None, "the lab's database has a scratch directory"
        command = postgresql.script(process, url, self._room.pgpass, self._room.script(process, sql))
        finished(self._start(command, at=_STORE), timeout_s)

    def _send_backlog(self, configuration: Configuration, address: str) -> None:
        workload = configuration.workload
        if workload.backlog:
            process = self._start(backlog("populate-0", configuration, address, self._seed), at=_STORE)
            paced_s = workload.backlog * (1 / POPULATE_KEYS_PER_S + workload.characters / POPULATE_BYTES_PER_S)
            registering_s = 1 + configuration.clients / 100
            self._populated(process, READY_TIMEOUT_S + registering_s + paced_s)
            clients = self._summaries[process.command.process]["populate"]["clients"]
            self._registered = [(client, queue) for client, queue in clients]
