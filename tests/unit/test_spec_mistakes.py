"""Mistakes in an experiment file: each is named with its line, what was expected, and the nearest right spelling."""

from __future__ import annotations

import pytest
from cases import cases
from specs import CACHE, GRAPH, VERSIONED, changed, problems

MISTAKES = {
    "cache": (
        CACHE,
        r"""
workers = 8 } => wrokers = 8 }
  → 7: middleware.wrokers: no such field; did you mean "workers"?
[measure] => [mesure]
  → 20: mesure: no such table; did you mean "measure"?
"load.clients" => "load.client"
  → 17: load.client: no such factor; did you mean "load.clients"?
"load.clients" => "workload.protocol"
  → 17: workload.protocol: cannot vary: it has one value for all points; make an experiment for each
"load.clients" => "measure.seconds"
  → 17: measure.seconds: cannot vary: it has one value for all points; make an experiment for each
"memcached" => "memcache"
  → 8: store.kind: should be 'knee-kv', 'memcached', 'postgresql', 'sqlite', 'null', 'knee-space', 'nginx' or 'redis',
    not 'memcache'; did you mean "memcached"?
keys = 10_000 => keys = "many"
  → 13: workload.keys: should be a valid integer, not 'many'
keys = 10_000 => keys = true
  → 13: workload.keys: should be a valid integer, not True
"1:0" => "0:0"
  → 11: workload.set_get: should have a share above 0, not "0:0"
"1:0" => "1/0"
  → 11: workload.set_get: should be sets to gets, such as "1:9", not '1/0'
value_bytes = 4096 => value_bytes = "uniform:9:3"
  → 12: workload.value_bytes: should be LOW:HIGH, not 'uniform:9:3'
populated = 0.99 => populated = 1.5
  → 14: workload.populated: should be less than or equal to 1, not 1.5
repetitions = 3 => ramp = true
  → 21: measure.ramp: needs the factor load.clients with equal steps, such as [10, 20, 30]
repetitions = 3 => repetitions = 0
  → 21: measure.repetitions: should be greater than or equal to 1, not 0
seconds = 70 => seconds = 4
  → 22: measure.seconds: should be more than warmup_s (5 by default) and cooldown_s (5 by default) together,
    not 4, which leaves no time to measure; give warmup_s = 1 and cooldown_s = 1, or at least seconds = 11
seconds = 70 => seconds = 10\nwarmup_s = 2\ncooldown_s = 8
  → 22: measure.seconds: should be more than warmup_s (2) and cooldown_s (8) together, not 10, which leaves no
    time to measure; give warmup_s = 2 and cooldown_s = 4, or at least seconds = 11
name = "throughput-for-writes" =>
  → 1: experiment.name: missing
[6, 12, 24] => [6,\n 7]
  → 17: load.clients: should divide evenly over 3 load hosts, not 7; the nearest that do are 6 and 9
[6, 12, 24] => "auto"\n"workload.rate" = [100]
  → 17: load.clients: cannot be "auto" with workload.rate: an open loop has no knee; list the clients
[6, 12, 24] => "all"
  → 17: load.clients: should be a list of at least one level, not 'all'
[6, 12, 24] => [2]
  → 17: load.clients: should be at least one per load host (3), not 2
[8, 16] => [8,\n "x"]
  → 18: middleware.workers: should be a valid integer, not 'x'
[8, 16] => [8, 8]
  → 18: middleware.workers: should have different levels, not [8, 8]
[8, 16] => 8
  → 18: middleware.workers: should be a list of at least one level, not 8
[8, 16] => []
  → 18: middleware.workers: should be a list of at least one level, not []
"load.clients" = => load.clients =
  → 17: load: a factor's name needs quotes: "load.…" = […]
workers = 8 } => workers = 8, pipelined = true }
  → 18: middleware.workers: cannot be given together with pipelined = true
workers = 8 } => workers = 8, batch_max = 4 }
  → 7: middleware.batch_max: needs pipelined = true: a worker slot has one request in flight
workers = 8 } => workers = 8, cache_ms = 5 }
  → 7: middleware.cache_ms: needs cache_mb = M: without it there is no cache
kind = "memcached" } => address = ["a:1"] }
  → 8: store.address: should name hosts = 3 addresses, not 1
hosts = 3, kind = "memcached" } => address = ["a:70000"] }
  → 8: store.address: should have ports from 1 to 65535: number 1 does not
populated = 0.99 => rate = 100\nthink_ms = 1
  → 15: workload.think_ms: cannot be given together with rate: an open loop has none
""",
    ),
    "versioned": (
        VERSIONED,
        r"""
keys = 1000 => set_get = "1:1"
  → 13: workload.set_get: does not apply to protocol = "kv": give the requests in mix
keys = 1000 => pipeline = 4
  → 13: workload.pipeline: does not apply to protocol = "kv": each client has one request in flight
protocol = "kv"\n =>
  → 9: workload.mix: applies to protocol = "kv" alone
store = { => middleware = { workers = 1 }\nstore = {
  → 6: middleware: does not apply to protocol = "kv": its clients call the stores directly
keys = 1000 => ttl_s = 0
  → 13: workload.ttl_s: should be greater than or equal to 1, not 0
"read:3,bulk_put:1" => "raed:3"
  → 10: workload.mix: should be operations and weights, such as
"read:3,bulk_put:1" => "read:0"
  → 10: workload.mix: should have a share above 0, not "read:0"
"read:3,bulk_put:1" => "put:3,put:1"
  → 10: workload.mix: should name each operation once; put occurs several times
keys = 1000 => interface = "memcached"
  → 10: workload.mix: cannot contain bulk_put with interface = "memcached": that protocol lacks it
"read:3,bulk_put:1" => "read:3,append:1"\nttl_s = 5
  → 11: workload.ttl_s: cannot be given together with append over gRPC: an append to an expired
"interval:100" => "interval:0"
  → 6: store.durability: should be "memory", "always", "interval:MS"
"all" => "ever"
  → 6: store.history_s: should be seconds, or "all", not 'ever'
kind = "knee-kv" => address = ["h:1"]
  → 6: store.durability: cannot be set: this tier already runs elsewhere (address = …)
["linearizable", "sequential"] => ["linearizable",\n "strict"]
  → 16: store.consistency: should be 'linearizable' or 'sequential', not 'strict'
""",
    ),
    "graph": (
        GRAPH,
        r"""
largest = 300 => largets = 300
  → 11: workload.graph.largets: no such field; did you mean "largest"?
users = 900 => users = 1
  → 11: workload.graph.users: should be greater than or equal to 2, not 1
largest = 300 => largest = 900
  → 11: workload.graph.largest: should be less than the 900 users, not 900
largest = 300 => largest = 300, exponent = 1.0
  → 11: workload.graph.exponent: should be greater than 1, not 1.0
{ users = 900, largest = 300 } => 5
  → 11: workload.graph: should be a table
graph = => populated = 0.5\ngraph =
  → 11: workload.populated: cannot be given together with graph
graph = => verify = true\ngraph =
  → 11: workload.verify: cannot be given together with graph
graph = => own_keys = true\ngraph =
  → 11: workload.own_keys: cannot be given together with graph
graph = => ttl_s = 5\ngraph =
  → 11: workload.ttl_s: cannot be given together with graph: its lists do not expire
graph = => interface = "memcached"\ngraph =
  → 12: workload.graph: needs interface = "grpc"
""",
    ),
}
"""By file, what is replaced, by what, and the start of the problem after the name of the file."""


@pytest.mark.parametrize("file", MISTAKES)
def test_a_mistake_is_named_with_its_line_and_reason(file: str) -> None:
    good, mistakes = MISTAKES[file]
    for change, (expected,) in cases(mistakes):
        old, new = (text.strip().replace("\\n", "\n") for text in change.split("=>"))
        found = problems(changed(good, old, new))
        assert any(problem.startswith(f"x.toml:{expected}") for problem in found), (change, found)
