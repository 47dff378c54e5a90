"""`knee run`: measures an experiment, or its missing runs, and prints the verdict."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from knee import spec
from knee.cli.compare import FAILED
from knee.cli.live import LivePage
from knee.cli.output import note, progress_aside
from knee.data import Dataset, RunFolder
from knee.data.measurements import CLIENTS
from knee.data.observations import observations
from knee.data.outputs import FAILURES, command_name, finished, is_commands, results_of
from knee.data.reading import EXPERIMENT, REPORT, resuming
from knee.errors import DatasetError, KneeError, SpecError
from knee.lab import programs
from knee.lab.command import Command
from knee.lab.deploy.deployment import links_of
from knee.lab.hosts import Host, Link
from knee.lab.hosts.emulated import EmulatedHosts
from knee.lab.hosts.local import LocalHost
from knee.lab.hosts.meter import LinkCheck, check_links
from knee.lab.progress import LiveProgress, PlainProgress, duration
from knee.lab.run import (
    Lab,
    Tally,
    check_elsewhere,
    check_processors,
    check_programs,
    check_resumable,
    new_manifest,
    note_cluster,
    resumed_manifest,
    tiers_programs,
)
from knee.machine import brief
from knee.spec.design import Run, runs
from knee.stats.intervals import Interval, counted, number

if TYPE_CHECKING:
    from knee.answers.predict import Measured
    from knee.generators.lab import CommandLab
    from knee.lab.deploy.deployment import Progress
    from knee.verdict import Findings

_EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
"""Folder of the installed experiments."""


def measure(
    file: Path | None,
    overrides: list[str] | None,
    resume: Path | None,
    runs_dir: Path,
    *,
    no_report: bool,
    cluster: str | None = None,
    as_json: bool = False,
) -> Path:
    """Make the runs of a file, or those that are missing in a run folder, and return the folder. Raises typer.Exit when
    some failed, or with 3 when a point misses a threshold. `cluster` is the address of the scheduler whose workers are
    the hosts."""
    if as_json and no_report:
        raise SpecError("--json: --no-report has no answer to print; leave out one of them")
    with progress_aside(as_json), ExitStack() as cleanup:
        path, has_failed = _measure(file, overrides, resume, runs_dir, cluster, cleanup, no_report=no_report)
    misses = not no_report and bool(_done(RunFolder(path))) and _conclude(path, as_json=as_json)
    if has_failed:
        raise typer.Exit(1)
    if misses:
        raise typer.Exit(FAILED)
    return path


def _measure(
    file: Path | None,
    overrides: list[str] | None,
    resume: Path | None,
    runs_dir: Path,
    cluster: str | None,
    cleanup: ExitStack,
    *,
    no_report: bool,
) -> tuple[Path, bool]:
    """The run folder, and whether runs have failed."""
    if (file is None) == (resume is None):
        raise SpecError("expected either an experiment file or --resume RUN")
    if resume is not None and overrides:
        raise SpecError("--set: cannot change a run that has begun; start a new run without --resume")
    if file is not None:
        if file.is_dir():
            raise SpecError(f"{file}: is a folder; resume its run with `knee run --resume {file}`")
        # Read the file once: the folder keeps the measured text, even if the file changes or is a pipe.
        text = spec.read(_found(file))
        experiment = spec.parse(text, str(file), spec.parse_overrides(overrides or []))
        host, found = _host_of(experiment, cluster, cleanup, {})
        check_processors(experiment, host)
        seed = experiment.measure.seed
        seed = random.SystemRandom().randrange(2**32) if seed is None else seed
        folder = RunFolder.create(runs_dir, experiment.experiment.name, text)
        folder.lock()
        manifest = {
            **new_manifest(experiment, seed, host, found, folder.scratch_path),
            **({"machine": brief(folder.scratch_path.parent)} if cluster is None else {}),
            **folder.fingerprint(),
        }
    else:
        assert resume is not None
        begun = Dataset.open(resume)
        check_resumable(begun.manifest, cluster)
        experiment = begun.spec
        folder = RunFolder(resume)
        # With the lock, no other lab is left whose agents on the workers this one ends.
        folder.lock()
        folder.check_fingerprint(begun.manifest)
        host, found = _host_of(experiment, cluster, cleanup, begun.manifest.get("cluster", {}))
        check_processors(experiment, host)
        now = new_manifest(experiment, 0, host, found, folder.scratch_path, begun.manifest.get("files"))
        manifest = resumed_manifest(begun.manifest, now)
    if isinstance(host, EmulatedHosts):
        # The hosts of a tier have equal links.
        first = [(name, link) for name, link in links_of(experiment.base.system) if name.endswith("-0")]
        checks = checked_links(host, first)
        manifest["links"] = [asdict(check) for check in checks]
        manifest["notes"] += [problem for check in checks for problem in check.problems]
    if (cluster_now := host.record()) is not None:
        note_cluster(manifest, cluster_now)
    folder.write_manifest(manifest)
    note(*manifest["notes"], *folder.remove_abandoned_scratch())
    if experiment.is_auto:
        experiment = _with_levels(experiment, folder, manifest, host)
    tally = _make(experiment, folder, manifest, host, no_report=no_report)
    return folder.path, bool(tally.failed)


def check_hosts(file: Path, overrides: list[str], *, as_json: bool) -> None:
    """Emulate the hosts of a file, and print their links. Raises typer.Exit if a link is not as declared."""
    experiment = spec.parse(spec.read(_found(file)), str(file), spec.parse_overrides(overrides))
    if experiment.measure.hosts != "emulated":
        raise SpecError('measure.hosts: should be "emulated" for a check of links; add --set measure.hosts=emulated')
    host = EmulatedHosts()
    checks = checked_links(host, list(links_of(experiment.base.system)))
    if as_json:
        from knee.answers import form, links

        print(form.render("hosts check", links.of(checks)))
    else:
        _print_links(checks)
    problems = [problem for check in checks for problem in check.problems]
    note(*problems)
    if problems:
        raise typer.Exit(1)


def _print_links(checks: Sequence[LinkCheck]) -> None:
    print("Rates in Mbit/s, times in ms; the declared value is in brackets.")
    print(f"{'host':<14}{'sends':>22}{'receives':>22}{'round trip':>22}")
    for check in checks:
        sends, receives = (
            f"{mbit:.1f} ({'unlimited' if declared is None else f'{declared:g}'})"
            for mbit, declared in (
                (check.sending_mbit, check.link.send_mbit),
                (check.receiving_mbit, check.link.receive_mbit),
            )
        )
        back = f"{check.round_trip_ms:.3f} ({2 * check.link.delay_ms:g})"
        print(f"{check.host:<14}{sends:>22}{receives:>22}{back:>22}")


def checked_links(host: EmulatedHosts, links: Sequence[tuple[str, Link]]) -> list[LinkCheck]:
    """The links as measured; the hosts are removed again."""
    try:
        return check_links(host, links)
    finally:
        host.close(0)


def confirm(
    dataset: Dataset, asked: Mapping[str, object], clients: int, throughput: Interval, response_ms: Interval
) -> Measured:
    """Run exactly the predicted configuration, and print how far the prediction was off.

    Parameters
    ----------
    asked
        The settings that the prediction was for.
    clients
        Their number if `asked` has none.
    throughput, response_ms
        The prediction, in requests/s and ms.
    """
    from knee.answers.predict import Measured
    from knee.fit.setups import CORES, KNOWN

    # Settings have a short name and one in the experiment file.
    names = {each[0]: each[-1] for each in KNOWN}
    settings = {names.get(name, name): value for name, value in asked.items()}
    if CORES[1] in settings:
        raise SpecError(f"--measure: {CORES[1]} is not a setting of this machine; measure on a machine of that size")
    settings = {**dataset.manifest.get("overrides", {}), CLIENTS: clients, **settings}
    overrides = [
        f"{name}={json.dumps([value] if name in dataset.factors and not isinstance(value, list) else value)}"
        for name, value in settings.items()
    ]
    path = measure(dataset.path / EXPERIMENT, overrides, None, dataset.path.parents[1], no_report=True)
    found = observations(Dataset.open(path))
    if not found["throughput"].sum():
        raise DatasetError(f"{path}: the system answered no request; look for its errors in the run folder")
    for name, unit, predicted, column in (
        ("throughput", "requests/s", throughput, found["throughput"]),
        ("response time", "ms", response_ms, found["response_ms"]),
    ):
        runs = column.drop_nulls().to_numpy()
        held = int(((runs >= (predicted.low or 0)) & (runs <= (predicted.high or float("inf")))).sum())
        print(
            f"Measured {name}: {number(runs.mean())} {unit} ({number(runs.min())} to {number(runs.max())}); predicted "
            f"{number(predicted.estimate)}, {predicted.estimate / runs.mean() - 1:+.1%}; the interval holds {held} of "
            f"{counted(len(runs), 'run')}."
        )
    print(f"run folder: {path}")
    throughputs, times_ms = (tuple(found[name].drop_nulls().to_list()) for name in ("throughput", "response_ms"))
    return Measured(str(path), throughputs, times_ms)


def _host_of(
    experiment: spec.Spec, cluster: str | None, cleanup: ExitStack, begun: Mapping[str, Any]
) -> tuple[Host, dict[str, Path]]:
    """The host, and the programs that it has. `begun` is the manifest's record of the cluster on which a run began."""
    if cluster is None:
        host = EmulatedHosts() if experiment.measure.hosts == "emulated" else LocalHost()
        return host, check_programs(experiment)
    # Only a cluster needs Dask, which takes a second to import.
    from knee.lab.hosts.cluster import ClusterHost

    check_elsewhere(experiment)
    cleanup.enter_context(programs.elsewhere())
    found = check_programs(experiment)
    workers = ClusterHost(cluster, tiers_programs(found), begun)
    cleanup.callback(workers.leave)
    # Factors may change the numbers of hosts.
    for name, link in dict(each for run in runs(experiment, 0) for each in links_of(run.configuration.system)).items():
        workers.place(name, link)
    workers.close(0)
    return workers, found


def _found(file: Path) -> Path:
    """The file, or the installed experiment of this name."""
    installed = _EXPERIMENTS / f"{file.name}.toml"
    return installed if file.parent == Path() and not file.exists() and installed.is_file() else file


def _with_levels(experiment: spec.Spec, folder: RunFolder, manifest: dict[str, Any], host: Host) -> spec.Spec:
    """The experiment with the levels of the clients that scouts choose. The manifest keeps them as an override. Raises
    typer.Exit if the lab must stop."""
    from knee.find.scouts import Scouts

    scouts = Scouts(experiment, manifest["seed"], folder, host, lambda text: print(text, flush=True))
    print(
        f"{experiment.experiment.name}: scouts of {scouts.seconds} s choose {CLIENTS}, into {folder.path}", flush=True
    )
    with _resumable(folder, manifest):
        levels = scouts.levels()
    reason = f"scouts saw {'; '.join(scouts.reasons)}"
    print(f"{CLIENTS} = {levels}: {reason}", flush=True)
    overrides = {name: value for name, value in experiment.overrides.items() if not name.endswith(CLIENTS)}
    manifest["overrides"] = {**overrides, CLIENTS: levels}
    manifest["scouts"] = {"chose": levels, "reason": reason, "runs": scouts.done}
    folder.write_manifest(manifest)
    file = folder.path / EXPERIMENT
    return spec.parse(spec.read(file), str(file), manifest["overrides"])


@contextmanager
def _resumable(folder: RunFolder, manifest: Mapping[str, Any]) -> Iterator[None]:
    """Within it, an error or an interrupt of the lab is printed with the command that continues. Raises typer.Exit."""
    kept = f"finished measurements are kept; continue with {resuming(folder.path, manifest)}"
    try:
        yield
    except KeyboardInterrupt as interrupt:
        note("; ".join(["interrupted", *map(str, interrupt.args), kept]))
        raise typer.Exit(130) from None
    except KneeError as error:
        note(f"{error}\n{kept}")
        raise typer.Exit(error.exit_code) from None


def _make(
    experiment: spec.Spec, folder: RunFolder, manifest: dict[str, object], host: Host, *, no_report: bool
) -> Tally:
    """Make the missing runs, and print the failed ones; draw the page in between. Raises typer.Exit if the lab must
    stop."""
    seed = manifest["seed"]
    commands, failures = manifest["commands"], manifest.get(FAILURES, {})
    assert isinstance(seed, int) and isinstance(commands, dict) and isinstance(failures, dict)
    done = _done(folder)
    every = runs(experiment, seed)
    plan = [run for run in every if (run.point, run.repetition) not in done]
    total = counted(sum(len(run.measurements) for run in every), "run")
    console = Console(stderr=True)
    settings = experiment.measure
    progress = LiveProgress(console, settings.seconds) if console.is_terminal else PlainProgress(console, settings)
    lost: list[str] = []

    def keep_commands(run: Run, started: list[Command], failure: str | None = None) -> None:
        # The order is that of the last attempts.
        commands.pop(command_name(run), None)
        commands[command_name(run)] = {one.process: list(one.argv) for one in started}
        failures.pop(command_name(run), None)
        if failure is not None:
            manifest[FAILURES] = failures
            failures[command_name(run)] = failure
        if (cluster := host.record()) is not None:
            for one in cluster["lost"][len(lost) :]:
                note(one)
                lost.append(one)
            note_cluster(manifest, cluster)
        folder.write_manifest(manifest)

    live = LivePage(folder.path / REPORT, partial(so_far, folder, total), settings.seconds)
    least = duration(sum(len(run.measurements) * settings.seconds + 2 for run in plan))
    print(
        f"{experiment.experiment.name}: {counted(len(plan), 'measurement')}, at least {least}, into {folder.path}",
        flush=True,
    )
    with _resumable(folder, manifest), live, progress if isinstance(progress, LiveProgress) else nullcontext():
        lab = _lab_of(experiment, seed, folder, host, progress)
        tally = lab.make(plan, keep_commands, (lambda: None) if no_report else live.update)
    if tally.failed:
        _print_failures(tally, resuming(folder.path, manifest))
    return tally


def _lab_of(experiment: spec.Spec, seed: int, folder: RunFolder, host: Host, progress: Progress) -> Lab | CommandLab:
    if not experiment.base.system.load.is_foreign:
        return Lab(experiment, seed, folder, host, progress)
    # It imports the analyses of other load generators' results.
    from knee.generators.lab import CommandLab

    assert isinstance(host, LocalHost), "the experiment file was checked"
    return CommandLab(experiment, folder, host, progress, note)


def so_far(folder: RunFolder, total: str) -> tuple[Findings, str] | None:
    """The findings of the complete runs, with their share of a total such as "48 runs"; None without a complete run."""
    from knee import verdict
    from knee.cli.analyse import named, source_of

    if not (done := _done(folder)):
        return None
    return named(verdict.analyse(source_of(folder.path)), folder.path), f"{len(done)} of {total}"


def _done(folder: RunFolder) -> set[tuple[int, int]]:
    """The complete runs, by point and repetition."""
    if is_commands(folder.path):
        return {(run.point, run.repetition) for run, _ in finished(Dataset.open(folder.path))}
    return folder.done()


def _print_failures(tally: Tally, resume: str) -> None:
    reasons = list(dict.fromkeys(reason for _, reason in tally.failed))
    note(*reasons[:5])
    them = "it" if len(tally.failed) == 1 else "them"
    total = counted(tally.done + len(tally.failed), "measurement")
    note(f"{len(tally.failed)} of {total} failed; {resume} repeats {them}")


def _conclude(path: Path, *, as_json: bool) -> bool:
    """Print the verdict and write the report. Returns whether a point misses a threshold."""
    from knee import check, verdict
    from knee.cli.analyse import named, source_of, write_report

    try:
        dataset = Dataset.open(path)
        findings = named(verdict.analyse(source_of(path)), path)
        if not as_json:
            if is_commands(path):
                print(check.render_text(check.alone(results_of(dataset))), flush=True)
            print(verdict.render_text(findings), flush=True)
        write_report(findings, dataset.report_path)
    except KneeError as error:
        note(f"{error}\nthe measurements are kept; try again with `knee report {path}`")
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print(f"the measurements are kept; write the page with `knee report {path}`", file=sys.stderr)
        raise
    if as_json:
        from knee.answers import diagnose, form

        print(form.render("run", diagnose.of(findings, run=str(path), report=str(dataset.report_path))))
    else:
        print(f"report: {dataset.report_path}")
    return findings.misses
