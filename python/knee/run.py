"""Deploy, populate, start together, collect, stop: each run of the plan, one after the other.

A run has its own fresh processes, so that no run inherits a filled cache, a warmed allocator or an ejected
server from the one before it. They are started from the store outwards and stopped from the client inwards,
each tier after the one that calls it has finished. So every request that a client counts is also counted by
the middleware it went through, and the other way round: populating goes past the middlewares, and the
middlewares start after it.
"""

from __future__ import annotations

import math
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from knee import __version__, commands, programs
from knee.commands import Command
from knee.dataset import Outcome, RunFolder
from knee.design import Run
from knee.errors import DatasetError, ProcessError
from knee.hosts import Host, Process
from knee.interrupts import interrupts_deferred
from knee.probe import Probe, Sample
from knee.scratch import Scratch, keeps_data, needs_scratch, scratch
from knee.spec import Configuration, Graph, Spec, Workload

_READY_TIMEOUT_S = 15
_POPULATE_KEYS_PER_S = 2_000
_POPULATE_BYTES_PER_S = 10_000_000
"""Paces that any store keeps up; populating slower than this has stalled."""
_GRAPH_TIMEOUT_S = 900
"""To make a graph, or to load one: a hundred million edges take minutes."""
_DRAIN_S = 15
"""How much longer than its seconds a client may take: requests in flight finish, histograms are printed."""
_STOP_GRACE_S = 5
_ABORT_GRACE_S = 2
_POLL_S = 0.1
_STARTS_MAX = 3
_SEEDS_PER_REPETITION = 1000
"""More than there can be load hosts, each of which needs a seed of its own."""

_IN_MEMORY = ("tmpfs", "ramfs")
"""File systems on which nothing is ever on a disk."""

PROVENANCE = ("knee", "git", "python", "host", "programs")
"""What of a manifest may change between the beginning of a run and its resumption."""


class _LateStartError(Exception):
    """The clients stood only after the second at which they were to start."""


@dataclass
class Throughput:
    """Requests per second over all clients, for whoever watches; filled from the hosts' threads."""

    _counts: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, window: dict[str, Any]) -> None:
        """Add a client's window."""
        with self._lock:
            self._counts[window["second"]] += sum(op["count"] for op in window.get("ops", {}).values())

    def latest(self) -> int | None:
        """Requests in the latest second of which more than one is known: the last may be incomplete."""
        with self._lock:
            seconds = sorted(self._counts)
            return self._counts[seconds[-2]] if len(seconds) > 1 else None


class Progress:
    """What is told to whoever waits. This one tells nothing."""

    def begin(self, run: Run, index: int, total: int, remaining_s: float) -> None:
        """A run starts: the `index`-th of `total`, from 1."""

    def second(self, elapsed_s: float, requests_per_s: int | None) -> None:
        """About once a second while clients run."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run is recorded."""


@dataclass(frozen=True)
class Tally:
    """How the plan went."""

    done: int
    failed: list[tuple[Run, str]]


class Lab:
    """Makes the runs of one experiment on one host, into one run folder."""

    def __init__(self, spec: Spec, seed: int, folder: RunFolder, host: Host, progress: Progress) -> None:
        self._spec = spec
        self._seed = seed
        self._folder = folder
        self._host = host
        self._progress = progress
        self._common: list[Command] = []
        """What was started once for all runs, and made what each of them uses."""

    def make(self, plan: Sequence[Run], on_commands: Callable[[Run, list[Command]], None]) -> Tally:
        """Make the runs; one that fails is recorded as such and the rest goes on. To be called from the main thread.

        Raises StorageError when the folder cannot be written, ProgramError when something is not installed,
        ProcessError when the graph that the stores are to hold cannot be made;
        KeyboardInterrupt passes through after the run is marked. In each case all processes are stopped, and nothing
        is left of what the stores kept on disk.
        """
        with scratch(self._folder.scratch_path) if needs_scratch(self._spec) else nullcontext() as room:
            if plan and room is not None and (graph := self._spec.base.workload.graph) is not None:
                self._common = [self._make_graph(graph, room)]
            return self._make(plan, on_commands, room)

    def _make_graph(self, graph: Graph, room: Scratch) -> Command:
        """Write the graph that every store of this lab loads, the same whenever it goes on."""
        command = commands.graph("graph", graph, self._seed, room.graph_path)
        lines, log = (room.path / f"graph.{what}" for what in ("lines", "log"))
        try:
            process = self._host.start(command, lines, log, lambda *_: None)
            if process.wait(_GRAPH_TIMEOUT_S) != 0:
                raise ProcessError(f"the graph cannot be made: {process.describe()}")
        finally:
            self._host.close(_ABORT_GRACE_S)
        return command

    def _make(
        self, plan: Sequence[Run], on_commands: Callable[[Run, list[Command]], None], room: Scratch | None
    ) -> Tally:
        done, failed = 0, []
        took_s: list[float] = []
        for index, run in enumerate(plan, start=1):
            each_s = sum(took_s) / len(took_s) if took_s else self._spec.measure.seconds + 3.0
            self._progress.begin(run, index, len(plan), each_s * (len(plan) - index + 1))
            started = time.monotonic()
            commands_started: list[Command] = []
            try:
                outcome = self._make_one(run, commands_started, room)
            finally:
                on_commands(run, commands_started)
            self._progress.end(run, outcome)
            if outcome.status == "done":
                done += 1
                took_s.append(time.monotonic() - started)
            else:
                failed.append((run, outcome.reason or ""))
        return Tally(done, failed)

    def _make_one(self, run: Run, started: list[Command], room: Scratch | None) -> Outcome:
        try:
            outcome = self._measure(run, started, room)
        except ProcessError as error:
            outcome = Outcome("failed", reason=str(error))
        except KeyboardInterrupt:
            self._folder.record(run, self._spec, Outcome("interrupted", reason="interrupted"))
            raise
        # It is measured: whoever interrupts now ends the lab, but does not take the run back.
        with interrupts_deferred():
            try:
                self._folder.record(run, self._spec, outcome)
            except DatasetError as error:
                outcome = Outcome("failed", reason=str(error))
                self._folder.record(run, self._spec, outcome)
        return outcome

    def _measure(self, run: Run, started: list[Command], room: Scratch | None) -> Outcome:
        lead_s = commands.start_lead_s(run.configuration.clients)
        for _ in range(_STARTS_MAX):
            started[:] = self._common
            deployment = _Deployment(self._spec, self._seed, self._folder, self._host, run, started, room)
            try:
                return deployment.measure(lead_s, self._progress)
            except _LateStartError:
                lead_s *= 2
            finally:
                try:
                    self._host.close(_ABORT_GRACE_S)
                finally:
                    if room is not None:
                        room.remove_data()
        raise ProcessError(f"the clients could not connect within {lead_s / 2:.1f} s, at {_STARTS_MAX} attempts")


class _Deployment:
    """The processes of one run."""

    def __init__(
        self,
        spec: Spec,
        seed: int,
        folder: RunFolder,
        host: Host,
        run: Run,
        started: list[Command],
        room: Scratch | None,
    ) -> None:
        self._spec = spec
        self._room = room
        # Repetitions differ; the points of one see the same requests, so that only their factors differ.
        self._seed = (seed + _SEEDS_PER_REPETITION * run.repetition) % 2**63
        self._folder = folder
        self._host = host
        self._run = run
        self._summaries: dict[str, dict[str, Any]] = {}
        self._throughput = Throughput()
        self._started = started

    def measure(self, lead_s: float, progress: Progress) -> Outcome:
        self._folder.point_folder(self._run)
        configuration = self._run.configuration
        stores, store_addresses = self._start_stores(configuration)
        if configuration.workload.graph is None:
            self._populate(configuration, store_addresses)
        else:
            self._load_graph(store_addresses)
        middlewares, middleware_addresses = self._start_middlewares(configuration, store_addresses)
        targets = middleware_addresses or store_addresses
        start_at = math.ceil(time.time() + lead_s)
        clients = [
            self._start(commands.load(index, configuration, targets, start_at, self._spec.measure.seconds, self._seed))
            for index in range(configuration.system.load.hosts)
        ]
        for client in clients:
            client.wait_ready(_READY_TIMEOUT_S + lead_s)
        if time.time() >= start_at:
            raise _LateStartError
        processes = [*clients, *middlewares, *stores]
        samples = self._watch(clients, [*middlewares, *stores], start_at, progress)
        self._finish(clients, [*middlewares, *stores])
        return Outcome(
            "done",
            start_unix_s=start_at,
            processes={process.command.process: process.command.role for process in processes},
            samples=samples,
        )

    def _start(self, command: Command) -> Process:
        self._started.append(command)
        return self._host.start(
            command,
            self._folder.lines_path(self._run, command.process),
            self._folder.log_path(self._run, command.process),
            self._note,
        )

    def _note(self, command: Command, message: dict[str, Any]) -> None:
        """From the hosts' threads: what the run has to know of what processes print."""
        if message.get("type") == "summary":
            self._summaries[command.process] = message
        elif message.get("type") == "window" and command.role == "load":
            self._throughput.note(message)

    def _start_stores(self, configuration: Configuration) -> tuple[list[Process], list[str]]:
        tier = configuration.system.store
        if tier is None:
            return [], []
        if tier.address is not None:
            return [], list(tier.address)
        connections = commands.connections_per_store(configuration)
        processes = []
        for index in range(tier.hosts):
            name = f"store-{index}"
            address, workload = self._host.free_address(), configuration.workload
            command = commands.store(name, tier, address, connections, workload, self._room)
            processes.append(self._start(command))
        return processes, [_address_of(process) for process in processes]

    def _load_graph(self, stores: list[str]) -> None:
        """Have every store load the graph, one after the other: a disk gives each its turn anyway."""
        assert self._room is not None
        for index, address in enumerate(stores):
            process = self._start(commands.init(f"init-{index}", address, self._room.graph_path))
            if process.wait(_GRAPH_TIMEOUT_S) != 0:
                raise ProcessError(f"{process.command.process} failed: {process.describe()}")
            process.check()
            if process.command.process not in self._summaries:
                raise ProcessError(f"{process.command.process} did not say what it loaded: {process.describe()}")

    def _start_middlewares(self, configuration: Configuration, stores: list[str]) -> tuple[list[Process], list[str]]:
        tier = configuration.system.middleware
        if tier is None:
            return [], []
        if tier.address is not None:
            return [], list(tier.address)
        # Middlewares of local stores are local, so they share an interface.
        interface = self._host.free_address().rpartition(":")[0]
        processes = [
            self._start(commands.middleware(f"middleware-{index}", tier, interface, stores, configuration.clients))
            for index in range(tier.hosts)
        ]
        return processes, [_address_of(process) for process in processes]

    def _populate(self, configuration: Configuration, stores: list[str]) -> None:
        """Set the populated share of the keys on every store; through a middleware where those are unknown."""
        workload, middleware = configuration.workload, configuration.system.middleware
        if workload.populated == 0:
            return
        targets = stores or list((middleware.address or ())[:1] if middleware is not None else ())
        populating = [
            self._start(commands.populate(f"populate-{index}", configuration, [target], self._seed))
            for index, target in enumerate(targets)
        ]
        deadline = time.monotonic() + _READY_TIMEOUT_S + len(targets) * populating_s(workload)
        for process in populating:
            if process.wait(max(0.0, deadline - time.monotonic())) != 0:
                raise ProcessError(f"{process.command.process} failed: {process.describe()}")
            process.check()
            if "populate" not in self._summaries.get(process.command.process, {}):
                raise ProcessError(f"{process.command.process} did not say what it stored: {process.describe()}")

    def _watch(self, clients: list[Process], servers: list[Process], start_at: int, progress: Progress) -> list[Sample]:
        """Probe and wait until every client has ended; a server that ends before them fails the run."""
        probe = Probe({process.command.process: process.pid for process in [*clients, *servers]})
        probe.start()
        # By the monotonic clock: a step of the other one must not end the run.
        starts = time.monotonic() + start_at - time.time()
        deadline = starts + self._spec.measure.seconds + _DRAIN_S
        told = 0
        try:
            while any(client.poll() is None for client in clients):
                for process in [*clients, *servers]:
                    process.check()
                    code = process.poll()
                    if code is not None and (process in servers or code != 0):
                        raise ProcessError(f"{process.command.process} ended in mid-run: {process.describe()}")
                if time.monotonic() > deadline:
                    raise ProcessError(f"the clients had not finished {_DRAIN_S} s after their time was over")
                elapsed_s = time.monotonic() - starts
                if elapsed_s >= told:
                    progress.second(elapsed_s, self._throughput.latest())
                    told = math.floor(elapsed_s) + 1
                time.sleep(_POLL_S)
        finally:
            samples = probe.stop()
        progress.second(time.monotonic() - starts, self._throughput.latest())
        return samples

    def _finish(self, clients: list[Process], servers: list[Process]) -> None:
        """Stop the servers from the outside inwards, and see that everyone ended well and said all."""
        codes = [client.wait(_DRAIN_S) for client in clients]
        codes += [server.stop(_STOP_GRACE_S) for server in servers]
        for process, code in zip([*clients, *servers], codes, strict=True):
            process.check()
            if code != 0:
                raise ProcessError(f"{process.command.process} did not end well: {process.describe()}")
            if process.command.serves is None and process.command.process not in self._summaries:
                raise ProcessError(f"{process.command.process} printed no summary: {process.describe()}")


def _address_of(process: Process) -> str:
    address = process.wait_ready(_READY_TIMEOUT_S)
    if address is None:
        raise ProcessError(f"{process.command.process} did not say where it listens")
    return address


def populating_s(workload: Workload) -> float:
    """Seconds that setting every key of one store may take."""
    # Of a distribution the last number: the largest value or the mean.
    value_bytes = float(str(workload.value_bytes).rpartition(":")[2])
    return workload.keys * (1 / _POPULATE_KEYS_PER_S + value_bytes / _POPULATE_BYTES_PER_S)


def check_programs(spec: Spec) -> dict[str, Path]:
    """Every program that the experiment starts, by name. Raises ProgramError before anything starts."""
    system = spec.base.system
    kinds = {system.store.kind, *spec.factors.get("store.kind", ())} if system.store else set()
    found = {"knee-load": programs.find("knee-load")}
    if system.middleware is not None and system.middleware.address is None:
        found["knee-proxy"] = programs.find("knee-proxy")
    if system.store is not None and system.store.address is None:
        if "knee-kv" in kinds:
            found["knee-kv"] = programs.find("knee-kv")
        if "memcached" in kinds:
            found["memcached"] = programs.find_foreign("memcached", "memcached")
            programs.find_foreign("setpriv", "util-linux")
    return found


def new_manifest(spec: Spec, seed: int, host: Host, found: dict[str, Path], room: Path) -> dict[str, Any]:
    """Where the numbers of a run come from; commands are added as runs are made. `room` is for what stores keep."""
    notes = []
    filesystem = host.filesystem(room.parent) if needs_scratch(spec) else None
    if filesystem in _IN_MEMORY and keeps_data(spec):
        notes.append(
            f"the stores kept their data on {filesystem}, which is memory: what durability costs there is not what it "
            "costs on a disk; choose another place with --runs-dir"
        )
    if spec.wants_links and not host.emulates_links:
        notes.append(
            "link_mbit was not emulated: processes on this machine share its loopback interface, "
            "so results that depend on a link's rate are not those of the experiment"
        )
    checkout = Path(__file__).resolve().parents[2]
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    return {
        "knee": __version__,
        "git": host.output(describe) if (checkout / ".git").exists() else None,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "host": host.describe(),
        "programs": {
            name: {"path": str(path), "version": host.output([str(path), "--version"])} for name, path in found.items()
        },
        "seed": seed,
        "overrides": spec.overrides,
        "links_emulated": host.emulates_links,
        **({"scratch": _scratch_note(room, filesystem)} if needs_scratch(spec) else {}),
        "notes": notes,
        "commands": {},
    }


def _scratch_note(room: Path, filesystem: str | None) -> dict[str, Any]:
    return {
        "path": str(room),
        "filesystem": filesystem,
        "lifetime": "each store's directory was made anew for every run and removed after it; a graph was made once",
    }


def resumed_manifest(begun: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a run that goes on: as it began, with what is not as it was then.

    Raises DatasetError when it does not say what going on needs.
    """
    for name, kind in (("seed", int), ("commands", dict), ("notes", list)):
        if not isinstance(begun.get(name), kind):
            raise DatasetError(f"the manifest of this run does not say its {name}: it cannot go on; start a new one")
    changed = {name: now[name] for name in PROVENANCE if now[name] != begun.get(name)}
    notes = list(begun["notes"])
    if changed:
        notes.append(
            f"resumed at {now['started']} with another {', '.join(changed)} than it began with; the manifest has both"
        )
    resumed = [*begun.get("resumed", ()), {"started": now["started"], **changed}]
    return {**begun, "notes": notes, "resumed": resumed}
