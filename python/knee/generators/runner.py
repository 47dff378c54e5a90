"""Starts a system, runs a load generator, and reads what it prints."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

import psutil

from knee.check.rules import findings_of
from knee.data.foreign import Result, read
from knee.data.outputs import Outputs
from knee.data.usage import GENERATOR, Usage
from knee.errors import KneeError, MeasurementsError, ProcessError, SpecError
from knee.lab.command import Command, tied
from knee.lab.hosts import Process
from knee.lab.hosts.local import LocalHost, answers
from knee.lab.programs import find_foreign
from knee.lab.remote import Remote
from knee.lab.watch import Meter, Tree, Watched
from knee.spec.template import Template, is_url, place_of, words_of

GRACE_S = 5.0
_READY_S = 30.0
LATE_S = 60.0
"""Seconds that a generator may take beyond twice its run."""
_NO_ANSWERS = ("none", "errors")
"""Findings that the throughput is not one of answers."""


class ExitError(ProcessError):
    """The command ended with an exit code, as some generators do for fewer clients than threads."""


def why_no_answers(result: Result) -> str | None:
    """Why the throughput is not one of answers; None if it is."""
    for found in findings_of(result, tolerance=None):
        if found.kind in _NO_ANSWERS and found.state == "wrong":
            return f"{found.what}: {found.cause}"
    return None


@dataclass
class Runner:
    """Runs a load generator.

    template  its command
    tool      name of the generator's reader; by default recognised by the output
    system    the system under test, if Knee started it
    watched   the parts of the system whose processor times each run has, by name
    remotes   servers that report their own processor times, by name
    values    of further placeholders of the command
    like      a command with the environment of the generator's
    remedy    for a generator that runs fewer clients than the command says
    """

    host: LocalHost
    template: Template
    _: KW_ONLY
    tool: str | None = None
    system: Process | None = None
    watched: dict[str, Watched] = field(default_factory=dict)
    remotes: dict[str, Remote] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    like: Command = field(default_factory=lambda: Command("load", "load", ()))
    remedy: str = "give a multiple of the threads"

    def once(
        self,
        clients: int,
        seconds: int,
        paths: tuple[Path, Path, Path],
        limit_s: float,
        *,
        is_scout: bool = False,
        on_start: Callable[[Command], None] = lambda _: None,
    ) -> Result:
        """Run the generator with a load; a scout has no processor times. `paths` are those of its output, its standard
        error, and the file that it may write.

        Raises ProcessError if the command or its requests fail, or if it takes more than `limit_s`; KneeError if the
        system has ended; and MeasurementsError for output that is not of one closed loop.
        """
        output, log, file = paths
        file.unlink(missing_ok=True)
        argv = self.template.argv(clients, seconds, str(file), **self.values)
        remedy = f"check the command: {shlex.join(argv)}"
        command = replace(self.like, process=argv[0], argv=(*tied(), *argv))
        on_start(command)
        process = self.host.start(command, output, log, lambda *_: None)
        remotes = {name: replace(each, clients=clients) for name, each in self.remotes.items()}
        meter = Meter({GENERATOR: Tree((psutil.Process(process.pid),)), **self.watched}, seconds, remotes)
        failure: ProcessError | None = None
        usage: Usage | None = None
        if not is_scout:
            meter.start()
        try:
            if process.wait(limit_s):
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
        result = self._read(file if self.template.has("output") else output, clients, process.describe())
        if (why := why_no_answers(result)) is not None:
            raise ProcessError(f"{argv[0]}: {why}; {remedy}")
        return replace(result, usage=usage)

    def _read(self, output: Path, clients: int, ended: str) -> Result:
        name = self.template.words[0]
        if not output.is_file():
            raise MeasurementsError(f"{name}: wrote no file {output}: {ended}; write its results to {{output}}")
        try:
            results, _ = read([output], self.tool, clients)
        except MeasurementsError as error:
            raise MeasurementsError(f"{error}: {ended}") from None
        if len(results) != 1:
            operations = ", ".join(result.operation or "all" for result in results)
            raise MeasurementsError(f"{output}: has {len(results)} results ({operations}); choose one with {name}")
        if results[0].is_open or results[0].clients is None:
            raise MeasurementsError(f"{output}: an open loop, whose load is its rate; leave out the rate of {name}")
        if results[0].declared not in (None, results[0].clients):
            what = f"{results[0].clients} of {results[0].declared} clients ran, an equal share for each thread"
            raise MeasurementsError(f"{output}: {what}; {self.remedy} of {name}")
        return results[0]


@dataclass(frozen=True)
class System:
    """The command of a system, and where it answers when it is ready: a URL or HOST:PORT."""

    argv: tuple[str, ...]
    ready: str

    @classmethod
    def parse(cls, text: str, ready: str, names: tuple[str, str] = ("--system", "--ready")) -> System:
        """Raises SpecError for no command, or for another address, and ProgramError for a program that is missing.
        `names` are those of both in messages."""
        try:
            name, *words = words_of(text)
        except SpecError as error:
            raise SpecError(f"{names[0]} {text!r}: {error}") from None
        try:
            place_of(ready)
        except SpecError as error:
            raise SpecError(f"{names[1]} {ready}: {error}") from None
        return cls((str(find_foreign(name)), *words), ready)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the address."""
        return place_of(self.ready)

    def start(self, host: LocalHost, folder: Outputs, remedy: str = "leave out --system") -> Process:
        """Start the system, and return it when it is ready.

        Raises ProcessError if it does not get ready, or if another server answers there already.
        """
        at = ":".join(map(str, self.place))
        if answers(at, "connection"):
            raise ProcessError(f"{self.ready}: answers before the system starts; stop that server, or {remedy}")
        asks = "http" if is_url(self.ready) else "connection"
        argv = (*tied(), *self.argv)
        command = Command("system", "store", argv, serves=self.ready, asks=asks, grace_s=GRACE_S)
        system = host.start(command, *folder.process_paths("system"), lambda *_: None)
        system.wait_ready(_READY_S)
        return system
