"""The runs of a plan, in sequence: deploy, populate, start together, collect, stop.

Each run has fresh processes (:mod:`knee.lab.deploy`), so no run inherits a filled cache, a warm allocator or a server
that a middleware has dropped.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from knee import __version__
from knee.data import Outcome, RunFolder
from knee.data.reading import machines
from knee.errors import (
    DatasetError,
    KneeError,
    ProcessError,
    SpecError,
    StorageError,
    WorkerError,
    chain_of,
    reasons_of,
)
from knee.lab import programs
from knee.lab.command import Command
from knee.lab.deploy import deployment_of, start_lead_s
from knee.lab.deploy.deployment import LateStartError, Progress
from knee.lab.hosts import IN_MEMORY, Host, LostWorkerError
from knee.lab.scratch import Scratch, keeps_data, needs_scratch, scratch
from knee.spec import Spec
from knee.spec.design import Run
from knee.spec.template import words_of
from knee.stats.intervals import counted

_ABORT_GRACE_S = 2
_STARTS_MAX = 3
_AROUND_S = 3.0
"""Seconds of a run beyond its measurements, for the first estimate of the remaining time."""
_LEAD_GROWTH = 2
"""Growth of the lead, the time allowed for connecting, after a late start."""

_LIFETIME = "every run made a new directory for each store and removed it; a graph was made once on each machine"

PROVENANCE = ("knee", "git", "python", "host", "programs")
"""Parts of a manifest that may differ when a run is resumed."""


@dataclass(frozen=True)
class Tally:
    """Numbers of runs by outcome."""

    done: int
    failed: list[tuple[Run, str]]


def make_each(
    plan: Sequence[Run],
    seconds: int,
    make: Callable[[Run], Outcome],
    progress: Progress,
    between: Callable[[], None],
) -> Tally:
    """Make the runs of a plan, whose measurements last some seconds, and call `between` after each but the last."""
    took_s, failed = list[float](), list[tuple[Run, str]]()
    for index, run in enumerate(plan, start=1):
        each_s = fmean(took_s) if took_s else seconds * len(run.measurements) + _AROUND_S
        progress.begin(run, index, len(plan), each_s * (len(plan) - index + 1))
        begun_s = time.monotonic()
        outcome = make(run)
        progress.end(run, outcome)
        if outcome.status == "done":
            took_s.append(time.monotonic() - begun_s)
        else:
            failed.append((run, outcome.reason or ""))
        if index < len(plan):
            between()
    return Tally(len(took_s), failed)


class Lab:
    """Makes the runs of one experiment, through one `Host`, into one run folder."""

    def __init__(self, spec: Spec, seed: int, folder: RunFolder, host: Host, progress: Progress) -> None:
        self._spec = spec
        self._seed = seed
        self._folder = folder
        self._host = host
        self._progress = progress

    def make(
        self,
        plan: Sequence[Run],
        on_commands: Callable[[Run, list[Command]], None],
        between: Callable[[], None] = lambda: None,
    ) -> Tally:
        """Make the runs, and call `between` after each but the last, when no process of the lab runs. A failed run is
        recorded, and the next one starts. Call this from the main thread. Raises StorageError if the folder cannot be
        written, ProgramError if a program is not installed, WorkerError if a host has no worker, and KeyboardInterrupt
        after the interrupted run is recorded. In each case all processes are stopped and the stores' data are removed.
        """

        def make(run: Run) -> Outcome:
            started: list[Command] = []
            try:
                return self._make(run, started, room)
            finally:
                on_commands(run, started)

        try:
            with scratch(self._folder.scratch_path) if needs_scratch(self._spec) else nullcontext() as room:
                return make_each(plan, self._spec.measure.seconds, make, self._progress, between)
        except (KeyboardInterrupt, ProcessError, StorageError, WorkerError) as error:
            is_interrupted, reasons = reasons_of(error)
            raise KeyboardInterrupt(*reasons) if is_interrupted else type(error)("; ".join(reasons)) from error

    def _make(self, run: Run, started: list[Command], room: Scratch | None) -> Outcome:
        try:
            outcome = self._measure(run, started, room)
        except (KeyboardInterrupt, ProcessError, StorageError, WorkerError) as error:
            if not any(isinstance(one, KeyboardInterrupt | ProcessError | WorkerError) for one in chain_of(error)):
                raise
            is_interrupted, reasons = reasons_of(error)
            reason = "; ".join(["interrupted"] * is_interrupted + reasons)
            outcome = Outcome("interrupted" if is_interrupted else "failed", reason=reason)
            self._folder.record(run, self._spec, outcome)
            if is_interrupted or any(isinstance(one, StorageError | WorkerError) for one in chain_of(error)):
                raise
            return outcome
        try:
            self._folder.record(run, self._spec, outcome)
        except DatasetError as error:
            # The output of a program cannot be read.
            outcome = Outcome("failed", reason=str(error))
            self._folder.record(run, self._spec, outcome)
        return outcome

    def _measure(self, run: Run, started: list[Command], room: Scratch | None) -> Outcome:
        lead_s = start_lead_s(run.configuration)
        failure: KneeError | None = None
        for _ in range(_STARTS_MAX):
            started.clear()
            try:
                with ExitStack() as cleanup:
                    if room is not None:
                        cleanup.callback(room.remove_data)
                    cleanup.callback(self._host.close, _ABORT_GRACE_S)
                    deployment = deployment_of(run.configuration)(
                        self._spec, self._seed, self._folder, self._host, run, started, room, cleanup
                    )
                    try:
                        return deployment.measure(lead_s, self._progress)
                    except ProcessError:
                        # A lost worker ends its programs, and programs of other workers may fail then: report the
                        # worker.
                        self._host.check()
                        raise
            except LateStartError as late:
                lead_s = _LEAD_GROWTH * max(lead_s, late.took_s)
                failure = ProcessError(
                    f"the clients missed the agreed start in {_STARTS_MAX} attempts: "
                    f"connecting took {late.took_s:.1f} s"
                )
            except LostWorkerError as lost:
                if reasons_of(lost)[0]:
                    raise
                failure = lost
        assert failure is not None
        raise failure


def check_programs(spec: Spec) -> dict[str, Path]:
    """The programs of an experiment, by name, without the system's tools. Raises ProgramError if one of either is
    missing."""
    system = spec.base.system
    if system.load.is_foreign:
        return _find_foreign(spec)
    kinds = {system.store.kind, *spec.factors.get("store.kind", ())} if system.store else set()
    found = {"knee-load": programs.find("knee-load")}
    if spec.measure.hosts == "emulated":
        found["knee-link"] = programs.find("knee-link")
        for name in ("ip", "tc", "nsenter"):
            programs.find_foreign(name)
    if system.middleware is not None and system.middleware.address is None:
        name = {"queue": "knee-queue", "nbd": "knee-space"}.get(spec.base.workload.protocol, "knee-proxy")
        found[name] = programs.find(name)
    if system.store is not None and system.store.address is None:
        found |= {name: programs.find(name) for name in ("knee-kv", "knee-space") if name in kinds}
        if "memcached" in kinds:
            found["memcached"] = programs.find_foreign("memcached")
        if "postgresql" in kinds:
            found |= _find_postgresql(spec)
        if kinds & {"memcached", "postgresql"}:
            programs.find_foreign("setpriv")
    is_queue_here = system.middleware is None or system.middleware.address is None
    if is_queue_here and system.store is not None and system.store.address is not None and "postgresql" in kinds:
        found["psql"] = programs.find_postgresql("psql")
        programs.find_foreign("setpriv")
    return found


def _find_foreign(spec: Spec) -> dict[str, Path]:
    """The programs of an experiment with another load generator: those of its commands and of its kinds. Raises
    ProgramError if a program is missing."""
    system = spec.base.system
    load = [] if system.load.command is not None else [system.load.kind]
    store = [] if system.store is None else [system.store.kind]
    kinds = {*spec.factors.get("load.kind", load), *spec.factors.get("store.kind", store)}
    programs.find_foreign("setpriv")
    found = {name: programs.find_foreign(name).absolute() for name in _named(spec)}
    names = [name for name in ("nginx", "wrk") if name in kinds]
    names += ("redis-server", "redis-benchmark", "redis-cli") if "redis" in kinds else ()
    found |= {name: programs.find_foreign(name) for name in names}
    if "postgresql" in kinds:
        found |= {name: programs.find_postgresql(name) for name in ("initdb", "postgres", "psql", "pgbench")}
    return found


def _named(spec: Spec) -> set[str]:
    """The programs of an experiment's commands."""
    system = spec.base.system
    given = {"load.command": system.load.command, "system.command": system.command}
    each = (spec.factors.get(name, () if command is None else (command,)) for name, command in given.items())
    return {words_of(str(command))[0] for commands in each for command in commands}


def _origin(path: Path, version: str | None) -> dict[str, Any]:
    """A program in a manifest; without a version, the size and time of its file."""
    found: dict[str, Any] = {"path": str(path), "version": version}
    if version is None and path.is_absolute() and path.is_file():
        about = path.stat()
        modified = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
        found |= {"bytes": about.st_size, "modified": modified}
    return found


def files_of(spec: Spec, kept: Mapping[str, str] | None = None) -> dict[str, str]:
    """The texts of the SQL files that an experiment names, by path. For a resumed run, `kept` has the texts of files
    that are not found. Raises SpecError for a file that cannot be read."""
    given = {"load.script": spec.base.system.load.script, "workload.prepare": spec.base.workload.prepare}
    found = {}
    for name, file in given.items():
        for each in spec.factors.get(name, () if file is None else (file,)):
            try:
                found[str(each)] = Path(str(each)).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                if isinstance(error, FileNotFoundError) and kept is not None and str(each) in kept:
                    found[str(each)] = kept[str(each)]
                    continue
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                raise SpecError(f"{name}: {each}: cannot be read: {reason}") from error
    return found


def tiers_programs(found: Collection[str]) -> dict[str, list[str]]:
    """The programs that a worker needs for each tier. A store's worker also populates the store, with a client or a
    middleware."""
    return {
        "load": ["knee-load"],
        "middleware": [name for name in found if name in ("knee-proxy", "knee-queue", "knee-space")],
        "store": [name for name in found if name != "knee-proxy"],
    }


def _find_postgresql(spec: Spec) -> dict[str, Path]:
    """The programs that make, serve and prepare a PostgreSQL cluster; and pgbench, if it is the client."""
    system = spec.base.system
    asks = system.load.kind == "pgbench"
    indexes = {*spec.factors.get("store.indexes", ()), *([system.store.indexes] if system.store else [])}
    names = ["initdb", "postgres", *(["psql"] if asks or indexes != {"needed"} else []), *(["pgbench"] if asks else [])]
    return {"knee-queue": programs.find("knee-queue"), **{name: programs.find_postgresql(name) for name in names}}


def check_processors(spec: Spec, host: Host) -> None:
    """Raise SpecError unless every `store.cpus` is a whole number of processors that this process may use
    (docs/decisions/0005)."""
    store = spec.base.system.store
    given = [store.cpus] if store is not None and store.cpus is not None else []
    for cpus in map(float, spec.factors.get("store.cpus", given)):
        if not cpus.is_integer():
            raise SpecError(f"store.cpus: should be a whole number of processors, not {cpus:g}")
        if cpus > host.processors:
            raise SpecError(
                f"store.cpus: a store may use only {counted(host.processors, 'processor')}, not {cpus:g}; "
                "take a larger machine, or set fewer with --set store.cpus=…"
            )


def check_elsewhere(spec: Spec) -> None:
    """Raise SpecError unless the experiment can run on other machines."""
    remedy = "run it without --cluster"
    system = spec.base.system
    if spec.measure.hosts == "emulated":
        raise SpecError('measure.hosts: "emulated" excludes --cluster; add --set measure.hosts=local')
    if system.load.is_foreign:
        raise SpecError(f"--cluster: load.command runs on this machine; {remedy}")
    if system.load.kind == "pgbench":
        raise SpecError(f"--cluster: the logs of pgbench must be on this machine; {remedy}")
    if system.store is not None and "sqlite" in (system.store.kind, *spec.factors.get("store.kind", ())):
        raise SpecError(f"--cluster: sqlite is a file of the middlewares' machine, not of a store's; {remedy}")
    if spec.base.workload.protocol == "queue" and system.store is not None and system.store.address is not None:
        raise SpecError(f"store.address: this machine must make and drop the schema of another database; {remedy}")


def new_manifest(
    spec: Spec, seed: int, host: Host, found: dict[str, Path], room: Path, texts: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The provenance of a run folder; each measurement adds its commands. `room` is the scratch directory, and `texts`
    has the SQL files of a resumed run's manifest, by path."""
    notes = []
    files, named = files_of(spec, texts), _named(spec)
    kept = needs_scratch(spec)
    filesystem = host.filesystem(room.parent) if kept else None
    if filesystem in IN_MEMORY and keeps_data(spec):
        option = "--runs-dir" if host.record() is None else "`dask worker --local-directory`"
        notes.append(
            f"the stores kept their data on {filesystem}, which is in memory: durability was not measured; choose "
            f"a folder on a disk with {option}"
        )
    if spec.measure.ramp:
        notes.append(
            "clients joined within one run (measure.ramp), fewest first: an effect of the clients may be an effect of "
            "time; compare with --set measure.ramp=false"
        )
    if spec.wants_links and host.relays is None:
        notes.append(
            "link_mbit was not emulated: local hosts share a loopback interface, and workers have links of their own, "
            "so results that depend on a link's rate do not answer the experiment's question"
        )
    checkout = Path(__file__).resolve().parents[3]
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    return {
        "knee": __version__,
        "git": host.output(describe) if (checkout / ".git").exists() else None,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "host": host.describe(),
        "programs": {
            # A program that a command names may do anything with --version.
            name: _origin(path, None if name in named else host.output([str(path), "--version"]))
            for name, path in found.items()
        },
        "seed": seed,
        "overrides": spec.overrides,
        "links_emulated": host.relays is not None,
        **({"scratch": {"path": str(room), "filesystem": filesystem, "lifetime": _LIFETIME}} if kept else {}),
        **({"files": files} if files else {}),
        "notes": notes,
        "commands": {},
    }


def check_resumable(begun: Mapping[str, Any], cluster: str | None) -> None:
    """Raise DatasetError if a run began on a cluster and now has none, or the reverse."""
    if ("cluster" in begun) != (cluster is not None):
        where, how = ("a cluster", "with") if cluster is None else ("this machine", "without")
        raise DatasetError(f"the run began on {where}: results from both would mix; resume it {how} --cluster")


def note_cluster(manifest: dict[str, Any], now: dict[str, Any]) -> None:
    """Note the workers in a manifest. A resumed run's manifest keeps the first workers, and names the hosts whose
    machines differ."""
    if "resumed" not in manifest:
        manifest["cluster"] = now
        return
    manifest["resumed"][-1]["cluster"] = now
    first, later = machines(manifest["cluster"]), machines(now)
    other = [host for host, machine in later.items() if host in first and machine != first[host]]
    note = f"resumed with other machines for {', '.join(sorted(other))}; the manifest has both"
    if other and note not in manifest["notes"]:
        manifest["notes"].append(note)


def resumed_manifest(begun: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a resumed run: the original one, with the values that differ now. Raises DatasetError if a
    required part is missing, or an SQL file has changed.
    """
    for name, kind in (("seed", int), ("commands", dict), ("notes", list)):
        if not isinstance(begun.get(name), kind):
            raise DatasetError(f"the manifest of this run has no {name}: it cannot be resumed; start a new one")
    for file, text in now.get("files", {}).items():
        if begun.get("files", {}).get(file) != text:
            raise DatasetError(f"{file}: changed after the run began: restore it, or start a new run with it")
    changed = {name: now[name] for name in PROVENANCE if now[name] != begun.get(name)}
    notes = list(begun["notes"])
    if changed:
        notes.append(
            f"resumed at {now['started']} with different values of {', '.join(changed)}; the manifest has both"
        )
    resumed = [*begun.get("resumed", ()), {"started": now["started"], **changed}]
    return {**begun, "notes": notes, "resumed": resumed}
