"""The processes of one run: started from the store outwards, measured together, stopped from the client inwards.

Each tier is stopped after the one that calls it has finished. So every request that a client counts is also counted
by the middleware it went through, and the other way round: populating goes past the middlewares that are measured,
which start after it.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knee.data import Outcome, RunFolder, writing
from knee.errors import KneeError, ProcessError, StorageError, UnendedError
from knee.lab import commands, commands_queue, pgbench, schema
from knee.lab.commands import Command
from knee.lab.commands_queue import Identity
from knee.lab.design import Run
from knee.lab.endings import Ending
from knee.lab.hosts import Host, Process
from knee.lab.interrupts import interrupts_deferred
from knee.lab.probe import Probe, Sample
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Spec, Store, Workload

_READY_TIMEOUT_S = 15
_DATABASE_MADE_S = 60
"""For the files of a database, and for what is installed in it: a second, on a machine with nothing else to do."""
_POPULATE_KEYS_PER_S = 2_000
_POPULATE_BYTES_PER_S = 10_000_000
"""Paces that any store keeps up; populating slower than this has stalled."""
GRAPH_TIMEOUT_S = 900
"""To make a graph, or to load one: a hundred million edges take minutes."""
_DRAIN_S = 30
"""How much longer than its seconds a client may take: requests in flight finish, histograms are printed."""
_POLL_S = 0.1
_SEEDS_PER_REPETITION = 1000
"""More than there can be load hosts, each of which needs a seed of its own."""


class LateStartError(Exception):
    """The clients stood only after the second at which they were to start: they took this long, at the least."""

    def __init__(self, took_s: float) -> None:
        super().__init__(f"connecting took {took_s:.1f} s")
        self.took_s = took_s


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
        """About once a second while clients run, and once they are done; a rate only where they have told of any."""

    def end(self, run: Run, outcome: Outcome) -> None:
        """The run is recorded."""


class Deployment:
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
        stores, middlewares, targets = self._start_servers(configuration)
        start_at = math.ceil(time.time() + lead_s)
        clients = self._start_clients(configuration, targets, start_at, lead_s)
        processes = [*clients, *middlewares, *stores]
        samples = self._watch(clients, [*middlewares, *stores], start_at, progress)
        self._finish(clients, [*middlewares, *stores])
        # By now also those have told of their requests that count them at the end only.
        progress.second(self._spec.measure.seconds, self._throughput.latest())
        return Outcome(
            "done",
            start_unix_s=start_at,
            processes={process.command.process: process.command.role for process in processes},
            samples=samples,
        )

    def clear(self) -> str | None:
        """Remove what was made elsewhere, once all processes are gone; what could not be, and why.

        Raises StorageError or UnendedError, which say that as well, when what failed then ends the lab; and what failed
        after it was removed.
        To be called with interrupts deferred: one that ended it half-way would leave what nobody hears of.
        """
        return None

    def _load(self, index: int, configuration: Configuration, targets: list[str], start_at: int) -> Command:
        return commands.load(index, configuration, targets, start_at, self._spec.measure.seconds, self._seed)

    def _start_clients(
        self, configuration: Configuration, targets: list[str], start_at: int, lead_s: float
    ) -> list[Process]:
        begun = time.monotonic()
        clients = [
            self._start(self._load(index, configuration, targets, start_at))
            for index in range(configuration.system.load.hosts)
        ]
        for client in clients:
            try:
                client.wait_ready(_READY_TIMEOUT_S + lead_s)
            except ProcessError:
                if client.poll() != commands.START_PASSED:
                    raise
                raise LateStartError(time.monotonic() - begun) from None
        if time.time() >= start_at:
            raise LateStartError(time.monotonic() - begun)
        return clients

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        """Stores, middlewares, and the addresses that clients ask."""
        stores, store_addresses = self._start_stores(configuration)
        if configuration.workload.graph is None:
            self._populate(configuration, store_addresses)
        else:
            self._load_graph(store_addresses)
        middlewares, middleware_addresses = self._start_middlewares(configuration, store_addresses)
        return stores, middlewares, middleware_addresses or store_addresses

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
            self._finished(process, GRAPH_TIMEOUT_S)
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
            self._populated(process, max(0.0, deadline - time.monotonic()))

    def _populated(self, process: Process, timeout_s: float) -> None:
        """Wait until a client has stored what is to be there, and said so."""
        self._finished(process, timeout_s)
        if "populate" not in self._summaries.get(process.command.process, {}):
            raise ProcessError(f"{process.command.process} did not say what it stored: {process.describe()}")

    @staticmethod
    def _finished(process: Process, timeout_s: float) -> None:
        """Wait until a process that ends by itself has done what it was to do."""
        if process.wait(timeout_s) != 0:
            raise ProcessError(f"{process.command.process} failed: {process.describe()}")
        process.check()

    def _watch(self, clients: list[Process], servers: list[Process], start_at: int, progress: Progress) -> list[Sample]:
        """Probe and wait until every client has ended; a server that ends before them fails the run."""
        processes = [*clients, *servers]
        families = {process.command.process for process in processes if process.command.is_family}
        probe = Probe({process.command.process: process.pid for process in processes}, families)
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
        return samples

    def _collect(self, clients: list[Process]) -> None:
        """Clients of ours have said everything when they end."""

    def _finish(self, clients: list[Process], servers: list[Process]) -> None:
        """Stop the servers from the outside inwards, and see that everyone ended well and said all."""
        codes = [client.wait(_DRAIN_S) for client in clients]
        self._collect(clients)
        codes += [server.stop(server.command.grace_s) for server in servers]
        for process, code in zip([*clients, *servers], codes, strict=True):
            process.check()
            if code != 0:
                raise ProcessError(f"{process.command.process} did not end well: {process.describe()}")
            if process.command.serves is None and process.command.process not in self._summaries:
                raise ProcessError(f"{process.command.process} printed no summary: {process.describe()}")


_PASSWORD = "a password is looked for in PGPASSWORD, PGPASSFILE and ~/.pgpass"
_HINTS = {
    "unconnected": {
        "no password supplied": _PASSWORD,
        "password authentication failed": _PASSWORD,
        "permission denied for database": "whoever asks takes GRANT CONNECT ON DATABASE",
    },
    "refused": {
        "canceling statement due to lock timeout": "somebody is at work on the schema: try again when they have ended",
        "permission denied for database": "the lab's schema takes GRANT CREATE ON DATABASE",
    },
}
"""What to do about what psql says, by the words for it: no name that an experiment gives has a space in it."""


def hints(said: str, *, is_refused: bool) -> list[str]:
    """What to do where a database that runs elsewhere cannot be connected to, or refuses what is asked of it."""
    known = _HINTS["refused" if is_refused else "unconnected"]
    return list(dict.fromkeys(hint for words, hint in known.items() if words in said))


class QueueDeployment(Deployment):
    """The processes of a run of which the clients pass messages."""

    _registered: Sequence[Identity] = ()
    """The clients that the backlog is from and to."""
    _claimed: tuple[str, str] | None = None
    """A database that runs elsewhere, and the mark of the schema that was made there, or may have been."""
    _connected = False
    """Whether that database has let anybody in."""

    def clear(self) -> str | None:
        """See Deployment."""
        if self._claimed is None:
            return None
        url, mark = self._claimed
        asking: Process | None = None
        ending = Ending()
        with ending.gathering():
            release = commands_queue.ask_elsewhere("release", url, schema.release(mark))
            asking = self._start(release)
            if asking.wait(_DATABASE_MADE_S) < 0:
                # A Ctrl-C that meets it before it has a process group of its own is meant for the lab.
                asking = self._start(release)
            self._finished(asking, _DATABASE_MADE_S)
        if ending.by is None:
            return None
        with ending.gathering():
            self._host.close(0)
        # What went wrong after psql had removed it leaves nothing, and is told alone.
        if asking is not None and asking.poll() == 0:
            ending.raise_any()
        left = f"the schema knee_queue may be left in {url}"
        remedy = f'if the comment on knee_queue there is "{mark}", remove it with DROP SCHEMA knee_queue CASCADE'
        if not isinstance(ending.by, KneeError):
            # A fault stays one, and says that beside itself.
            with ending.gathering():
                Ending(ProcessError(f"{left}; {remedy}")).raise_any()
            ending.raise_any()
        left = f"{left} and could not be removed: {ending.by}; {remedy}"
        if isinstance(ending.by, (StorageError, UnendedError)):
            raise type(ending.by)(left) from None
        return left

    def _note(self, command: Command, message: dict[str, Any]) -> None:
        super()._note(command, message)
        if message.get("type") == "connected":
            self._connected = True

    def _load(self, index: int, configuration: Configuration, targets: list[str], start_at: int) -> Command:
        seconds = self._spec.measure.seconds
        return commands_queue.load(
            index, configuration, targets, start_at, seconds, self._seed, registered=self._registered
        )

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        tier, store, workload = configuration.system.middleware, configuration.system.store, configuration.workload
        assert tier is not None, "the experiment file was checked"
        if tier.address is not None:
            self._send_backlog(configuration, tier.address[0])
            return [], [], list(tier.address)
        assert store is not None, "the experiment file was checked"
        databases, url, password = self._start_database(configuration, store)
        # Before any message: an index grows with what comes, as those that are needed do.
        if wanted := schema.indexes(store.indexes):
            self._ask_database("indexes", url, "\n".join([*wanted, ""]), _DATABASE_MADE_S)
        interface = self._host.free_address().rpartition(":")[0]

        def start(process: str) -> Process:
            command = commands_queue.middleware(process, tier, store, interface, url, password, configuration.clients)
            return self._start(command)

        if workload.backlog:
            # Through a middleware of its own: those that are measured have seen nothing but what is measured.
            sending = start("populate-middleware")
            self._send_backlog(configuration, _address_of(sending))
            sending.stop(sending.command.grace_s)
        middlewares = [start(f"middleware-{index}") for index in range(tier.hosts)]
        return databases, middlewares, [_address_of(process) for process in middlewares]

    def _start_database(self, configuration: Configuration, store: Store) -> tuple[list[Process], str, Path | None]:
        """Its process if it is one of ours, how middlewares find it, and the file with its password if there is one."""
        processes: list[Process] = []
        address = None if store.address is None else store.address[0]
        data = self._room.data_path("store-0") if self._room is not None and store.on_disk else None
        password = None
        if store.kind == "postgresql" and address is None:
            assert self._room is not None and data is not None, "whoever starts a store on disk has a place for it"
            cluster = commands_queue.Cluster(data, self._room.password_path)
            password = cluster.password
            self._finished(self._start(commands_queue.initdb("initdb", cluster)), _DATABASE_MADE_S)
            connections = commands_queue.connections_of_database(configuration)
            free = self._host.free_address()
            processes = [self._start(commands_queue.postgresql("store-0", store, cluster, free, connections))]
            address = _address_of(processes[0])
        url = commands_queue.database_url(store, address, data)
        if store.kind == "postgresql" and store.address is not None:
            self._claim(url)
        if store.kind == "postgresql":
            self._finished(self._start(commands_queue.migrate("migrate", url, password)), _DATABASE_MADE_S)
        return processes, url, password

    def _claim(self, url: str) -> None:
        """Make the schema in a database that runs elsewhere; one that is there is somebody's, or was left behind here.

        A schema's mark says in which run folder it was made, and for which of its runs: whoever still removes that of
        one removes no other's.
        """
        made, owner = f"made by knee run {self._spec.experiment.name} ", self._folder.owner
        own = None if owner is None else f"{made}{owner} "
        mark = f"{own or made}{secrets.token_hex(8)}"
        # Interrupted half-way nobody would know whether it is there.
        with interrupts_deferred():
            asking = self._start(commands_queue.ask_elsewhere("claim", url, schema.claim(mark, own)))
            self._claimed = (url, mark)
            try:
                self._finished(asking, _DATABASE_MADE_S)
            except ProcessError as error:
                # Of a connection that was lost, or somebody who does not end, nobody knows what was made.
                is_refused = asking.poll() == commands_queue.REFUSED
                if not is_refused and (asking.poll() != commands_queue.UNCONNECTED or self._connected):
                    raise
                self._claimed = None
                what = "makes no schema for the messages" if is_refused else "cannot be connected to"
                said = asking.describe()
                raise ProcessError("; ".join([f"{url} {what}: {said}", *hints(said, is_refused=is_refused)])) from error

    def _ask_database(self, process: str, url: str, sql: str, timeout_s: float) -> None:
        """Have psql run a script in a database that the lab has started."""
        assert self._room is not None, "whoever starts a database has a place for it"
        script = self._room.script_path(process)
        with writing(script):
            script.write_text(sql, encoding="ascii")
        asking = commands_queue.psql(process, url, self._room.pgpass_path, script)
        self._finished(self._start(asking), timeout_s)

    def _send_backlog(self, configuration: Configuration, address: str) -> None:
        workload = configuration.workload
        if workload.backlog:
            process = self._start(commands_queue.backlog("populate-0", configuration, address, self._seed))
            paced_s = workload.backlog * (1 / _POPULATE_KEYS_PER_S + workload.characters / _POPULATE_BYTES_PER_S)
            self._populated(process, _READY_TIMEOUT_S + commands.start_lead_s(configuration) + paced_s)
            clients = self._summaries[process.command.process]["populate"]["clients"]
            self._registered = [(client, queue) for client, queue in clients]


class PgbenchDeployment(QueueDeployment):
    """The processes of a run in which pgbench asks a database itself."""

    _began_unix_s = 0.0

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        store, workload = configuration.system.store, configuration.workload
        assert store is not None and self._room is not None, "the experiment file was checked"
        databases, url, _ = self._start_database(configuration, store)
        preparation = pgbench.preparation(configuration.clients, workload, store.indexes)
        self._ask_database("prepare", url, preparation, _READY_TIMEOUT_S + workload.backlog / _POPULATE_KEYS_PER_S)
        for script in pgbench.scripts(workload):
            path = self._room.script_path(script.operation)
            with writing(path):
                path.write_text(script.text, encoding="ascii")
        return databases, [], [url]

    def _start_clients(
        self, configuration: Configuration, targets: list[str], start_at: int, lead_s: float
    ) -> list[Process]:
        """It waits for nobody: it is started when it is to begin."""
        assert self._room is not None, "it was started on"
        time.sleep(max(0.0, start_at - time.time()))
        (url,), seconds = targets, self._spec.measure.seconds
        self._began_unix_s = time.time()
        paths = [self._room.script_path(script.operation) for script in pgbench.scripts(configuration.workload)]
        asking = commands_queue.pgbench("load-0", configuration, url, self._room, paths, seconds, self._seed)
        return [self._start(asking)]

    def _collect(self, clients: list[Process]) -> None:
        (client,) = clients
        assert self._room is not None, "it was started on"
        configuration, seconds = self._run.configuration, self._spec.measure.seconds
        logs = sorted(self._room.pgbench_log_path.parent.glob(f"{self._room.pgbench_log_path.name}.*"))
        path = self._folder.lines_path(self._run, client.command.process)
        scripts = pgbench.scripts(configuration.workload)
        said = list(pgbench.lines(logs, scripts, configuration.clients, self._began_unix_s, seconds))
        with writing(path):
            path.write_text("".join(json.dumps(line) + "\n" for line in said), encoding="ascii")
        for line in said:
            self._note(client.command, line)


def deployment_of(configuration: Configuration) -> type[Deployment]:
    """How a configuration is deployed."""
    if configuration.system.load.kind == "pgbench":
        return PgbenchDeployment
    return QueueDeployment if configuration.workload.protocol == "queue" else Deployment


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
