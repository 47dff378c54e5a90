"""Experiment files without a mistake, and what is said of those with one."""

from __future__ import annotations

import pytest

from knee import spec
from knee.errors import SpecError

CACHE = """\
[experiment]
name = "throughput-for-writes"
question = "How many workers?"

[system]
load = { hosts = 3, link_mbit = 200 }
middleware = { hosts = 2, workers = 8 }
store = { hosts = 3, kind = "memcached" }

[workload]
set_get = "1:0"
value_bytes = 4096
keys = 10_000
populated = 0.99

[factors]
"load.clients" = [6, 12, 24]
"middleware.workers" = [8, 16]

[measure]
repetitions = 3
seconds = 70
"""

VERSIONED = """\
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

MESSAGES = """\
[experiment]
name = "messages"

[system]
load = { clients = 4 }
middleware = { workers = 8 }
store = { kind = "postgresql" }

[workload]
protocol = "queue"
characters = 2000

[factors]
"middleware.connections" = [4, 8]
"""


def read(text: str, *overrides: str) -> spec.Spec:
    return spec.parse(text, "x.toml", spec.parse_overrides(overrides))


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text, *overrides)
    return str(caught.value).splitlines()


def changed(good: str, old: str, new: str) -> str:
    """A good file with something else in the place of what stands once in it."""
    assert good.count(old) == 1, f"{old!r} has to stand once in the good file"
    return good.replace(old, new)


GRAPH = changed(VERSIONED, "own_keys = true", "graph = { users = 900, largest = 300 }")
