"""Memory stays bounded, whatever clients do."""

from __future__ import annotations

import resource
import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from systems import Running, Systems, converse, wait_until

MODES = {"workers": ["--workers", "8"], "pipelined": ["--pipelined"]}
IDLE_CONNECTIONS = 10_000
# Sockets, and what the test, its servers' pipes and the interpreter have open besides.
DESCRIPTORS = IDLE_CONNECTIONS + 200
IDLE_MB_MAX = 100
AT_ONCE = 50
"""Connections that are served at once, so that the test does not wait for each."""
OWN_ADDRESS = "127.0.0.2"
"""An address for the connections' ports: those of 127.0.0.1 stay free for the servers of other tests."""
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: a closed connection leaves no used port, so that the next test soon finds free ones."""

VALUE = b"v" * 500_000
GREEDY_CLIENTS = 20
GETS_EACH = 10_000
# High-water mark, one value above it and its copy in the kernel's hands, for each client: generous, and yet a
# hundredth of the 100 GB that the clients ask for.
GREEDY_MB_MAX = 60 + GREEDY_CLIENTS * 4


@contextmanager
def open_files(needed: int) -> Iterator[None]:
    """Raises this process's limit of open files (programs it starts inherit it); fails where that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.fail(f"this needs {needed} open files and the hard limit is {hard}: run it under `ulimit -Hn {needed}`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def peak_mb(running: Running) -> float:
    """The most resident memory it ever had, in MB of a million bytes."""
    for line in Path(f"/proc/{running.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError(f"{running.name} has ended")


def ask_for_more_than_is_read(connections: list[socket.socket], request: bytes) -> None:
    """Sends `request` on every connection as far as its server takes it, and reads nothing."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE, memoryview(request))
        while selector.get_map():
            ready = selector.select(timeout=2)
            if not ready:
                return  # the servers take no more
            for key, _ in ready:
                sent = key.fileobj.send(key.data)  # type: ignore[union-attr]
                if sent == len(key.data):
                    selector.unregister(key.fileobj)
                else:
                    selector.modify(key.fileobj, selectors.EVENT_WRITE, key.data[sent:])


@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_idle_connections(systems: Systems, mode: str) -> None:
    with open_files(DESCRIPTORS), ExitStack() as idle:
        store = systems.memcached()
        proxy = systems.proxy(*MODES[mode], "--connections-max", str(IDLE_CONNECTIONS + 100), servers=[store.endpoint])
        connections = []
        for _ in range(IDLE_CONNECTIONS // AT_ONCE):
            fresh = [
                idle.enter_context(socket.create_connection(proxy.address, 60, (OWN_ADDRESS, 0)))
                for _ in range(AT_ONCE)
            ]
            # Idle, but not fresh: each has been served, and left a value that did not fit a small buffer.
            for connection in fresh:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.sendall(b"set k 0 0 20000\r\n" + b"x" * 20_000 + b"\r\nget k\r\n")
            for connection in fresh:
                answer = b""
                while not answer.endswith(b"END\r\n"):
                    answer += connection.recv(65536)
            connections += fresh
        assert proxy.resident_mb() < IDLE_MB_MAX
        for connection in (connections[0], connections[-1]):
            connection.sendall(b"delete k\r\n")
            assert connection.recv(100) in (b"DELETED\r\n", b"NOT_FOUND\r\n")


@pytest.mark.parametrize("target", ["kv", *MODES])
def test_clients_that_never_read(systems: Systems, target: str) -> None:
    store = systems.kv()
    server = store if target == "kv" else systems.proxy(*MODES[target], servers=[store.endpoint])
    assert converse(server.address, b"set large 0 0 %d\r\n%b\r\n" % (len(VALUE), VALUE)) == b"STORED\r\n"
    assert converse(server.address, b"set small 0 0 1\r\nx\r\n") == b"STORED\r\n"
    before = peak_mb(server)
    with ExitStack() as open_connections:
        greedy = [
            open_connections.enter_context(socket.create_connection(server.address)) for _ in range(GREEDY_CLIENTS)
        ]
        ask_for_more_than_is_read(greedy, b"get large\r\n" * GETS_EACH)
        # The rest of the world is still served.
        for _ in range(100):
            assert converse(server.address, b"get small\r\n") == b"VALUE small 0 1\r\nx\r\nEND\r\n"
        assert peak_mb(server) - before < GREEDY_MB_MAX
    wait_until(lambda: server.resident_mb() < GREEDY_MB_MAX, "the memory of clients that left is given back")


@pytest.mark.parametrize("target", ["kv", *MODES])
def test_clients_that_announce_more_than_they_send(systems: Systems, target: str) -> None:
    store = systems.kv()
    server = store if target == "kv" else systems.proxy(*MODES[target], servers=[store.endpoint])
    before = peak_mb(server)
    with ExitStack() as open_connections:
        for _ in range(500):
            connection = open_connections.enter_context(socket.create_connection(server.address, timeout=10))
            connection.sendall(b"set k 0 0 1000000\r\nabc")
        assert converse(server.address, b"get k\r\n") == b"END\r\n"
        # A megabyte was announced by each: 500 MB, had it been set aside.
        assert peak_mb(server) - before < 50
