"""Starts the system, and runs the load generator with one load after another."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from knee.data.foreign import Result, read
from knee.data.search_folder import SearchFolder
from knee.errors import MeasurementsError, ProcessError, SpecError
from knee.find.search import Spent
from knee.find.template import Template
from knee.lab.command import Command, tied
from knee.lab.hosts import Process
from knee.lab.hosts.local import LocalHost, answers
from knee.lab.programs import find_foreign

GRACE_S = 5.0
_READY_S = 30.0
_LATE_S = 60.0
"""Seconds that a generator may take beyond twice its run."""
_SCOUT_SHARE = 0.2
"""Length of a scout, as a share of a run's."""


@dataclass
class Generator:
    """Runs a load generator within a budget, and keeps what it printed.

    seconds  length of a run
    tool     name of the generator's reader; by default recognised by the output
    results  the finished runs without scouts, in their order
    """

    host: LocalHost
    template: Template
    folder: SearchFolder
    seconds: int
    budget_s: float
    tool: str | None = None
    results: list[Result] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)
    _beyond_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began_s

    def run(self, clients: int, is_scout: bool) -> Result:
        """Run the generator with a load.

        Raises Spent if the budget does not suffice, ProcessError if the command fails, and MeasurementsError for output
        that is not of one closed loop.
        """
        seconds = max(1, round(_SCOUT_SHARE * self.seconds)) if is_scout else self.seconds
        began_s = self.elapsed_s
        if began_s + seconds + self._beyond_s > self.budget_s:
            raise Spent
        output, log, file = self.folder.unfinished_paths(clients)
        argv = self.template.argv(clients, seconds, str(file))
        remedy = f"check the command: {shlex.join(argv)}"
        process = self.host.start(Command(argv[0], "load", (*tied(), *argv)), output, log, lambda *_: None)
        try:
            code = process.wait(2 * seconds + _LATE_S)
        except ProcessError as error:
            process.stop(GRACE_S)
            raise ProcessError(f"{error}; {remedy}") from None
        process.check()
        if code:
            raise ProcessError(f"{argv[0]}: {process.describe()}; {remedy}")
        result = self._read(file if self.template.has("output") else output, process.describe())
        if result.throughput <= 0:
            raise ProcessError(f"{argv[0]}: no request was answered; {remedy}")
        self._beyond_s = max(0.0, self.elapsed_s - began_s - seconds)
        repetition = 0 if is_scout else 1 + sum(f"c{clients}-r" in one.source for one in self.results)
        result = replace(result, source=str(self.folder.keep(Path(result.source), clients, repetition)))
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
        return results[0]


def start_system(host: LocalHost, text: str, ready: str, folder: SearchFolder) -> Process:
    """Start the system, and return it when it answers at `ready`, a URL or HOST:PORT.

    Raises ProcessError if it does not, or if another server answers there already, and SpecError for another address.
    """
    asks = "http" if re.match(r"https?://", ready) else "connection"
    if asks == "connection" and not re.fullmatch(r"\S+:\d+", ready):
        raise SpecError(f"--ready {ready}: expected a URL or HOST:PORT, such as 127.0.0.1:8080")
    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise SpecError(f"--system {text!r}: expected a command with closed quotes") from None
    argv = (*tied(), str(find_foreign(name, name)), *words)
    if answers(ready, asks):
        raise ProcessError(f"{ready}: answers before --system starts; stop that server, or leave out --system")
    command = Command("system", "store", argv, serves=ready, asks=asks, grace_s=GRACE_S)
    system = host.start(command, *folder.system_paths(), lambda *_: None)
    system.wait_ready(_READY_S)
    return system
