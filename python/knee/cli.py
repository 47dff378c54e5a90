"""The command line: parse, call, print.

Exit codes: 0, all is well; 1, something failed; 2, the input was wrong; 130, interrupted.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from knee import __version__, spec
from knee.commands import Command
from knee.dataset import Dataset, RunFolder
from knee.design import Run, runs
from knee.errors import KneeError, SpecError
from knee.hosts.local import LocalHost
from knee.progress import LiveProgress, PlainProgress, duration
from knee.run import Lab, Tally, check_programs, new_manifest

app = typer.Typer(
    help="Finds the knee of a client, middleware and storage system, and says why it is there.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]


def main() -> None:
    """Run the command line and exit; an error of the user's is one line or a few, never a traceback."""
    try:
        app()
    except KneeError as error:
        print(f"knee: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"knee {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The experiment file (TOML).", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a value of the file; a list makes it a factor."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Make what is missing or failed in this run folder instead.")
    ] = None,
    runs_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where run folders go.")] = Path("runs"),
    no_report: Annotated[bool, typer.Option("--no-report", help="Measure only.")] = False,
) -> None:
    """Measure an experiment, say where the knee is and why, and write the report."""
    if (file is None) == (resume is None):
        raise SpecError("expected either an experiment file or --resume RUN")
    if resume is not None and overrides:
        raise SpecError("--set cannot change a run that has begun: start a new one without --resume")
    host = LocalHost()
    if file is not None:
        experiment = spec.load(file, overrides or [])
        found = check_programs(experiment)
        seed = experiment.measure.seed
        seed = random.SystemRandom().randrange(2**32) if seed is None else seed
        folder = RunFolder.create(runs_dir, experiment.experiment.name, file.read_text(encoding="utf-8"))
        manifest = new_manifest(experiment, seed, host, found)
    else:
        assert resume is not None
        begun = Dataset.open(resume)
        experiment, manifest = begun.spec, begun.manifest
        check_programs(experiment)
        folder = RunFolder(resume)
    folder.write_manifest(manifest)
    for note in manifest["notes"]:
        print(f"knee: {note}", file=sys.stderr)
    _measure(experiment, folder, manifest, host)
    if not no_report:
        _conclude(folder.path)


def _measure(experiment: spec.Spec, folder: RunFolder, manifest: dict[str, object], host: LocalHost) -> None:
    """Make the runs that are missing; exit when some fail or somebody interrupts."""
    seed = manifest["seed"]
    commands = manifest["commands"]
    assert isinstance(seed, int) and isinstance(commands, dict)
    done = folder.done()
    plan = [run for run in runs(experiment, seed) if (run.point, run.repetition) not in done]
    console = Console(stderr=True)
    progress = LiveProgress(console, experiment.measure.seconds) if console.is_terminal else PlainProgress(console)
    resume = f"`knee run --resume {folder.path}`"

    def keep_commands(run: Run, started: list[Command]) -> None:
        commands[f"{run.point}-r{run.repetition}"] = {one.process: list(one.argv) for one in started}
        folder.write_manifest(manifest)

    least = duration(len(plan) * (experiment.measure.seconds + 2))
    print(f"{experiment.experiment.name}: {len(plan)} measurements, {least} at least, into {folder.path}", flush=True)
    try:
        with _termination_as_interrupt(), progress if isinstance(progress, LiveProgress) else nullcontext():
            tally = Lab(experiment, seed, folder, host, progress).make(plan, keep_commands)
    except KeyboardInterrupt:
        print(f"knee: interrupted; what was measured is kept, {resume} goes on from there", file=sys.stderr)
        raise typer.Exit(130) from None
    except KneeError as error:
        print(f"knee: {error}\nwhat was measured is kept, {resume} goes on from there", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    if tally.failed:
        _report_failures(tally, resume)


def _report_failures(tally: Tally, resume: str) -> NoReturn:
    reasons = list(dict.fromkeys(reason for _, reason in tally.failed))
    for reason in reasons[:5]:
        print(f"knee: {reason}", file=sys.stderr)
    total = tally.done + len(tally.failed)
    print(f"knee: {len(tally.failed)} of {total} measurements failed; {resume} repeats them", file=sys.stderr)
    raise typer.Exit(1)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end a run as Ctrl-C does: orderly."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The analyses load scipy and altair, which a command that does not need them should not wait for.


def _conclude(path: Path) -> None:
    from knee import diagnose, report

    dataset = Dataset.open(path)
    diagnosis = diagnose.diagnose(dataset)
    print(diagnose.render_text(diagnosis))
    report.write(dataset, dataset.report_path)
    print(f"report: {dataset.report_path}")


@app.command("report")
def report_command(path: _RunPath) -> None:
    """Write the report of a run, one page that opens without a network."""
    from knee import report

    dataset = Dataset.open(path)
    report.write(dataset, dataset.report_path)
    print(dataset.report_path)


@app.command("laws")
def laws_command(path: _RunPath) -> None:
    """Say whether a run's numbers hold together: the operational laws, in both directions."""
    from knee import laws
    from knee.observations import observations

    print(laws.render_text(laws.check_laws(observations(Dataset.open(path)))))


@app.command("diagnose")
def diagnose_command(path: _RunPath) -> None:
    """Say where the knee of a run is and what the bottleneck, with the evidence."""
    from knee import diagnose

    print(diagnose.render_text(diagnose.diagnose(Dataset.open(path))))
