"""Command lines of middlewares, databases and clients that pass messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from knee import spec
from knee.lab.command import File
from knee.lab.deploy import deployment, pgbench, postgresql, queue
from knee.lab.deploy.postgresql import Cluster
from knee.lab.scratch import Scratch
from knee.spec import Store

TEXT = """\
[experiment]
name = "x"
[system]
load = { clients = 4, hosts = 2 }
middleware = { workers = 8, hosts = 2 }
store = { kind = "postgresql" }
[workload]
protocol = "queue"
"""

CLUSTER = Cluster(Path("/room/data/store-0"), File(Path("/room/password"), "secret"))


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("knee-queue", "knee-load", "initdb", "postgres", "pgbench", "psql", "setpriv"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))


def point(*overrides: str) -> spec.Configuration:
    return spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides)).base


def middleware(*overrides: str) -> str:
    system = point(*overrides).system
    assert system.middleware is not None and system.store is not None
    url = queue.database_url(system.store, "127.0.0.1:5433", CLUSTER.data)
    password = CLUSTER.password if system.store.kind == "postgresql" else None
    command = queue.middleware("middleware-0", system.middleware, system.store, "127.0.0.1:9", url, password, 4)
    return " ".join(command.argv[1:])


def served(*overrides: str) -> str:
    configuration = point(*overrides)
    assert configuration.system.store is not None
    connections = queue.connections_of_database(configuration)
    command = postgresql.postgresql("store-0", configuration.system.store, CLUSTER, "127.0.0.1:5433", connections)
    return " ".join(command.argv)


def load(*overrides: str, index: int = 0) -> str:
    configuration = point(*overrides)
    requests = queue.requests(index, configuration)
    return " ".join(deployment.load(index, configuration, ["h:1", "h:2"], 1_700_000_000, 70, 5, requests).argv[1:])


def test_a_middleware_has_a_connection_for_each_worker() -> None:
    assert "--workers 8" in middleware() and "--connections 8" in middleware()
    assert "--connections 3" in middleware("middleware.connections=6")
    assert "--combine 16" in middleware("middleware.combine=16")


def test_no_password_is_on_any_command_line() -> None:
    url = "postgresql://knee@127.0.0.1:5433/postgres?sslmode=disable"
    assert f"--database {url} --database-password-file /room/password" in middleware()


def test_only_the_labs_database_ignores_libpqs_variables() -> None:
    url = queue.database_url(Store(kind="postgresql", user="bench", database="messages"), "h:5432", None)
    assert url == "postgresql://bench@h:5432/messages"
    assert not queue.migrate("migrate", url, None).own_database
    assert queue.migrate("migrate", url, CLUSTER.password).own_database
    assert postgresql.initdb("initdb", CLUSTER).own_database


def test_program_that_reads_the_password_has_it_in_a_file() -> None:
    url = postgresql.own_url("127.0.0.1:5433")
    reading = [postgresql.initdb("initdb", CLUSTER), queue.migrate("migrate", url, CLUSTER.password)]
    assert [command.files for command in reading] == [(CLUSTER.password,)] * 2
    assert queue.migrate("migrate", url, None).files == ()


def test_psql_never_prompts_for_a_password() -> None:
    url = "postgresql://bench@h:5432/messages"
    command = postgresql.statements("schema", url, ["SELECT 1", "SELECT 2"])
    assert "--no-password" in command.argv and "--command SELECT 1 --command SELECT 2" in " ".join(command.argv)
    assert not command.own_database


def test_only_a_reset_drops_a_schema() -> None:
    assert not any("DROP" in statement for statement in postgresql.make_schema(reset=False))
    assert any("DROP SCHEMA IF EXISTS" in statement for statement in postgresql.make_schema(reset=True))


def test_a_database_accepts_the_connections_of_all_middlewares() -> None:
    # Each of the two has five more.
    assert "max_connections=42" in served()
    assert "max_connections=32" in served("middleware.connections=6")


def test_durability_is_a_flag_of_the_database() -> None:
    assert "fsync=on" in served()
    assert "fsync=off" in served("store.durability=none")
    within = ("store.kind=sqlite", "middleware.hosts=1")
    assert "--database sqlite:/room/data/store-0" in middleware(*within, "store.durability=always")
    assert "--durability always" in middleware(*within, "store.durability=always")
    assert "--durability" not in middleware("store.kind=null")


def test_each_load_host_begins_with_another_middleware() -> None:
    assert "--server h:1 --server h:2 --clients 2" in load()
    assert "--server h:2 --server h:1 --clients 2" in load(index=1)
    assert "--loop send-list-read-remove --characters 200 --receivers any" in load()
    assert "--rate 50.0 --arrivals poisson" in load("workload.rate=100")
    assert "--verify" in load("workload.verify=true") and "--verify" not in load()


def test_pgbench_has_a_script_for_each_operation_of_equal_weight() -> None:
    text = 'load = { kind = "pgbench", clients = 4 }\nstore = { kind = "postgresql" }\n'
    file = f'[experiment]\nname = "x"\n[system]\n{text}[workload]\nprotocol = "queue"\nlevel = 3\n'
    room = Scratch(Path("/home/me@work"))
    scripts = [room.script("send", "SELECT 1;"), room.script("remove", "SELECT 2;")]
    configuration = spec.parse(file, "x.toml").base
    command = pgbench.pgbench("load-0", configuration, "url", room, scripts, seconds=4, seed=1)
    argv = " ".join(command.argv)
    # Without a weight pgbench would take the text behind the @ for one.
    assert "--file /home/me@work/send.sql@1 --file /home/me@work/remove.sql@1" in argv
    assert command.files == (room.pgpass, *scripts)


def test_a_backlog_is_between_the_clients_that_are_measured() -> None:
    configuration = point("workload.backlog=300", "workload.receivers=self")
    backlog = " ".join(queue.backlog("populate-0", configuration, "h:1", seed=5).argv)
    assert "--backlog 300 --clients 4 --receivers self --characters 200" in backlog
    registered = [(1, 11), (2, 12), (3, 13), (4, 14)]
    for index, own in enumerate(("1:11,2:12", "3:13,4:14")):
        assert f"--as {own}" in " ".join(queue.requests(index, configuration, registered))
    assert "--as" not in load()


def test_many_registered_clients_take_several_arguments() -> None:
    registered = [(4_000_000_000 + n, 4_100_000_000 + n) for n in range(24_000)]
    configuration = point("load.clients=24000")
    argv = queue.requests(1, configuration, registered)
    own = [argv[place + 1] for place, word in enumerate(argv) if word == "--as"]
    assert all(len(some) < 128 * 1024 for some in own)
    assert ",".join(own) == ",".join(f"{client}:{queue}" for client, queue in registered[12_000:])
