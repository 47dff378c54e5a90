"""`knee predict`: predicts settings that were not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knee import spec
from knee.answers import predict as answers
from knee.cli.analyse import opened
from knee.cli.output import progress_aside
from knee.data import Dataset, measurements
from knee.data.measurements import Measurements
from knee.data.outputs import is_commands, is_search
from knee.data.reading import EXPERIMENT
from knee.errors import FitError, SpecError
from knee.stats.intervals import Interval

if TYPE_CHECKING:
    from knee.fit import Goal, Simulator
    from knee.fit.scenario import Setting

_WIDE = 1.2
"""Ratio of an interval's ends from which a prediction names the run that would narrow it."""


@dataclass
class _Answer:
    """What was predicted so far. Each part is printed at once, unless the answer is JSON."""

    as_json: bool
    predictions: list[answers.Prediction] = field(default_factory=list)
    models: list[answers.Model] = field(default_factory=list)
    sought: list[answers.Sought] = field(default_factory=list)
    measured: answers.Measured | None = None
    text: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.text += text.splitlines()
        if not self.as_json:
            print(text, flush=True)

    def whole(self) -> answers.Predictions:
        return answers.Predictions(
            tuple(self.predictions), tuple(self.models), tuple(self.sought), self.measured, tuple(self.text)
        )


def print_prediction(
    path: Path,
    settings: list[str],
    renames: list[str] | None,
    level: float,
    seed: int,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the best model's prediction for unmeasured settings, and a simulation if requested."""
    answer = _Answer(as_json)
    with progress_aside(as_json):
        _predict(answer, path, settings, renames, level, seed, **options)
    if as_json:
        from knee.answers import form

        print(form.render("predict", answer.whole()))


def _predict(
    answer: _Answer,
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
    from knee import fit

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
    if measured and not (path.is_dir() and not is_search(path)):
        raise SpecError(f"--measure: {path} is no run folder, so there is no experiment to run")
    if measured and is_commands(path):
        raise SpecError(
            "--measure: does not apply to another load generator; "
            f"measure the settings with `knee run {path / EXPERIMENT} --set …`"
        )
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
        _seek(answer, source, asked, sought, goal, level, seed, simulator)
        return
    why = ""
    if isinstance(source, Dataset) and (about_quantiles or fit.needs_layers(asked, source)):
        try:
            forecasts = _predict_layered(answer, source, asked, goal, level, seed, simulator)
        except FitError as error:
            why = str(error)
        else:
            if measured:
                answer.measured = _confirm(source, asked, forecasts)
            elif (
                len(forecasts) == 1
                and _is_wide(forecasts[0][1])
                and not any(name.endswith(("cores", ".link_mbit")) for name in asked)
            ):
                usual = source.spec.measure
                answer.say(
                    "The run that narrows this interval most is the predicted one: --measure takes about "
                    f"{usual.repetitions * (usual.seconds + 2)} s for it."
                )
            return
    if about_quantiles:
        raise FitError(why or f"--slo {slo}: a table has no processor times; expected a run folder")
    if several:
        raise SpecError(why or f"--set {several[0]}: expected one value, not a list: a table has no processor times")
    try:
        systems = list(answers.systems(source, asked, level, seed))
    except FitError as error:
        # The layered model's reason is about the question; the curve knows fewer settings.
        raise FitError(why or str(error)) from None
    if why:
        answer.say(f"The prediction is from a fitted curve, not from a model of the processors: {why}.")
    confirmed: list[tuple[float, Interval, Interval]] = []
    for number, (system, scenario) in enumerate(systems):
        forecast = system.forecast(scenario, seed=seed) if scenario else None
        answer.say("\n" * bool(number) + fit.render_text(system, forecast))
        answer.models.append(answers.model(system))
        if forecast is not None and goal is not None:
            answer.say(fit.goal_sentence(goal, forecast))
        plan = None
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
            answer.say(fit.render_plan(system, plan))
        if forecast is not None:
            answer.predictions.append(answers.fitted(system, asked, forecast, goal, plan))
    if measured and isinstance(source, Dataset):
        answer.measured = _confirm(source, asked, confirmed)


def _is_wide(interval: Interval) -> bool:
    return interval.high is None or not interval.low or interval.high > _WIDE * interval.low


def _predict_layered(
    answer: _Answer,
    source: Dataset,
    asked: Mapping[str, Setting | Sequence[Setting]],
    goal: Goal | None,
    level: float,
    seed: int,
    simulator: Simulator | None,
) -> list[tuple[float, Interval, Interval]]:
    """Clients, throughput and response time of every forecast."""
    from knee import fit

    systems = fit.layered_systems(
        source, measurements.configuration(source), asked, level=level, seed=seed, has_quantiles=simulator is not None
    )
    found = fit.layered_forecasts(systems, asked, simulator)
    for number, (label, system, each) in enumerate(found):
        answer.say("\n" * bool(number) + fit.render_layered(label, system, each, goal, simulator))
        answer.predictions += answers.of_layered(label, asked, each, goal)
    return [(one.clients, one.throughput, one.response_ms) for _, _, each in found for one in each]


def _seek(
    answer: _Answer,
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
        answer.say("\n" * bool(number) + fit.render_sought(label, system, each, simulator))
        answer.sought.append(answers.sought(label, asked, each))


def _confirm(
    source: Dataset, asked: Mapping[str, object], found: Sequence[tuple[float, Interval, Interval]]
) -> answers.Measured:
    from knee.cli.measure import confirm

    for name in asked:
        if name.endswith(".link_mbit") and not source.manifest.get("links_emulated"):
            raise SpecError(f"--measure: {name} had no effect in this run; measure one with measure.hosts = 'emulated'")
    if len(found) != 1:
        raise SpecError("--measure: expected settings of one configuration: set every factor to one value")
    ((clients, throughput, response_ms),) = found
    return confirm(source, asked, round(clients), throughput, response_ms)
