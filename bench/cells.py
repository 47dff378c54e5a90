"""The cells of every table: an operation, a value size, a pipeline depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Operation = Literal["get", "set", "multiget"]

CONNECTIONS = 50
# These flags are as long as knee-load's, so that all programs move the same bytes.
FLAGS = 32768
MULTIGET_KEYS = 10


@dataclass(frozen=True)
class Cell:
    """A workload. All its requests have the same kind and size."""

    operation: Operation
    value_bytes: int
    depth: int

    @property
    def keys_per_request(self) -> int:
        """Keys that one request names."""
        return MULTIGET_KEYS if self.operation == "multiget" else 1

    @property
    def name(self) -> str:
        """The name in tables: ``get 32 B, depth 16``."""
        operation = f"get of {MULTIGET_KEYS}" if self.operation == "multiget" else self.operation
        return f"{operation}, {self.value_bytes} B, depth {self.depth}"

    def request(self, key: bytes) -> bytes:
        """A request of this cell on the wire, all of its keys being `key`."""
        if self.operation == "set":
            return b"set %b %d 0 %d\r\n%b\r\n" % (key, FLAGS, self.value_bytes, b"x" * self.value_bytes)
        return b"get %b\r\n" % b" ".join([key] * self.keys_per_request)

    def reply(self, key: bytes) -> bytes:
        """The reply to :meth:`request`, when the keys are there."""
        if self.operation == "set":
            return b"STORED\r\n"
        value = b"VALUE %b %d %d\r\n%b\r\n" % (key, FLAGS, self.value_bytes, b"x" * self.value_bytes)
        return value * self.keys_per_request + b"END\r\n"


# Multi-gets are not pipelined: ten keys a request are a batch already, and fifty connections with
# sixteen of them in flight would measure the memory that buffers 30 MB of replies.
CELLS = [
    *(Cell(operation, size, depth) for operation in ("get", "set") for size in (32, 4096) for depth in (1, 16)),
    *(Cell("multiget", size, 1) for size in (32, 4096)),
]
