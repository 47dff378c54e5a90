"""Several hosts emulated on this machine: each has a network namespace, an address, and a link to a common switch.

A link's rate holds each way, in bytes of Ethernet frames: a token bucket (tc-tbf(8)) shapes what the host sends, and
another one what the switch sends to it. Frames wait, and are dropped only beyond `_QUEUE_BYTES`. `knee-link`
holds each frame for the link's delay, each way. The hosts share this machine's processors. Namespaces have no names,
and nothing outside of them shows that they exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import Command
from knee.lab.hosts import Link
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.hosts.namespaces import Namespace

_PORT = 11_000
"""The first port of a host; each server of the host takes the next one."""
_BURST_S = 0.001
_BURST_BYTES_MIN = 3_200
"""A bucket holds what its link sends in `_BURST_S`, and at least two frames."""
_QUEUE_BYTES = 1 << 24
_HOSTS_PER_NET = 250
_NOWHERE = Path(os.devnull)
_READY_S = 15


class Place:
    """An emulated host."""

    def __init__(self, number: int, link: Link, switch: Namespace) -> None:
        self.link = link
        self.address = f"10.77.{number // _HOSTS_PER_NET}.{number % _HOSTS_PER_NET + 1}"
        self.servers = 0
        self.namespace = Namespace()
        port, delayed, relayed = f"host{number}", f"delay{number}", f"relay{number}"
        switch.run("ip", [f"link add {port} type veth peer name eth0 netns {self.namespace.path}"])
        self.relay = None
        if link.delay_ms:
            switch.run("ip", [f"link add {delayed} type veth peer name {relayed}"])
            switch.run("ip", [f"link set {each} up" for each in (port, relayed)])
            self.relay = LocalProcess(_delay(port, relayed, link.delay_ms), _NOWHERE, _NOWHERE, lambda *_: None, switch)
            self.relay.wait_ready(_READY_S)
        switch.run("ip", [f"link set {delayed if link.delay_ms else port} master switch up"])
        self.namespace.run("ip", ["link set lo up", f"addr add {self.address}/16 dev eth0", "link set eth0 up"])
        for where, device, mbit in ((self.namespace, "eth0", link.send_mbit), (switch, port, link.receive_mbit)):
            if mbit is not None:
                bytes_per_s = mbit * 1e6 / 8
                burst = max(_BURST_BYTES_MIN, round(_BURST_S * bytes_per_s))
                rule = f"tbf rate {bytes_per_s:.0f}bps burst {burst} limit {_QUEUE_BYTES}"
                where.run("tc", [f"qdisc add dev {device} root {rule}"])


def _delay(host: str, switch: str, delay_ms: float) -> Command:
    argv = [
        str(programs.find("knee-link")),
        *("--host", host, "--switch", switch, "--delay-us", str(round(delay_ms * 1000))),
        *("--tied-to-parent", str(os.getpid())),
    ]
    return Command(switch, "link", tuple(argv))


class EmulatedHosts(LocalHost):
    """This machine, with a network for each host of the experiment."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, Place] = {}
        self._switch: Namespace | None = None

    def place(self, name: str, link: Link) -> None:
        try:
            if self._switch is None:
                self._switch = Namespace()
                self._switch.run("ip", ["link set lo up", "link add switch type bridge", "link set switch up"])
            self._places[name] = Place(len(self._places), link, self._switch)
        except OSError as error:
            raise ProcessError(
                f'measure.hosts = "emulated": cannot make a network namespace: {error.strerror}; run Knee as root or '
                "under `unshare --user --map-root-user`, or take local hosts"
            ) from error

    @property
    def relays(self) -> Mapping[str, int]:
        relays = [place.relay for place in self._places.values() if place.relay is not None]
        return {f"links-{number}": relay.pid for number, relay in enumerate(relays)}

    def placed(self, name: str) -> Place:
        return self._places[name]

    def free_address(self, name: str) -> str:
        place = self._places[name]
        place.servers += 1
        return f"{place.address}:{_PORT + place.servers}"

    def _namespace_of(self, command: Command) -> Namespace | None:
        place = self._places.get(command.at or command.process)
        return None if place is None else place.namespace

    def close(self, grace_s: float) -> None:
        try:
            super().close(grace_s)
        finally:
            for place in self._places.values():
                if place.relay is not None:
                    place.relay.stop(grace_s)
                place.namespace.close()
            self._places.clear()
            if self._switch is not None:
                self._switch.close()
                self._switch = None
