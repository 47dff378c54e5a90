"""Programs of other projects, against our store and through our middleware, as against memcached itself.

`make soak` runs them against all contestants (KNEE_SOAK); otherwise four take part, one of each kind.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from systems import PATIENT, Running, Systems

from knee.lab.programs import find_foreign

MEMCCAPABLE_ASCII_TESTS = 27
# pymemcache 4.0.0: 100 integration tests (three more, of TLS, it skips itself) and the six operations of its
# benchmark with its own client; one of those six, test_bench_delete, trips over its own fixture with any server.
PYMEMCACHE_TESTS = 105
PYMEMCACHE_FAILS_ANYWHERE = "test_bench_delete[pymemcache]"
# It stores a value for a second and touches it twice. memcached counts whole seconds, so that the value is gone when a
# second ends between the steps.
PYMEMCACHE_RACES_THE_CLOCK = "test_touch["
RACES_MAX = 3

Starter = Callable[[Systems], Running]


class Contestant(NamedTuple):
    """A system that has to behave as memcached does."""

    name: str
    start: Starter


def _behind_proxy(stores: int, *flags: str) -> Starter:
    def start(systems: Systems) -> Running:
        servers = [systems.memcached().endpoint for _ in range(stores)]
        return systems.proxy(*flags, *PATIENT, servers=servers)

    return start


SOAK = "KNEE_SOAK" in os.environ
SAMPLE = ("kv-versions", "workers-3-sharded", "pipelined-1", "pipelined-1-cache")
SWITCHES = ("kv-dally", "kv-batch", "kv-threads", "pipelined-batches")
"""Each has a switch that no contestant of the sample has."""
CACHE = ("--cache-mb", "16", "--cache-ms", "100")
"""Some tests wait for an item's end; the cache may answer for its lifetime longer."""
CONTESTANTS = [
    Contestant("kv", lambda systems: systems.kv()),
    Contestant("kv-versions", lambda systems: systems.kv(None, "--consistency", "sequential", "--threads", "2")),
    Contestant("kv-data", lambda systems: systems.kv(None, "--data", systems.folder())),
    Contestant("kv-dally", lambda systems: systems.kv(None, "--data", systems.folder(), "--dally-us", "300")),
    Contestant("kv-batch", lambda systems: systems.kv(None, "--data", systems.folder(), "--batch-max", "1")),
    # A test sets the limit to 50 MiB, which is too little for the stripes of the default.
    Contestant("kv-threads", lambda systems: systems.kv(None, "--threads", "4", "--memory-mb", "64")),
    Contestant("workers-1", _behind_proxy(1, "--workers", "8")),
    Contestant("workers-3", _behind_proxy(3, "--workers", "8")),
    Contestant("workers-3-sharded", _behind_proxy(3, "--workers", "8", "--multiget", "sharded")),
    Contestant("pipelined-1", _behind_proxy(1, "--pipelined")),
    Contestant("pipelined-3", _behind_proxy(3, "--pipelined")),
    Contestant("pipelined-batches", _behind_proxy(1, "--pipelined", "--batch-max", "1")),
    Contestant("workers-3-cache", _behind_proxy(3, "--workers", "8", *CACHE)),
    Contestant("pipelined-1-cache", _behind_proxy(1, "--pipelined", *CACHE)),
]


@pytest.fixture(
    scope="module",
    params=[contestant for contestant in CONTESTANTS if SOAK or contestant.name in SAMPLE],
    ids=lambda contestant: contestant.name,
)
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A contestant, for all tests of it."""
    systems = Systems()
    yield request.param.start(systems)
    systems.close()


def memccapable(server: Running) -> dict[str, bool]:
    """The ASCII tests of libmemcached's memccapable, and whether each passed."""
    program = find_foreign("memccapable", "libmemcached-tools")
    host, port = server.address
    run = subprocess.run(
        [program, "-a", "-h", host, "-p", str(port), "-t", "5"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    outcomes = re.findall(r"^(ascii .*?)\s+\[(pass|FAIL)\]", run.stdout + run.stderr, re.MULTILINE)
    return {name: outcome == "pass" for name, outcome in outcomes}


def pymemcache_suite(server: Running) -> dict[str, str]:
    """The tests of pymemcache that talk to a server, and how each ended: PASSED, FAILED or ERROR.

    Those that race the clock run again when they fail.
    """
    outcomes = _pymemcache(server, "test_integration.py", "test_benchmark.py")
    for _ in range(RACES_MAX):
        lost = [
            name
            for name, outcome in outcomes.items()
            if outcome != "PASSED" and name.startswith(PYMEMCACHE_RACES_THE_CLOCK)
        ]
        if lost:
            outcomes |= _pymemcache(server, *(f"test_integration.py::{name}" for name in lost))
    return outcomes


def _pymemcache(server: Running, *tests: str) -> dict[str, str]:
    package = find_spec("pymemcache.test")
    assert package and package.origin, "pymemcache is not installed: pip install -r requirements-dev.txt"
    folder = Path(package.origin).parent
    host, port = server.address
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)),
            *("-W", "ignore", "-q", "-rA", "--server", host, "--port", str(port), "--count", "10"),
            *(str(folder / test) for test in tests),
        ],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\S+)", run.stdout, re.MULTILINE)
    assert outcomes, run.stdout + run.stderr
    return {name: outcome for outcome, name in outcomes}


def test_memcached_itself_is_what_the_counts_say(systems: Systems) -> None:
    memcached = systems.memcached()
    capable = memccapable(memcached)
    assert len(capable) == MEMCCAPABLE_ASCII_TESTS and all(capable.values())
    suite = pymemcache_suite(memcached)
    assert {name for name, outcome in suite.items() if outcome != "PASSED"} == {PYMEMCACHE_FAILS_ANYWHERE}
    assert len(suite) == PYMEMCACHE_TESTS + 1


def test_memccapable(server: Running) -> None:
    outcomes = memccapable(server)
    assert [name for name, passed in outcomes.items() if not passed] == []
    assert len(outcomes) == MEMCCAPABLE_ASCII_TESTS


@pytest.mark.skipif(SOAK, reason="test_memccapable has all contestants")
def test_memccapable_with_each_switch(systems: Systems) -> None:
    servers = [each.start(systems) for each in CONTESTANTS if each.name in SWITCHES]
    assert len(servers) == len(SWITCHES)
    # It sleeps for most of its time.
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(memccapable, servers))
    expected = dict.fromkeys(found[0], True)
    assert found == [expected] * len(servers) and len(expected) == MEMCCAPABLE_ASCII_TESTS


def test_pymemcache(server: Running) -> None:
    outcomes = pymemcache_suite(server)
    failed = {name for name, outcome in outcomes.items() if outcome != "PASSED"}
    assert failed <= {PYMEMCACHE_FAILS_ANYWHERE}
    assert len(outcomes) == PYMEMCACHE_TESTS + 1


@pytest.mark.parametrize("operation", ["get", "set", "mget"])
def test_memcslap(server: Running, operation: str) -> None:
    program = find_foreign("memcslap", "libmemcached-tools")
    run = subprocess.run(
        [program, "-s", server.endpoint, "-c", "8", "-e", "100", "-t", operation],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert f"Time to {operation}" in run.stdout


def test_memaslap_verifies_every_value(server: Running, tmp_path: Path) -> None:
    program = find_foreign("memcaslap", "libmemcached-tools")
    workload = tmp_path / "workload"
    workload.write_text("key\n16 64 1\nvalue\n1 8192 1\ncmd\n0 0.3\n1 0.7\n")
    run = subprocess.run(
        [
            *(program, "-s", server.endpoint, "-T", "1", "-c", "8", "-w", "1k", "-F", str(workload)),
            *("-x", "2000", "-v", "1.0", "-d", "4"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    counts = dict(re.findall(r"^(\w+): (\d+)$", run.stdout, re.MULTILINE))
    assert int(counts["cmd_get"]) > 0 and int(counts["cmd_set"]) > 0
    assert [counts[name] for name in ("get_misses", "verify_misses", "verify_failed")] == ["0", "0", "0"]


def test_no_wrong_value_under_mixed_load(systems: Systems, server: Running) -> None:
    keys = ["--keys", "500", "--value-bytes", "uniform:1:6000"]
    assert systems.load(server, "--clients", "4", "--populate", "1", *keys).wait() == 0
    load = systems.load(
        server,
        *("--clients", "24", "--set-get", "1:3", "--multiget", "5", "--pipeline", "4", "--seconds", "1", "--verify"),
        *keys,
    )
    assert load.wait() == 0, load.complaints
    operations = load.summary["ops"]
    assert operations["set"]["count"] > 0 and operations["multiget"]["count"] > 0
    assert sum(operation["errors"] + operation["misses"] for operation in operations.values()) == 0
    assert load.summary["wrong_values"] == 0
