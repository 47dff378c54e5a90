"""Ports of an interface, for servers that cannot choose a port.

The system may reuse a closed port at once, for another server or for a client's end of a connection. So leased
ports lie below the system's range. An abstract socket leases each port: no other process can bind it, and it closes
with this process. The Rust tests use the same names for leases.
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
"""The first port to lease: well-known servers use lower ones."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports:
    """Leased ports: neither the system nor another Knee process uses them until they are closed."""

    def __init__(self, interface: str = "127.0.0.1") -> None:
        self._interface = interface
        self._leases: list[socket.socket] = []

    def lease(self) -> int:
        """A free port. Raises OSError without one."""
        ports = leasable()
        # Start at a random port, or processes would try each other's leases in turn.
        begin = os.getpid() * 97 % len(ports)
        for step in range(len(ports)):
            port = ports[(begin + step) % len(ports)]
            if self._bind_name(port) and _is_free(self._interface, port):
                return port
        raise OSError(errno.EADDRINUSE, f"every port from {ports.start} to {ports.stop - 1} is in use")

    def close(self) -> None:
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
    """The ports to lease: below the system's range."""
    first = _CHOSEN_FROM
    with suppress(OSError, ValueError, IndexError):
        chosen = int(_RANGE.read_text().split()[0])
        # If the system's range covers all ports, only the lease protects a port.
        if chosen > _FIRST + 1_000:
            first = chosen
    return range(_FIRST, first)


def _is_free(interface: str, port: int) -> bool:
    try:
        socket.create_server((interface, port)).close()
    except OSError:
        return False
    return True
