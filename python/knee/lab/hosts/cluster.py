"""The workers of a Dask cluster as hosts: each host of the experiment has a worker, and a machine has one worker.

    place   "store-0" takes the worker of that name; otherwise one with the resource "store", or of the name "store".
            The worker starts an agent (:mod:`knee.lab.hosts.agent`). Its programs are compared with those of the other
            workers; before each run, its clock is compared with this machine's.
    start   the agent of the command's host starts it, with its own paths of the programs and its scratch directory.
    pull    at most twice a second, every agent reports on its processes. Their output goes to the run folder.
    close   the agents stop their processes and remove the stores' data. The next run places its hosts anew.
    lost    if a worker does not answer, the call raises LostWorkerError. The lab repeats the point; `place` then waits
            for another worker. If only the agent has ended, the worker starts a new one.

All calls go through the scheduler, from the main thread. So only the scheduler's port must be reachable.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from knee import __version__
from knee.errors import KneeError, ProcessError, ProgramError, StorageError, WorkerError
from knee.lab.command import Command
from knee.lab.hosts import IN_MEMORY, Host, Link, LostWorkerError, OnLine, Process
from knee.lab.hosts import agent as agents
from knee.lab.hosts.local import LocalHost
from knee.lab.hosts.remote import Files, RemoteProbe, RemoteProcess, Worker, chosen

try:
    from distributed import Client
    from distributed.comm.addressing import resolve_address
    from distributed.core import rpc
    from distributed.security import Security
except ImportError as error:
    raise ProgramError("--cluster: Dask is not installed; install it with `pip install 'knee[cluster]'`") from error

_PULL_S = 0.5
_ANSWER_S = 20
"""Seconds after which a worker without an answer is lost."""
_JOINING_S, _REPLACEMENT_S = 5, 60
"""Seconds to wait for a worker at the start, and in place of a lost one."""
_KILLED_S = 30
_ENDED_S = 2
_CLOCK_READINGS = 10
_CLOCK_OFF_MAX_S = 0.1


class ClusterHost(Host):
    """The workers of the cluster at `address`. `needed` has the names of the programs of each tier. `begun` is the
    record of a lab that was killed: its agents end, and hosts keep their workers. Raises WorkerError without a
    scheduler.
    """

    def __init__(self, address: str, needed: Mapping[str, Collection[str]], begun: Mapping[str, Any]) -> None:
        self._here = LocalHost()
        self._lab = begun.get("lab") or secrets.token_hex(8)
        self._address = address
        self._needed = needed
        try:
            kind = asyncio.run(_kind(address))
            if kind != "Scheduler":
                raise WorkerError(f"{address}: is a Dask {kind.lower()}; give the address that `dask scheduler` prints")
            self._client = Client(address, timeout=_ANSWER_S, set_as_default=False)
        except (OSError, TypeError, ValueError) as error:
            # Dask has a TypeError for a `tls://` address without certificates.
            said = str(error) or f"no answer within {_ANSWER_S} s"
            raise WorkerError(
                f"{address}: no scheduler answers: {said}; start one with `dask scheduler`, and give the address that "
                "it prints"
            ) from error
        self._workers: dict[str, Worker] = {}
        """Those with an agent, by Dask's address."""
        self._met: dict[str, Worker] = {}
        """All that ever had an agent, by Dask's address."""
        self._placed: dict[str, Worker] = {}
        self._recorded: dict[str, str] = dict(begun.get("hosts", {}))
        """The worker that each host had last."""
        self._processes: dict[str, RemoteProcess] = {}
        self._pulled_s = 0.0
        self.lost: list[str] = []
        """Why each lost worker was lost."""
        self._silent: dict[str, str] = {}
        """Names of the workers that gave no answer, by Dask's address. Their agents may still run."""
        self._begun_at: dict[str, str] = {}
        """Names of all workers that this lab has asked for an agent, by Dask's address."""

    @property
    def processors(self) -> int:
        """See Host: the fewest of the stores' workers."""
        return min((worker.processors for worker in self._stores()), default=self._here.processors)

    def _stores(self) -> list[Worker]:
        """The workers of stores."""
        names = {worker for host, worker in self._recorded.items() if host.startswith("store-")}
        return [worker for worker in self._met.values() if worker.name in names]

    @property
    def relays(self) -> None:
        return

    def place(self, name: str, link: Link) -> None:
        wait_s = _REPLACEMENT_S if self.lost else _JOINING_S
        deadline = time.monotonic() + wait_s
        while True:
            known = self._known()
            taken = {host: worker.address for host, worker in self._placed.items()}
            left = {one: known[one] for one in known if one not in self._silent}
            address = chosen(name, left, taken, self._recorded.get(name))
            if address is not None:
                break
            if time.monotonic() > deadline:
                names = ", ".join(sorted(each["name"] for each in known.values())) or "none"
                raise WorkerError(
                    f"{name}: no worker of the cluster takes it (workers: {names}); start one with "
                    f"`dask worker {self._address} --name {name}`"
                )
            with suppress(LostWorkerError):
                self.pull(_PULL_S)
            time.sleep(_PULL_S)
        if address not in self._workers:
            worker = self._begun(str(known[address]["name"]), address)
            self._workers[address] = self._met[address] = worker
        worker = self._workers[address]
        if address not in taken.values():
            # Anew in each run: clocks drift apart.
            worker.clock_ahead_s, worker.clock_error_s = self._clock(worker.name, address)
        self._placed[name] = worker
        self._recorded[name] = worker.name
        wanted = set(self._needed[name.rpartition("-")[0]]) - set(worker.programs)
        if wanted:
            worker.programs |= self.call(worker, "programs", sorted(wanted))
            self._compare(worker, wanted)

    def _known(self) -> Mapping[str, Mapping[str, Any]]:
        """The workers of the scheduler, by address."""

        async def identity() -> Any:
            # Not Client.scheduler_info(): its answer is at times one of the client's own, without workers.
            scheduler = self._client.scheduler
            if scheduler is None:
                raise OSError("disconnected")
            return await scheduler.identity(n_workers=-1)

        try:
            found: Mapping[str, Mapping[str, Any]] = self._client.sync(identity, callback_timeout=_ANSWER_S)["workers"]
        except (OSError, RuntimeError) as error:
            # Dask's client ends after 20 seconds without a scheduler: a RuntimeError.
            raise WorkerError(f"{self._address}: the scheduler is lost; start it and its workers again") from error
        # A worker that comes back at the same address is another process.
        self._silent = {address: name for address, name in self._silent.items() if address in found}
        return {address: {**worker, "name": str(worker["name"])} for address, worker in found.items()}

    def _begun(self, name: str, address: str) -> Worker:
        """A worker with a new agent. Raises WorkerError if it has another Knee, or another lab's agent."""
        self._begun_at[address] = name
        try:
            self._run([name], [address], agents.begin, self._lab)
            met = self._run([name], [address], agents.call, self._lab, "introduce")[0]
        except ImportError as error:
            raise WorkerError(
                f"worker {name}: Knee cannot be imported there: {error}; install 'knee[cluster]' {__version__} there"
            ) from error
        if met["knee"] != __version__:
            raise WorkerError(
                f"worker {name}: has Knee {met['knee']}, and this machine {__version__}; install the same version"
            )
        machine = next((each.machine for each in self._met.values() if each.boot == met["boot"]), name)
        return Worker(name, address, met["boot"], machine, met["host"], met["processors"], met["scratch"])

    def _clock(self, name: str, address: str) -> tuple[float, float]:
        """Seconds by which a worker's clock is ahead, and their error. Raises WorkerError if they are too many."""
        readings = []
        for _ in range(_CLOCK_READINGS):
            before_s = time.time()
            there_s = self._run([name], [address], agents.call, self._lab, "time_s")[0]
            after_s = time.time()
            readings.append(((after_s - before_s) / 2, there_s - (before_s + after_s) / 2))
        error_s, ahead_s = min(readings)
        if abs(ahead_s) - error_s > _CLOCK_OFF_MAX_S:
            raise WorkerError(
                f"worker {name}: its clock differs from this machine's clock by {ahead_s:+.3f} s, so that seconds "
                "cannot be compared; synchronise the clocks, for example with chrony"
            )
        return ahead_s, error_s

    def _compare(self, worker: Worker, names: Iterable[str]) -> None:
        """Raise WorkerError if another worker has another version of a program."""
        for other in self._met.values():
            for name in names:
                theirs, ours = other.programs.get(name), worker.programs[name]
                if theirs is not None and theirs["version"] != ours["version"]:
                    raise WorkerError(
                        f"{name}: worker {worker.name} has {ours['version']}, and worker {other.name} "
                        f"{theirs['version']}; install the same version on all workers"
                    )

    def free_address(self, name: str) -> str:
        address: str = self.call(self._placed[name], "free_address")
        return address

    def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> RemoteProcess:
        """See Host. A command without a host of its own runs with the first load host."""
        process = RemoteProcess(self, self._worker_of(command), command, Files(command, lines, log, on_line))
        self._processes[command.process] = process
        return process

    def _worker_of(self, command: Command) -> Worker:
        return self._placed.get(command.at or command.process) or self._placed["load-0"]

    def has_made(self, command: Command) -> bool:
        made: bool = self.call(self._worker_of(command), "has_made", command)
        return made

    def probe(self, processes: Sequence[Process]) -> RemoteProbe:
        return RemoteProbe(self, processes)

    def call(self, worker: Worker, method: str, *arguments: Any, timeout_s: float = _ANSWER_S) -> Any:
        """Call a method of a worker's agent. Raises LostWorkerError without an answer."""
        self._check([worker])
        return self._run(
            [worker.name], [worker.address], agents.call, self._lab, method, *arguments, timeout_s=timeout_s
        )[0]

    def pull(self, age_s: float) -> None:
        """Take the reports of all processes, unless the last ones are younger. An agent without a process is called,
        too, so that its lease does not end."""
        if time.monotonic() - self._pulled_s < age_s:
            return
        workers = self._workers | {each.worker.address: each.worker for each in self._processes.values()}
        self._check(workers.values())
        answers = self._run([each.name for each in workers.values()], list(workers), agents.call, self._lab, "pull")
        self._pulled_s = time.monotonic()
        for reports in answers:
            for name, report in reports.items():
                # An interrupt may come between a start and its answer.
                if (process := self._processes.get(name)) is not None:
                    process.take(report)

    def _check(self, workers: Iterable[Worker]) -> None:
        """Raise LostWorkerError if the scheduler has lost a worker: a call of it would wait for a connection."""
        known = self._known()
        for worker in workers:
            if worker.address not in known:
                self._lose(worker.name, worker.address, "its connection to the scheduler has ended")

    def _lose(self, name: str, address: str, reason: str, *, is_silent: bool = False) -> NoReturn:
        """A worker that has ended may get a successor at its address; a silent one is not asked again."""
        was_in_use = self._workers.pop(address, None) is not None
        said = f"worker {name} ({address}) was lost: {reason}"
        if (was_in_use or address not in self._met) and said not in self.lost:
            self.lost.append(said)
        if is_silent:
            self._silent[address] = name
        raise LostWorkerError(said)

    def _run(
        self,
        names: Sequence[str],
        addresses: Sequence[str],
        function: Any,
        *arguments: Any,
        timeout_s: float = _ANSWER_S,
    ) -> list[Any]:
        """Call a function on workers, all at once."""

        async def on(address: str) -> Any:
            if self._client.scheduler is None:
                return OSError("disconnected")
            run = self._client.run(function, *arguments, workers=[address], on_error="return")
            try:
                return (await asyncio.wait_for(run, timeout_s))[address]
            except OSError as error:
                return error
            except RuntimeError as error:
                return OSError(str(error))

        async def on_all() -> list[Any]:
            return await asyncio.gather(*map(on, addresses))

        answers: list[Any] = self._client.sync(on_all)
        for name, address, answer in zip(names, addresses, answers, strict=True):
            if isinstance(answer, KneeError):
                raise type(answer)(f"worker {name}: {answer}")
            if isinstance(answer, OSError | EOFError):
                reason = str(answer) or f"no answer within {timeout_s:.0f} s"
                self._lose(name, address, reason, is_silent=not isinstance(answer, EOFError))
            if isinstance(answer, Exception):
                raise answer
        return answers

    def describe(self) -> dict[str, Any]:
        """See Host: the machine of the lab. The record has the workers."""
        return self._here.describe()

    def record(self) -> dict[str, Any]:
        """The workers, their hosts, clocks and programs, for the manifest."""
        return {
            "scheduler": self._address,
            "lab": self._lab,
            "hosts": dict(self._recorded),
            "workers": {
                worker.name: {
                    "address": worker.address,
                    "boot": worker.boot,
                    "clock_ahead_s": round(worker.clock_ahead_s, 6),
                    "clock_error_s": round(worker.clock_error_s, 6),
                    "programs": worker.programs,
                    "scratch": worker.scratch,
                    "host": worker.host,
                }
                for worker in self._met.values()
            },
            "lost": self.lost,
        }

    def check(self) -> None:
        self.pull(0)

    def filesystem(self, path: Path) -> str | None:
        """See Host: that of the stores' workers, whatever the path. One in memory comes first."""
        found = [worker.scratch["filesystem"] for worker in self._stores()]
        return next((each for each in found if each in IN_MEMORY), found[0] if found else None)

    def output(self, argv: Sequence[str]) -> str | None:
        """See Host. The version of a program is that of the workers."""
        for worker in self._met.values():
            if argv[0] in worker.programs:
                return worker.programs[argv[0]]["version"]
        return self._here.output(argv)

    def close(self, grace_s: float) -> None:
        """See Host. What a lost worker ran ends with it."""
        failures = []
        # No second wait for a lost worker.
        self._processes = {name: each for name, each in self._processes.items() if each.worker.address in self._workers}
        if self._processes:
            with suppress(KneeError):
                self.pull(0)
        self._processes.clear()
        self._placed.clear()
        for worker in list(self._workers.values()):
            try:
                self.call(worker, "clear", grace_s, timeout_s=grace_s + _KILLED_S)
            except WorkerError:
                continue
            except (ProcessError, StorageError) as error:
                failures.append(str(error))
        self._end_silent()
        if failures:
            raise ProcessError("; ".join(failures))

    def _end_silent(self) -> None:
        """End agents of silent workers that are still connected: their programs would disturb a repeat."""
        with suppress(KneeError):
            for address in self._known().keys() & self._silent.keys():
                with suppress(Exception):
                    name = self._silent[address]
                    self._run([name], [address], agents.end, self._lab, timeout_s=_ENDED_S)

    def leave(self) -> None:
        """End the agents, and the connection to the cluster."""
        try:
            with suppress(KneeError):
                left = [one for one in self._begun_at if one in self._known() and one not in self._silent]
                self._run([self._begun_at[one] for one in left], left, agents.end, self._lab)
            self._end_silent()
        finally:
            self._client.close()


async def _kind(address: str) -> Any:
    """The kind of server at an address: "Scheduler", "Worker" or "Nanny". Dask's client waits minutes for others."""
    resolve_address(address)
    secured = Security().get_connection_args("client")
    async with rpc(address, timeout=_ANSWER_S, connection_args=secured) as server:
        return (await asyncio.wait_for(server.identity(), _ANSWER_S))["type"]
