"""The commands that analyse a run folder or a CSV. Each imports its analysis: scipy and vl-convert take a second."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from knee.cli.output import note
from knee.data import Dataset, csv, measurements
from knee.data.measurements import Measurements, StationKind
from knee.data.outputs import failures_of, is_commands, name_of, page_of, table_of
from knee.errors import DatasetError, MeasurementsError, StorageError
from knee.storage import writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from knee.report import Live
    from knee.verdict import Findings


def write_report(findings: Findings, path: Path, live: Live | None = None) -> None:
    """Write the page, `live` while the measurement goes on; replace only a report of Knee. Raises StorageError."""
    from knee import report

    with writing(path):
        if path.is_file() and path.stat().st_size and not report.is_report(path):
            raise StorageError(f"{path}: exists and is not a report written by Knee; choose another file with --out")
        report.write(findings, path, live)


def named(findings: Findings, path: Path) -> Findings:
    """The findings with what the folder says beside its table, if `path` is such a folder. Raises StorageError."""
    if is_commands(path):
        return _of_experiment(findings, Dataset.open(path))
    name = name_of(path)
    return findings if name is None else replace(findings, name=name)


def _of_experiment(findings: Findings, dataset: Dataset) -> Findings:
    """The findings with the experiment's name, question, origin and limits."""
    from knee.verdict.findings import Provenance
    from knee.verdict.thresholds import thresholds_of_table

    table, store = findings.measurements.table, dataset.spec.base.system.store
    origin = Provenance(
        experiment=dataset.experiment_text,
        manifest=dict(dataset.manifest),
        points=table["point"].n_unique(),
        runs=table.height,
        seconds=dataset.spec.measure.seconds,
        warmup_s=0,
        cooldown_s=0,
        middlewares=(),
        stores=() if store is None else (1,),
    )
    limits = thresholds_of_table(dataset.spec.thresholds.given, table, findings.level)
    return replace(findings, name=dataset.name, question=dataset.question, provenance=origin, thresholds=limits)


def source_of(path: Path) -> Dataset | Measurements:
    """The measurements of a folder, without a word about them."""
    table = table_of(path)
    return csv.read(table) if table != path else Dataset.open(path)


def print_report(
    path: Path,
    renames: list[str] | None,
    out: Path | None,
    generators: Sequence[str],
    software: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Write the page and print its path."""
    from knee import verdict

    source = _with_kinds(opened(path, renames, maybe_empty=True), generators, software)
    usual = source.report_path if isinstance(source, Dataset) else page_of(path)
    page = out or usual or Path(path.with_suffix(".html").name)
    findings = named(verdict.analyse(source), path)
    write_report(findings, page)
    if as_json:
        from knee.answers import diagnose, form

        print(form.render("report", diagnose.of(findings, report=str(page))))
    else:
        print(page)


def print_diagnosis(
    path: Path, renames: list[str] | None, generators: Sequence[str], software: Sequence[str], *, as_json: bool
) -> None:
    """Print the knee and the bottleneck."""
    from knee import verdict

    findings = named(verdict.analyse(_with_kinds(opened(path, renames, maybe_empty=True), generators, software)), path)
    note(*findings.laws.notes)
    if as_json:
        from knee.answers import diagnose, form

        print(form.render("diagnose", diagnose.of(findings)))
    else:
        print(verdict.render_text(findings))


def print_laws(path: Path, renames: list[str] | None, level: float, *, details: bool, as_json: bool) -> None:
    """Print whether the operational laws hold."""
    from knee import laws

    source = opened(path, renames)
    if isinstance(source, Dataset):
        found = laws.laws_of_run(source, level=level)
    else:
        found = laws.laws_of_measurements(source, level=level)
    note(*found.notes)
    if as_json:
        from knee.answers import form
        from knee.answers import laws as answer

        print(form.render("laws", answer.of(found)))
    else:
        print(laws.render_text(found, details=details))


def print_factorial(
    path: Path,
    renames: list[str] | None,
    factors: list[str] | None,
    responses: list[str] | None,
    model: Literal["additive", "multiplicative"] | None,
    level: float,
    effects: Path | None,
    resolution: float | None,
    *,
    as_json: bool,
) -> None:
    """Print which factors matter, or whether published effects follow from the responses."""
    from knee import factorial

    source = opened(path, renames, factors=factors or (), responses=responses or ())
    if isinstance(source, Dataset):
        from knee.verdict import health, words

        found = measurements.of_run(source)
        note(*found.notes, *map(words.warning, health.warnings_of_folder(source)))
    else:
        found = source
    chosen = factors or list(found.factors)
    if not factors and responses:
        _check_factors(path, found)
    if same := [name for name in chosen if name in found.constant]:
        raise MeasurementsError(
            f"{measurements.constant_in_words(same[0], found.constant[same[0]])}, so it is not a factor: "
            + (f"expected {' or '.join(found.factors)}" if found.factors else "no factor varied")
        )
    if resolution is not None and (effects is None or not 0 < resolution < math.inf):
        raise MeasurementsError("--resolution: expected a number above 0, with --effects")
    if effects is not None:
        if model is not None or responses:
            raise MeasurementsError(
                "--effects audits every response of that file without a model: leave out the other options"
            )
        _audit(found, chosen, effects, resolution, as_json=as_json)
        return
    order = "run_order" if "run_order" in found.table.columns else None
    if not (responses or found.responses):
        raise MeasurementsError(
            f"{path}: no response to analyse: expected a column {' or '.join(measurements.RESPONSES)}, "
            "or --response NAME"
        )
    usual = [name for name in ("throughput", "response_ms") if name in found.responses]
    analyses = [
        factorial.analyse(found.table, chosen, response, model=model, level=level, run_order=order)
        for response in responses or usual or found.responses
    ]
    if as_json:
        from knee.answers import factorial as answer
        from knee.answers import form

        print(form.render("factorial", answer.of(analyses)))
    else:
        print("\n\n".join(map(factorial.render_text, analyses)))


def _check_factors(path: Path, found: Measurements) -> None:
    """Raise MeasurementsError for a column with too many levels to be crossed with another factor."""
    most = found.table.height / 2
    many = [name for name in found.factors if found.table[name].n_unique() > most]
    if many and len(found.factors) > 1:
        raise MeasurementsError(
            f"{path}: column {many[0]}: cannot tell whether it is a factor or a response: its values differ in most "
            "rows; name the factors, such as --factors a,b,c"
        )


def _audit(found: Measurements, factors: list[str], effects: Path, resolution: float | None, *, as_json: bool) -> None:
    """Print the factors' letters, and compare published effects with the responses of the table."""
    from knee import factorial
    from knee.answers import factorial as answer
    from knee.answers import form

    columns = {name: published for name, published in csv.read_effects(effects).items() if published}
    if unknown := [name for name in columns if name not in found.responses]:
        raise MeasurementsError(
            f"{effects}: column {unknown[0]}: {found.source} has no such response: expected "
            f"{' or '.join(found.responses) or 'none'}"
        )
    if not columns:
        raise MeasurementsError(f"{effects}: no effect has a value")
    audits = []
    for number, (response, published) in enumerate(columns.items()):
        design = factorial.design_of(found.table, factors, response)
        unit = None
        if response + measurements.ROUNDING in found.table.columns:
            unit = 2 * float(found.table[response + measurements.ROUNDING].min())  # type: ignore[arg-type]
        letters = {factor.letter: factor.name for factor in design.factors}
        if number == 0 and not as_json:
            print(", ".join(f"{letter} = {name}" for letter, name in letters.items()))
        audit = factorial.audit_design(design, published, response_unit=unit, resolution=resolution)
        audits.append(answer.audited(response, letters, audit))
        if not as_json:
            print(f"{response}: {audits[-1].text}")
    if as_json:
        print(form.render("factorial", answer.of([], audits)))


def opened(
    path: Path,
    renames: list[str] | None,
    *,
    maybe_empty: bool = False,
    factors: Sequence[str] = (),
    responses: Sequence[str] = (),
) -> Dataset | Measurements:
    """The run folder or the table at a path. Prints the assumptions about a table.

    Raises DatasetError for a folder without a complete run; with `maybe_empty`, it prints this instead.
    """
    folder, path = path, table_of(path)
    if path.is_dir() or not (path.exists() or path.suffix == ".csv"):
        if renames:
            raise MeasurementsError("--map: renames columns of a CSV, and does not apply to a run folder")
        dataset = Dataset.open(path)
        if (why := dataset.why_empty) is not None:
            if not maybe_empty:
                raise DatasetError(f"{path}: {why}")
            note(f"{path}: {why}")
        return dataset
    found = csv.read(path, renames or [], factors=factors, responses=responses)
    note(*found.notes, *(failures_of(folder, Dataset.open(folder)) if is_commands(folder) else ()))
    return found


def _with_kinds(
    source: Dataset | Measurements, generators: Sequence[str], software: Sequence[str]
) -> Dataset | Measurements:
    """The source with the kinds of stations that the flags declare."""
    kinds: dict[str, StationKind] = {**dict.fromkeys(software, "software"), **dict.fromkeys(generators, "generator")}
    if isinstance(source, Measurements):
        return source.with_kinds(kinds)
    if kinds:
        raise MeasurementsError(
            f"--{next(iter(kinds.values()))}: declares a station of a CSV, and does not apply to a run folder"
        )
    return source
