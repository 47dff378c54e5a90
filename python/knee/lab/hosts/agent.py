"""A worker's side of a cluster: an agent that holds the processes of one lab.

    lab: ClusterHost ── dask.distributed ──→ worker: call() ── pipe ──→ agent: LocalHost ──→ programs

The agent is a child of the worker. Its main thread starts the programs, and the kernel ties them to it. It ends when
the pipe closes, so with the worker; or when the lab makes no call for `_LEASE_S`. A program writes into files of the
agent. The lab pulls what is new in them twice a second.

The agent has a scratch directory (:mod:`knee.lab.scratch`) below the worker's local directory. Where a command names
the lab's scratch directory, the agent names its own. The directory goes with the agent. If the agent was killed, the
worker removes it before it starts another one; and Dask removes the local directory of a worker that has ended.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from knee import __version__
from knee.errors import KneeError, ProcessError, StorageError, WorkerError
from knee.lab import programs
from knee.lab.command import Command, File
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.probe import Probe, Sample
from knee.lab.scratch import Scratch, scratch

if TYPE_CHECKING:
    from distributed import Worker

_LEASE_S = 120
"""Longer than any call of another agent, which may wait for a store's checkpoint."""
_CHUNK_BYTES = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")

_NANNYS = ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that Dask sets for its workers. Programs run without them, as on the lab's machine."""


@dataclass(frozen=True)
class Report:
    """A process, and its output since the last report.

    code      the exit code, None while it runs
    is_ready  whether it is ready, at `address` if it is a server
    is_whole  whether it has ended, and the reports have all of its output
    ending    how it ended, for a message
    """

    code: int | None
    is_ready: bool
    address: str | None
    is_whole: bool
    ending: str
    lines: bytes
    log: bytes


class _Started:
    """A process of the agent, with the files of its output."""

    def __init__(self, process: LocalProcess, lines: Path, log: Path) -> None:
        self.process = process
        self._files = lines.open("rb"), log.open("rb")
        self._is_ready = False

    def report(self) -> Report:
        """What is new."""
        process = self.process
        self._is_ready = self._is_ready or process.is_ready()
        process.check()
        code, is_written = process.poll(), process.is_written
        lines, log = (file.read(_CHUNK_BYTES) for file in self._files)
        is_whole = is_written and max(len(lines), len(log)) < _CHUNK_BYTES
        return Report(code, self._is_ready, process.address, is_whole, process.describe(), lines, log)

    def close(self) -> None:
        """Remove the files."""
        for file in self._files:
            file.close()
            Path(file.name).unlink(missing_ok=True)


class Agent:
    """The calls of the lab."""

    def __init__(self, interface: str, room: Scratch) -> None:
        self._host = LocalHost(interface)
        self._room = room
        self._started: dict[str, _Started] = {}
        self._probe: Probe | None = None

    def introduce(self) -> dict[str, Any]:
        """The version of Knee, the machine, and the machine's name until it boots again."""
        return {
            "knee": __version__,
            "boot": _BOOT.read_text().strip(),
            "host": self._host.describe(),
            "processors": self._host.processors,
            "scratch": {"path": str(self._room.path), "filesystem": self._host.filesystem(self._room.path)},
        }

    def programs(self, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Paths and versions. Raises ProgramError if one is not installed."""
        found = {name: str(_found(name)) for name in names}
        return {name: {"path": path, "version": self._host.output([path, "--version"])} for name, path in found.items()}

    def time_s(self) -> float:
        """The wall clock."""
        return time.time()

    def free_address(self) -> str:
        """A leased address of this machine."""
        return self._host.free_address("")

    def start(self, command: Command) -> int:
        """Start a command with this machine's programs; return the process id. Raises ProcessError, ProgramError and
        StorageError."""
        lines, log = (self._room.path / f"{command.process}.{what}" for what in ("jsonl", "log"))
        process = self._host.start(_localised(command, self._room), lines, log, lambda *_: None)
        self._started[command.process] = _Started(process, lines, log)
        return process.pid

    def has_made(self, command: Command) -> bool:
        """Whether the file that a command makes is here."""
        return self._host.has_made(_localised(command, self._room))

    def pull(self) -> dict[str, Report]:
        """A report of each process."""
        return {name: started.report() for name, started in self._started.items()}

    def stop(self, name: str, grace_s: float) -> int:
        """Stop a process; see Process."""
        return self._started[name].process.stop(grace_s)

    def probe(self, names: Sequence[str]) -> None:
        """Begin to sample processes and this machine."""
        self._probe = self._host.probe([self._started[name].process for name in names])
        self._probe.start()

    def samples(self) -> list[Sample]:
        """The samples since `probe`."""
        probe, self._probe = self._probe, None
        return [] if probe is None else probe.stop()

    def clear(self, grace_s: float) -> None:
        """Stop all processes, and remove the stores' data."""
        try:
            self.close(grace_s)
        finally:
            self._room.remove_data()

    def close(self, grace_s: float) -> None:
        """Stop all processes, and forget them."""
        try:
            self.samples()
            self._host.close(grace_s)
        finally:
            for started in self._started.values():
                started.close()
            self._started.clear()


def _found(name: str) -> Path:
    if name in ("initdb", "postgres", "psql"):
        return programs.find_postgresql(name)
    return programs.find(name) if name.startswith("knee-") else programs.find_foreign(name)


def _localised(command: Command, room: Scratch) -> Command:
    """A command of the lab with the paths of this machine, tied to this process."""

    def here(text: str) -> str:
        return text if command.scratch is None else text.replace(str(command.scratch), str(room.path))

    argv = [here(part) for part in command.argv]
    named = [0, *([argv.index("--") + 1] if argv[0] == "setpriv" else [])]
    for index in named:
        argv[index] = str(_found(argv[index]))
    if "--tied-to-parent" in argv:
        argv[argv.index("--tied-to-parent") + 1] = str(os.getpid())
    return replace(
        command,
        argv=tuple(argv),
        environment=tuple((name, here(value)) for name, value in command.environment),
        files=tuple(File(Path(here(str(file.path))), file.text) for file in command.files),
        makes=None if command.makes is None else Path(here(str(command.makes))),
    )


def main(interface: str, folder: str) -> None:
    """Answer calls until the pipe closes or the lease ends."""
    # The programs' output has pipes of its own; whatever else is printed must not disturb the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        with scratch(Path(folder)) as room:
            agent = Agent(interface, room)
            try:
                while select.select([sys.stdin], [], [], _LEASE_S)[0]:
                    method, arguments = pickle.load(sys.stdin.buffer)
                    pickle.dump(_answer(agent, method, arguments), answers)
                    answers.flush()
            finally:
                agent.close(0)
    except (EOFError, BrokenPipeError):
        pass
    except StorageError as error:
        # Without its directory, the agent answers the first call only.
        with suppress(EOFError, BrokenPipeError):
            pickle.load(sys.stdin.buffer)
            pickle.dump(_placed(error), answers)
            answers.flush()


def _answer(agent: Agent, method: str, arguments: tuple[Any, ...]) -> Any:
    """The result of a method, or its error."""
    try:
        return getattr(agent, method)(*arguments)
    except StorageError as error:
        return _placed(error)
    except KneeError as error:
        return error
    except Exception as error:
        return ProcessError(f"{method}: {error!r}")


def _placed(error: StorageError) -> StorageError:
    """An error whose remedy names the place of a worker's files."""
    return StorageError(str(error).replace("--runs-dir", "`dask worker --local-directory`"))


class _Child:
    """An agent, seen from its worker."""

    def __init__(self, interface: str, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._popen = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main({interface!r}, {str(folder)!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            env={name: value for name, value in os.environ.items() if name not in _NANNYS},
        )

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the agent. Raises EOFError or OSError if it has ended."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        with self._lock:
            pickle.dump((method, arguments), self._popen.stdin)
            self._popen.stdin.flush()
            return pickle.load(self._popen.stdout)

    def is_running(self) -> bool:
        """Whether the agent has not ended."""
        return self._popen.poll() is None

    def close(self) -> None:
        """End the agent."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        with suppress(OSError):
            self._popen.stdin.close()
        self._popen.wait()
        self._popen.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


_CHILDREN: dict[str, _Child] = {}
"""The agents of a worker, by lab."""


async def begin(lab: str, dask_worker: Worker) -> WorkerError | None:
    """Start the agent of a lab, on the interface that the worker uses. Dask calls this on the worker. Returns an error
    if another lab uses the worker: its programs would disturb the measurement."""
    await end(lab)
    if any(child.is_running() for child in _CHILDREN.values()):
        return WorkerError(
            f"another `knee run` uses it; wait for its end, or for {_LEASE_S} s if it was killed and is not resumed"
        )
    interface = urlsplit(dask_worker.address).hostname
    assert interface is not None
    _CHILDREN[lab] = _Child(interface, Path(dask_worker.local_directory) / f"knee-{lab}")
    return None


async def call(lab: str, method: str, *arguments: Any) -> Any:
    """Call a method of a lab's agent. Dask calls this on the worker. A KneeError is returned, not raised: Dask would
    log it. Raises EOFError without an agent."""
    if (child := _CHILDREN.get(lab)) is None:
        raise EOFError("its agent has ended")
    try:
        return await asyncio.to_thread(child.call, method, arguments)
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        raise EOFError("its agent has ended") from error


async def end(lab: str) -> None:
    """End the agent of a lab. Dask calls this on the worker."""
    if (child := _CHILDREN.pop(lab, None)) is not None:
        await asyncio.to_thread(child.close)
