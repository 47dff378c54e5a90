"""Load generators: `knee-load` for all servers, and `floor-send` as its contestant."""

from __future__ import annotations

import json
import resource
import socket
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.cells import CONNECTIONS, Cell
from bench.programs import BenchError, Cores, Program, find_program

KEYS = 10_000
KEY_PREFIX = "bench:"
# The length of knee-load's keys: the prefix and ten digits.
KEY_BYTES = len(KEY_PREFIX) + 10
FIRST_KEY = f"{KEY_PREFIX}{0:010}".encode()
SLACK_S = 20.0
# A time limit for ten million keys that are synced in small groups.
POPULATED_S = 600.0


@dataclass(frozen=True)
class Driven:
    """The result of a load: answered requests, their time, and the load's own CPU time."""

    requests: int
    seconds: float
    cpu_s: float


def run_generator(command: list[str], core: int | None, seconds: float) -> tuple[dict[str, Any], float]:
    """Runs a generator to its end. Returns its last line and its CPU seconds."""
    with Program(command, core) as program:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = program.read_to_end(seconds + SLACK_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if program.process.returncode != 0:
            raise BenchError(f"{' '.join(command)} ended with {program.process.returncode}: {program.messages()}")
        cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return json.loads(output.splitlines()[-1]), cpu_s


class KneeLoad:
    """`knee-load memcached`."""

    name = "knee-load"

    def __init__(self, directory: Path | None, cores: Cores, keys: int = KEYS) -> None:
        self._program = find_program("knee-load", directory)
        self._core = cores.others
        self._keys = keys
        self._key_choice = "uniform"

    def choosing(self, keys: str) -> Self:
        """This driver with another choice of keys, as in the flag `--key-choice`."""
        other = copy(self)
        other._key_choice = keys
        return other

    def command(self, address: str, cell: Cell, *flags: str) -> list[str]:
        """The command line for `cell`, with `flags` at its end."""
        return [
            *(self._program, "memcached", "--server", address, "--key-prefix", KEY_PREFIX, "--keys", str(self._keys)),
            *("--key-choice", self._key_choice, "--value-bytes", str(cell.value_bytes), *flags),
        ]

    def load_command(self, address: str, cell: Cell, seconds: float) -> list[str]:
        """The command line that loads `address` for this time."""
        return self.command(
            address,
            cell,
            *("--clients", str(CONNECTIONS), "--threads", "1", "--seconds", str(seconds), "--think-ms", "0"),
            *("--set-get", "1:0" if cell.operation == "set" else "0:1"),
            *("--multiget", str(cell.keys_per_request), "--pipeline", str(cell.depth)),
        )

    def populate(self, stores: list[str], cell: Cell) -> None:
        """Sets all keys in every store."""
        for store in stores:
            run_generator(self.command(store, cell, "--clients", "4", "--populate", "1"), self._core, POPULATED_S)

    def drive(self, address: str, cell: Cell, seconds: float) -> Driven:
        """Raises BenchError if a request failed or missed, because contestants then did different work."""
        summary, cpu_s = run_generator(self.load_command(address, cell, seconds), self._core, seconds)
        operations = summary["ops"].values()
        wrong = sum(operation["errors"] + operation["misses"] for operation in operations)
        if wrong:
            raise BenchError(f"{wrong} errors and misses through {address} in {cell.name}")
        return Driven(sum(operation["count"] for operation in operations), summary["seconds"], cpu_s)


class FloorSend:
    """`floor-send`: one key, one prepared request. It takes the least CPU from the measured program."""

    def __init__(self, directory: Path | None, cores: Cores) -> None:
        self._program = find_program("floor-send", directory)
        self._core = cores.others

    def populate(self, stores: list[str], cell: Cell) -> None:
        """Sets its key in every store."""
        entry = Cell("set", cell.value_bytes, 1)
        for store in stores:
            host, port = store.split(":")
            with socket.create_connection((host, int(port)), timeout=SLACK_S) as connection:
                connection.sendall(entry.request(FIRST_KEY))
                if connection.recv(64) != entry.reply(FIRST_KEY):
                    raise BenchError(f"{store} does not store {FIRST_KEY.decode()}")

    def load_command(self, address: str, cell: Cell, seconds: float, request: Path) -> list[str]:
        """The command line that loads `address` for this time, with the content of the file `request`."""
        return [
            *(self._program, "--server", address, "--connections", str(CONNECTIONS), "--depth", str(cell.depth)),
            *("--request", str(request), "--reply-bytes", str(len(cell.reply(FIRST_KEY))), "--seconds", str(seconds)),
        ]
