"""Starts the system, and runs the load generator with one load after another."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from knee.check.rules import findings_of
from knee.data.foreign import Result, read
from knee.data.search_folder import SearchFolder
from knee.data.usage import GENERATOR, Usage
from knee.errors import KneeError, MeasurementsError, ProcessError, SpecError
from knee.find.search import ExitError, Spent
from knee.find.template import PORTS, Template
from knee.lab.command import Command, tied
from knee.lab.hosts import Process
from knee.lab.hosts.local import LocalHost, answers
from knee.lab.programs import find_foreign
from knee.lab.remote import Remote
from knee.lab.watch import Meter, Tree, Watched

GRACE_S = 5.0
_READY_S = 30.0
_LATE_S = 60.0
"""Seconds that a generator may take beyond twice its run."""
_SCOUT_SHARE = 0.2
"""Length of a scout, as a share of a run's."""
_NO_ANSWERS = ("none", "errors")
"""Findings that the throughput is not one of answers."""


@dataclass
class Generator:
    """Runs a load generator within a budget, and keeps what it printed.

    seconds  length of a run
    tool     name of the generator's reader; by default recognised by the output
    system   the system under test, if Knee started it
    watched  the parts of the system whose processor times each run has, by name
    remotes  servers that report their own processor times, by name
    results  the finished runs without scouts, in their order
    """

    host: LocalHost
    template: Template
    folder: SearchFolder
    seconds: int
    budget_s: float
    tool: str | None = None
    system: Process | None = None
    watched: dict[str, Watched] = field(default_factory=dict)
    remotes: dict[str, Remote] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)
    _beyond_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began_s

    def run(self, clients: int, is_scout: bool) -> Result:
        """Run the generator with a load.

        Raises Spent if the budget does not suffice, ProcessError if the command or its requests fail, KneeError if the
        system has ended, and MeasurementsError for output that is not of one closed loop.
        """
        seconds = max(1, round(_SCOUT_SHARE * self.seconds)) if is_scout else self.seconds
        began_s = self.elapsed_s
        if began_s + seconds + self._beyond_s > self.budget_s:
            raise Spent
        output, log, file = self.folder.unfinished_paths(clients)
        file.unlink(missing_ok=True)
        argv = self.template.argv(clients, seconds, str(file))
        remedy = f"check the command: {shlex.join(argv)}"
        process = self.host.start(Command(argv[0], "load", (*tied(), *argv)), output, log, lambda *_: None)
        meter = Meter({GENERATOR: Tree((psutil.Process(process.pid),)), **self.watched}, seconds, self.remotes)
        failure: ProcessError | None = None
        usage: Usage | None = None
        if not is_scout:
            meter.start()
        try:
            # The last run may exceed the budget by its own length.
            if process.wait(seconds + min(seconds + _LATE_S, self.budget_s - began_s)):
                failure = ExitError(f"{argv[0]}: {process.describe()}; {remedy}")
        except ProcessError as error:
            process.stop(GRACE_S)
            failure = ProcessError(f"{error}; {remedy}")
        finally:
            if not is_scout:
                usage = meter.stop()
        process.check()
        if self.system is not None and self.system.poll() is not None:
            raise KneeError(f"the system ended: {self.system.describe()}")
        if failure is not None:
            raise failure
        result = self._read(file if self.template.has("output") else output, process.describe())
        for found in findings_of(result, tolerance=None):
            if found.kind in _NO_ANSWERS and found.state == "wrong":
                raise ProcessError(f"{argv[0]}: {found.what}: {found.cause}; {remedy}")
        self._beyond_s = max(0.0, self.elapsed_s - began_s - seconds)
        repetition = (
            0 if is_scout else 1 + sum(Path(one.source).name.startswith(f"c{clients}-") for one in self.results)
        )
        kept = self.folder.keep(Path(result.source), clients, repetition, usage)
        result = replace(result, source=str(kept), usage=usage)
        if not is_scout:
            self.results.append(result)
        return result

    def _read(self, output: Path, ended: str) -> Result:
        name = self.template.words[0]
        if not output.is_file():
            raise MeasurementsError(f"{name}: wrote no file {output}: {ended}; write its results to {{output}}")
        try:
            results, _ = read([output], self.tool)
        except MeasurementsError as error:
            raise MeasurementsError(f"{error}: {ended}") from None
        if len(results) != 1:
            operations = ", ".join(result.operation or "all" for result in results)
            raise MeasurementsError(f"{output}: has {len(results)} results ({operations}); choose one with {name}")
        if results[0].is_open or results[0].clients is None:
            raise MeasurementsError(f"{output}: an open loop, whose load is its rate; leave out the rate of {name}")
        if results[0].declared not in (None, results[0].clients):
            what = f"{results[0].clients} of {results[0].declared} clients ran, an equal share for each thread"
            raise MeasurementsError(f"{output}: {what}; add --least with a multiple of the threads of {name}")
        return results[0]


@dataclass(frozen=True)
class System:
    """The command of a system, and where it answers when it is ready: a URL or HOST:PORT."""

    argv: tuple[str, ...]
    ready: str

    @classmethod
    def parse(cls, text: str, ready: str) -> System:
        """Raises SpecError for no command, or for another address, and ProgramError for a program that is missing."""
        try:
            name, *words = shlex.split(text)
        except ValueError:
            raise SpecError(f"--system {text!r}: expected a command, with closed quotes") from None
        system = cls((str(find_foreign(name, name)), *words), ready)
        try:
            is_place = bool(system.place[0])
        except (KeyError, ValueError):
            is_place = False
        if not is_place:
            raise SpecError(f"--ready {ready}: expected a URL or HOST:PORT, such as 127.0.0.1:8080")
        return system

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the address."""
        url = urlsplit(self.ready if self.asks == "http" else f"//{self.ready}")
        return url.hostname or "", url.port or PORTS[url.scheme]

    @property
    def asks(self) -> str:
        """The protocol of the address (see :class:`Command`)."""
        return "http" if re.match(r"https?://", self.ready) else "connection"

    def start(self, host: LocalHost, folder: SearchFolder) -> Process:
        """Start the system, and return it when it is ready.

        Raises ProcessError if it does not get ready, or if another server answers there already.
        """
        if answers(self.ready, self.asks):
            raise ProcessError(f"{self.ready}: answers before --system starts; stop that server, or leave out --system")
        argv = (*tied(), *self.argv)
        command = Command("system", "store", argv, serves=self.ready, asks=self.asks, grace_s=GRACE_S)
        system = host.start(command, *folder.system_paths(), lambda *_: None)
        system.wait_ready(_READY_S)
        return system
