"""Ports of the loopback interface, for servers that cannot choose one.

A port that the system chose and that was closed again may be chosen again at once: for another server, or as a
client's end of a connection. So these are below the ports that the system chooses from. Each is leased by an abstract
socket, which no other process can bind and which goes with this one. The Rust tests lease by the same names.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

_CHOSEN_FROM = 32_768
"""The first port that Linux chooses from by default."""
_FIRST = 10_000
"""Well-known servers are below."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Leased ports: neither the system nor another process here gives them away until they are closed."""

    def __init__(self) -> None:
        self._leases: list[socket.socket] = []

    def lease(self) -> int:
        """A free port. Raises OSError when there is none."""
        ports = leasable()
        # Processes that start at the same port would go through each other's leases.
        begin = os.getpid() * 97 % len(ports)
        for step in range(len(ports)):
            port = ports[(begin + step) % len(ports)]
            if self._bind_name(port) and _is_free(port):
                return port
        raise OSError(errno.EADDRINUSE, f"every port from {ports.start} to {ports.stop - 1} is in use")

    def close(self) -> None:
        """End all leases."""
        while self._leases:
            self._leases.pop().close()

    def _bind_name(self, port: int) -> bool:
        """Whether the port could be leased."""
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0knee-port-{port}")
        except OSError as error:
            name.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        self._leases.append(name)
        return True


def leasable() -> range:
    """The ports to lease: below those that the system chooses from."""
    first = _CHOSEN_FROM
    with suppress(OSError, ValueError, IndexError):
        chosen = int(_RANGE.read_text().split()[0])
        # A system that chooses from all ports leaves none: then the lease alone has to do.
        if chosen > _FIRST + 1_000:
            first = chosen
    return range(_FIRST, first)


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
