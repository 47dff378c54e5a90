"""The processes of one run. They start from the store outwards, and stop from the client inwards.

Each tier is stopped after the tier that calls it. So the middlewares count exactly the requests that the clients count.
Populating does not go through the measured middlewares, which start after it.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from knee.data import Outcome, RunFolder
from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import START_PASSED, Command, addressed_to, life
from knee.lab.hosts import Host, Link, Process
from knee.lab.probe import Sample
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Spec, System
from knee.spec.design import Run
from knee.spec.tables import TIERS

READY_TIMEOUT_S = 15
POPULATE_KEYS_PER_S = 2_000
POPULATE_BYTES_PER_S = 10_000_000
"""Least rates of populating; below these, populating has stalled."""
DRAIN_S = 30
"""Extra seconds for a client at its end, to finish requests in flight and print histograms."""
_POLL_S = 0.1
_SEEDS_PER_REPETITION = 1000
"""Distance between the seeds of repetitions: above the largest number of load hosts, because each host has its own
seed."""


class LateStartError(Exception):
    """The clients connected only after the agreed start; connecting took at least `took_s` seconds."""

    def __init__(self, took_s: float) -> None:
        super().__init__(f"connecting took {took_s:.1f} s")
        self.took_s = took_s


@dataclass
class Throughput:
    """Requests per second over all clients, for the progress line; filled from the hosts' threads."""

    _counts: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, window: dict[str, Any]) -> None:
        with self._lock:
            self._counts[window["second"]] += sum(op["count"] for op in window.get("ops", {}).values())

    def latest(self) -> int | None:
        """Requests in the second before the latest one, which may be incomplete; None before two are known."""
        with self._lock:
            seconds = sorted(self._counts)
            return self._counts[seconds[-2]] if len(seconds) > 1 else None


class Progress:
    """Receives the progress of a lab. This base class ignores it."""

    def begin(self, run: Run, index: int, total: int, remaining_s: float) -> None:
        """A run starts: the `index`-th of `total`, from 1."""

    def second(self, elapsed_s: float, requests_per_s: int | None) -> None:
        """Called about once a second while clients run, and once at the end. The rate is None while unknown."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run is recorded."""


class Deployment(ABC):
    """The processes of one run. `cleanup` removes data that the run makes outside the host and the scratch
    directory."""

    def __init__(
        self,
        spec: Spec,
        seed: int,
        folder: RunFolder,
        host: Host,
        run: Run,
        started: list[Command],
        room: Scratch | None,
        cleanup: ExitStack,
    ) -> None:
        self._spec = spec
        self._room = room
        self._first_seed = seed
        # Each repetition has its own seed. Points of a repetition share it, so that only their factors differ.
        self._seed = (seed + _SEEDS_PER_REPETITION * run.repetition) % 2**63
        self._folder = folder
        self._host = host
        self._run = run
        self._cleanup = cleanup
        self._summaries: dict[str, dict[str, Any]] = {}
        self._throughput = Throughput()
        self._started = started

    @property
    def _seconds(self) -> int:
        """Length of the run, with all steps of a ramp."""
        return self._spec.measure.seconds * len(self._run.measurements)

    def measure(self, lead_s: float, progress: Progress) -> Outcome:
        """Make the run. Raises LateStartError if the clients need a longer lead, and ProcessError if the run fails."""
        self._folder.point_folder(self._run)
        configuration = self._run.configuration
        for name, link in links_of(configuration.system):
            self._host.place(name, link)
        stores, middlewares, targets = self._start_servers(configuration)
        start_at = math.ceil(time.time() + lead_s)
        clients = self._start_clients(configuration, targets, start_at, lead_s)
        processes = [*clients, *middlewares, *stores]
        samples = self._watch(clients, [*middlewares, *stores], start_at, progress)
        self._finish(clients, [*middlewares, *stores])
        # Some clients count their requests only at the end.
        progress.second(self._seconds, self._throughput.latest())
        return Outcome(
            "done",
            start_unix_s=start_at,
            processes={process.command.process: process.command.role for process in processes},
            samples=samples,
        )

    @abstractmethod
    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        """Start stores and middlewares; return both, and the addresses for the clients."""

    @abstractmethod
    def _requests(self, index: int, configuration: Configuration) -> list[str]:
        """Flags of a load host for the requests of its clients."""

    def _start_clients(
        self, configuration: Configuration, targets: list[str], start_at: int, lead_s: float
    ) -> list[Process]:
        begun = time.monotonic()
        clients = []
        for index in range(configuration.system.load.hosts):
            requests = self._requests(index, configuration)
            command = load(index, configuration, targets, start_at, self._seconds, self._seed, requests)
            clients.append(self._start(self._growing(command)))
        for client in clients:
            try:
                client.wait_ready(READY_TIMEOUT_S + lead_s)
            except ProcessError:
                if client.poll() != START_PASSED:
                    raise
                raise LateStartError(time.monotonic() - begun) from None
        if time.time() >= start_at:
            raise LateStartError(time.monotonic() - begun)
        return clients

    def _growing(self, command: Command) -> Command:
        """A load host's command whose clients join in the steps of a ramp, if the run has one."""
        if not self._run.steps:
            return command
        first = self._run.steps[0].configuration
        step = ("--ramp-clients", str(first.clients // first.system.load.hosts))
        every = ("--ramp-every-s", str(self._spec.measure.seconds))
        return replace(command, argv=(*command.argv, *step, *every))

    def _start(self, command: Command, at: str | None = None) -> Process:
        """Start a command on the host of its own name, or `at` another one."""
        command = self._prepared(command, at)
        self._started.append(command)
        return self._host.start(
            command,
            self._folder.lines_path(self._run, command.process),
            self._folder.log_path(self._run, command.process),
            self._note,
        )

    def _start_tier(
        self, role: str, hosts: int, command: Callable[[str, str], Command]
    ) -> tuple[list[Process], list[str]]:
        """Start a server on each host of a tier: a command of the host's name and a free address there. Return the
        processes, and their addresses when they are ready."""
        names = [f"{role}-{index}" for index in range(hosts)]
        processes = [self._start(command(name, self._host.free_address(name))) for name in names]
        return processes, [address_of(process) for process in processes]

    def _prepared(self, command: Command, at: str | None) -> Command:
        """A command with the host of the experiment and the scratch directory that it uses."""
        return replace(command, at=at, scratch=None if self._room is None else self._room.path)

    def _note(self, command: Command, message: dict[str, Any]) -> None:
        """Store the output lines that the run needs; called from the hosts' threads."""
        if message.get("type") == "summary":
            self._summaries[command.process] = message
        elif message.get("type") == "window" and command.role == "load":
            self._throughput.note(message)

    def _populated(self, process: Process, timeout_s: float) -> None:
        """Wait until a client has populated its servers and printed its summary."""
        finished(process, timeout_s)
        if "populate" not in self._summaries.get(process.command.process, {}):
            raise ProcessError(f"{process.command.process}: no summary of the stored keys: {process.describe()}")

    def _watch(self, clients: list[Process], servers: list[Process], start_at: int, progress: Progress) -> list[Sample]:
        """Probe and wait until every client has ended; a server that ends before them fails the run."""
        processes = [*clients, *servers]
        probe = self._host.probe(processes)
        probe.start()
        # The monotonic clock: a step of the wall clock must not end the run.
        starts = time.monotonic() + start_at - time.time()
        deadline = starts + self._seconds + DRAIN_S
        next_s = 0
        try:
            while any(client.poll() is None for client in clients):
                for process in processes:
                    process.check()
                    code = process.poll()
                    if code is not None and (process in servers or code != 0):
                        raise ProcessError(f"{process.command.process} ended during the run: {process.describe()}")
                if time.monotonic() > deadline:
                    raise ProcessError(f"the clients were still running {DRAIN_S} s after their end")
                elapsed_s = time.monotonic() - starts
                if elapsed_s >= next_s:
                    progress.second(elapsed_s, self._throughput.latest())
                    next_s = math.floor(elapsed_s) + 1
                time.sleep(_POLL_S)
        finally:
            samples = probe.stop()
        return samples

    def _finish(self, clients: list[Process], servers: list[Process]) -> None:
        """Stop the servers from the client side inwards, and check that every process exited without error and printed
        a summary."""
        codes = [client.wait(DRAIN_S) for client in clients]
        for server in servers:
            if server.poll() is not None:
                raise ProcessError(f"{server.command.process} ended during the run: {server.describe()}")
        codes += [server.stop(server.command.grace_s) for server in servers]
        for process, code in zip([*clients, *servers], codes, strict=True):
            process.check()
            if code != (-signal.SIGKILL if process.command.ends_by == signal.SIGKILL else 0):
                raise ProcessError(f"{process.command.process} ended with an error: {process.describe()}")
            if process.command.serves is None and process.command.process not in self._summaries:
                raise ProcessError(f"{process.command.process} printed no summary: {process.describe()}")


def links_of(system: System) -> Iterator[tuple[str, Link]]:
    """The hosts that the lab starts programs on, by name, with their links."""
    for role in TIERS:
        tier = getattr(system, role)
        if tier is not None and getattr(tier, "address", None) is None:
            for index in range(tier.hosts):
                yield f"{role}-{index}", Link(tier.link_mbit, tier.receive_mbit or tier.link_mbit, tier.delay_ms)


def load(
    index: int,
    configuration: Configuration,
    servers: Sequence[str],
    start_at: int,
    seconds: int,
    seed: int,
    requests: Sequence[str],
) -> Command:
    """The clients of one load host, dealt to the servers in turn.

    Each host begins with another server, so that few clients on many hosts do not all use the first.
    """
    tier, workload = configuration.system.load, configuration.workload
    first, clients = index % len(servers), configuration.clients // tier.hosts
    pacing = ["--think-ms", repr(workload.think_ms), "--think", workload.think]
    if workload.rate is not None:
        pacing = ["--rate", repr(workload.rate / tier.hosts), "--arrivals", workload.arrivals]
    argv = [
        str(programs.find("knee-load")),
        workload.protocol,
        *addressed_to([*servers[first:], *servers[:first]]),
        *("--clients", str(clients), "--threads", str(min(tier.threads, clients))),
        *("--seconds", str(seconds), "--start-at", str(start_at), "--seed", str(seed + index)),
        *pacing,
        *requests,
        *(["--verify"] if workload.verify else []),
        *life(),
    ]
    return Command(f"load-{index}", "load", tuple(argv))


def finished(process: Process, timeout_s: float) -> None:
    """Wait for a process that ends by itself. Raises ProcessError if it fails or is late."""
    if process.wait(timeout_s) != 0:
        raise ProcessError(f"{process.command.process} failed: {process.describe()}")
    process.check()


def address_of(process: Process) -> str:
    """Wait until a server is ready; return its address. Raises ProcessError without one."""
    address = process.wait_ready(READY_TIMEOUT_S)
    if address is None:
        raise ProcessError(f"{process.command.process}: printed no listening address")
    return address
