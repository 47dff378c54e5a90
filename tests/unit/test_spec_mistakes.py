"""Mistakes in an experiment file: each is named with its line, what was expected, and the nearest right spelling."""

from __future__ import annotations

import pytest
from specs import CACHE, GRAPH, VERSIONED, changed, problems


@pytest.mark.parametrize(
    ("good", "old", "new", "expected"),
    [
        # A misspelt field, table, factor and choice: each names the nearest right one.
        (
            CACHE,
            "workers = 8 }",
            "wrokers = 8 }",
            'x.toml:7: middleware.wrokers: no such field; did you mean "workers"?',
        ),
        (CACHE, "[measure]", "[mesure]", 'x.toml:20: mesure: no such table; did you mean "measure"?'),
        (
            CACHE,
            '"load.clients"',
            '"load.client"',
            'x.toml:17: load.client: no such factor; did you mean "load.clients"?',
        ),
        # What is a setting, and what has to be the same at every point.
        (
            CACHE,
            '"load.clients"',
            '"workload.protocol"',
            "x.toml:17: workload.protocol: cannot vary: it has one value for all points; make an experiment for each",
        ),
        (
            CACHE,
            '"load.clients"',
            '"measure.seconds"',
            "x.toml:17: measure.seconds: cannot vary: it has one value for all points; make an experiment for each",
        ),
        (
            CACHE,
            '"memcached"',
            '"memcache"',
            "x.toml:8: store.kind: should be 'knee-kv', 'memcached', 'postgresql', 'sqlite' or 'null', "
            "not 'memcache'; did you mean \"memcached\"?",
        ),
        # Wrong types and ranges, where they stand.
        (CACHE, "keys = 10_000", 'keys = "many"', "x.toml:13: workload.keys: should be a valid integer, not 'many'"),
        (CACHE, "keys = 10_000", "keys = true", "x.toml:13: workload.keys: should be a valid integer, not True"),
        (CACHE, '"1:0"', '"0:0"', 'x.toml:11: workload.set_get: should have a share above 0, not "0:0"'),
        (CACHE, '"1:0"', '"1/0"', "x.toml:11: workload.set_get: should be sets to gets, such as \"1:9\", not '1/0'"),
        (
            CACHE,
            "value_bytes = 4096",
            'value_bytes = "uniform:9:3"',
            "x.toml:12: workload.value_bytes: should be LOW:HIGH, not 'uniform:9:3'",
        ),
        (
            CACHE,
            "populated = 0.99",
            "populated = 1.5",
            "x.toml:14: workload.populated: should be less than or equal to 1, not 1.5",
        ),
        (
            CACHE,
            "repetitions = 3",
            "repetitions = 0",
            "x.toml:21: measure.repetitions: should be greater than or equal to 1, not 0",
        ),
        (
            CACHE,
            "seconds = 70",
            "seconds = 4",
            "x.toml:22: measure.seconds: should be more than warmup_s (5 by default) and cooldown_s (5 by default) "
            "together, not 4, which leaves no time to measure; give warmup_s = 1 and cooldown_s = 1, or at least "
            "seconds = 11",
        ),
        (
            CACHE,
            "seconds = 70",
            "seconds = 10\nwarmup_s = 2\ncooldown_s = 8",
            "x.toml:22: measure.seconds: should be more than warmup_s (2) and cooldown_s (8) together, not 10, which "
            "leaves no time to measure; give warmup_s = 2 and cooldown_s = 4, or at least seconds = 11",
        ),
        (CACHE, 'name = "throughput-for-writes"', "", "x.toml:1: experiment.name: missing"),
        # Factors: the level that is wrong, by its line.
        (
            CACHE,
            "[6, 12, 24]",
            "[6,\n 7]",
            "x.toml:17: load.clients: should divide evenly over 3 load hosts, not 7; the nearest that do are 6 and 9",
        ),
        (CACHE, "[6, 12, 24]", "[2]", "x.toml:17: load.clients: should be at least one per load host (3), not 2"),
        (CACHE, "[8, 16]", '[8,\n "x"]', "x.toml:18: middleware.workers: should be a valid integer, not 'x'"),
        (CACHE, "[8, 16]", "[8, 8]", "x.toml:18: middleware.workers: should have different levels, not [8, 8]"),
        (CACHE, "[8, 16]", "8", "x.toml:18: middleware.workers: should be a list of at least one level, not 8"),
        (CACHE, "[8, 16]", "[]", "x.toml:18: middleware.workers: should be a list of at least one level, not []"),
        (
            CACHE,
            '"load.clients" =',
            "load.clients =",
            'x.toml:17: load: a factor\'s name needs quotes: "load.…" = […]',
        ),
        # What only several fields together make wrong.
        (
            CACHE,
            "workers = 8 }",
            "workers = 8, pipelined = true }",
            "x.toml:18: middleware.workers: cannot be given together with pipelined = true",
        ),
        (
            CACHE,
            'kind = "memcached" }',
            'address = ["a:1"] }',
            "x.toml:8: store.address: should name hosts = 3 addresses, not 1",
        ),
        (
            CACHE,
            'hosts = 3, kind = "memcached" }',
            'address = ["a:70000"] }',
            "x.toml:8: store.address: should have ports from 1 to 65535: number 1 does not",
        ),
        (
            CACHE,
            "populated = 0.99",
            "rate = 100\nthink_ms = 1",
            "x.toml:15: workload.think_ms: cannot be given together with rate: an open loop has none",
        ),
        # The fields of one protocol under the other.
        (
            VERSIONED,
            "keys = 1000",
            'set_get = "1:1"',
            'x.toml:13: workload.set_get: does not apply to protocol = "kv": mix sets its requests',
        ),
        (
            VERSIONED,
            "keys = 1000",
            "pipeline = 4",
            'x.toml:13: workload.pipeline: does not apply to protocol = "kv": each client has one request in flight',
        ),
        (VERSIONED, 'protocol = "kv"\n', "", 'x.toml:9: workload.mix: applies to protocol = "kv" alone'),
        # What stands where protocol "kv" cannot go.
        (
            VERSIONED,
            "store = {",
            "middleware = { workers = 1 }\nstore = {",
            'x.toml:6: middleware: does not apply to protocol = "kv": its clients call the stores directly',
        ),
        (
            VERSIONED,
            "keys = 1000",
            "ttl_s = 0",
            "x.toml:13: workload.ttl_s: should be greater than or equal to 1, not 0",
        ),
        # Mixes.
        (
            VERSIONED,
            '"read:3,bulk_put:1"',
            '"raed:3"',
            "x.toml:10: workload.mix: should be operations and weights, such as",
        ),
        (
            VERSIONED,
            '"read:3,bulk_put:1"',
            '"read:0"',
            'x.toml:10: workload.mix: should have a share above 0, not "read:0"',
        ),
        (
            VERSIONED,
            '"read:3,bulk_put:1"',
            '"put:3,put:1"',
            "x.toml:10: workload.mix: should name each operation once; put occurs several times",
        ),
        (
            VERSIONED,
            "keys = 1000",
            'interface = "memcached"',
            'x.toml:10: workload.mix: cannot contain bulk_put with interface = "memcached": that protocol has none',
        ),
        (
            VERSIONED,
            '"read:3,bulk_put:1"',
            '"read:3,append:1"\nttl_s = 5',
            "x.toml:11: workload.ttl_s: cannot be given together with append over gRPC: append makes an expired key",
        ),
        # Stores.
        (
            VERSIONED,
            '"interval:100"',
            '"interval:0"',
            'x.toml:6: store.durability: should be "memory", "always", "interval:MS"',
        ),
        (VERSIONED, '"all"', '"ever"', "x.toml:6: store.history_s: should be seconds, or \"all\", not 'ever'"),
        (
            VERSIONED,
            'kind = "knee-kv"',
            'address = ["h:1"]',
            "x.toml:6: store.durability: cannot be set: this tier already runs elsewhere (address = …)",
        ),
        # The factor's level is to blame, not the field.
        (
            VERSIONED,
            '["linearizable", "sequential"]',
            '["linearizable",\n "strict"]',
            "x.toml:16: store.consistency: should be 'linearizable' or 'sequential', not 'strict'",
        ),
        # Graphs.
        (
            GRAPH,
            "largest = 300",
            "largets = 300",
            'x.toml:11: workload.graph.largets: no such field; did you mean "largest"?',
        ),
        (
            GRAPH,
            "users = 900",
            "users = 1",
            "x.toml:11: workload.graph.users: should be greater than or equal to 2, not 1",
        ),
        (
            GRAPH,
            "largest = 300",
            "largest = 900",
            "x.toml:11: workload.graph.largest: should be less than the 900 users, not 900",
        ),
        (
            GRAPH,
            "largest = 300",
            "largest = 300, exponent = 1.0",
            "x.toml:11: workload.graph.exponent: should be greater than 1, not 1.0",
        ),
        (GRAPH, "{ users = 900, largest = 300 }", "5", "x.toml:11: workload.graph: should be a table"),
        (
            GRAPH,
            "graph = ",
            "populated = 0.5\ngraph = ",
            "x.toml:11: workload.populated: cannot be given together with graph",
        ),
        (
            GRAPH,
            "graph = ",
            "verify = true\ngraph = ",
            "x.toml:11: workload.verify: cannot be given together with graph",
        ),
        (
            GRAPH,
            "graph = ",
            "own_keys = true\ngraph = ",
            "x.toml:11: workload.own_keys: cannot be given together with graph",
        ),
        (
            GRAPH,
            "graph = ",
            "ttl_s = 5\ngraph = ",
            "x.toml:11: workload.ttl_s: cannot be given together with graph: its lists do not expire",
        ),
        (GRAPH, "graph = ", 'interface = "memcached"\ngraph = ', 'x.toml:12: workload.graph: needs interface = "grpc"'),
    ],
)
def test_a_mistake_is_named_with_its_line_and_reason(good: str, old: str, new: str, expected: str) -> None:
    found = problems(changed(good, old, new))
    assert any(problem.startswith(expected) for problem in found), found
