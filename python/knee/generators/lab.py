"""The runs of an experiment whose load generator is a command, in sequence: start the system, run, read, stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from knee import check
from knee.data import Dataset, Outcome, RunFolder
from knee.data.foreign import Result
from knee.data.outputs import Outputs, output_name, results_of
from knee.errors import KneeError, SpecError, StorageError
from knee.generators.runner import GRACE_S, LATE_S, Runner, System
from knee.lab import watch
from knee.lab.command import Command
from knee.lab.deploy.deployment import Progress
from knee.lab.hosts.local import LocalHost
from knee.lab.run import Tally
from knee.spec import Spec
from knee.spec.design import Run
from knee.spec.template import Template, words_of

_BETWEEN_S = 1.0
"""Seconds between runs, for the first estimate of the remaining time."""
_NAMES = ("system.command", "system.ready")


class CommandLab:
    """Makes the runs of one experiment into one folder; `report` takes what a run lacks, once."""

    def __init__(
        self, spec: Spec, folder: RunFolder, host: LocalHost, progress: Progress, report: Callable[[str], None]
    ) -> None:
        self._spec = spec
        self._path = folder.path
        self._outputs = Outputs.within(folder.path)
        self._host = host
        self._progress = progress
        self._report = report
        self._reported: set[str] = set()

    def make(
        self,
        plan: Sequence[Run],
        on_commands: Callable[[Run, list[Command]], None],
        between: Callable[[], None] = lambda: None,
    ) -> Tally:
        """Make the runs, like :meth:`knee.lab.run.Lab.make`. The output of a failed run stays an unfinished one."""
        done, failed = 0, list[tuple[Run, str]]()
        took_s: list[float] = []
        for index, run in enumerate(plan, start=1):
            each_s = sum(took_s) / len(took_s) if took_s else self._spec.measure.seconds + _BETWEEN_S
            self._progress.begin(run, index, len(plan), each_s * (len(plan) - index + 1))
            begun_s, started = time.monotonic(), list[Command]()
            try:
                outcome = Outcome("done", throughput=self._measure(run, started).throughput)
                done += 1
                took_s.append(time.monotonic() - begun_s)
            except StorageError:
                raise
            except KneeError as error:
                outcome = Outcome("failed", reason=str(error))
                failed.append((run, str(error)))
            finally:
                on_commands(run, started)
            if outcome.status == "done":
                self._outputs.write_table(check.table(results_of(Dataset.open(self._path))))
            self._progress.end(run, outcome)
            if index < len(plan):
                between()
        return Tally(done, failed)

    def scout(self, run: Run) -> Result:
        """Make a run without processor times, which is in no table. Raises KneeError if it fails."""
        return self._measure(run, [], is_scout=True)

    def _measure(self, run: Run, started: list[Command], *, is_scout: bool = False) -> Result:
        """Make a run, keep its output, and return its result."""
        seconds, name = self._spec.measure.seconds, output_name(run)
        with ExitStack() as cleanup:
            cleanup.callback(self._host.close, GRACE_S)
            runner = self._runner(run, started)
            paths = self._outputs.unfinished_paths(name)
            clients = run.configuration.clients
            limit_s = 2 * seconds + LATE_S
            result = runner.once(clients, seconds, paths, limit_s, is_scout=is_scout, on_start=started.append)
        if result.usage is None and not is_scout:
            cause = "the generator's start and end take most of a run"
            self._once(f"processor times are unknown: {cause}; set measure.seconds to the length of the load")
        self._outputs.keep(Path(result.source), name, name, result.usage)
        return result

    def _runner(self, run: Run, started: list[Command]) -> Runner:
        """The generator, after the start of its system."""
        system, load = run.configuration.system, run.configuration.system.load
        template = Template.parse(words_of(load.command or ""))
        runner = Runner(self._host, template)
        place, pids = template.place, list[int]()
        if system.command is not None:
            asked = System.parse(system.command, system.ready or template.url or "", _NAMES)
            runner.system = asked.start(self._host, self._outputs, "leave out system.command")
            started.append(runner.system.command)
            place, pids = asked.place, [runner.system.pid]
        try:
            if place is None:
                raise SpecError("load.command has no URL or HOST:PORT")
            runner.watched["system"] = watch.at(*place, *pids)
        except SpecError as error:
            self._once(f"the system's processors are not watched: {error}")
        return runner

    def _once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)
