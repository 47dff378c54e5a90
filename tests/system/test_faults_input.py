"""Input that no client should send: the same answer from our store and through our middleware as from memcached."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
from systems import Systems, converse

KEY_BYTES_MAX = 250
VALUE_BYTES_MAX = 1024 * 1024
LONG_KEY = b"k" * (KEY_BYTES_MAX + 1)

# Set on a connection of its own, because memcached drops the answer to what came before some of the bad input.
BEFORE = b"set before 0 0 3\r\nabc\r\n"
# Sent behind the bad input, whose end has to be found.
AFTER = b"get before\r\n"

BAD_INPUT = {
    "an unknown command": b"frobnicate now\r\n",
    "an empty line": b"\r\n",
    "a line of spaces": b"   \r\n",
    "a get without a key": b"get\r\n",
    "a bare line feed": b"get before\n",
    "a key that is too long": b"get " + LONG_KEY + b"\r\n",
    "a key that is too long among good ones": b"get before " + LONG_KEY + b" before\r\n",
    "a key of the longest length": b"get " + b"k" * KEY_BYTES_MAX + b"\r\n",
    "a set under a key that is too long": b"set " + LONG_KEY + b" 0 0 3\r\nabc\r\n",
    "a set without its numbers": b"set a\r\n",
    "a set whose length is no number": b"set a 0 0 three\r\n",
    "a set of negative length": b"set a 0 0 -1\r\n",
    "a set whose flags are too large": b"set a 99999999999 0 1\r\nx\r\n",
    "a set whose value is longer than it says": b"set a 0 0 3\r\nabcdef\r\n",
    "a set whose value is shorter than it says": b"set a 0 0 5\r\nabc\r\n",
    "a value that is too large": b"set a 0 0 %d\r\n%b\r\n" % (VALUE_BYTES_MAX + 1, b"x" * (VALUE_BYTES_MAX + 1)),
    "a value that is too large, unanswered": b"set a 0 0 %d noreply\r\n%b\r\n"
    % (VALUE_BYTES_MAX + 1, b"x" * (VALUE_BYTES_MAX + 1)),
    "arithmetic on words": b"incr before 1\r\n",
    "arithmetic with words": b"incr before one\r\n",
    "a delete with a time": b"delete a 5\r\n",
    "a cas without its token": b"cas a 0 0 1\r\nx\r\n",
    "a verbosity without a level": b"verbosity\r\n",
    "a touch without a time": b"touch a\r\n",
    "flags of a meta get that do not exist": b"mg before !\r\n",
    "a meta get without a key": b"mg\r\n",
    "upper case": b"GET before\r\n",
}
HALF_SENT = {
    "half a command": b"ge",
    "a line without its end": b"get before",
    "half a value": b"set a 0 0 10\r\nabc",
    "a value without its end": b"set a 0 0 3\r\nabc",
    "half a line end": b"set a 0 0 3\r\nabc\r",
}
ENDLESS_LINES = [b"a" * 100_000, b"set " + b"a" * 100_000]

SYSTEMS = {
    "kv": lambda systems: systems.kv(),
    "workers": lambda systems: systems.proxy("--workers", "4", servers=[systems.memcached().endpoint]),
    "pipelined": lambda systems: systems.proxy("--pipelined", servers=[systems.memcached().endpoint]),
    "pipelined-3": lambda systems: systems.proxy(
        "--pipelined", servers=[systems.memcached().endpoint for _ in range(3)]
    ),
}


systems_under_test = pytest.mark.parametrize("system", SYSTEMS)


@systems_under_test
def test_bad_input_is_answered_as_memcached_answers_it(systems: Systems, system: str) -> None:
    memcached, ours = systems.memcached(), SYSTEMS[system](systems)
    assert converse(memcached.address, BEFORE) == converse(ours.address, BEFORE) == b"STORED\r\n"
    different = {}
    for name, request in BAD_INPUT.items():
        expected, answer = (converse(server.address, request + AFTER) for server in (memcached, ours))
        if answer != expected:
            different[name] = f"{answer!r} instead of {expected!r}"
    assert different == {}


@systems_under_test
def test_half_a_request_is_not_carried_out(systems: Systems, system: str) -> None:
    ours = SYSTEMS[system](systems)
    for name, request in HALF_SENT.items():
        assert converse(ours.address, request) == b"", name
        assert converse(ours.address, b"get a\r\n") == b"END\r\n", name


@systems_under_test
@pytest.mark.parametrize("line", ENDLESS_LINES, ids=["of nonsense", "of a set"])
def test_a_line_that_never_ends_ends_its_connection_only(systems: Systems, system: str, line: bytes) -> None:
    ours = SYSTEMS[system](systems)
    with socket.create_connection(ours.address, timeout=10) as connection, suppress(ConnectionError):
        connection.sendall(line)
        # memcached hangs up too; an error message before that is a courtesy.
        assert b"".join(iter(lambda: connection.recv(65536), b""))[:6] in (b"", b"CLIENT", b"ERROR ", b"SERVER")
    assert converse(ours.address, BEFORE) == b"STORED\r\n"
