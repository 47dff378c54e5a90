"""`knee find`: runs a load generator with more and more clients, and prints the knee or the largest load of a goal."""

from __future__ import annotations

import random
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from knee import __version__
from knee.cli.analyse import named, write_report
from knee.cli.live import LivePage
from knee.cli.output import note, progress_aside
from knee.data.foreign import TOOLS, Result
from knee.data.outputs import SearchFolder
from knee.errors import KneeError, SpecError
from knee.lab.hosts.local import LocalHost
from knee.lab.programs import find_foreign
from knee.lab.progress import duration
from knee.stats.intervals import counted

if TYPE_CHECKING:
    from knee import verdict
    from knee.answers.find import Found
    from knee.check import Findings
    from knee.lab.watch import Watched


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    precision: str
    budget: str
    slo: str | None
    system: str | None
    watch: tuple[str, ...]
    ready: str | None
    seconds: int
    least: int
    most: int
    tool: str | None
    runs_dir: str
    seed: int


def find(words: Sequence[str], options: Options, *, as_json: bool) -> None:
    """Search, print the verdict, and write the report. Raises typer.Exit after an interrupt."""
    with progress_aside(as_json):
        answer = _find(words, options, as_json=as_json)
    if as_json:
        from knee.answers import form

        print(form.render("find", answer))


def _find(words: Sequence[str], options: Options, *, as_json: bool) -> Found:
    from knee import check
    from knee.answers import find as answers
    from knee.find.generator import Generator
    from knee.find.goals import GoalTarget
    from knee.find.knees import KneeTarget
    from knee.find.quantities import SHARES, TIMES_S, quantity
    from knee.find.search import Search, Target
    from knee.find.text import result_lines, run_line
    from knee.fit import Goal
    from knee.generators.runner import GRACE_S, System
    from knee.lab import watch
    from knee.lab.remote import Remote
    from knee.spec.template import Template

    template = Template.parse(words)
    precision = quantity("--precision", options.precision, SHARES, "a share, such as 5%")
    budget_s = quantity("--budget", options.budget, TIMES_S, "a time, such as 90s or 5m")
    target: Target = KneeTarget(precision)
    if options.slo is not None:
        target = GoalTarget(Goal.parse(options.slo), precision)
    if precision >= 1:
        raise SpecError(f"--precision {options.precision}: expected a share, such as 5%")
    if options.least > options.most:
        raise SpecError(f"--least {options.least}: expected a number up to --most, {options.most}")
    ready = options.ready or template.url
    if options.system is not None and not ready:
        raise SpecError("--system: the command has no URL to wait for; add --ready HOST:PORT")
    system = None if options.system is None else System.parse(options.system, ready or "")
    watched = {f"--watch {each}": watch.parse(each) for each in options.watch if "://" not in each}
    remotes = {f"--watch {each}": Remote.parse(each) for each in options.watch if "://" in each}
    # A system that Knee starts answers later.
    for remote in remotes.values() if system is None else ():
        remote.read()
    if options.tool is not None and options.tool not in TOOLS:
        raise SpecError(f"--from: no tool {options.tool}: expected {', '.join(TOOLS)}")
    find_foreign(words[0])
    host, command = LocalHost(), shlex.join(words)
    about = {"command": command, "options": asdict(options), "knee": __version__, "machine": host.describe()}
    folder = SearchFolder.create(Path(options.runs_dir), about)
    reported: set[str] = set()
    generator = Generator(
        host, template, folder, options.seconds, budget_s, tool=options.tool, watched=watched, remotes=remotes
    )

    def measure(clients: int, is_scout: bool) -> Result:
        result = generator.run(clients, is_scout)
        repetition = 0 if is_scout else len(generator.results)
        print(run_line(search, clients, result, repetition, generator.elapsed_s), flush=True)
        if not is_scout:
            folder.write_table(check.table(generator.results))
            live.update()
        unseen = [
            f"{part.name}: its processes have ended, and no longer count"
            for part in (result.usage.parts if result.usage else ())
            if not part.count and part.name in watched
        ]
        if result.usage is None and not is_scout:
            cause = "the generator's start and end take most of a run"
            unseen.append(f"processor times are unknown: {cause}; set --seconds to the length of the load")
        if result.usage is not None:
            silent = remotes.keys() - {station.watched for station in result.usage.stations}
            unseen += (
                f"{name}: a run has no usable answers: silent, restarted, or its threads changed; look at the server"
                for name in sorted(silent)
            )
        for text in unseen:
            if text not in reported:
                reported.add(text)
                note(text)
        return result

    def so_far() -> tuple[verdict.Findings, str] | None:
        found = check.check(generator.results).verdict
        runs = counted(len(generator.results), "run")
        return (
            None
            if found is None
            else (named(found, folder.path), f"{runs} in {duration(generator.elapsed_s)} of {options.budget}")
        )

    live = LivePage(folder.report_path, so_far, options.seconds)
    search = Search(target, measure, note, random.Random(options.seed), options.least, options.most)
    print(f"{command}: at most {options.budget}, into {folder.path}", flush=True)
    try:
        with live:
            if system is not None:
                generator.system = system.start(host, folder)
                _watch_place(watched, system.place, generator.system.pid)
                for remote in remotes.values():
                    remote.read()
            elif not options.watch:
                _watch_place(watched, template.place)
            ended = search.go()
    except KeyboardInterrupt:
        note(f"interrupted; {_kept(generator.results, folder)}")
        raise typer.Exit(130) from None
    except KneeError as error:
        raise type(error)(f"{error}\n{_kept(generator.results, folder)}") from None
    finally:
        host.close(GRACE_S)
    lines, elapsed_s = result_lines(search, ended, generator.elapsed_s, budget_s), generator.elapsed_s
    print("\n".join(lines), flush=True)
    if not generator.results:
        raise SpecError(f"--budget {options.budget}: ended before the first run; add --budget, or shorten --seconds")
    found = check.check(generator.results)
    page = _conclude(found, folder, as_json=as_json)
    return answers.of(command, str(folder.path), search, ended, elapsed_s, found, page, tuple(lines))


def _watch_place(watched: dict[str, Watched], place: tuple[str, int] | None, *started: int) -> None:
    """Watch the system that Knee started, or that listens at a host and port, or report the reason against it."""
    from knee.lab import watch

    try:
        if place is None:
            raise SpecError("the command has no URL or HOST:PORT; add --watch port:NUMBER for a local system")
        watched["system"] = found = watch.at(*place, *started, remedy="add --watch {}")
        note(f"watches {found} at port {place[1]}{'' if started else '; --watch changes it'}")
    except SpecError as error:
        note(f"the system's processors are not watched: {error}")


def _conclude(found: Findings, folder: SearchFolder, *, as_json: bool) -> str | None:
    """Print the findings, and write the report. Returns the path of the report, if there is one."""
    from knee import check

    if not as_json:
        print(check.render_text(found), flush=True)
    if found.verdict is None:
        return None
    write_report(named(found.verdict, folder.path), folder.report_path)
    print(f"report: {folder.report_path}")
    return str(folder.report_path)


def _kept(results: Sequence[Result], folder: SearchFolder) -> str:
    if not results:
        return "no run was finished"
    return f"finished runs are kept; read them with `knee check {folder.path}` or `knee report {folder.path}`"
