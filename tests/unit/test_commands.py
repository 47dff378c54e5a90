"""Command lines, against the flags of docs/formats.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from knee import spec
from knee.errors import ProgramError
from knee.lab.command import Command
from knee.lab.deploy import deployment, memcached, stores
from knee.lab.programs import find

TEXT = """\
[experiment]
name = "x"
[system]
load = { hosts = 3, clients = 12, threads = 9 }
middleware = { hosts = 2, workers = 8, multiget = "sharded" }
store = { hosts = 3 }
[workload]
set_get = "1:3"
multiget = 9
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("knee-kv", "knee-proxy", "knee-load"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))
    return tmp_path


def point(*overrides: str) -> spec.Configuration:
    return spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides)).base


def flags(command: Command) -> str:
    return " ".join(command.argv[1:])


def load(configuration: spec.Configuration, index: int = 0) -> Command:
    requests = memcached.requests(configuration)
    return deployment.load(index, configuration, ["h:1", "h:2"], 1_700_000_000, 70, 5000, requests)


def test_clients_are_split_over_hosts_and_threads() -> None:
    command = flags(load(point()))
    assert command.startswith("memcached --server h:1 --server h:2 --clients 4 --threads 4 --seconds 70")
    assert "--start-at 1700000000 --seed 5000 --think-ms 0.0 --think constant --set-get 1:3 --multiget 9" in command
    assert command.endswith(f"--stats json --tied-to-parent {os.getpid()}")
    assert "--pipeline 4" in flags(load(point("workload.pipeline=4")))
    assert "--pipeline" not in command


def test_each_load_host_has_its_first_server_and_its_seed() -> None:
    command = flags(load(point(), index=1))
    assert "--server h:2 --server h:1" in command
    assert "--seed 5001" in command


def test_an_open_loops_rate_is_split_over_the_hosts() -> None:
    command = flags(load(point("workload.rate=300")))
    assert "--rate 100.0 --arrivals poisson" in command
    assert "--think" not in command


def test_populating_and_measuring_agree_on_keys_and_values() -> None:
    configuration = point("workload.keys=77", "workload.value_bytes=uniform:1:9")
    populate = flags(stores.populate("populate-0", configuration, "h:1", seed=5))
    for command in (populate, flags(load(configuration))):
        assert "--keys 77 --value-bytes uniform:1:9" in command
    assert "--populate 0.99" in populate


def test_a_middleware_has_worker_slots_or_is_pipelined() -> None:
    tier = point().system.middleware
    assert tier is not None
    command = flags(memcached.middleware("middleware-0", tier, "127.0.0.1:9", ["s:1", "s:2"], clients=12))
    assert command.startswith("--listen 127.0.0.1:0 --server s:1 --server s:2 --workers 8 --threads 1")
    assert "--multiget sharded" in command
    pipelined = spec.Middleware(pipelined=True)
    command = flags(memcached.middleware("middleware-0", pipelined, "127.0.0.1:9", ["s:1"], clients=12))
    assert "--pipelined" in command and "--workers" not in command


def test_a_lifetime_applies_where_a_factor_gives_a_near_cache() -> None:
    experiment = spec.parse(
        TEXT, "x.toml", spec.parse_overrides(["middleware.cache_mb=[0, 64]", "middleware.cache_ms=200"])
    )
    commands = []
    for level in experiment.factors["middleware.cache_mb"]:
        tier = experiment.at({"middleware.cache_mb": level}).system.middleware
        assert tier is not None
        commands.append(flags(memcached.middleware("middleware-0", tier, "127.0.0.1:9", ["s:1"], clients=12)))
    without, cached = commands
    assert "--cache" not in without and "--cache-mb 64 --cache-ms 200" in cached


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # Every worker slot has a connection to every store; a pipelined thread has one; without middleware, clients.
        ([], 2 * 8),
        (["middleware.workers=64"], 2 * 64),
        (["load.clients=300"], 2 * 8),
    ],
)
def test_connections_per_store(overrides: list[str], expected: int) -> None:
    assert stores.connections_per_store(point(*overrides)) == expected


def test_a_store_chooses_its_port_and_memcached_is_given_one() -> None:
    embedded = stores.store("store-0", spec.Store(), "127.0.0.1:4242", connections=5)
    assert flags(embedded).startswith("--listen 127.0.0.1:0 --threads 1 --memory-mb 1024")
    assert embedded.serves is None
    foreign = stores.store("store-0", spec.Store(kind="memcached", threads=2), "127.0.0.1:4242", connections=5000)
    assert "-l 127.0.0.1 -p 4242 -U 0 -t 2 -m 1024 -c 5064" in flags(foreign)
    assert foreign.serves == "127.0.0.1:4242"


def test_a_missing_program_says_how_to_get_it(programs: Path) -> None:
    (programs / "knee-kv").unlink()
    with pytest.raises(ProgramError, match=r"knee-kv is not installed .*build it with `make build`"):
        find("knee-kv")
