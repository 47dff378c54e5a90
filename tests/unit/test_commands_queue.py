"""Command lines of middlewares, databases and clients that pass messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from knee import spec
from knee.lab import commands_queue
from knee.lab.commands_queue import Cluster
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

CLUSTER = Cluster(Path("/room/data/store-0"), Path("/room/password"))


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("knee-queue", "knee-load", "initdb", "postgres", "pgbench", "psql", "setpriv", "unshare"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))


def point(*overrides: str) -> spec.Configuration:
    return spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides)).base


def middleware(*overrides: str) -> str:
    system = point(*overrides).system
    assert system.middleware is not None and system.store is not None
    url = commands_queue.database_url(system.store, "127.0.0.1:5433", CLUSTER.data)
    password = CLUSTER.password if system.store.kind == "postgresql" else None
    command = commands_queue.middleware("middleware-0", system.middleware, system.store, "127.0.0.1", url, password, 4)
    return " ".join(command.argv[1:])


def postgresql(*overrides: str) -> str:
    configuration = point(*overrides)
    assert configuration.system.store is not None
    connections = commands_queue.connections_of_database(configuration)
    command = commands_queue.postgresql("store-0", configuration.system.store, CLUSTER, "127.0.0.1:5433", connections)
    return " ".join(command.argv)


def load(*overrides: str, index: int = 0) -> str:
    servers = ["h:1", "h:2"]
    command = commands_queue.load(index, point(*overrides), servers, start_at=1_700_000_000, seconds=70, seed=5)
    return " ".join(command.argv[1:])


def test_a_middleware_has_as_many_connections_as_workers_unless_told_otherwise() -> None:
    assert "--workers 8" in middleware() and "--connections 8" in middleware()
    assert "--connections 3" in middleware("middleware.connections=6")
    assert "--combine 16" in middleware("middleware.combine=16")


def test_no_password_is_on_any_command_line() -> None:
    url = "postgresql://knee@127.0.0.1:5433/postgres?sslmode=disable"
    assert f"--database {url} --database-password-file /room/password" in middleware()


def test_only_the_labs_own_database_is_shielded_from_the_environment() -> None:
    url = commands_queue.database_url(Store(kind="postgresql", user="bench", database="messages"), "h:5432", None)
    assert url == "postgresql://bench@h:5432/messages"
    assert not commands_queue.migrate("migrate", url, None).own_database
    assert commands_queue.migrate("migrate", url, CLUSTER.password).own_database
    assert commands_queue.initdb("initdb", CLUSTER).own_database


def test_who_asks_a_database_elsewhere_is_not_asked_for_his_password() -> None:
    url = "postgresql://bench@h:5432/messages"
    command = commands_queue.ask_elsewhere("claim", url, ["SELECT 1", "SELECT 2"])
    assert "--no-password" in command.argv and "--command SELECT 1 --command SELECT 2" in " ".join(command.argv)
    # What names him is kept, and what names a database kept from it.
    assert command.own_database and {"PGPASSWORD", "PGPASSFILE"} <= set(command.keeps)
    assert not {"PGHOSTADDR", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGSERVICE"} & set(command.keeps)
    assert dict(command.environment)["LC_ALL"] == "C", "what it says is looked at"


def test_a_database_takes_what_all_middlewares_need() -> None:
    # Each of the two has five of its own.
    assert "max_connections=42" in postgresql()
    assert "max_connections=32" in postgresql("middleware.connections=6")


def test_how_safe_a_message_is_is_the_databases_to_say() -> None:
    assert "fsync=on" in postgresql()
    assert "fsync=off" in postgresql("store.durability=none")
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
    scripts = [room.script_path("send"), room.script_path("remove")]
    configuration = spec.parse(file, "x.toml").base
    argv = " ".join(commands_queue.pgbench("load-0", configuration, "url", room, scripts, seconds=4, seed=1).argv)
    # Without a weight what is behind the @ would be one.
    assert "--file /home/me@work/send.sql@1 --file /home/me@work/remove.sql@1" in argv


def test_a_backlog_is_between_the_clients_that_are_measured() -> None:
    configuration = point("workload.backlog=300", "workload.receivers=self")
    backlog = " ".join(commands_queue.backlog("populate-0", configuration, "h:1", seed=5).argv)
    assert "--backlog 300 --clients 4 --receivers self --characters 200" in backlog
    registered = [(1, 11), (2, 12), (3, 13), (4, 14)]
    for index, own in enumerate(("1:11,2:12", "3:13,4:14")):
        argv = commands_queue.load(index, configuration, ["h:1"], 1_700_000_000, 70, 5, registered).argv
        assert f"--as {own}" in " ".join(argv)
    assert "--as" not in load()


def test_very_many_clients_are_told_who_they_are_in_several_arguments() -> None:
    registered = [(4_000_000_000 + n, 4_100_000_000 + n) for n in range(24_000)]
    configuration = point("load.clients=24000")
    argv = commands_queue.load(1, configuration, ["h:1"], 1_700_000_000, 70, 5, registered).argv
    own = [argv[place + 1] for place, word in enumerate(argv) if word == "--as"]
    assert all(len(some) < 128 * 1024 for some in own)
    assert ",".join(own) == ",".join(f"{client}:{queue}" for client, queue in registered[12_000:])
