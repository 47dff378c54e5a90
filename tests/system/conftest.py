"""Fixtures of the tests with real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from databases import PASSWORD, Database
from systems import Systems, answers, free_port

from knee.lab.deploy import postgresql
from knee.lab.deploy.postgresql import Cluster
from knee.lab.hosts.local import LocalHost
from knee.lab.scratch import scratch
from knee.spec import Store

_MEMORY = Path("/dev/shm")
_PATIENCE_S = 300.0
_NUMBERS = count()


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where there is such a place: other tests keep the disk busy."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="knee-", dir=_MEMORY) as directory:
        yield Path(directory)


@pytest.fixture
def port() -> Iterator[int]:
    """A free port; nothing listens at it after the test."""
    number = free_port()
    yield number
    assert not answers(number)


@pytest.fixture
def systems() -> Iterator[Systems]:
    """Starts servers and clients; none outlives the test."""
    systems = Systems()
    yield systems
    systems.close()


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A PostgreSQL for all tests of a session, as its superuser's database."""
    folder = tmp_path_factory.mktemp("postgresql")
    host = LocalHost()
    with scratch(folder / "room") as room:
        try:
            lines, log = folder / "lines", folder / "log"
            cluster = Cluster(room.data_path("store-0"), room.password)
            made = host.start(postgresql.initdb("initdb", cluster), lines, log, lambda *_: None)
            assert made.wait(_PATIENCE_S) == 0, made.describe()
            tier = Store(kind="postgresql", memory_mb=16, durability="none")
            command = postgresql.postgresql("postgresql", tier, cluster, host.free_address("store-0"), 40)
            address = host.start(command, lines, log, lambda *_: None).wait_ready(_PATIENCE_S)
            assert address is not None
            own = room.path / "pgpass-of-both"
            own.touch(mode=0o600)
            own.write_text(f"*:*:*:bench:{PASSWORD}\n{room.pgpass.text}")
            server = Database(address, "postgres", own)
            server.sql(f"CREATE ROLE bench LOGIN PASSWORD '{PASSWORD}'", "knee")
            server.sql("CREATE DATABASE empty OWNER bench", "knee")
            yield server
        finally:
            host.close(_PATIENCE_S)


@pytest.fixture
def elsewhere(_server: Database) -> Iterator[Database]:
    """An empty database in a PostgreSQL that the lab has not started."""
    name = f"messages_{next(_NUMBERS)}"
    _server.sql(f"CREATE DATABASE {name} TEMPLATE empty OWNER bench", "knee")
    yield Database(_server.address, name, _server.pgpass)
    _server.sql(f"DROP DATABASE {name} WITH (FORCE)", "knee")
