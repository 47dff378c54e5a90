"""The experiment file of other load generators: what applies, and what is refused, where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from specs import problems, read

from knee.errors import DatasetError, SpecError
from knee.generators.kinds import nginx, redis, template_of
from knee.lab.run import files_of, resumed_manifest
from knee.lab.scratch import Scratch

COMMAND = """\
[experiment]
name = "x"
[system]
load = { command = "wrk -c{clients} -d{seconds}s http://127.0.0.1:8088/" }
[factors]
"load.clients" = [2, 4]
"system.command" = ["nginx -c one.conf", "nginx -c two.conf"]
"""
WRK = """\
[experiment]
name = "x"
[system]
load = { kind = "wrk", threads = 2 }
store = { kind = "nginx" }
[factors]
"load.clients" = [2, 4]
"store.threads" = [1, 2]
"""
REDIS = WRK.replace("wrk", "redis-benchmark").replace("nginx", "redis") + '[workload]\nset_get = "0:1"\n'
PGBENCH = """\
[experiment]
name = "x"
[system]
load = { kind = "pgbench", script = "a.sql", clients = 2 }
store = { kind = "postgresql", durability = "none" }
"""


def reasons(text: str, *overrides: str) -> list[str]:
    """The problems of a file, without their places."""
    return [re.sub(r"^(--set |x.toml:[0-9]+: )", "", problem) for problem in problems(text, *overrides)]


@pytest.mark.parametrize("text", [COMMAND, WRK, REDIS, PGBENCH])
def test_other_load_generators_are_read_with_any_length(text: str) -> None:
    # Five seconds of warm-up and of cool-down are the default, but do not apply.
    assert read(text, "measure.seconds=1").base.system.load.is_foreign
    assert read(text, "measure.hosts=local", "measure.warmup_s=0").measure.seconds == 70


def test_clients_auto_are_a_multiple_of_the_threads() -> None:
    assert read(WRK, "load.clients=auto").factors["load.clients"] == (2,)
    assert read(REDIS, "load.clients=auto", "load.threads=[1, 4]").factors["load.clients"] == (4,)
    assert read(PGBENCH, "load.clients=auto", "load.threads=3").factors["load.clients"] == (3,)


@pytest.mark.parametrize(
    ("text", "override", "expected"),
    [
        (COMMAND, "load.command=wrk", "load.command: the command has no {clients}: write it for the number of clients"),
        (COMMAND, "load.command='wrk {clients}", "load.command: expected a command, with closed quotes"),
        (COMMAND, "load.command=x -p{port} {clients}", "load.command: has {port}, but no store"),
        (COMMAND, "load.command=x {clients}", "system.ready: missing: load.command has no URL to wait for"),
        (COMMAND, "system.ready=web", "system.ready: expected a URL or HOST:PORT, such as 127.0.0.1:8080, not 'web'"),
        (
            COMMAND,
            "system.command=serve {clients}",
            "system.command: has {clients}, which applies to load.command alone",
        ),
        (COMMAND, "system.watch=port:1", "system.watch: should be a list such as"),
        (COMMAND, "store.kind=nginx", "system.command: does not apply to a store"),
        (COMMAND, "store.kind=memcached", 'store.kind: should be "nginx", "redis" or "postgresql" with another load'),
        (COMMAND, "middleware.workers=1", "middleware: does not apply to other load generators: start it with"),
        (COMMAND, "load.threads=2", "load.threads: does not apply to load.command: write it into the command"),
        (COMMAND, "workload.think_ms=2", "workload.think_ms: does not apply to another load generator"),
        (COMMAND, "measure.warmup_s=2", "measure.warmup_s: does not apply to load.command: it measures its whole run"),
        (COMMAND, "measure.hosts=emulated", "measure.hosts: does not apply to load.command"),
        (COMMAND, "measure.ramp=true", "measure.ramp: does not apply to load.command"),
        (WRK, "store.kind=redis", 'store.kind: should be "nginx" with kind = "wrk", not "redis"'),
        (WRK, "load.clients=3", "load.clients: should be a multiple of the threads of wrk (2), not 3"),
        (WRK, "load.hosts=2", 'load.hosts: does not apply to kind = "wrk"'),
        (WRK, "load.script=a.sql", 'load.script: does not apply to kind = "wrk"'),
        (WRK, "store.durability=always", 'store.durability: does not apply to "nginx"'),
        (WRK, "workload.value_bytes=uniform:1:9", "workload.value_bytes: should be one size"),
        (WRK, "system.ready=http://x/", "system.ready: needs load.command"),
        (WRK, 'load.kind=["wrk","knee-load"]', "load.kind: cannot mix knee-load and others"),
        (WRK, "load.kind=knee-load", '"nginx" needs load.kind = "wrk", or load.command'),
        (REDIS, "workload.set_get=1:9", 'workload.set_get: should be "1:0" or "0:1"'),
        (REDIS, "load.threads=[1, 4]", "load.clients: should be at least load.threads (4), not 2"),
        (REDIS, "store.durability=interval:9", 'store.durability: should be "memory", "always", "none" with'),
        (PGBENCH, "load.kind=knee-load", 'load.script: applies to kind = "pgbench" alone, not to "knee-load"'),
        (PGBENCH, "workload.level=1", "workload.level: does not apply to another load generator"),
        (PGBENCH, "store.durability=memory", 'store.durability: should be "always", "none"'),
    ],
)
def test_key_that_does_not_apply_is_refused(text: str, override: str, expected: str) -> None:
    found = reasons(text, override)
    assert any(expected in each for each in found), found


def test_watched_parts_are_one_list_for_all_points() -> None:
    found = read(COMMAND, 'system.watch=["port:1", "unit:nginx"]')
    assert found.base.system.watch == ("port:1", "unit:nginx") and "system.watch" not in found.factors


def test_sql_that_changed_is_not_resumed(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    with pytest.raises(SpecError, match=r"load\.script: .*a\.sql: cannot be read: No such file"):
        files_of(read(PGBENCH, f"load.script={file}"))
    kept = {str(file): "SELECT 3;"}
    assert files_of(read(PGBENCH, f"load.script={file}"), kept) == kept
    file.write_text("SELECT 1;")
    files = files_of(read(PGBENCH, f"load.script={file}"))
    assert files == {str(file): "SELECT 1;"}
    begun = {"seed": 1, "commands": {}, "notes": [], "files": {str(file): "SELECT 2;"}}
    with pytest.raises(DatasetError, match=r"a\.sql: changed after the run began"):
        resumed_manifest(begun, {"files": files})


def test_started_servers_have_the_threads_of_their_point(tmp_path: Path) -> None:
    room = Scratch(tmp_path)
    point = read(WRK).at({"store.threads": 2, "load.clients": 4})
    assert point.system.store is not None
    config = nginx(point, point.system.store, "127.0.0.1:99", room).files[0].text
    assert "worker_processes 2;" in config and "listen 127.0.0.1:99;" in config
    words = template_of(point).argv(4, 3, "", threads="2", url="http://u/")
    assert words == ("wrk", "-t2", "-c4", "-d3s", "--latency", "http://u/")
    point = read(REDIS, "store.durability=always").at({"store.threads": 2})
    assert point.system.store is not None
    argv = redis(point.system.store, "127.0.0.1:99", room).argv
    assert "--io-threads 2 --io-threads-do-reads yes" in " ".join(argv) and "--appendfsync always" in " ".join(argv)
    assert "--threads" in template_of(point).words


@pytest.mark.parametrize("name", ["load.command", "system.command"])
def test_commands_that_differ_only_in_white_space_are_refused(name: str) -> None:
    command = "serve --port 8088" if name == "system.command" else "wrk -c{clients} http://127.0.0.1:8088/"
    (reason,) = reasons(COMMAND, f'{name}=["{command}", " {command.replace(" ", "  ")} "]')
    assert "should have different levels" in reason
    assert read(COMMAND, f'{name}=["{command}", "{command}x"]').factors[name][1] == f"{command}x"
