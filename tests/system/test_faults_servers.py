"""Servers that are late, that die, and that come back, behind the middleware and under load."""

from __future__ import annotations

import pytest
from systems import PATIENT, Running, Systems, converse, free_port, wait_until

# Servers that are killed refuse connections at once: nothing here waits for one that does not answer.
MODES = {"workers": ["--workers", "8", *PATIENT], "pipelined": ["--pipelined", *PATIENT]}
KEYS = ["--keys", "1000", "--value-bytes", "200"]
MIXED = ["--clients", "16", "--set-get", "1:4", "--multiget", "3", "--verify"]

modes = pytest.mark.parametrize("mode", MODES)


def completed(load: Running) -> int:
    """Requests answered without an error, so far."""
    operations = [operation for window in load.windows() for operation in window["ops"].values()]
    return sum(operation["count"] - operation["errors"] for operation in operations)


def errors_of(message: dict[str, dict[str, dict[str, int]]]) -> int:
    """Errors in a window or a summary."""
    return sum(operation["errors"] for operation in message["ops"].values())


def has_recovered(load: Running) -> bool:
    """Whether the last whole second brought answers, and no error."""
    windows = [window for window in load.windows() if window["seconds"] > 0.99]
    return bool(windows) and bool(windows[-1]["ops"]) and errors_of(windows[-1]) == 0


@modes
def test_a_middleware_started_before_its_servers(systems: Systems, mode: str) -> None:
    port = free_port()
    server = f"127.0.0.1:{port}"
    proxy = systems.proxy(*MODES[mode], servers=[server])
    for request in (b"get a\r\n", b"set a 0 0 1\r\nx\r\n"):
        answer = converse(proxy.address, request)
        assert answer.startswith(b"SERVER_ERROR ") and server.encode() in answer, answer
    systems.memcached(port)
    wait_until(lambda: converse(proxy.address, b"get a\r\n") == b"END\r\n", "the middleware has found its server")
    assert converse(proxy.address, b"set a 0 0 1\r\nx\r\nget a\r\n") == b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"


@modes
@pytest.mark.parametrize("quorum", ["majority", "all"])
def test_reads_move_on_and_writes_need_their_quorum(systems: Systems, mode: str, quorum: str) -> None:
    stores = [systems.memcached() for _ in range(3)]
    flags = [*MODES[mode], "--write-quorum", quorum]
    proxy = systems.proxy(*flags, servers=[store.endpoint for store in stores])
    assert converse(proxy.address, b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    stores[1].kill()
    # The first read may have been on its way when the server died.
    converse(proxy.address, b"get a\r\n" * 3)
    assert converse(proxy.address, b"get a\r\n" * 6) == b"VALUE a 0 1\r\nx\r\nEND\r\n" * 6
    answer = converse(proxy.address, b"set a 0 0 1\r\ny\r\n")
    if quorum == "all":
        assert answer.startswith(b"SERVER_ERROR ") and stores[1].endpoint.encode() in answer, answer
    else:
        assert answer == b"STORED\r\n"
        wait_until(
            lambda: any(stores[1].endpoint in complaint for complaint in proxy.complaints),
            "the middleware names the server",
        )


@modes
@pytest.mark.parametrize("victims", [1, 3], ids=["one of three", "all three"])
def test_servers_that_die_and_return_under_load(systems: Systems, mode: str, victims: int) -> None:
    stores = [systems.kv() for _ in range(3)]
    proxy = systems.proxy(*MODES[mode], servers=[store.endpoint for store in stores])
    assert systems.load(proxy, "--populate", "1", *KEYS).wait() == 0
    load = systems.load(proxy, *MIXED, *KEYS, "--seconds", "600")
    wait_until(lambda: completed(load) > 1000, "the load runs")
    for store in stores[:victims]:
        store.kill()
    noticed = {store.endpoint for store in stores[:victims]}
    wait_until(lambda: all(any(it in line for line in proxy.complaints) for it in noticed), "the middleware notices")
    for store in stores[:victims]:
        systems.kv(store.port)
    before = completed(load)
    wait_until(lambda: has_recovered(load) and completed(load) > before + 1000, "the traffic recovers")
    wait_until(lambda: sum("is in again" in line for line in proxy.complaints) == victims, "all servers are in again")
    assert load.stop() == 0, load.complaints
    assert load.summary["wrong_values"] == 0
    if victims == 1:
        assert errors_of(load.summary) == 0
    assert proxy.stop() == 0, proxy.complaints
    assert all(server["ejected"] > 0 for server in proxy.summary["servers"][:victims])


def test_a_store_that_dies_and_returns_under_direct_load(systems: Systems) -> None:
    store = systems.kv()
    load = systems.load(store, *MIXED, *KEYS, "--seconds", "600")
    wait_until(lambda: completed(load) > 1000, "the load runs")
    store.kill()
    wait_until(lambda: any(errors_of(window) for window in load.windows()), "the clients notice")
    systems.kv(store.port)
    before = completed(load)
    wait_until(lambda: has_recovered(load) and completed(load) > before + 1000, "the traffic recovers")
    assert load.stop() == 0, load.complaints
    assert load.summary["reconnects"] > 0 and load.summary["wrong_values"] == 0


@modes
def test_a_client_that_dies_in_mid_request_harms_no_other(systems: Systems, mode: str) -> None:
    store = systems.memcached()
    proxy = systems.proxy(*MODES[mode], servers=[store.endpoint])
    assert systems.load(proxy, "--populate", "1", *KEYS).wait() == 0
    survivor = systems.load(proxy, *MIXED, *KEYS, "--pipeline", "4", "--seconds", "600")
    wait_until(lambda: completed(survivor) > 1000, "the load runs")
    victims = [systems.load(proxy, *MIXED, *KEYS, "--pipeline", "16", "--seconds", "600") for _ in range(3)]
    wait_until(lambda: all(completed(victim) > 0 for victim in victims), "the other loads run")
    for victim in victims:
        victim.kill()
    before = completed(survivor)
    wait_until(lambda: completed(survivor) > before + 1000, "the survivor goes on")
    assert survivor.stop() == 0, survivor.complaints
    assert survivor.summary["wrong_values"] == 0 and errors_of(survivor.summary) == 0


@pytest.mark.parametrize("program", ["kv", *MODES])
def test_a_terminated_program_ends_under_load_and_says_what_it_did(systems: Systems, program: str) -> None:
    store = systems.kv()
    target = store if program == "kv" else systems.proxy(*MODES[program], servers=[store.endpoint])
    load = systems.load(target, *MIXED, *KEYS, "--seconds", "600")
    wait_until(lambda: completed(load) > 1000, "the load runs")
    assert target.stop() == 0, target.complaints
    assert sum(operation["count"] for operation in target.summary["ops"].values()) >= 1000
