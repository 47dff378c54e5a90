"""The runs of an experiment whose load generator is a command, in sequence: start the system, run, read, stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from knee import check
from knee.data import Dataset, Outcome, RunFolder
from knee.data.foreign import Result
from knee.data.outputs import Outputs, output_name, results_of
from knee.data.reading import is_run_folder
from knee.errors import KneeError, SpecError, StorageError, chain_of, reasons_of
from knee.generators.kinds import Starter, template_of, values_of
from knee.generators.runner import GRACE_S, LATE_S, Runner, System
from knee.lab import watch
from knee.lab.command import Command
from knee.lab.deploy.deployment import Progress
from knee.lab.hosts import Process
from knee.lab.hosts.local import LocalHost
from knee.lab.remote import Remote
from knee.lab.run import Tally, files_of, make_each
from knee.lab.scratch import Scratch, scratch
from knee.spec import Spec
from knee.spec.design import Run

_REQUESTS_MIN = 100
"""Fewest requests of a run for each client, if the command has a number of requests."""
_BEFORE_S, _BEFORE_MAX = 0.25, 4
"""Least length of the run before that shows the throughput, and most attempts at it."""
_NAMES = ("system.command", "system.ready")


class CommandLab:
    """Makes the runs of one experiment into one folder; `report` takes what a run lacks, once."""

    def __init__(
        self, spec: Spec, folder: RunFolder, host: LocalHost, progress: Progress, report: Callable[[str], None]
    ) -> None:
        self._spec = spec
        self._path = folder.path
        self._scratch_path = folder.scratch_path
        self._outputs = Outputs.within(folder.path)
        self._host = host
        self._progress = progress
        self._report = report
        self._reported: set[str] = set()
        self._read: dict[Path, Result] = {}
        begun = Dataset.open(folder.path).manifest if is_run_folder(folder.path) else {}
        self._texts = begun.get("files") or files_of(spec)

    def make(
        self,
        plan: Sequence[Run],
        on_commands: Callable[[Run, list[Command], str | None], None],
        between: Callable[[], None] = lambda: None,
    ) -> Tally:
        """Make the runs, like :meth:`knee.lab.run.Lab.make`. `on_commands` gets each run when it begins, and when it
        ends, then with the reason of a failure. The output of a failed run stays an unfinished one."""
        self._write_table()
        with self._room() as room:
            make = partial(self._make, on_commands, room)
            return make_each(plan, self._spec.measure.seconds, make, self._progress, between)

    def _make(self, on_commands: Callable[[Run, list[Command], str | None], None], room: Scratch, run: Run) -> Outcome:
        started, reason = list[Command](), None
        # The output of a run that a kill ends has a place in the order, too.
        on_commands(run, started, reason)
        try:
            outcome = Outcome("done", throughput=self._measure(run, started, room).throughput)
        except KneeError as error:
            if any(isinstance(one, KeyboardInterrupt | StorageError) for one in chain_of(error)):
                raise
            reason = "; ".join(reasons_of(error)[1])
            return Outcome("failed", reason=reason)
        finally:
            on_commands(run, started, reason)
        self._write_table()
        return outcome

    def _write_table(self) -> None:
        """Write the table of all kept outputs, even of those whose lab was killed before it could."""
        if results := results_of(Dataset.open(self._path), self._read):
            self._outputs.write_table(check.table(results))

    def scout(self, run: Run) -> Result:
        """Make a run without processor times, which is in no table. Raises KneeError if it fails."""
        with self._room() as room:
            return self._measure(run, [], room, is_scout=True)

    @contextmanager
    def _room(self) -> Iterator[Scratch]:
        """The scratch directory. No error of a cleanup hides the interrupt that led to it."""
        try:
            with scratch(self._scratch_path) as room:
                yield room
        except Exception as error:
            is_interrupted, reasons = reasons_of(error)
            if is_interrupted:
                raise KeyboardInterrupt(*reasons) from error
            raise

    def _measure(self, run: Run, started: list[Command], room: Scratch, *, is_scout: bool = False) -> Result:
        """Make a run, keep its output, and return its result."""
        seconds, name = self._spec.measure.seconds, output_name(run)
        with ExitStack() as cleanup:
            cleanup.callback(room.remove_data)
            cleanup.callback(self._host.close, GRACE_S)
            runner = self._runner(run, started, room)
            paths = self._outputs.unfinished_paths(name)
            clients, limit_s = run.configuration.clients, 2 * seconds + LATE_S
            if runner.template.has("requests"):
                count = _REQUESTS_MIN * clients
                for _ in range(_BEFORE_MAX):
                    before = _of(runner, count).once(clients, 1, paths, limit_s, is_scout=True)
                    if count >= _BEFORE_S * before.throughput:
                        break
                    count = max(2 * count, round(1.5 * _BEFORE_S * before.throughput))
                runner = _of(runner, max(_REQUESTS_MIN * clients, round(before.throughput * seconds)))
            result = runner.once(clients, seconds, paths, limit_s, is_scout=is_scout, on_start=started.append)
        if result.usage is None and not is_scout:
            cause = "the generator's start and end take most of a run"
            self._once(f"processor times are unknown: {cause}; set measure.seconds to the length of the load")
        self._outputs.keep(Path(result.source), name, name, result.usage)
        return result

    def _runner(self, run: Run, started: list[Command], room: Scratch) -> Runner:
        """The generator, after the start of its system."""
        system, template = run.configuration.system, template_of(run.configuration)
        runner = Runner(self._host, template)
        place, pids = template.place, list[int]()
        if system.store is not None:

            def begin(command: Command) -> Process:
                started.append(command)
                return self._host.start(command, *self._outputs.process_paths(command.process), lambda *_: None)

            server = Starter(self._host, room, self._texts, begin).start(run.configuration, system.store)
            runner.system, runner.like = server.process, server.like
            runner.values = {**values_of(run.configuration), **server.values}
            place, pids = (server.values["host"], int(server.values["port"])), [server.process.pid]
        elif system.command is not None:
            asked = System.parse(system.command, system.ready or template.url or "", _NAMES)
            runner.system = asked.start(self._host, self._outputs, "leave out system.command")
            started.append(runner.system.command)
            place, pids = asked.place, [runner.system.pid]
        for each in system.watch or ():
            try:
                if "://" in each:
                    runner.remotes[each] = Remote.parse(each)
                else:
                    runner.watched[each] = watch.parse(each)
            except SpecError as error:
                raise SpecError(str(error).replace("--watch", "system.watch", 1)) from None
        if system.watch is not None and not pids:
            return runner
        try:
            if place is None:
                raise SpecError('load.command has no URL or HOST:PORT; add system.watch = ["port:NUMBER"]')
            runner.watched["system"] = watch.at(*place, *pids)
        except SpecError as error:
            self._once(f"the system's processors are not watched: {error}")
        return runner

    def _once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)


def _of(runner: Runner, requests: int) -> Runner:
    """The runner of a command with this number of requests."""
    return replace(runner, values={**runner.values, "requests": str(requests)})
