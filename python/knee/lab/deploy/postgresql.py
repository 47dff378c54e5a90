"""PostgreSQL: a private cluster of the lab or an external database, and the schema for messages."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knee.lab import programs
from knee.lab.command import CHECKPOINT_S, Command, File, tied
from knee.spec import Store

MADE_S = 60
"""Time limit in seconds for making a cluster or a schema; on an idle machine this takes one second."""
_CONNECTIONS_SPARE = 16
"""Connections of a cluster for preparing, migrating and probing."""
_USER = "knee"
_DATABASE = "postgres"
_CONNECT_S = 10
"""As knee-queue."""


@dataclass(frozen=True)
class Cluster:
    """A private cluster: its files, and the file with the password of its only user."""

    data: Path
    password: File


def initdb(process: str, cluster: Cluster) -> Command:
    """Makes the files of a cluster. Raises ProgramError if PostgreSQL is not installed."""
    argv = [
        str(programs.find_postgresql("initdb")),
        *("--pgdata", str(cluster.data), "--username", _USER, "--pwfile", str(cluster.password.path)),
        *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-instructions"),
        # Each run makes its own cluster.
        "--no-sync",
    ]
    return Command(process, "initdb", tuple(argv), own_database=True, never_root=True, files=(cluster.password,))


def postgresql(process: str, tier: Store, cluster: Cluster, address: str, connections: int) -> Command:
    """Serves a cluster at an address, for this number of connections. Raises ProgramError when PostgreSQL is not
    installed.

    PostgreSQL listens at this address only. The machines of a cluster may be in several networks, so each machine that
    reaches the address may connect with the password.
    """
    host, _, port = address.rpartition(":")
    settings = {
        "listen_addresses": host,
        "port": port,
        "unix_socket_directories": "",
        "max_connections": str(connections + _CONNECTIONS_SPARE),
        "shared_buffers": f"{tier.memory_mb}MB",
        # knee-queue sets `synchronous_commit` itself.
        "fsync": "off" if tier.durability == "none" else "on",
    }
    argv = [
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
        # A fast shutdown: PostgreSQL disconnects its clients, and writes its memory to disk.
        ends_by=signal.SIGINT,
        grace_s=CHECKPOINT_S,
        is_family=True,
        cpus=None if tier.cpus is None else int(tier.cpus),
        own_database=True,
        never_root=True,
        files=(File(cluster.data / "pg_hba.conf", "host all all all scram-sha-256\n"),),
    )


def own_url(address: str) -> str:
    """The database of a private cluster. Its connections are not encrypted."""
    return f"postgresql://{_USER}@{address}/{_DATABASE}?sslmode=disable"


def script(process: str, url: str, pgpass: File, file: File) -> Command:
    """Runs an SQL file in one of the lab's databases, up to its first error."""
    argv = [*_psql(url), "--file", str(file.path)]
    environment = (("PGPASSFILE", str(pgpass.path)),)
    return Command(process, "prepare", tuple(argv), environment=environment, own_database=True, files=(pgpass, file))


def statements(process: str, url: str, sql: Sequence[str]) -> Command:
    """Runs statements in an external database, up to the first error. libpq finds the password."""
    argv = [*_psql(url), "--no-password", *(part for one in sql for part in ("--command", one))]
    return Command(process, "prepare", tuple(argv), environment=(("PGCONNECT_TIMEOUT", str(_CONNECT_S)),))


def _psql(url: str) -> list[str]:
    psql = str(programs.find_postgresql("psql"))
    return [*tied(), psql, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url]


def make_schema(*, reset: bool) -> list[str]:
    """SQL that makes the schema for messages. It fails if the schema exists, unless `reset` drops it first."""
    quietly = "SET client_min_messages = warning"
    return [*([quietly, *DROP_SCHEMA] if reset else []), "CREATE SCHEMA knee_queue"]


DROP_SCHEMA = ("DROP SCHEMA IF EXISTS knee_queue CASCADE",)


def indexes(wanted: str) -> list[str]:
    """SQL that changes the indexes of `knee-queue migrate` to the ones of `store.indexes`."""
    if wanted == "none":
        return [f"DROP INDEX knee_queue.{name};" for name in ("ready", "ready_from", "leased", "leased_until")]
    if wanted == "arrival":
        return ["CREATE INDEX arrival ON knee_queue.message (arrived_at);"]
    return []
