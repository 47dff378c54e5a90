"""Experiments with an address space: their plan, their command lines, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from knee import spec
from knee.errors import SpecError
from knee.lab.deploy import deployment, deployment_of, space
from knee.spec.design import runs

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "space-managers.toml"

TEXT = """\
[experiment]
name = "x"
[system]
load = { hosts = 2, clients = 8 }
middleware = { hosts = 2, threads = 5 }
store = { kind = "knee-space", memory_mb = 64 }
[workload]
protocol = "nbd"
writes = 0.25
verify = true
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("knee-space", "knee-load"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))


def point(*overrides: str) -> spec.Configuration:
    return spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides)).base


def test_managers_servers_and_blocks_vary_in_the_experiment() -> None:
    plan = runs(spec.load(EXPERIMENT, ["measure.repetitions=1"]), seed=1)
    planned = {
        (run.configuration.middlewares, run.configuration.stores, run.configuration.workload.block_bytes)
        for run in plan
    }
    assert planned == {(m, s, b) for m in (1, 2) for s in (1, 2) for b in (4096, 131072)}
    assert {deployment_of(run.configuration) for run in plan} == {space.SpaceDeployment}


def test_a_manager_lists_its_stores_and_has_memory_for_each_thread() -> None:
    tier = point().system.middleware
    assert tier is not None
    command = space.manager("middleware-0", tier, "h:9", ["a:1=64M", "b:2=64M"], clients=8)
    argv = " ".join(command.argv[1:])
    expected = (
        "manager --listen h:0 --threads 5 --memory-mb 320 --connections-max 72 --layout length "
        "--store a:1=64M b:2=64M --stats json"
    )
    assert argv.startswith(expected)


def test_both_layouts_are_levels_of_a_factor() -> None:
    experiment = spec.parse(TEXT, "x.toml", spec.parse_overrides(['middleware.layout=["length", "shift"]']))
    for level in experiment.factors["middleware.layout"]:
        tier = experiment.at({"middleware.layout": level}).system.middleware
        assert tier is not None
        argv = space.manager("middleware-0", tier, "h:9", ["a:1=64M"], clients=8).argv
        assert argv[argv.index("--layout") + 1] == level


def test_a_store_has_its_part_of_the_space() -> None:
    tier = point().system.store
    assert tier is not None
    argv = " ".join(space.store("store-0", tier, "h:9", connections=20).argv[1:])
    assert argv.startswith("store --listen h:0 --bytes 64M --connections-max 84 --stats json")


def test_load_hosts_begin_with_different_managers() -> None:
    requests = space.requests(point().workload)
    commands = [deployment.load(index, point(), ["a:1", "b:2"], 1_700_000_000, 70, 5, requests) for index in (0, 1)]
    first, second = (" ".join(command.argv[1:]) for command in commands)
    assert first.startswith("nbd --server a:1 --server b:2 --clients 4 --threads 1 --seconds 70 --start-at 1700000000")
    assert second.startswith("nbd --server b:2 --server a:1 ")
    assert "--seed 6 --think-ms 0.0 --think constant --block-bytes 4096 --writes 0.25 --verify " in second


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("middleware.workers=8", 'middleware.workers: does not apply to protocol = "nbd"'),
        ("store.kind=memcached", 'store.kind: should be "knee-space" with protocol = "nbd", not "memcached"'),
        ("store.threads=2", 'store.threads: does not apply to "knee-space"'),
        ("workload.keys=5", 'workload.keys: does not apply to protocol = "nbd": its clients use blocks'),
        ("workload.loop=list-receive-send", 'workload.loop: applies to protocol = "queue" alone'),
        ("workload.writes=1.5", "workload.writes: "),
    ],
)
def test_a_field_of_another_protocol_is_refused(override: str, problem: str) -> None:
    with pytest.raises(SpecError) as refused:
        point(override)
    assert problem in str(refused.value)


def test_a_space_needs_managers_and_the_protocol_of_disks() -> None:
    for old, new, problem in (
        ("middleware = { hosts = 2, threads = 5 }\n", "", 'missing: protocol = "nbd" needs a middleware'),
        ('protocol = "nbd"\nwrites = 0.25\n', "", '"knee-space" needs protocol = "nbd"'),
        ('protocol = "nbd"\n', "", 'workload.writes: applies to protocol = "nbd" alone'),
        (
            'threads = 5 }\nstore = { kind = "knee-space", memory_mb = 64',
            'threads = 5, layout = "shift" }\nstore = { kind = "knee-space", memory_mb = 96',
            'store.memory_mb: should be a power of two with layout = "shift", not 96',
        ),
    ):
        with pytest.raises(SpecError) as refused:
            spec.parse(TEXT.replace(old, new), "x.toml")
        assert problem in str(refused.value)


def test_a_layout_applies_to_the_protocol_of_disks_alone() -> None:
    with pytest.raises(SpecError) as refused:
        spec.parse(TEXT.replace('protocol = "nbd"\n', ""), "x.toml", {"middleware.layout": "shift"})
    assert 'middleware.layout: applies to protocol = "nbd" alone' in str(refused.value)


def test_a_layout_belongs_to_managers_that_the_lab_starts() -> None:
    elsewhere = TEXT.replace("hosts = 2, threads = 5", 'address = ["10.0.0.5:10809"]')
    text = elsewhere.replace('store = { kind = "knee-space", memory_mb = 64 }\n', "")
    assert spec.parse(text, "x.toml").base.middlewares == 1
    with pytest.raises(SpecError) as refused:
        spec.parse(text, "x.toml", {"middleware.layout": "shift"})
    assert "middleware.layout: cannot be set: this tier already runs elsewhere (address = …)" in str(refused.value)
