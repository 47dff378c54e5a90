"""Deploy, populate, start together, collect, stop: each run of the plan, one after the other.

A run has its own fresh processes (:mod:`knee.lab.deployment`), so that no run inherits a filled cache, a warmed
allocator or an ejected server from the one before it.
"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from knee import __version__
from knee.data import Outcome, RunFolder
from knee.errors import DatasetError, ProcessError, SpecError, UnendedError
from knee.lab import commands, programs
from knee.lab.commands import Command
from knee.lab.deployment import GRAPH_TIMEOUT_S, Deployment, LateStartError, Progress, deployment_of
from knee.lab.design import Run
from knee.lab.endings import Ending
from knee.lab.hosts import Host
from knee.lab.interrupts import interruptible, interruptible_anew, interrupts_deferred, raise_deferred
from knee.lab.scratch import Scratch, keeps_data, needs_scratch, scratch
from knee.spec import Graph, Level, Spec
from knee.stats.intervals import counted

_ABORT_GRACE_S = 2
_STARTS_MAX = 3
_LEAD_GROWTH = 2
"""By how much more than they took, or were given, the clients get after they were late."""

_IN_MEMORY = ("tmpfs", "ramfs")
"""File systems on which nothing is ever on a disk."""

PROVENANCE = ("knee", "git", "python", "host", "programs")
"""What of a manifest may change between the beginning of a run and its resumption."""


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
        ProcessError when the graph that the stores are to hold cannot be made, UnendedError when a process goes on;
        KeyboardInterrupt passes through after the run is marked. In each case all processes are stopped, and nothing
        is left of what the stores kept on disk.

        It is interrupted in what is `interruptible` alone, and never in what cleans up after that.
        """
        with (
            interrupts_deferred(),
            scratch(self._folder.scratch_path) if needs_scratch(self._spec) else nullcontext() as room,
        ):
            if plan and room is not None and (graph := self._spec.base.workload.graph) is not None:
                self._common = [self._make_graph(graph, room)]
            return self._make(plan, on_commands, room)

    def _make_graph(self, graph: Graph, room: Scratch) -> Command:
        """Write the graph that every store of this lab loads, the same whenever it goes on."""
        command = commands.graph("graph", graph, self._seed, room.graph_path)
        lines, log = (room.path / f"graph.{what}" for what in ("lines", "log"))
        ending = Ending()
        with ending.gathering():
            process = self._host.start(command, lines, log, lambda *_: None)
            if interruptible(process.wait, GRAPH_TIMEOUT_S) != 0:
                raise ProcessError(f"the graph cannot be made: {process.describe()}")
        with ending.gathering():
            self._host.close(_ABORT_GRACE_S)
        ending.raise_any()
        return command

    def _make(
        self, plan: Sequence[Run], on_commands: Callable[[Run, list[Command]], None], room: Scratch | None
    ) -> Tally:
        done, failed = 0, []
        took_s: list[float] = []
        for index, run in enumerate(plan, start=1):
            each_s = sum(took_s) / len(took_s) if took_s else self._spec.measure.seconds + 3.0
            # Whoever reads it may read no more, and a write that waits for that is tried again after a signal.
            interruptible(self._progress.begin, run, index, len(plan), each_s * (len(plan) - index + 1))
            started = time.monotonic()
            commands_started: list[Command] = []
            ending = Ending()
            with ending.gathering():
                outcome = self._make_one(run, commands_started, room)
                interruptible_anew(self._progress.end, run, outcome)
            with ending.gathering():
                on_commands(run, commands_started)
            with ending.gathering():
                raise_deferred()
            ending.raise_any()
            if outcome.status == "done":
                done += 1
                took_s.append(time.monotonic() - started)
            else:
                failed.append((run, outcome.reason or ""))
        return Tally(done, failed)

    def _make_one(self, run: Run, started: list[Command], room: Scratch | None) -> Outcome:
        ending, failed = Ending(), None
        try:
            outcome = self._measure(run, started, room)
        except ProcessError as error:
            # Beside one that goes on there is no other run.
            ending, failed = Ending(error), None if isinstance(error, UnendedError) else error
            outcome = Outcome("failed", reason=str(error))
        except KeyboardInterrupt as interrupt:
            ending = Ending(interrupt)
            outcome = Outcome("interrupted", reason="; ".join(["interrupted", *map(str, interrupt.args)]))
        with ending.gathering():
            outcome = self._recorded(run, outcome)
        # Whoever has interrupted that ends the lab, but does not take the run back; and is told why it failed.
        with ending.gathering():
            raise_deferred()
        # That it failed is recorded, and the others go on; anything else ends the lab.
        if ending.by is not failed:
            ending.raise_any()
        return outcome

    def _recorded(self, run: Run, outcome: Outcome) -> Outcome:
        """Record a run; what was recorded of it, as what was printed may turn out not to be readable."""
        try:
            self._folder.record(run, self._spec, outcome)
        except DatasetError as error:
            outcome = Outcome("failed", reason=str(error))
            self._folder.record(run, self._spec, outcome)
        return outcome

    def _measure(self, run: Run, started: list[Command], room: Scratch | None) -> Outcome:
        lead_s = commands.start_lead_s(run.configuration)
        for _ in range(_STARTS_MAX):
            started[:] = self._common
            deployment = deployment_of(run.configuration)(
                self._spec, self._seed, self._folder, self._host, run, started, room
            )
            outcome: Outcome | None = None
            ending = Ending()
            with ending.gathering():
                try:
                    outcome = interruptible(deployment.measure, lead_s, self._progress)
                except LateStartError as late:
                    took_s = late.took_s
                    lead_s = _LEAD_GROWTH * max(lead_s, took_s)
            with ending.gathering():
                self._host.close(_ABORT_GRACE_S)
            with ending.gathering():
                _clear(deployment)
            with ending.gathering():
                if room is not None:
                    room.remove_data()
            ending.raise_any()
            if outcome is not None:
                return outcome
        raise ProcessError(
            f"the clients were not connected when they were to start, at {_STARTS_MAX} attempts; the last took them "
            f"{took_s:.1f} s"
        )


def _clear(deployment: Deployment) -> None:
    """Remove what a run has made elsewhere. One that has left something has failed."""
    left = deployment.clear()
    if left is not None:
        raise ProcessError(left)


def check_programs(spec: Spec) -> dict[str, Path]:
    """Every program that the experiment starts, by name. Raises ProgramError before anything starts."""
    system = spec.base.system
    kinds = {system.store.kind, *spec.factors.get("store.kind", ())} if system.store else set()
    found = {"knee-load": programs.find("knee-load")}
    if system.middleware is not None and system.middleware.address is None:
        name = "knee-queue" if spec.base.workload.protocol == "queue" else "knee-proxy"
        found[name] = programs.find(name)
    if system.store is not None and system.store.address is None:
        if "knee-kv" in kinds:
            found["knee-kv"] = programs.find("knee-kv")
        if "memcached" in kinds:
            found["memcached"] = programs.find_foreign("memcached", "memcached")
        if "postgresql" in kinds:
            found |= _find_postgresql(spec)
        if kinds & {"memcached", "postgresql"}:
            programs.find_foreign("setpriv", "util-linux")
        if spec.wants_shares:
            programs.find_foreign("taskset", "util-linux")
    is_asked = system.middleware is None or system.middleware.address is None
    if is_asked and system.store is not None and system.store.address is not None and "postgresql" in kinds:
        found["psql"] = programs.find_postgresql("psql")
        programs.find_foreign("setpriv", "util-linux")
    return found


def _find_postgresql(spec: Spec) -> dict[str, Path]:
    """Who makes a cluster and serves it, makes it ready for messages, and asks it where that is pgbench."""
    system = spec.base.system
    asks = system.load.kind == "pgbench"
    indexes = {*spec.factors.get("store.indexes", ()), *([system.store.indexes] if system.store else [])}
    names = ["initdb", "postgres", *(["psql"] if asks or indexes != {"needed"} else []), *(["pgbench"] if asks else [])]
    return {"knee-queue": programs.find("knee-queue"), **{name: programs.find_postgresql(name) for name in names}}


def check_processors(spec: Spec, host: Host, *, resumed: bool = False) -> None:
    """Raise SpecError when a database's machine is larger than this one, or levels of it would be the same here.

    Nothing else would tell them apart, PostgreSQL's settings for parallel queries least of all
    (docs/decisions/0005-machine-size-is-processors.md). A run that is `resumed` takes no other ones.
    """
    remedy = "resume it on the machine that it began on, as it began there, or start a new run" if resumed else None
    store = spec.base.system.store
    given = [store.cpus] if store is not None and store.cpus is not None else []
    by_size: dict[float, list[Level]] = {}
    for cpus in spec.factors.get("store.cpus", given):
        size = host.processors(float(cpus))
        if size < float(cpus):
            raise SpecError(
                f"store.cpus: {float(cpus):g} is more than this process may use, {counted(int(size), 'processor')}, "
                "and fewer would answer another question; "
                + (
                    remedy
                    or "let it use more, or take a larger machine, or give no more than that with --set store.cpus=…"
                )
            )
        by_size.setdefault(size, []).append(cpus)
    for size, same in by_size.items():
        if len(same) > 1:
            raise SpecError(
                f'[factors] "store.cpus": {" and ".join(map(str, same))} would be the same '
                f"{counted(int(size), 'processor')} here: this machine gives them whole, as nobody may make control "
                "groups; " + (remedy or "give others, as --set 'store.cpus=[1, 2]'")
            )


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
    shares_cpus = {"shares_cpus": host.shares_cpus} if spec.wants_shares else {}
    if not shares_cpus.get("shares_cpus", True):
        notes.append(
            "store.cpus was rounded up to whole processors, which the database was pinned to, as nobody may make "
            "control groups here"
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
            name: {"path": str(path), "version": host.output([str(path), "--version"])} for name, path in found.items()
        },
        "id": secrets.token_hex(8),
        "seed": seed,
        "overrides": spec.overrides,
        "links_emulated": host.emulates_links,
        **shares_cpus,
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
    # One that began when runs had none has one from now on.
    return {"id": now["id"], **begun, "notes": notes, "resumed": resumed}
