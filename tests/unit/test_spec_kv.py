"""The experiment file of a store that keeps versions: what applies to which protocol, and what is refused, where."""

from __future__ import annotations

from specs import GRAPH, VERSIONED, problems, read

from knee import spec


def test_a_store_that_keeps_versions_is_read_whole() -> None:
    good = read(VERSIONED)
    point = good.at({"store.consistency": "sequential", "store.trace": True})
    assert point.system.store is not None
    assert (point.system.store.consistency, point.system.store.trace) == ("sequential", True)
    assert (point.system.store.history_s, point.system.store.on_disk) == ("all", True)
    assert point.workload.operations == [("read", 3), ("bulk_put", 1)]
    assert read(GRAPH).base.workload.graph == spec.Graph(users=900, largest=300)


def test_a_store_in_memory_is_a_level_like_any_other() -> None:
    levels = read(VERSIONED, 'store.durability=["memory", "always"]')
    stores = [levels.at({"store.durability": level}).system.store for level in ("memory", "always")]
    assert [store is not None and store.on_disk for store in stores] == [False, True]


def test_switches_of_syncs_need_answers_that_wait_for_them() -> None:
    levels = read(VERSIONED, "store.durability=always", 'store.batch_max=[1, 16, "all"]', "store.dally_us=[0, 300]")
    stores = [levels.at({"store.batch_max": most, "store.dally_us": 300}).system.store for most in (1, "all")]
    assert [(store.batch_max, store.dally_us) for store in stores if store is not None] == [(1, 300), ("all", 300)]
    for field in ("dally_us=300", "batch_max=1"):
        name = field.partition("=")[0]
        (problem,) = problems(VERSIONED, "store.durability=none", f"store.{field}")
        assert f'store.{name}: needs durability = "always": otherwise no answer waits for a sync' in problem


def test_a_foreign_store_has_nothing_of_ours() -> None:
    found = problems(VERSIONED, "store.kind=memcached")
    assert '--set store.kind: should be "knee-kv" with protocol = "kv", not "memcached"' in found
    expected = 'applies to kind = "knee-kv" or "postgresql" or "sqlite" alone, not to "memcached"'
    assert f"x.toml:6: store.durability: {expected}" in found


def test_a_graph_can_be_replaced_but_does_not_vary() -> None:
    smaller = read(GRAPH, "workload.graph.users=50", "workload.graph.largest=20")
    assert smaller.base.workload.graph == spec.Graph(users=50, largest=20)
    (problem,) = problems(GRAPH, "workload.graph.users=[500, 600]")
    assert "workload.graph.users: cannot vary: it has one value for all points" in problem
