"""The commands that analyse a run folder or a CSV. Each imports its analysis: scipy and vl-convert take a second."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from knee import spec
from knee.data import Dataset, csv, measurements, writing
from knee.data.measurements import Measurements, StationKind
from knee.data.search_folder import page_of, table_of
from knee.errors import DatasetError, FitError, MeasurementsError, SpecError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from knee.fit import Goal, Simulator
    from knee.fit.scenario import Setting
    from knee.stats.intervals import Interval
    from knee.verdict import Findings

_WIDE = 1.2
"""Ratio of an interval's ends from which a prediction names the run that would narrow it."""


def write_report(findings: Findings, path: Path) -> None:
    """Write the page; replace only a report of Knee. Raises StorageError."""
    from knee import report

    with writing(path):
        if path.is_file() and path.stat().st_size and not report.is_report(path):
            raise StorageError(f"{path}: exists and is not a report written by Knee; choose another file with --out")
        report.write(findings, path)


def print_report(
    path: Path, renames: list[str] | None, out: Path | None, generators: Sequence[str], software: Sequence[str]
) -> None:
    """Write the page and print its path."""
    from knee import verdict

    source = _with_kinds(opened(path, renames, maybe_empty=True), generators, software)
    usual = source.report_path if isinstance(source, Dataset) else page_of(path)
    page = out or usual or Path(path.with_suffix(".html").name)
    write_report(verdict.analyse(source), page)
    print(page)


def print_diagnosis(path: Path, renames: list[str] | None, generators: Sequence[str], software: Sequence[str]) -> None:
    """Print the knee and the bottleneck."""
    from knee import verdict

    findings = verdict.analyse(_with_kinds(opened(path, renames, maybe_empty=True), generators, software))
    _note(*findings.laws.notes)
    print(verdict.render_text(findings))


def print_laws(path: Path, renames: list[str] | None, level: float, *, details: bool) -> None:
    """Print whether the operational laws hold."""
    from knee import laws

    source = opened(path, renames)
    if isinstance(source, Dataset):
        found = laws.laws_of_run(source, level=level)
    else:
        found = laws.laws_of_measurements(source, level=level)
    _note(*found.notes)
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
) -> None:
    """Print which factors matter, or whether published effects follow from the responses."""
    from knee import factorial

    source = opened(path, renames, factors=factors or (), responses=responses or ())
    if isinstance(source, Dataset):
        from knee.verdict import health, words

        found = measurements.of_run(source)
        _note(*found.notes, *map(words.warning, health.warnings_of_folder(source)))
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
        _audit(found, chosen, effects, resolution)
        return
    order = "run_order" if "run_order" in found.table.columns else None
    if not (responses or found.responses):
        raise MeasurementsError(
            f"{path}: no response to analyse: expected a column {' or '.join(measurements.RESPONSES)}, "
            "or --response NAME"
        )
    usual = [name for name in ("throughput", "response_ms") if name in found.responses]
    texts = [
        factorial.render_text(
            factorial.analyse(found.table, chosen, response, model=model, level=level, run_order=order)
        )
        for response in responses or usual or found.responses
    ]
    print("\n\n".join(texts))


def _check_factors(path: Path, found: Measurements) -> None:
    """Raise MeasurementsError for a column with too many levels to be crossed with another factor."""
    most = found.table.height / 2
    many = [name for name in found.factors if found.table[name].n_unique() > most]
    if many and len(found.factors) > 1:
        raise MeasurementsError(
            f"{path}: column {many[0]}: cannot tell whether it is a factor or a response: its values differ in most "
            "rows; name the factors, such as --factors a,b,c"
        )


def _audit(found: Measurements, factors: list[str], effects: Path, resolution: float | None) -> None:
    """Print the factors' letters, and compare published effects with the responses of the table."""
    from knee import factorial

    columns = {name: published for name, published in csv.read_effects(effects).items() if published}
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


def print_prediction(
    path: Path,
    settings: list[str],
    renames: list[str] | None,
    level: float,
    seed: int,
    *,
    simulated: bool,
    service: str | None,
    thinking: str | None,
    places: int | None,
    rounds: int | None,
    replications: int | None,
    measured: bool,
    sought: str | None,
    slo: str | None,
) -> None:
    """Print the best model's prediction for unmeasured settings, and a simulation if requested."""
    from knee import fit
    from knee.laws.tables import stations

    asked = spec.parse_overrides(settings)
    simulation = {
        "service": service,
        "thinking": thinking,
        "places": places,
        "rounds": rounds,
        "replications": replications,
    }
    goal = None if slo is None else fit.Goal.parse(slo)
    about_quantiles = goal is not None and goal.share is not None
    given = [name for name, value in simulation.items() if value is not None]
    if given and not (simulated or about_quantiles):
        raise SpecError(f"--{given[0]}: applies to a simulation only; add --simulate")
    if measured and not asked:
        raise SpecError("--measure: needs a setting, such as --set load.clients=1000")
    if measured and not path.is_dir():
        raise SpecError(f"--measure: {path} is no run folder, so there is no experiment to run")
    if simulated and not asked and sought is None:
        raise SpecError("--simulate: needs a setting, such as --set load.clients=1000")
    several = [name for name, value in asked.items() if isinstance(value, list)]
    if several and sought is not None:
        raise SpecError(f"--set {several[0]}: expected one value, not a list, with --seek")
    assumptions = fit.Assumptions(
        fit.parse_shape("--service", "exponential" if service is None else service),
        None if thinking is None else fit.parse_shape("--thinking", thinking),
        places,
    )
    if sought is not None and slo is None:
        raise SpecError("--seek: needs a goal, such as --slo 'response_ms < 5'")
    if slo is not None and sought is None and not asked:
        raise SpecError("--slo: needs a setting, such as --set load.clients=1000 or --seek load.clients")
    source = opened(path, renames)
    if measured and isinstance(source, Dataset) and "cluster" in source.manifest:
        raise SpecError(
            "predict: the run was measured on a cluster; "
            "measure the settings with `knee run FILE --cluster ADDRESS --set …`"
        )
    simulator = None
    if simulated or about_quantiles:
        simulator = fit.Simulator(
            None if service is None else assumptions.service,
            assumptions.thinking,
            places,
            rounds,
            replications or fit.REPLICATIONS,
            seed,
        )
    if sought is not None and goal is not None:
        _print_sought(source, asked, sought, goal, level, seed, simulator)
        return
    why = ""
    if isinstance(source, Dataset) and (about_quantiles or fit.needs_layers(asked, source)):
        try:
            forecasts = _print_layered(source, asked, goal, level, seed, simulator)
        except FitError as error:
            why = str(error)
        else:
            if measured:
                _confirm(source, asked, forecasts)
            elif (
                len(forecasts) == 1
                and _is_wide(forecasts[0][1])
                and not any(name.endswith(("cores", ".link_mbit")) for name in asked)
            ):
                usual = source.spec.measure
                print(
                    "The run that narrows this interval most is the predicted one: --measure takes about "
                    f"{usual.repetitions * (usual.seconds + 2)} s for it."
                )
            return
    if about_quantiles:
        raise FitError(why or f"--slo {slo}: a table has no processor times; expected a run folder")
    if several:
        raise SpecError(why or f"--set {several[0]}: expected one value, not a list: a table has no processor times")
    if isinstance(source, Dataset):
        found, of_stations = measurements.of_run(source), stations(source)
    else:
        found, of_stations = source, None
    try:
        systems = fit.fit_systems(
            found.table,
            measurements.configuration(source),
            asked,
            constant=found.constant,
            stations=of_stations,
            level=level,
            seed=seed,
        )
    except FitError as error:
        # The layered model's reason is about the question; the curve knows fewer settings.
        raise FitError(why or str(error)) from None
    if why:
        print(f"The prediction is from a fitted curve, not from a model of the processors: {why}.")
    confirmed: list[tuple[float, Interval, Interval]] = []
    for number, (system, scenario) in enumerate(systems):
        forecast = system.forecast(scenario, seed=seed) if scenario else None
        print("\n" * bool(number) + fit.render_text(system, forecast), flush=True)
        if forecast is not None and goal is not None:
            print(fit.goal_sentence(goal, forecast), flush=True)
        if forecast is not None:
            confirmed.append((forecast.scenario.clients, forecast.throughput, forecast.response_ms))
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
    if measured and isinstance(source, Dataset):
        _confirm(source, asked, confirmed)


def _is_wide(interval: Interval) -> bool:
    return interval.high is None or not interval.low or interval.high > _WIDE * interval.low


def _print_layered(
    source: Dataset,
    asked: Mapping[str, Setting | Sequence[Setting]],
    goal: Goal | None,
    level: float,
    seed: int,
    simulator: Simulator | None,
) -> list[tuple[float, Interval, Interval]]:
    """Clients, throughput and response time of every forecast that was printed."""
    from knee import fit

    systems = fit.layered_systems(
        source, measurements.configuration(source), asked, level=level, seed=seed, has_quantiles=simulator is not None
    )
    found = fit.layered_forecasts(systems, asked, simulator)
    for number, (label, system, each) in enumerate(found):
        print("\n" * bool(number) + fit.render_layered(label, system, each, goal, simulator), flush=True)
    return [(one.clients, one.throughput, one.response_ms) for _, _, each in found for one in each]


def _print_sought(
    source: Dataset | Measurements,
    asked: Mapping[str, Setting],
    name: str,
    goal: Goal,
    level: float,
    seed: int,
    simulator: Simulator | None,
) -> None:
    from knee import fit

    if not isinstance(source, Dataset):
        raise SpecError("--seek: needs a run folder: a table has no processor times")
    systems = fit.layered_systems(
        source, measurements.configuration(source), asked, level=level, seed=seed, has_quantiles=simulator is not None
    )
    found = fit.seek_settings(systems, asked, name, goal, simulator)
    for number, (label, system, each) in enumerate(found):
        print("\n" * bool(number) + fit.render_sought(label, system, each, simulator), flush=True)


def _confirm(source: Dataset, asked: Mapping[str, object], found: Sequence[tuple[float, Interval, Interval]]) -> None:
    from knee.cli.measure import confirm

    for name in asked:
        if name.endswith(".link_mbit") and not source.manifest.get("links_emulated"):
            raise SpecError(f"--measure: {name} had no effect in this run; measure one with measure.hosts = 'emulated'")
    if len(found) != 1:
        raise SpecError("--measure: expected settings of one configuration: set every factor to one value")
    ((clients, throughput, response_ms),) = found
    confirm(source, asked, round(clients), throughput, response_ms)


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
    path = table_of(path)
    if path.is_dir() or not (path.exists() or path.suffix == ".csv"):
        if renames:
            raise MeasurementsError("--map: renames columns of a CSV, and does not apply to a run folder")
        dataset = Dataset.open(path)
        if (why := dataset.why_empty) is not None:
            if not maybe_empty:
                raise DatasetError(f"{path}: {why}")
            _note(f"{path}: {why}")
        return dataset
    found = csv.read(path, renames or [], factors=factors, responses=responses)
    _note(*found.notes)
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


def _note(*notes: str) -> None:
    for note in notes:
        print(f"knee: {note}", file=sys.stderr)
