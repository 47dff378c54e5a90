"""The experiment file of clients that pass messages: what applies, and what is refused, where."""

from __future__ import annotations

import re

import pytest
from specs import MESSAGES, changed, problems, read

from knee.errors import SpecError
from knee.lab.scratch import keeps_data


def reasons(*overrides: str, text: str = MESSAGES) -> list[str]:
    """The problems of a file, without their places."""
    return [re.sub(r"^(--set |x.toml:[0-9]+: )", "", problem) for problem in problems(text, *overrides)]


def test_clients_that_pass_messages_are_read_whole() -> None:
    good = read(MESSAGES, "workload.loop=list-receive-send", "workload.backlog=300000", "store.cpus=0.5")
    point = good.at({"middleware.connections": 8})
    assert point.system.middleware is not None and point.system.middleware.connections == 8
    assert (point.workload.characters, point.workload.backlog) == (2000, 300_000)
    assert read(MESSAGES, "workload.verify=true").base.workload.verify
    assert keeps_data(good)


@pytest.mark.parametrize("kind", ["sqlite", "null"])
def test_a_store_within_the_middleware_keeps_nothing_by_default(kind: str) -> None:
    factors = MESSAGES[: MESSAGES.index("[factors]")]
    assert not keeps_data(read(factors, f"store.kind={kind}"))


def test_a_file_of_the_middlewares_is_on_the_disk() -> None:
    factors = MESSAGES[: MESSAGES.index("[factors]")]
    assert keeps_data(read(factors, "store.kind=sqlite", "store.durability=always"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("store.kind=knee-kv", 'store.kind: should be "postgresql", "sqlite" or "null" with protocol = "queue"'),
        ("store.kind=sqlite", 'middleware.connections: applies to PostgreSQL alone: "sqlite" has no connections'),
        ('store.address=["10.0.0.1:5432", "10.0.0.2:5432"]', "store.address: should be one: all middlewares share one"),
        ("store.threads=2", 'store.threads: does not apply to "postgresql"'),
        ("middleware.combine=5000", "middleware.combine: should be less than or equal to 1000, not 5000"),
        ("store.hosts=2", "store.hosts: should be 1: all middlewares share one database"),
        ("store.durability=interval:5", 'store.durability: should be "always" or "none" with kind = "postgresql"'),
        ("store.durability=memory", 'store.durability: should be "always" or "none" with kind = "postgresql"'),
        ("store.history_s=1", 'store.history_s: applies to kind = "knee-kv" alone, not to "postgresql"'),
        ("middleware.multiget=sharded", 'middleware.multiget: does not apply to protocol = "queue"'),
        ("workload.keys=5", 'workload.keys: does not apply to protocol = "queue": its clients pass messages'),
        ("workload.set_get=1:1", 'workload.set_get: does not apply to protocol = "queue": its clients pass messages'),
        ("workload.own_keys=true", 'workload.own_keys: applies to protocol = "kv" alone'),
        ("workload.characters=0", "workload.characters: should be greater than or equal to 1, not 0"),
        ("workload.loop=send", "workload.loop: should be 'send-list-read-remove' or 'list-receive-send', not 'send'"),
    ],
)
def test_a_problem_is_named_with_its_reason(override: str, expected: str) -> None:
    found = reasons(override)
    assert any(problem.startswith(expected) for problem in found), found


def test_a_store_elsewhere_has_no_settings() -> None:
    found = reasons('store.address=["127.0.0.1:5432"]', "store.memory_mb=16")
    assert "store.memory_mb: cannot be set: this tier already runs elsewhere (address = …)" in found, found


@pytest.mark.parametrize("kind", ["sqlite", "null"])
@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("middleware.combine", 'applies to PostgreSQL alone: "{}" is within the middleware'),
        ("store.memory_mb", 'applies to PostgreSQL alone: "{}" is within the middleware'),
        ("store.threads", 'does not apply to "{}"'),
    ],
)
def test_settings_of_postgresql_apply_to_no_other_store(kind: str, field: str, reason: str) -> None:
    found = reasons(f"store.kind={kind}", f"{field}=16")
    assert f"{field}: {reason.format(kind)}" in found, found


def test_there_is_one_file_for_one_middleware() -> None:
    found = reasons("store.kind=sqlite", "middleware.hosts=2")
    assert 'middleware.hosts: should be 1: only one middleware can open a file of "sqlite"' in found


@pytest.mark.parametrize(("durability", "refused"), [(None, True), ("memory", True), ("none", False)])
def test_a_backlog_needs_a_file_that_keeps_it(durability: str | None, refused: bool) -> None:
    text = MESSAGES[: MESSAGES.index("[factors]")]
    overrides = ["store.kind=sqlite", "workload.backlog=5", *([f"store.durability={durability}"] if durability else [])]
    if refused:
        assert any(problem.startswith("workload.backlog: needs a file") for problem in reasons(*overrides, text=text))
    else:
        assert read(text, *overrides).base.workload.backlog == 5


def test_a_backlog_that_stays_is_no_factor() -> None:
    alone = changed(MESSAGES, "middleware = { workers = 8 }", 'middleware = { address = ["h:1"] }')
    alone = changed(alone[: alone.index("[factors]")], 'store = { kind = "postgresql" }\n', "")
    assert read(alone, "workload.backlog=[5]").base.workload.backlog == 5
    (refused,) = reasons("workload.backlog=[0, 5]", text=alone)
    assert (
        refused
        == "workload.backlog: cannot vary: middlewares that run elsewhere (address = …) keep the backlog of every run"
    )
    assert len(read(MESSAGES, "workload.backlog=[0, 5]").factors["workload.backlog"]) == 2


def test_connections_are_dealt_evenly() -> None:
    found = reasons("middleware.hosts=3", "middleware.connections=4")
    assert "middleware.connections: should divide evenly over 3 middlewares, not 4" in found


def test_pgbench_asks_the_database_itself() -> None:
    alone = MESSAGES.replace("middleware = { workers = 8 }\n", "").replace("load = {", 'load = { kind = "pgbench",')
    alone = alone[: alone.index("[factors]")]
    assert read(alone, "workload.level=0", 'store.indexes=["needed", "none"]').base.workload.level == 0
    with pytest.raises(SpecError, match=r'workload\.think_ms: does not apply to kind = "pgbench"'):
        read(alone, "workload.think_ms=1")
    with pytest.raises(SpecError, match=r'workload\.verify: does not apply to kind = "pgbench": it does not read its'):
        read(alone, "workload.verify=true")
    with pytest.raises(SpecError, match='should be "postgresql", started here, with kind = "pgbench"'):
        read(alone, "store.kind=null")
    with pytest.raises(SpecError, match=r'store\.threads: does not apply to "postgresql"'):
        read(alone, "store.threads=4")
    with pytest.raises(SpecError, match=r'store\.hosts: should be 1: kind = "pgbench" calls one database'):
        read(alone, "store.hosts=2")


def test_a_database_elsewhere_has_a_user_and_a_name() -> None:
    at = 'store.address=["h:5432"]'
    store = read(MESSAGES, at, "store.user=bench", "store.database=messages").base.system.store
    assert store is not None and (store.user, store.database) == ("bench", "messages")
    assert not keeps_data(read(MESSAGES, at))
    elsewhere = 'applies only to a "postgresql" that runs elsewhere (address = …)'
    assert f"store.user: {elsewhere}" in reasons("store.user=bench")
    assert f"store.reset: {elsewhere}" in reasons("store.reset=true")
    with pytest.raises(SpecError, match=r"store\.database: cannot vary"):
        read(MESSAGES, at, 'store.database=["a", "b"]')


def test_a_database_is_for_messages_alone() -> None:
    found = reasons(text=changed(MESSAGES, 'protocol = "queue"', 'protocol = "memcached"'))
    for expected in (
        'workload.characters: applies to protocol = "queue" alone',
        'middleware.connections: applies to protocol = "queue" alone',
        'store.kind: "postgresql" needs protocol = "queue"',
    ):
        assert expected in found
