"""The answer of `knee predict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from knee import fit
from knee.data import Dataset, measurements
from knee.data.measurements import Measurements
from knee.fit import FittedSystem, Forecast, Goal, Plan, Scenario
from knee.fit.goals import Sought as FoundSetting
from knee.fit.layered import LayeredForecast
from knee.laws.tables import stations
from knee.stats.intervals import Interval

LAYERED = "layered network"


@dataclass(frozen=True)
class Met:
    """Whether a prediction meets the goal of `--slo`: by the estimate, and with its whole interval."""

    goal: str
    likely: bool
    surely: bool


@dataclass(frozen=True)
class Simulation:
    """The simulation of `--simulate`. Its intervals cover only its own noise; quantiles are by percentile, "p99"."""

    throughput: Interval
    response_ms: Interval
    quantiles_ms: Mapping[str, Interval]
    refused: Interval | None
    utilization: Mapping[str, Interval]


@dataclass(frozen=True)
class Prediction:
    """A prediction for one further run, in one configuration.

    `settings` are the requested ones. `limits` are the growth of the throughput in percent per percent more of each
    resource, and `busy` the share of time in which each is busy, both of the layered network alone. `outside` has a
    clause for each quantity beyond the measurements. If throughput `may_fall`, only its upper end and the lower end of
    the response time hold.
    """

    label: str
    settings: Mapping[str, Any]
    model: str
    clients: float
    throughput: Interval
    response_ms: Interval
    quantiles_ms: Mapping[str, Interval]
    limits: Mapping[str, float]
    busy: Mapping[str, float]
    outside: tuple[str, ...]
    may_fall: bool
    goal: Met | None
    simulation: Simulation | None


@dataclass(frozen=True)
class Model:
    """The model of a configuration, its error on hidden numbers of clients, and its parameters."""

    label: str
    name: str
    error: float
    parameters: Mapping[str, Interval]


@dataclass(frozen=True)
class Sought:
    """The value of a setting with which the goal is met: `value` by the estimate, `sure` with the whole interval."""

    label: str
    name: str
    goal: str
    value: int | None
    sure: int | None
    prediction: Prediction | None


@dataclass(frozen=True)
class Measured:
    """The runs of `--measure`: a value for each repetition."""

    run: str
    throughput: tuple[float, ...]
    response_ms: tuple[float, ...]


@dataclass(frozen=True)
class Predictions:
    """Predictions for settings, or the sought value of one, with the printed sentences."""

    predictions: tuple[Prediction, ...]
    models: tuple[Model, ...]
    sought: tuple[Sought, ...]
    measured: Measured | None
    text: tuple[str, ...]


def of_layered(
    label: str, asked: Mapping[str, Any], forecasts: Sequence[LayeredForecast], goal: Goal | None = None
) -> tuple[Prediction, ...]:
    """The predictions of a layered network, for each combination of the asked values in order."""
    every = product(*(value if isinstance(value, list) else [value] for value in asked.values()))
    settings = [dict(zip(asked, values, strict=True)) for values in every]
    return tuple(layered(label, own, one, goal) for own, one in zip(settings, forecasts, strict=True))


def systems(
    source: Dataset | Measurements, asked: Mapping[str, Any], level: float, seed: int
) -> Iterator[tuple[FittedSystem, Scenario | None]]:
    """The fitted model of each configuration, with its scenario if there are settings. Raises FitError."""
    found = measurements.of_run(source) if isinstance(source, Dataset) else source
    yield from fit.fit_systems(
        found.table,
        measurements.configuration(source),
        asked,
        constant=found.constant,
        stations=stations(source) if isinstance(source, Dataset) else None,
        level=level,
        seed=seed,
    )


def layered(label: str, settings: Mapping[str, Any], found: LayeredForecast, goal: Goal | None = None) -> Prediction:
    """The prediction of a layered network."""
    return Prediction(
        label=label,
        settings=settings,
        model=LAYERED,
        clients=found.clients,
        throughput=found.throughput,
        response_ms=found.response_ms,
        quantiles_ms=_by_percentile(found.quantiles_ms),
        limits=dict(found.limits),
        busy=found.busy,
        outside=(),
        may_fall=False,
        goal=_met(goal, found),
        simulation=None,
    )


def fitted(
    system: FittedSystem,
    settings: Mapping[str, Any],
    found: Forecast,
    goal: Goal | None = None,
    plan: Plan | None = None,
) -> Prediction:
    """The prediction of a fitted model."""
    return Prediction(
        label=system.label,
        settings=settings,
        model=system.selection.chosen.model.name,
        clients=found.scenario.clients,
        throughput=found.throughput,
        response_ms=found.response_ms,
        quantiles_ms={},
        limits={},
        busy={},
        outside=found.outside,
        may_fall=found.may_fall,
        goal=_met(goal, found),
        simulation=None
        if plan is None
        else Simulation(
            plan.throughput, plan.response_ms, _by_percentile(plan.quantiles_ms), plan.refused, plan.utilisation
        ),
    )


def model(system: FittedSystem) -> Model:
    """The chosen model of a configuration."""
    chosen = system.selection.chosen
    return Model(system.label, chosen.model.name, chosen.score, system.parameters)


def sought(label: str, settings: Mapping[str, Any], found: FoundSetting) -> Sought:
    """The value that meets a goal."""
    sure = None if found.sure is None else found.sure[0]
    if found.likely is None:
        return Sought(label, found.name, str(found.goal), None, sure, None)
    value, forecast = found.likely
    prediction = layered(label, {**settings, found.name: value}, forecast, found.goal)
    return Sought(label, found.name, str(found.goal), value, sure, prediction)


def _met(goal: Goal | None, found: LayeredForecast | Forecast) -> Met | None:
    if goal is None:
        return None
    return Met(str(goal), goal.is_met(found, surely=False), goal.is_met(found, surely=True))


def _by_percentile(quantiles: Mapping[float, Interval]) -> dict[str, Interval]:
    return {f"p{100 * share:g}": value for share, value in quantiles.items()}
