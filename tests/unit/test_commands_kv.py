"""Command lines of stores that keep versions and of their clients, against the flags of docs/formats.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from knee import spec
from knee.lab.command import Command
from knee.lab.deploy import deployment, kv, stores
from knee.lab.scratch import Scratch

TEXT = """\
[experiment]
name = "x"
[system]
load = { clients = 4 }
store = {}
[workload]
protocol = "kv"
mix = "read:3,bulk_put:1,scan:0"
"""

ROOM = Scratch(Path("/room"))


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("knee-kv", "knee-load"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))


def point(*overrides: str) -> spec.Configuration:
    return spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides)).base


def store(*overrides: str) -> Command:
    configuration = point(*overrides)
    assert configuration.system.store is not None
    return stores.store("store-0", configuration.system.store, "127.0.0.1:9", 4, configuration.workload, ROOM)


def flags(command: Command) -> str:
    return " ".join(command.argv[1:])


def load(*overrides: str, index: int = 0) -> str:
    configuration = point(*overrides)
    requests = kv.requests(index, configuration, seed=5)
    return flags(deployment.load(index, configuration, ["h:1"], 1_700_000_000, 70, 5, requests))


def test_a_store_behind_grpc_keeps_versions_in_memory_by_default() -> None:
    command = store()
    assert "--grpc 127.0.0.1:0" in flags(command)
    assert command.answers == "grpc"
    for flag in ("--data", "--durability", "--consistency", "--history-s", "--trace", "--init-dir"):
        assert flag not in flags(command)


def test_a_memcached_store_is_a_cache_by_default() -> None:
    cache = store("workload.interface=memcached", "workload.mix=put:1")
    assert cache.answers == "listen"
    assert "--grpc" not in flags(cache) and "--consistency" not in flags(cache)
    kept = store("workload.interface=memcached", "workload.mix=put:1", "store.durability=memory")
    assert "--consistency linearizable" in flags(kept) and "--data" not in flags(kept)


def test_a_store_on_disk_has_a_directory_of_its_own() -> None:
    command = flags(store("store.durability=interval:20", "store.consistency=sequential", "store.history_s=0"))
    assert "--data /room/data/store-0 --durability interval:20 --consistency sequential --history-s 0" in command
    assert "--trace" in flags(store("store.trace=true"))


def test_only_a_switch_that_is_set_changes_how_commits_share_syncs() -> None:
    plain = flags(store("store.durability=always"))
    assert "--dally-us" not in plain and "--batch-max" not in plain
    switched = flags(store("store.durability=always", "store.dally_us=200", "store.batch_max=4"))
    assert "--dally-us 200 --batch-max 4" in switched


def test_a_store_on_disk_has_the_time_to_write_what_is_in_memory() -> None:
    assert store("store.durability=none").grace_s >= 60 > store("store.durability=memory").grace_s


def test_a_mix_brings_only_the_flags_that_it_needs() -> None:
    command = load("workload.own_keys=true", "workload.key_draws=250", "workload.large_bytes=1000")
    assert command.startswith("kv --server h:1 --clients 4 --threads 1 --seconds 70")
    assert (
        "--mix read:3,bulk_put:1,scan:0 --own-keys --key-draws 250 --draws-seed 5 --bulk-keys 10 --large-bytes 1000"
        in command
    )
    assert "--protocol grpc --keys 10000 --value-bytes 4096 --key-choice uniform" in command
    for flag in ("--scan-keys", "--set-get", "--multiget", "--key-prefix"):
        assert flag not in command
    plain = load("workload.interface=memcached", "workload.mix=read:1")
    assert "--protocol memcached" in plain and "--bulk-keys" not in plain and "--own-keys" not in plain


def test_all_load_hosts_go_over_the_same_draws() -> None:
    several = ("load.hosts=2", "workload.key_draws=250")
    first, second = (load(*several, index=index) for index in (0, 1))
    assert "--seed 5 " in first and "--seed 6 " in second
    assert "--draws-seed 5 " in first and "--draws-seed 5 " in second
    assert "--draws-seed" not in load()


def test_load_hosts_share_out_the_clients_own_keys() -> None:
    own = ("load.hosts=2", "workload.own_keys=true")
    assert "--own-keys --part 1/2 " in load(*own, index=0)
    assert "--own-keys --part 2/2 " in load(*own, index=1)
    assert "--part" not in load("workload.own_keys=true") + load("load.hosts=2")


@pytest.mark.parametrize("protocol", [(), ("workload.interface=memcached", "workload.mix=read:1,put:1")])
def test_populated_and_put_values_expire(protocol: tuple[str, ...]) -> None:
    assert "--ttl-s 5" in load(*protocol, "workload.ttl_s=5")
    configuration = point(*protocol, "workload.ttl_s=5")
    assert "--ttl-s 5" in flags(stores.populate("populate-0", configuration, "h:1", seed=5))
    assert "--ttl-s" not in load(*protocol)


def test_populating_goes_through_the_interface_that_is_measured() -> None:
    configuration = point("workload.interface=memcached", "workload.mix=read:1")
    assert flags(stores.populate("populate-0", configuration, "h:1", seed=5)).startswith(
        "kv --server h:1 --protocol memcached"
    )


def test_every_client_has_a_populated_key_of_its_own() -> None:
    few = ("load.hosts=2", "workload.own_keys=true", "workload.keys=1")
    assert "--keys 4 " in load(*few) and "--keys 4 " in load(*few, index=1)
    assert "--keys 4 " in flags(stores.populate("populate-0", point(*few), "h:1", seed=5))
    assert "--keys 1 " in load("workload.keys=1")


def test_a_graph_is_made_once_and_loaded_by_name() -> None:
    graph = ("workload.graph.users=2_000_000", "workload.graph.largest=1_100_000")
    made = point(*graph).workload.graph
    assert made is not None
    written = flags(kv.graph("graph", made, 7, ROOM.graph_path))
    assert written.endswith("graph --users 2000000 --largest 1100000 --seed 7 /room/graph.txt")
    skewed = made.model_copy(update={"exponent": 1.9})
    assert " --largest 1100000 --exponent 1.9 --seed 7 " in flags(kv.graph("graph", skewed, 7, ROOM.graph_path))
    # A line for every follower: seven digits and a line feed.
    assert "--init-dir /room --value-bytes-max 8800000" in flags(store(*graph))
    assert " kv --server h:1 --init graph.txt " in " " + flags(kv.init("init-0", "h:1", ROOM.graph_path))
    # Users are plain numbers; all are asked for by default.
    assert "--key-prefix  --key-format plain --keys 2000000" in load(*graph)
    assert "--keys 5" in load(*graph, "workload.keys=5")
