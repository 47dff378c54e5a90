"""What a fitted model predicts for loads that were not measured, with prediction intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from knee.fit.curve import Curve
from knee.fit.scenario import Scenario, as_curve, outside_of
from knee.fit.search import Fit, fit_model
from knee.fit.selection import Selection
from knee.fit.stages import Stages
from knee.queueing import Network
from knee.stats.intervals import Floats, Interval

_TAIL = 0.05
"""Of the resamples on either side of the quantiles that intervals are stretched from: further out few lie."""

_RESAMPLE_TOLERANCE = 1e-4
"""Of a resample's search, which starts at the solution nearby; far below what the resamples differ by."""


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
                tuple(outside_of(curve, self.pipelines, scenario)),
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


def fitted(
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


def network_of(fit: Fit, scenario: Scenario) -> Network | None:
    """A fitted model's network for a scenario; None of a model that has no stations."""
    return fit.model.network(fit.values, round(scenario.customers), scenario.think_ms, scenario.slots)
