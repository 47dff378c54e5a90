"""The rate and the round trip of emulated links, measured with TCP between each host and one with a free link."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from knee.lab.hosts import Link
from knee.lab.hosts.emulated import EmulatedHosts, Place

_METER = "meter"
_ECHOES = 20
_SETTLING_S, _SETTLING_ROUND_TRIPS = 0.3, 20
"""Seconds and round trips in which a connection fills its link before the measurement."""
_MEASURED_S = 0.7
_CHUNK = bytes(1 << 16)
_BITS_PER_MBIT = 1e6
_FRAME_BYTES, _SEGMENT_BYTES = 1514, 1448
"""A full Ethernet frame, and the part of it that TCP carries."""


_RATE_ERROR_MAX = 0.02
_DELAY_ERROR_MAX, _DELAY_ERROR_MAX_MS = 0.05, 0.2
"""A round trip takes longer than its delays, because programs must wake up."""


@dataclass(frozen=True)
class LinkCheck:
    """A host's link: as declared, and its rates (Mbit/s of Ethernet frames) and round trip (ms) as measured."""

    host: str
    link: Link
    sending_mbit: float
    receiving_mbit: float
    round_trip_ms: float

    @property
    def problems(self) -> list[str]:
        """A sentence for each measured value that is not as declared."""
        found = []
        for way, mbit, declared in (
            ("sends", self.sending_mbit, self.link.send_mbit),
            ("receives", self.receiving_mbit, self.link.receive_mbit),
        ):
            if declared is not None and abs(mbit / declared - 1) > _RATE_ERROR_MAX:
                found.append(
                    f"{self.host} {way} {mbit:.1f} Mbit/s in place of {declared:g}; "
                    "this machine may be too slow or too busy"
                )
        declared_ms = 2 * self.link.delay_ms
        if self.round_trip_ms > (1 + _DELAY_ERROR_MAX) * declared_ms + _DELAY_ERROR_MAX_MS:
            found.append(
                f"a round trip to {self.host} takes {self.round_trip_ms:.2f} ms in place of {declared_ms:g} ms"
            )
        return found


def check_links(hosts: EmulatedHosts, links: Sequence[tuple[str, Link]]) -> list[LinkCheck]:
    """Place the hosts, and measure one link after the other. Raises ProcessError if a host cannot be emulated."""
    hosts.place(_METER, Link())
    for name, link in links:
        hosts.place(name, link)
    meter, checks = hosts.placed(_METER), []
    for name, link in links:
        place = hosts.placed(name)
        checks.append(
            LinkCheck(
                name,
                link,
                sending_mbit=_rate(place, meter),
                receiving_mbit=_rate(meter, place),
                round_trip_ms=_round_trip_ms(place, meter),
            )
        )
    return checks


@contextmanager
def _connected(client: Place, server: Place) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    listener = server.namespace.call(lambda: socket.create_server((server.address, 0)))
    with listener, client.namespace.call(lambda: socket.create_connection(listener.getsockname())) as one:
        other, _ = listener.accept()
        with other:
            for end in (one, other):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield one, other


def _rate(source: Place, sink: Place) -> float:
    """Mbit/s of full frames while one connection fills the link. Interfaces count a large segment as one frame."""
    with _connected(source, sink) as (out, into):
        ending = threading.Event()
        received = 0

        def send() -> None:
            while not ending.is_set():
                out.sendall(_CHUNK)
            out.shutdown(socket.SHUT_WR)

        def receive() -> None:
            nonlocal received
            while some := len(into.recv(len(_CHUNK))):
                received += some

        threads = [threading.Thread(target=each) for each in (send, receive)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(_SETTLING_S + _SETTLING_ROUND_TRIPS * 2e-3 * (source.link.delay_ms + sink.link.delay_ms))
            begun, before = time.monotonic(), received
            time.sleep(_MEASURED_S)
            seconds, payload = time.monotonic() - begun, received - before
        finally:
            ending.set()
            for thread in threads:
                thread.join()
    return 8 * payload * _FRAME_BYTES / _SEGMENT_BYTES / seconds / _BITS_PER_MBIT


def _round_trip_ms(client: Place, server: Place) -> float:
    """The median time in which a byte returns."""
    with _connected(client, server) as (one, other):
        times = []
        for _ in range(_ECHOES):
            begun = time.monotonic()
            one.sendall(b"?")
            other.sendall(other.recv(1))
            one.recv(1)
            times.append(1000 * (time.monotonic() - begun))
    return statistics.median(times)
