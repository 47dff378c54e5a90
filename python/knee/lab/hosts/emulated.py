"""Several hosts emulated on this machine: each has a network namespace, an address, and a link to a common switch.

A link's rate holds each way, in bytes of Ethernet frames: a token bucket (tc-tbf(8)) shapes what the host sends, and
another one what the switch sends to it. Frames wait, and are dropped only beyond `_QUEUE_BYTES`. If a link has a delay,
`knee-link` is the switch, and holds each frame for the delays of both links. The hosts share this machine's processors.
Namespaces have no names, and nothing outside of them shows that they exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import Command
from knee.lab.hosts import Link, OnLine
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.hosts.namespaces import Namespace

_PORT = 11_000
"""The first port of a host; each server of the host takes the next one."""
_BURST_S = 0.001
_BURST_BYTES_MIN = 3_200
"""A bucket holds what its link sends in `_BURST_S`, and at least two frames. A larger one would hide the queue of a
link that is not full; a smaller one loses more rate when a virtual machine stalls."""
_QUEUE_BYTES = 1 << 24
_HOSTS_PER_NET = 250
_NOWHERE = Path(os.devnull)
_READY_S = 15


class Place:
    """An emulated host. `port` is the switch's end of its link."""

    def __init__(self, number: int, link: Link, switch: Namespace) -> None:
        self.link = link
        self.address = f"10.77.{number // _HOSTS_PER_NET}.{number % _HOSTS_PER_NET + 1}"
        self.servers = 0
        self.namespace = Namespace()
        self.port = f"host{number}"
        # `knee-link` reads the port's number in the address.
        ethernet = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        far = f"peer name eth0 address {ethernet} netns {self.namespace.path}"
        switch.run("ip", [f"link add {self.port} type veth {far}", f"link set {self.port} up"])
        self.namespace.run("ip", ["link set lo up", f"addr add {self.address}/16 dev eth0", "link set eth0 up"])
        for where, device, mbit in ((self.namespace, "eth0", link.send_mbit), (switch, self.port, link.receive_mbit)):
            if mbit is not None:
                bytes_per_s = mbit * 1e6 / 8
                burst = max(_BURST_BYTES_MIN, round(_BURST_S * bytes_per_s))
                rule = f"tbf rate {bytes_per_s:.0f}bps burst {burst} limit {_QUEUE_BYTES}"
                where.run("tc", [f"qdisc add dev {device} root {rule}"])


class EmulatedHosts(LocalHost):
    """This machine, with a network for each host of the experiment."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, Place] = {}
        self._switch: Namespace | None = None
        self._relay: LocalProcess | None = None
        self._connected = 0
        """Hosts that the switch connects."""

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

    def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> LocalProcess:
        self._connect()
        return super().start(command, lines, log, on_line)

    def _connect(self) -> None:
        """Connect the new hosts with all others: with a bridge, or with `knee-link` if a link has a delay."""
        places = self._places.values()
        if self._switch is None or self._connected == len(places):
            return
        self._connected = len(places)
        if not any(place.link.delay_ms for place in places):
            self._switch.run("ip", [f"link set {place.port} master switch" for place in places])
            return
        if self._relay is not None:
            self._relay.stop(0)
        self._switch.run("ip", [f"link set {place.port} nomaster" for place in places])
        ports = (f"--port={place.port}={round(place.link.delay_ms * 1000)}" for place in places)
        argv = (str(programs.find("knee-link")), *ports, "--tied-to-parent", str(os.getpid()))
        self._relay = LocalProcess(Command("links", "link", argv), _NOWHERE, _NOWHERE, lambda *_: None, self._switch)
        self._relay.wait_ready(_READY_S)

    def check(self) -> None:
        if self._relay is not None and self._relay.poll() is not None:
            raise ProcessError(f"the emulation of links ended during the run: {self._relay.describe()}")

    @property
    def relays(self) -> Mapping[str, int]:
        return {} if self._relay is None else {"links": self._relay.pid}

    def placed(self, name: str) -> Place:
        self._connect()
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
            if self._relay is not None:
                self._relay.stop(grace_s)
                self._relay = None
            for place in self._places.values():
                place.namespace.close()
            self._places.clear()
            self._connected = 0
            if self._switch is not None:
                self._switch.close()
                self._switch = None
