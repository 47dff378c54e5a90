"""The experiment file of a store that keeps versions: what applies to which protocol, and what is refused, where."""

from __future__ import annotations

import pytest

from knee import spec
from knee.errors import SpecError

GOOD = """\
[experiment]
name = "own-keys"

[system]
load = { clients = 4 }
store = { kind = "knee-kv", durability = "interval:100", history_s = "all" }

[workload]
protocol = "kv"
mix = "read:3,bulk_put:1"
own_keys = true
key_draws = 250
keys = 1000

[factors]
"store.consistency" = ["linearizable", "sequential"]
"store.trace" = [false, true]
"""


def read(text: str, *overrides: str) -> spec.Spec:
    return spec.parse(text, "x.toml", spec.parse_overrides(overrides))


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text, *overrides)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} has to stand once in the good file"
    return GOOD.replace(old, new)


WITH_GRAPH = changed("own_keys = true", "graph = { users = 900, largest = 300 }")


def test_a_store_that_keeps_versions_is_read_whole() -> None:
    good = read(GOOD)
    point = good.at({"store.consistency": "sequential", "store.trace": True})
    assert point.system.store is not None
    assert (point.system.store.consistency, point.system.store.trace) == ("sequential", True)
    assert (point.system.store.history_s, point.system.store.on_disk) == ("all", True)
    assert point.workload.operations == [("read", 3), ("bulk_put", 1)]
    assert read(WITH_GRAPH).base.workload.graph == spec.Graph(users=900, largest=300)


def test_a_store_in_memory_is_a_level_like_any_other() -> None:
    levels = read(GOOD, 'store.durability=["memory", "always"]')
    stores = [levels.at({"store.durability": level}).system.store for level in ("memory", "always")]
    assert [store is not None and store.on_disk for store in stores] == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # The fields of one protocol under the other.
        (
            "keys = 1000",
            'set_get = "1:1"',
            'x.toml:13: workload.set_get: does not apply to protocol = "kv": mix says what is asked for',
        ),
        (
            "keys = 1000",
            "pipeline = 4",
            'x.toml:13: workload.pipeline: does not apply to protocol = "kv": '
            "each of its clients has one request in flight",
        ),
        ('protocol = "kv"\n', "", 'x.toml:9: workload.mix: applies to protocol = "kv" alone'),
        # What stands where protocol "kv" cannot go.
        (
            "store = {",
            "middleware = { workers = 1 }\nstore = {",
            'x.toml:6: middleware: cannot stand before protocol = "kv": its clients talk to the stores themselves',
        ),
        ("keys = 1000", "ttl_s = 0", "x.toml:13: workload.ttl_s: should be greater than or equal to 1, not 0"),
        # Mixes.
        ('"read:3,bulk_put:1"', '"raed:3"', "x.toml:10: workload.mix: should be operations and weights, such as"),
        ('"read:3,bulk_put:1"', '"read:0"', 'x.toml:10: workload.mix: should ask for something, not "read:0"'),
        (
            '"read:3,bulk_put:1"',
            '"put:3,put:1"',
            "x.toml:10: workload.mix: should name each operation once, not put several times",
        ),
        (
            "keys = 1000",
            'interface = "memcached"',
            'x.toml:10: workload.mix: cannot hold bulk_put with interface = "memcached": that protocol has none',
        ),
        (
            '"read:3,bulk_put:1"',
            '"read:3,append:1"\nttl_s = 5',
            "x.toml:11: workload.ttl_s: cannot be given together with append over gRPC: of a key that has expired",
        ),
        # Stores.
        ('"interval:100"', '"interval:0"', 'x.toml:6: store.durability: should be "memory", "always", "interval:MS"'),
        ('"all"', '"ever"', "x.toml:6: store.history_s: should be seconds, or \"all\", not 'ever'"),
        (
            'kind = "knee-kv"',
            'address = ["h:1"]',
            "x.toml:6: store.durability: cannot be set: this tier already runs elsewhere (address = …)",
        ),
        # The factor's level is to blame, not the field.
        (
            '["linearizable", "sequential"]',
            '["linearizable",\n "strict"]',
            "x.toml:17: store.consistency: should be 'linearizable' or 'sequential', not 'strict'",
        ),
    ],
)
def test_a_problem_is_named_with_its_line_and_reason(old: str, new: str, expected: str) -> None:
    found = problems(changed(old, new))
    assert any(problem.startswith(expected) for problem in found), found


def test_a_foreign_store_has_nothing_of_ours() -> None:
    found = problems(GOOD, "store.kind=memcached")
    assert '--set store.kind=memcached: store.kind: should be "knee-kv" with protocol = "kv", not "memcached"' in found
    assert 'x.toml:6: store.durability: applies to kind = "knee-kv" alone, not to "memcached"' in found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("largest = 300", "largets = 300", 'workload.graph.largets: no such field; did you mean "largest"?'),
        ("users = 900", "users = 1", "workload.graph.users: should be greater than or equal to 2, not 1"),
        ("largest = 300", "largest = 900", "workload.graph.largest: should be less than the 900 users, not 900"),
        (
            "largest = 300",
            "largest = 300, exponent = 1.0",
            "workload.graph.exponent: should be greater than 1, not 1.0",
        ),
        ("{ users = 900, largest = 300 }", "5", "workload.graph: should be a table, not 5"),
        ("graph = ", "populated = 0.5\ngraph = ", "workload.populated: cannot be given together with graph"),
        ("graph = ", "verify = true\ngraph = ", "workload.verify: cannot be given together with graph"),
        ("graph = ", "own_keys = true\ngraph = ", "workload.own_keys: cannot be given together with graph"),
        ("graph = ", "ttl_s = 5\ngraph = ", "workload.ttl_s: cannot be given together with graph: its lists stay"),
        ("graph = ", 'interface = "memcached"\ngraph = ', 'workload.graph: needs interface = "grpc"'),
    ],
)
def test_a_graph_that_cannot_be(old: str, new: str, expected: str) -> None:
    assert WITH_GRAPH.count(old) == 1
    found = problems(WITH_GRAPH.replace(old, new))
    assert any(problem.startswith(("x.toml:11: " + expected, "x.toml:12: " + expected)) for problem in found), found


def test_a_graph_can_be_made_smaller_from_the_command_line_but_does_not_vary() -> None:
    smaller = read(WITH_GRAPH, "workload.graph.users=50", "workload.graph.largest=20")
    assert smaller.base.workload.graph == spec.Graph(users=50, largest=20)
    (problem,) = problems(WITH_GRAPH, "workload.graph.users=[500, 600]")
    assert "workload.graph.users: no such factor" in problem
