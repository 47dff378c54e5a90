"""What nobody has measured: throughput and response time of a chosen model, with prediction intervals."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy import stats

from knee.data.csv import constant_in_words, is_open_loop, label_of
from knee.errors import FitError
from knee.fit.curve import (
    CONNECTIONS,
    OPEN_LOOP,
    SLOTS,
    THINK_SCATTER,
    WORKERS,
    Curve,
    connections_follow,
    connections_of,
    curve_of,
    knows_connections,
    middlewares_of,
    same_think,
    servers_in_words,
    taken_ms,
    worker_slots_of,
)
from knee.fit.models import candidates
from knee.fit.search import Fit, fit_model
from knee.fit.selection import Selection, select
from knee.fit.stages import Stages, stage_demands
from knee.laws.foreign import ALL
from knee.queueing import POPULATION_MAX, Network
from knee.spec.tables import factor_names, names_of_one_value
from knee.stats.intervals import LEVEL, Floats, Interval, number

RESAMPLES = 100

_TAIL = 0.05
"""Of the resamples on either side of the quantiles that intervals are stretched from: further out few lie."""

_RESAMPLE_TOLERANCE = 1e-4
"""Of a resample's search, which starts at the solution nearby; far below what the resamples differ by."""

CLIENTS = ("clients", "load.clients")
THINK = ("think_ms", "workload.think_ms")
PIPELINE = ("pipeline", "workload.pipeline")

THINK_MAX_MS = 10**9
"""Eleven days: of far longer cycles the response time would be lost in the rounding."""

_NEAR = 0.7
"""How alike two names are of which one may be meant by the other: load.hosts is no slip of load.clients."""

_OF_NO_CONFIGURATION = ("experiment.", "measure.")
"""Tables of settings that say how something was measured, and not what."""

Setting = int | float | str | bool


@dataclass(frozen=True)
class Scenario:
    """A load, and the worker slots or connections, whichever are fewer, that meet it.

    `slots` is NaN where nobody said how many there are; `servers` says which of both they are.
    """

    clients: float
    pipeline: float
    think_ms: float
    slots: float
    servers: str = SLOTS

    @property
    def customers(self) -> float:
        """N: every request in flight is one."""
        return float(round(self.clients * self.pipeline))


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a model predicts for a scenario in one configuration.

    throughput   requests/s, with its prediction interval: of one further run, the model's own error included
    response_ms  as the curve's view sees it
    outside      how far the scenario lies outside of what was measured, in words; empty within it
    """

    scenario: Scenario
    throughput: Interval
    response_ms: Interval
    outside: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FittedSystem:
    """The models of one configuration.

    label       the configuration in words; empty where nothing but the load and the slots varied
    parameters  of the chosen model, with their intervals
    draws       the chosen model's parameters in every resample, shape (resamples, parameters)
    misfit      logarithmic errors of throughput and response time at the points, widened, shape (points, 2)
    scatter     those of the runs about their points, shape (n, 2)
    drift       root mean square of how far the draws' predictions lie from the fit's at the measured points
    stages      what a request needs of every stage; with the most worker slots where their number was a factor
    pipelines   how many requests each client kept in flight, every number that was measured
    """

    label: str
    selection: Selection
    parameters: Mapping[str, Interval]
    draws: Floats
    misfit: Floats
    scatter: Floats
    drift: float
    stages: Stages
    pipelines: tuple[float, ...]
    level: float

    def network(self, scenario: Scenario) -> Network | None:
        """The chosen model's network for :func:`knee.queueing.solve_closed` and :func:`knee.queueing.simulate` with
        `populations=round(scenario.customers)`, times in ms; None of a model that has no stations.

        The load-dependent station is served as one: how long a request is in a slot, :mod:`knee.fit.plan` says.
        """
        return network_of(self.selection.chosen.fit, scenario)

    def forecast(self, scenario: Scenario, *, seed: int = 0) -> Forecast:
        """Predict a scenario. The interval has the parameters' uncertainty, and the error that a further run may have
        against the model: beyond the largest client count at least what cross-validation found there, and elsewhere at
        least what it found between. For more slots or connections than were measured it reaches to what the most of
        them give. It knows nothing of what else the model leaves out."""
        return self.forecasts([scenario], seed=seed)[0]

    def forecasts(self, scenarios: Sequence[Scenario], *, seed: int = 0) -> list[Forecast]:
        """Several at once: a client count more costs nothing, as a solution is for all up to the largest."""
        curve, model = self.selection.curve, self.selection.chosen.model
        asked = as_curve(curve, scenarios)
        throughput, response = self.selection.chosen.fit.predict(asked)
        centre = np.array([throughput, response])
        rng = np.random.default_rng(seed)
        several = np.log(np.array([model.predict(values, asked) for values in self.draws]) / centre)
        # The same errors for every scenario, so that a band over client counts is smooth.
        misfit = self.misfit[rng.integers(len(self.misfit), size=len(self.draws))]
        scatter = self.scatter[rng.integers(len(self.scatter), size=len(self.draws))]
        several += misfit[:, :, np.newaxis] * self._widening(asked.customers) + scatter[:, :, np.newaxis]
        stretch = _stretch(curve, len(model.parameters), self.level)
        low, high = (stretch * np.quantile(several, tail, axis=0) for tail in (_TAIL, 1 - _TAIL))
        low, high = centre * np.exp(np.minimum(low, 0)), centre * np.exp(np.maximum(high, 0))
        found = [
            Forecast(
                scenario,
                Interval(float(throughput[i]), float(low[0, i]), float(high[0, i]), self.level, len(curve)),
                Interval(float(response[i]), float(low[1, i]), float(high[1, i]), self.level, len(curve)),
                tuple(_outside(curve, self.pipelines, scenario)),
            )
            for i, scenario in enumerate(scenarios)
        ]
        most = float(curve.slots.max())
        further = [i for i, scenario in enumerate(scenarios) if scenario.slots > most]
        as_most = self.forecasts([replace(scenarios[i], slots=most) for i in further], seed=seed) if further else []
        for i, floor in zip(further, as_most, strict=True):
            found[i] = _reaching(found[i], floor)
        return found

    def _widening(self, customers: Floats) -> Floats:
        """How many times the fit's own misfit a scenario's is, so that with the parameters' drift it is not smaller
        than cross-validation's.

        The largest count's error came over the distance ln(N_last / N_before): it is that of a slope which the smaller
        counts show wrong, and further out it grows as far as that slope stays wrong, with the logarithm of the clients.
        """
        trial, residual = self.selection.chosen, float(np.sqrt(np.mean(self.misfit**2)))
        before, last = self.selection.curve.counts[-2:]
        steps = np.maximum(1.0, np.log(customers / last) / np.log(last / before))
        beyond = np.maximum(trial.inner_error, trial.edge_error * steps)
        found = np.where(customers > last, beyond, trial.inner_error)
        needed = np.sqrt(np.maximum(0, found**2 - self.drift**2))
        return np.maximum(1.0, needed / residual) if residual else np.ones_like(needed)


def _reaching(forecast: Forecast, floor: Forecast) -> Forecast:
    """A forecast for more worker slots or connections than were measured, whose intervals reach to what the most of
    them give: what lies behind may have been just short of its own limit, which nothing measured shows."""
    throughput, response_ms = forecast.throughput, forecast.response_ms
    assert throughput.low is not None and floor.throughput.low is not None
    assert response_ms.high is not None and floor.response_ms.high is not None
    return replace(
        forecast,
        throughput=replace(throughput, low=min(throughput.low, floor.throughput.low)),
        response_ms=replace(response_ms, high=max(response_ms.high, floor.response_ms.high)),
    )


def fit_systems(
    table: pl.DataFrame,
    others: Sequence[str],
    settings: Mapping[str, Setting] | None = None,
    *,
    constant: Mapping[str, object] | None = None,
    stations: pl.DataFrame | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[tuple[FittedSystem, Scenario | None]]:
    """Fit every configuration of a table, and put what `settings` ask for to each.

    Client counts, worker slots, connections and think times are the models' own: rows that differ in them only are
    fitted together.

    Parameters
    ----------
    table
        A row per observation (:mod:`knee.data.csv`).
    others
        Factors besides the clients.
    settings
        `clients`, `workers`, `connections`, `think_ms` or `pipeline` (under these or the experiment file's names) to
        any value, and other factors to one of their measured levels. None, and there is no scenario: only the fits.
    constant
        Settings that were the same in every row, with what they were, which may be asked for as well.
    stations
        :mod:`knee.laws.stations` of a run folder, for what a request needs of every stage.

    Raises
    ------
    FitError
        For a name that no model knows and nothing has, a level that was not measured, or too little data.
    """
    asked = dict(settings or {})
    if "think_ms" in table.columns and is_open_loop(table):
        # What is wrong with each of its rates is wrong with all of them.
        raise FitError(OPEN_LOOP)
    own = _own(table)
    named = [name for name in others if name not in own]
    for name in set(asked) - own:
        table = _chosen(table, name, asked[name], named, constant or {})
    slots_matter = any(name in WORKERS or (name in CONNECTIONS and name in own) for name in asked)
    found = []
    groups = configurations(table, others)
    for label, rows in groups:
        try:
            curve = _curve(rows, named, groups)
            if slots_matter and not curve.knows_slots:
                raise FitError("the number of worker slots is not known of every row, so no model knows what others do")
            scenario = _scenario(rows, curve, asked) if asked else None
            think_matters = scenario is not None and not same_think(scenario.think_ms, curve.think_ms)
            selection = select(curve, candidates(curve, slots_matter=slots_matter, think_matters=think_matters))
        except FitError as error:
            raise FitError(f"{label}: {error}" if label else str(error)) from None
        stages = stage_demands(_most_slots(rows), stations, level=level, seed=seed)
        found.append((_fitted(label, selection, stages, _pipelines(rows), level, resamples, seed), scenario))
    return found


def configurations(table: pl.DataFrame, others: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
    """The rows that one model is fitted to, and what tells them from the others in words.

    Rows of one request type among several are left out: the clients of a closed loop wait for all of them. So are rows
    of an open loop beside those of a closed one.
    """
    closed = table.filter(pl.col("think_ms").is_not_null()) if "think_ms" in table.columns else table
    table = table if closed.is_empty() else closed
    if "request_type" in table.columns and table["request_type"].n_unique() > 1:
        table = table.filter(pl.col("request_type").str.to_lowercase().is_in(list(ALL)))
        if table.is_empty():
            raise FitError("a model takes rows that count all requests together, with request_type all")
    own = _own(table)
    own |= {"request_type", *(name for name in others if table[name].is_null().all())}
    named = [name for name in others if name not in own]
    if not named:
        return [("", table)]
    return [
        (label_of(dict(zip(named, levels, strict=True))), rows)
        for levels, rows in table.group_by(named, maintain_order=True)
    ]


def _own(table: pl.DataFrame) -> set[str]:
    """What the models themselves know of, under all of its names."""
    return {name for names in _known(table) for name in names}


def _known(table: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    return (CLIENTS, WORKERS, THINK, PIPELINE, *([CONNECTIONS] if knows_connections(table) else []))


def _curve(rows: pl.DataFrame, apart: Sequence[str], groups: Sequence[tuple[str, pl.DataFrame]]) -> Curve:
    """The curve of one of the configurations, or what it lacks and, where another one has a curve, how to have that."""
    try:
        return curve_of(rows)
    except FitError as error:
        others = f"; or choose another with --set {' '.join(f'{name}=…' for name in apart)}"
        raise FitError(f"{error}{others if any(_has_curve(other) for _, other in groups) else ''}") from None


def _has_curve(rows: pl.DataFrame) -> bool:
    try:
        curve_of(rows)
    except FitError:
        return False
    return True


def _most_slots(rows: pl.DataFrame) -> pl.DataFrame:
    for names in (WORKERS, CONNECTIONS):
        name = next((name for name in names if name in rows.columns and rows[name].dtype.is_numeric()), None)
        if name is not None and rows[name].n_unique() > 1:
            rows = rows.filter(pl.col(name) == pl.col(name).max())
    return rows


def _chosen(
    table: pl.DataFrame, name: str, level: Setting, configuration: Sequence[str], constant: Mapping[str, object]
) -> pl.DataFrame:
    if name not in configuration:
        # Under the experiment file's names where one of these is meant.
        which = 1 if "." in name else 0
        known = [*(names[which] for names in _known(table)), *configuration]
        one_value = names_of_one_value()
        if name in constant:
            if _is_level(level, constant[name]):
                return table
            raise FitError(
                f"{constant_in_words(name, constant[name])}, and no model knows what another value does: measure that, "
                f"or set one of {', '.join(known)}"
            )
        if name in table.columns or (name in one_value and name.startswith(_OF_NO_CONFIGURATION)):
            raise FitError(f"{name} is nothing that tells configurations apart: set one of {', '.join(known)}")
        if name in (*factor_names(), *one_value):
            raise FitError(f"{name}: nothing here says what it was: expected one of {', '.join(known)}")
        near = difflib.get_close_matches(name, [*known, *constant], n=1, cutoff=_NEAR)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
        raise FitError(f"{name}: no such setting: {hint}")
    rows = table.filter(pl.Series([_is_level(level, value) for value in table[name]]))
    if rows.is_empty():
        levels = ", ".join(map(_level_in_words, table[name].unique().sort().to_list()))
        raise FitError(f"{name} = {level} was not measured, and no model knows what it does: measured were {levels}")
    return rows


def _is_level(asked: Setting, measured: object) -> bool:
    """Of 2 and 2.0, and of the text 2, nobody says which one is meant."""
    return measured == asked or _level_in_words(measured) == str(asked)


def _level_in_words(level: object) -> str:
    """As :func:`knee.data.csv.label_of` writes it."""
    return "none" if level is None else str(level)


def _setting(asked: Mapping[str, Setting], names: Sequence[str]) -> float | None:
    given = [name for name in names if name in asked]
    if not given:
        return None
    if len(given) > 1:
        raise FitError(f"{' and '.join(given)} are the same: set one of them")
    name, value = given[0], asked[given[0]]
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if names is THINK:
        if not known or not 0 <= value <= THINK_MAX_MS:  # type: ignore[operator]
            raise FitError(f"{name}: expected a number from 0 to {THINK_MAX_MS:,}, not {value!r}")
    elif not known or not 1 <= value <= POPULATION_MAX or value % 1:  # type: ignore[operator]
        raise FitError(f"{name}: expected a whole number from 1 to {POPULATION_MAX:,}, not {value!r}")
    return float(value)


def _scenario(rows: pl.DataFrame, curve: Curve, asked: Mapping[str, Setting]) -> Scenario:
    """What is asked for; what is not is as it was measured, with the most clients and requests in flight."""
    clients, pipeline = _setting(asked, CLIENTS), _setting(asked, PIPELINE)
    workers, think_ms = _setting(asked, WORKERS), _setting(asked, THINK)
    every, pools = worker_slots_of(rows), connections_of(rows)
    slots, pool = float(every[-1]), float(pools[-1])
    if workers is not None:
        slots = workers * float(middlewares_of(rows)[-1])
        if slots > POPULATION_MAX:
            raise FitError(f"workers × middlewares: expected at most {POPULATION_MAX:,}, not {slots:,.0f}")
    elif curve.knows_slots and np.ptp(every):
        raise FitError("the number of workers was a factor: say for how many, with --set workers=…")
    if knows_connections(rows):
        connections = _setting(asked, CONNECTIONS)
        if connections is not None:
            pool = connections
        elif connections_follow(rows):
            pool = slots
        elif np.ptp(pools):
            raise FitError("the number of connections was a factor: say for how many, with --set connections=…")
    if think_ms is not None:
        think_ms = taken_ms(think_ms, rows, curve)
    elif np.ptp(curve.think_ms):
        raise FitError("the think time was a factor: say for which, with --set think_ms=…")
    scenario = Scenario(
        clients=float(rows.filter(pl.col("throughput") > 0)["clients"].max()) if clients is None else clients,  # type: ignore[arg-type]
        pipeline=_pipelines(rows)[-1] if pipeline is None else pipeline,
        think_ms=float(curve.think_ms.mean()) if think_ms is None else think_ms,
        slots=float(np.fmin(slots, pool)),
        servers=servers_in_words(np.array([slots]), np.array([pool])),
    )
    if scenario.customers > POPULATION_MAX:
        raise FitError(f"clients × pipeline: expected at most {POPULATION_MAX:,}, not {scenario.customers:,.0f}")
    return scenario


def _pipelines(rows: pl.DataFrame) -> tuple[float, ...]:
    """The numbers of requests in flight per client, ascending; one where nobody says."""
    if "pipeline" not in rows.columns:
        return (1.0,)
    return tuple(rows["pipeline"].fill_null(1).cast(pl.Float64).unique().sort().to_list())


def as_curve(curve: Curve, scenarios: Sequence[Scenario]) -> Curve:
    """Scenarios as rows of a curve."""
    nothing = np.full(len(scenarios), np.nan)
    return Curve(
        np.array([scenario.customers for scenario in scenarios]),
        np.array([scenario.think_ms for scenario in scenarios]),
        np.array([scenario.slots for scenario in scenarios]),
        nothing,
        nothing,
        np.arange(len(scenarios)),
        curve.view,
        curve.servers,
    )


def network_of(fit: Fit, scenario: Scenario) -> Network | None:
    """A fitted model's network for a scenario; None of a model that has no stations."""
    return fit.model.network(fit.values, round(scenario.customers), scenario.think_ms, scenario.slots)


def _outside(curve: Curve, pipelines: Sequence[float], scenario: Scenario) -> list[str]:
    told = []
    # Many clients were measured here only if they were with these slots and this think time.
    alike = curve.slots == scenario.slots if curve.knows_slots else np.ones(len(curve), dtype=bool)
    alike &= np.isclose(curve.think_ms, scenario.think_ms, rtol=THINK_SCATTER)
    customers = curve.customers[alike] if alike.any() else curve.customers
    for name, value, measured in (
        ("clients × pipeline" if scenario.pipeline > 1 else "clients", scenario.customers, customers),
        (_served_in_words(curve, scenario), scenario.slots, curve.slots),
        ("think time", scenario.think_ms, curve.think_ms),
    ):
        low, high = float(np.min(measured)), float(np.max(measured))
        if value > high * 1.001:
            told.append(
                f"{name}: {_plain(value)} is {number(value / high, 2)} times the largest that was measured"
                if high
                else f"{name}: {_plain(value)}, and only 0 was measured"
            )
        elif value < low * 0.999:
            told.append(f"{name}: {_plain(value)} is {number(value / low, 2)} times the smallest that was measured")
    if scenario.pipeline not in pipelines:
        had = " or ".join(_plain(pipeline) for pipeline in pipelines)
        told.append(
            f"requests in flight per client: {_plain(scenario.pipeline)}, and only {had} was measured; the models take "
            "each for a client of its own"
        )
    return told


def _served_in_words(curve: Curve, scenario: Scenario) -> str:
    """What the slots of a scenario and those that were measured both count."""
    if scenario.servers == curve.servers:
        return scenario.servers
    served = f"requests served at a time, which {scenario.servers} limit"
    # Of some rows they did before.
    return served if scenario.servers in curve.servers else f"{served} instead of {curve.servers}"


def _plain(value: float) -> str:
    return f"{value:,.10g}"


def _fitted(
    label: str,
    selection: Selection,
    stages: Stages,
    pipelines: tuple[float, ...],
    level: float,
    resamples: int,
    seed: int,
) -> FittedSystem:
    """Intervals by a bootstrap of residuals: what was measured, anew, from the model and its own errors.

    A point's repetitions share what the model gets wrong there, so points are resampled, not rows: the mean logarithmic
    residuals of each point's throughput and response time, in pairs, widened for the degrees of freedom that the
    parameters took (Davison & Hinkley 1997, §6.3.3 and §7.3). What a further run may add is one of these and one
    repetition's distance from its point.
    """
    curve, chosen = selection.curve, selection.chosen
    model, values = chosen.model, chosen.fit.values
    fitted = np.stack(chosen.fit.predict(curve), axis=1)
    logs = np.log(np.stack([curve.throughput, curve.response_ms], axis=1) / fitted)
    points, of_row = np.unique(curve.point, return_inverse=True)
    misfit = np.array([logs[of_row == number].mean(axis=0) for number in range(points.size)])
    scatter = logs - misfit[of_row]
    facts = curve.facts_a_point * points.size
    misfit = (misfit - misfit.mean(axis=0)) * np.sqrt(facts / max(1, facts - len(values)))
    rng = np.random.default_rng(seed)
    draws, deviations = [], []
    for picked in rng.integers(points.size, size=(resamples, points.size)):
        again = fitted * np.exp(misfit[picked][of_row])
        fit = fit_model(model, curve.measured(again[:, 0], again[:, 1]), values, _RESAMPLE_TOLERANCE)
        draws.append(fit.values)
        deviations.append(np.log(np.stack(fit.predict(curve), axis=1) / fitted))
    parameters = np.array(draws)
    stretch = _stretch(curve, len(values), level)
    logs_of = np.log(parameters) - np.log(values)
    low, high = (values * np.exp(stretch * np.quantile(logs_of, tail, axis=0)) for tail in (_TAIL, 1 - _TAIL))
    return FittedSystem(
        label=label,
        selection=selection,
        parameters={
            name: Interval(
                float(values[i]),
                min(float(low[i]), float(values[i])),
                max(float(high[i]), float(values[i])),
                level,
                len(curve),
            )
            for i, name in enumerate(model.parameters)
        },
        draws=parameters,
        misfit=misfit,
        scatter=scatter,
        drift=float(np.sqrt(np.mean(np.square(deviations)))),
        stages=stages,
        pipelines=pipelines,
        level=level,
    )


def _stretch(curve: Curve, parameters: int, level: float) -> float:
    """How much wider an interval of this level is than that of the resamples' _TAIL on both sides: t for z, as the
    residuals' spread is itself uncertain, with the tails' shape taken for the normal one's beyond."""
    spare = max(1, curve.facts_a_point * np.unique(curve.point).size - parameters)
    return float(stats.t.ppf((1 + level) / 2, spare) / stats.norm.ppf(1 - _TAIL))
