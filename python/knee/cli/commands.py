"""The command line: parse, call, print.

Exit codes: 0, all is well; 1, something failed; 2, the input was wrong; 130, interrupted.
"""

from __future__ import annotations

import math
import random
import sys
import traceback
from contextlib import nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from knee import __version__, spec
from knee.cli.usage import Commands, path_to_read, path_to_write
from knee.data import Dataset, RunFolder, writing
from knee.errors import DatasetError, KneeError, MeasurementsError, SpecError, StorageError
from knee.lab.commands import Command
from knee.lab.design import Run, runs
from knee.lab.endings import Ending
from knee.lab.hosts.local import LocalHost
from knee.lab.interrupts import interruptible_anew, interrupts_deferred, raise_deferred
from knee.lab.progress import LiveProgress, PlainProgress, duration
from knee.lab.run import Lab, Tally, check_processors, check_programs, new_manifest, resumed_manifest
from knee.spec import repeating
from knee.stats.intervals import counted

if TYPE_CHECKING:
    from knee.data.csv import Measurements
    from knee.verdict.diagnose import Diagnosis

app = typer.Typer(
    cls=Commands,
    help="Finds the knee of a client, middleware and storage system, and says why it is there.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class _Model(StrEnum):
    ADDITIVE = "additive"
    MULTIPLICATIVE = "multiplicative"


_TablePath = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run folder, or a CSV with a row per observation.",
        show_default=False,
        callback=path_to_read,
    ),
]
_Renames = Annotated[
    list[str] | None, typer.Option("--map", metavar="THEIRS=OURS", help="What the CSV calls a known column.")
]
_ConfidenceLevel = Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence level of the intervals.")]


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
        Path | None,
        typer.Argument(metavar="FILE", help="The experiment file (TOML).", show_default=False, callback=path_to_read),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Replace a value of the file; a list makes it a factor."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Make what is missing or failed in this run folder instead.", callback=path_to_read
        ),
    ] = None,
    runs_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where run folders go.", callback=path_to_write),
    ] = Path("runs"),
    no_report: Annotated[bool, typer.Option("--no-report", help="Measure only.")] = False,
) -> None:
    """Measure an experiment, say where the knee is and why, and write the report."""
    if (file is None) == (resume is None):
        raise SpecError("expected either an experiment file or --resume RUN")
    if resume is not None and overrides:
        raise SpecError("--set cannot change a run that has begun: start a new one without --resume")
    host = LocalHost()
    if file is not None:
        if file.is_dir():
            raise SpecError(f"{file}: is a folder; a run goes on with `knee run --resume {file}`")
        # Read once: what is kept must be what was measured, also when it comes through a pipe.
        text = spec.read(file)
        experiment = spec.parse(text, str(file), spec.parse_overrides(overrides or []))
        found = check_programs(experiment)
        check_processors(experiment, host)
        seed = experiment.measure.seed
        seed = random.SystemRandom().randrange(2**32) if seed is None else seed
        folder = RunFolder.create(runs_dir, experiment.experiment.name, text)
        folder.lock()
        manifest = {**new_manifest(experiment, seed, host, found, folder.scratch_path), **folder.fingerprint()}
    else:
        assert resume is not None
        begun = Dataset.open(resume)
        experiment = begun.spec
        found = check_programs(experiment)
        check_processors(experiment, host, resumed=True)
        folder = RunFolder(resume)
        folder.lock()
        folder.check_fingerprint(begun.manifest)
        manifest = resumed_manifest(begun.manifest, new_manifest(experiment, 0, host, found, folder.scratch_path))
    folder.write_manifest(manifest)
    for note in [*manifest["notes"], *folder.remove_abandoned_scratch()]:
        print(f"knee: {note}", file=sys.stderr)
    tally = _measure(experiment, folder, manifest, host)
    if not no_report and folder.done():
        _conclude(folder.path)
    if tally.failed:
        raise typer.Exit(1)


def _measure(experiment: spec.Spec, folder: RunFolder, manifest: dict[str, object], host: LocalHost) -> Tally:
    """Make the runs that are missing, and say which failed; exit when it cannot go on or somebody interrupts."""
    seed = manifest["seed"]
    commands = manifest["commands"]
    assert isinstance(seed, int) and isinstance(commands, dict)
    done = folder.done()
    plan = [run for run in runs(experiment, seed) if (run.point, run.repetition) not in done]
    console = Console(stderr=True)
    measure = experiment.measure
    progress = LiveProgress(console, measure.seconds) if console.is_terminal else PlainProgress(console, measure)
    resume = f"`knee run --resume {folder.path}`"

    def keep_commands(run: Run, started: list[Command]) -> None:
        commands[f"{run.point}-r{run.repetition}"] = {one.process: list(one.argv) for one in started}
        folder.write_manifest(manifest)

    least = duration(len(plan) * (experiment.measure.seconds + 2))
    print(
        f"{experiment.experiment.name}: {counted(len(plan), 'measurement')}, {least} at least, into {folder.path}",
        flush=True,
    )
    # Until it is told why it ended, whoever interrupts once more does not take that back.
    with interrupts_deferred():
        try:
            ending = Ending()
            with ending.gathering(), progress if isinstance(progress, LiveProgress) else nullcontext():
                tally = Lab(experiment, seed, folder, host, progress).make(plan, keep_commands)
            with ending.gathering():
                raise_deferred()
            ending.raise_any()
        except KeyboardInterrupt as interrupt:
            reason = "; ".join(["interrupted", *map(str, interrupt.args)])
            _tell_end(f"{reason}; what was measured is kept, {resume} goes on from there", fault=interrupt.__cause__)
            raise typer.Exit(130) from None
        except KneeError as error:
            _tell_end(f"{error}\nwhat was measured is kept, {resume} goes on from there")
            raise typer.Exit(error.exit_code) from None
    if tally.failed:
        _tell_failures(tally, resume)
    return tally


def _tell_end(words: str, fault: BaseException | None = None) -> None:
    """Say it to whoever may read no more: that, too, can be interrupted. A fault is shown where it was."""
    where = "" if fault is None else "".join(traceback.format_exception(fault))
    # What ends the lab may have ended its reader, or the terminal: the exit code still says why.
    with suppress(OSError):
        interruptible_anew(print, f"{where}knee: {words}", file=sys.stderr)


def _tell_failures(tally: Tally, resume: str) -> None:
    reasons = list(dict.fromkeys(reason for _, reason in tally.failed))
    for reason in reasons[:5]:
        print(f"knee: {reason}", file=sys.stderr)
    them = "it" if len(tally.failed) == 1 else "them"
    total = tally.done + len(tally.failed)
    print(
        f"knee: {len(tally.failed)} of {counted(total, 'measurement')} failed; {resume} repeats {them}", file=sys.stderr
    )


# The analyses load scipy and vl-convert, which a command that does not need them should not wait for.


def _conclude(path: Path) -> None:
    try:
        from knee.verdict import diagnose

        dataset = Dataset.open(path)
        found = diagnose.diagnose(dataset)
        print(diagnose.render_text(found), flush=True)
        _write_report(dataset, dataset.report_path, found)
    except KneeError as error:
        print(f"knee: {error}\nwhat was measured is kept, `knee report {path}` tries again", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        # The terminal may be gone.
        with suppress(OSError):
            print(f"what was measured is kept, `knee report {path}` makes the page", file=sys.stderr)
        raise
    print(f"report: {dataset.report_path}")


def _opened(path: Path, renames: list[str] | None, *, maybe_empty: bool = False) -> Dataset | Measurements:
    """A run folder, or a table from a file; what was assumed of it is told.

    Raises DatasetError for a folder without a complete run; where such a one will do, `maybe_empty`, it is told.
    """
    from knee.data import csv as measurements

    if path.is_dir() or not (path.exists() or path.suffix == ".csv"):
        _refuse_renames(renames)
        dataset = Dataset.open(path)
        if (why := dataset.why_empty) is not None:
            if not maybe_empty:
                raise DatasetError(f"{path}: {why}")
            _tell(f"{path}: {why}")
        return dataset
    found = measurements.read(path, renames or [])
    _tell(*found.notes)
    return found


def _write_report(source: Dataset | Measurements, path: Path, found: Diagnosis | None = None) -> None:
    from knee import report

    with writing(path):
        if path.is_file() and path.stat().st_size and not report.is_report(path):
            raise StorageError(f"{path}: is no report of Knee's, so it was left alone; --out names another place")
        report.write(source, path, found)


@app.command("report")
def report_command(
    path: _TablePath,
    renames: _Renames = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the page goes; unless given, into the run folder, or for a CSV here.",
            callback=path_to_write,
        ),
    ] = None,
) -> None:
    """Write the report of a run or of a CSV, one page that opens without a network."""
    source = _opened(path, renames, maybe_empty=True)
    page = out or (source.report_path if isinstance(source, Dataset) else Path(path.with_suffix(".html").name))
    _write_report(source, page)
    print(page)


@app.command("laws")
def laws_command(
    path: _TablePath,
    renames: _Renames = None,
    level: _ConfidenceLevel = 0.95,
    details: Annotated[
        bool, typer.Option("--details", help="Also every station's laws, demands and what they allow.")
    ] = False,
) -> None:
    """Say whether the numbers hold together: the operational laws, the demands and what they allow."""
    from knee import laws

    source = _opened(path, renames)
    if isinstance(source, Dataset):
        found = laws.laws_of_run(source, level=level)
    else:
        found = laws.laws_of_measurements(source, level=level)
    _tell(*found.notes)
    print(laws.render_text(found, details=details))


def _refuse_renames(renames: list[str] | None) -> None:
    if renames:
        raise MeasurementsError("--map renames the columns of a CSV: a run folder has none to rename")


def _tell(*notes: str) -> None:
    for note in notes:
        print(f"knee: {note}", file=sys.stderr)


@app.command("factorial")
def factorial_command(
    path: _TablePath,
    renames: _Renames = None,
    factors: Annotated[
        list[str] | None, typer.Option("--factor", metavar="NAME", help="A factor; all that vary unless given.")
    ] = None,
    responses: Annotated[
        list[str] | None,
        typer.Option("--response", metavar="NAME", help="What to explain; throughput and response_ms unless given."),
    ] = None,
    model: Annotated[
        _Model | None, typer.Option(help="How effects combine; the one that the data ask for unless given.")
    ] = None,
    level: _ConfidenceLevel = 0.95,
    effects: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Published effects: audit them against the responses instead.",
            callback=path_to_read,
        ),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="UNIT",
            help="Last digit of the responses behind these effects, such as 0.1; found in the CSV unless given.",
        ),
    ] = None,
) -> None:
    """Say which factor matters, how much and how surely; or audit published effects."""
    from knee import factorial
    from knee.data import csv as measurements

    source = _opened(path, renames)
    if isinstance(source, Dataset):
        found = measurements.of_run(source)
        _tell(*found.notes)
    else:
        found = source
    chosen = factors or list(found.factors)
    if same := [name for name in chosen if name in found.constant]:
        raise MeasurementsError(
            f"{measurements.constant_in_words(same[0], found.constant[same[0]])}, so it is no factor: "
            + (f"expected {' or '.join(found.factors)}" if found.factors else "there is none, as nothing varied")
        )
    if resolution is not None and (effects is None or not 0 < resolution < math.inf):
        raise MeasurementsError("--resolution: expected a number above 0, with --effects")
    if effects is not None:
        if model is not None or responses:
            raise MeasurementsError(
                "--effects audits every response of that file, without a model: leave out the others"
            )
        _audit(found, chosen, effects, resolution)
        return
    order = "run_order" if "run_order" in found.table.columns else None
    if not (responses or found.responses):
        raise MeasurementsError(
            f"{path}: no response to explain: expected a column {' or '.join(measurements.RESPONSES)}"
        )
    usual = [name for name in ("throughput", "response_ms") if name in found.responses]
    texts = [
        factorial.render_text(
            factorial.analyse(
                found.table, chosen, response, model=model.value if model else None, level=level, run_order=order
            )
        )
        for response in responses or usual or found.responses
    ]
    print("\n\n".join(texts))


def _audit(found: Measurements, factors: list[str], effects: Path, resolution: float | None) -> None:
    """Published effects against the responses of the table, with what the letters stand for."""
    from knee import factorial
    from knee.data import csv as measurements

    columns = {name: published for name, published in measurements.read_effects(effects).items() if published}
    if unknown := [name for name in columns if name not in found.responses]:
        raise MeasurementsError(
            f"{effects}: column {unknown[0]}: {found.source} has no such response: expected "
            f"{' or '.join(found.responses) or 'none'}"
        )
    if not columns:
        raise MeasurementsError(f"{effects}: no effect has a value")
    for number, (response, published) in enumerate(columns.items()):
        design = factorial.design_of(found.table, factors, response)
        unit = None
        if response + measurements.ROUNDING in found.table.columns:
            unit = 2 * float(found.table[response + measurements.ROUNDING].min())  # type: ignore[arg-type]
        if number == 0:
            print(", ".join(f"{factor.letter} = {factor.name}" for factor in design.factors))
        audit = factorial.audit_design(design, published, response_unit=unit, resolution=resolution)
        print(f"{response}: {factorial.render_audit(audit)}")


@app.command("diagnose")
def diagnose_command(path: _TablePath, renames: _Renames = None) -> None:
    """Say where the knee of a run or of a CSV is and what the bottleneck, with the evidence."""
    from knee.verdict import diagnose

    found = diagnose.diagnose(_opened(path, renames, maybe_empty=True))
    _tell(*found.laws.notes)
    print(diagnose.render_text(found))


@app.command("predict")
def predict_command(
    path: _TablePath,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="More settings.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="What to predict for, such as load.clients=1000."),
    ] = None,
    renames: _Renames = None,
    level: _ConfidenceLevel = 0.95,
    simulated: Annotated[
        bool, typer.Option("--simulate", help="Also simulate it: quantiles, and what the options below assume.")
    ] = False,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="How service times scatter: deterministic, exponential (unless given), erlang:STAGES, hyper:C2, "
            "lognormal:C2.",
        ),
    ] = None,
    thinking: Annotated[str | None, typer.Option(metavar="SHAPE", help="The same of think times.")] = None,
    places: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Places to wait for a slot; who finds none is refused and thinks again."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1000,
            metavar="N",
            help="Requests that a replication counts; 100,000, or one of every client, unless given.",
        ),
    ] = None,
    replications: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Simulations with random numbers of their own; 10 unless given."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Of all random numbers.")] = 0,
) -> None:
    """Predict throughput and response time where nobody has measured, from the model that predicts best."""
    from knee import fit
    from knee.data import csv as measurements
    from knee.laws.tables import stations

    asked = spec.parse_overrides([*(settings or []), *(more or [])])
    if several := [name for name, value in asked.items() if isinstance(value, list)]:
        raise SpecError(f"--set {repeating.name(several[0])}: expected one value, not a list")
    simulation = {
        "service": service,
        "thinking": thinking,
        "places": places,
        "rounds": rounds,
        "replications": replications,
    }
    if not simulated and (given := [name for name, value in simulation.items() if value is not None]):
        raise SpecError(f"--{given[0]} is of a simulation: add --simulate")
    if simulated and not asked:
        raise SpecError("--simulate: say what, such as --set load.clients=1000")
    assumptions = fit.Assumptions(
        fit.parse_shape("--service", "exponential" if service is None else service),
        None if thinking is None else fit.parse_shape("--thinking", thinking),
        places,
    )
    source = _opened(path, renames)
    if isinstance(source, Dataset):
        found, of_stations = measurements.of_run(source), stations(source)
    else:
        found, of_stations = source, None
    systems = fit.fit_systems(
        found.table,
        measurements.configuration(source),
        asked,
        constant=found.constant,
        stations=of_stations,
        level=level,
        seed=seed,
    )
    for number, (system, scenario) in enumerate(systems):
        forecast = system.forecast(scenario, seed=seed) if scenario else None
        print("\n" * bool(number) + fit.render_text(system, forecast), flush=True)
        if simulated and scenario is not None:
            plan = fit.simulate_plan(
                system,
                scenario,
                assumptions,
                rounds=rounds,
                replications=fit.REPLICATIONS if replications is None else replications,
                seed=seed,
            )
            print(fit.render_plan(system, plan), flush=True)
