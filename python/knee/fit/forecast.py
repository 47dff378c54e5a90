"""Predictions of a fitted model for loads that were not measured, with prediction intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from knee.fit.curve import Curve
from knee.fit.scenario import Scenario, as_curve, outside_of
from knee.fit.search import Fit, search
from knee.fit.selection import Selection
from knee.fit.stages import Stages
from knee.queueing import Network
from knee.stats.intervals import Floats, Interval

_TAIL = 0.05
"""Share of the resamples beyond each quantile from which an interval is extrapolated. Further out, there are too few
resamples."""

_RESAMPLE_TOLERANCE = 1e-4
"""Tolerance of the search for each resample: far below the differences between resamples."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The prediction of a model for a scenario in one configuration.

    throughput   requests/s, with a prediction interval for one further run that includes the model's own error
    response_ms  in the curve's view (client or middleware)
    outside      a clause for each quantity in which the scenario extrapolates
    may_fall     whether there are more clients than measured, without a measured fall of throughput: a fall beyond the
                 measurements is possible, so only the throughput's upper end and the response time's lower end hold
    """

    scenario: Scenario
    throughput: Interval
    response_ms: Interval
    outside: tuple[str, ...]
    may_fall: bool = False


@dataclass(frozen=True, eq=False)
class FittedSystem:
    """The models of one configuration.

    label       the levels of the configuration; empty if only the load and the slots varied
    parameters  of the chosen model, with their intervals
    draws       the chosen model's parameters in every resample, shape (resamples, parameters)
    misfit      logarithmic residuals of throughput and response time at the points, widened, shape (points, 2)
    scatter     logarithmic deviations of the runs from the means of their points, shape (n, 2)
    drift       root mean square difference between predictions of draws and of the fit, at the measured points
    stages      the demand at each stage; from rows with the most worker slots if their number was a factor
    pipelines   every measured number of requests in flight per client
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
        `populations=round(scenario.customers)`, times in ms; None if the model has no stations.

        A load-dependent station has one rate for all slots; :mod:`knee.fit.plan` derives the service time of one slot.
        """
        return network_of(self.selection.chosen.fit, scenario)

    def forecast(self, scenario: Scenario, *, seed: int = 0) -> Forecast:
        """Predict a scenario by the chosen model. The interval covers the uncertainty of the parameters and the error
        of one further run, around the predictions of all models that may describe the system as well. The error is at
        least the cross-validation error of the largest client count beyond that count, and of the counts between
        elsewhere.

        Beyond the measured clients, slots or connections, the interval reaches to the prediction for the largest
        measured number, as another resource may limit from there on. Throughput per client rises nowhere. The interval
        does not cover a fall of throughput that no measurement shows."""
        return self.forecasts([scenario], seed=seed)[0]

    def forecasts(self, scenarios: Sequence[Scenario], *, seed: int = 0) -> list[Forecast]:
        """Predict several scenarios at once: one solution covers all client counts up to the largest."""
        curve, model = self.selection.curve, self.selection.chosen.model
        asked = as_curve(curve, scenarios)
        throughput, response = self.selection.chosen.fit.predict(asked)
        centre = np.array([throughput, response])
        near = np.array([trial.fit.predict(asked) for trial in self.selection.near])
        rng = np.random.default_rng(seed)
        several = np.log(np.stack(model.predict(self.draws, asked), axis=1) / centre)
        # Draw the same errors for every scenario, so that a band over client counts is smooth.
        misfit = self.misfit[rng.integers(len(self.misfit), size=len(self.draws))]
        scatter = self.scatter[rng.integers(len(self.scatter), size=len(self.draws))]
        several += misfit[:, :, np.newaxis] * self._widening(asked.customers) + scatter[:, :, np.newaxis]
        stretch = _stretch(curve, len(model.parameters), self.level)
        low, high = (stretch * np.quantile(several, tail, axis=0) for tail in (_TAIL, 1 - _TAIL))
        low, high = near.min(axis=0) * np.exp(np.minimum(low, 0)), near.max(axis=0) * np.exp(np.maximum(high, 0))
        found = [
            Forecast(
                scenario,
                Interval(float(throughput[i]), float(low[0, i]), float(high[0, i]), self.level, len(curve)),
                Interval(float(response[i]), float(low[1, i]), float(high[1, i]), self.level, len(curve)),
                tuple(outside_of(curve, self.pipelines, scenario)),
                scenario.customers > curve.counts[-1] and not curve.falls,
            )
            for i, scenario in enumerate(scenarios)
        ]
        measured = [self._measured(scenario) for scenario in scenarios]
        further = list(dict.fromkeys(one for one, own in zip(measured, scenarios, strict=True) if one is not own))
        floors = dict(zip(further, self.forecasts(further, seed=seed), strict=True)) if further else {}
        return [
            _reaching(each, floors[one]) if one in floors else each for each, one in zip(found, measured, strict=True)
        ]

    def _measured(self, scenario: Scenario) -> Scenario:
        """The scenario, with at most as many clients, and else as many slots, as were measured."""
        curve = self.selection.curve
        if scenario.customers > curve.counts[-1]:
            return replace(scenario, clients=curve.counts[-1] / scenario.pipeline)
        most = float(curve.slots.max())
        return replace(scenario, slots=most) if scenario.slots > most else scenario

    def _widening(self, customers: Floats) -> Floats:
        """Factor on the fit's residuals for each client count, so that residuals and drift together reach the
        cross-validation error. The error of the largest count arose over the distance ln(N_last / N_before), as an
        error of the slope. Beyond the largest count, the error grows with the logarithm of the clients.
        """
        trial, residual = self.selection.chosen, float(np.sqrt(np.mean(self.misfit**2)))
        before, last = self.selection.curve.counts[-2:]
        steps = np.maximum(1.0, np.log(customers / last) / np.log(last / before))
        beyond = np.maximum(trial.inner_error, trial.edge_error * steps)
        found = np.where(customers > last, beyond, trial.inner_error)
        needed = np.sqrt(np.maximum(0, found**2 - self.drift**2))
        return np.maximum(1.0, needed / residual) if residual else np.ones_like(needed)


def _reaching(forecast: Forecast, floor: Forecast) -> Forecast:
    """A forecast for more clients, slots or connections than measured, with intervals extended to `floor`, the
    prediction for the largest measured number: another resource may be close to its own limit, which no measurement
    shows. With more clients, throughput per client and the time between two requests bound the other ends.
    """
    x, r = forecast.throughput, forecast.response_ms
    assert x.low is not None and x.high is not None and r.low is not None and r.high is not None
    assert floor.throughput.low is not None and floor.throughput.high is not None
    assert floor.response_ms.low is not None and floor.response_ms.high is not None
    more = forecast.scenario.customers - floor.scenario.customers
    slowest = floor.response_ms.high + 1000 * more / floor.throughput.low
    x, r = replace(x, low=min(x.low, floor.throughput.low)), replace(r, high=max(r.high, slowest))
    if more:
        most = floor.throughput.high * forecast.scenario.customers / floor.scenario.customers
        x = replace(x, high=max(x.estimate, min(forecast.throughput.high or most, most)))
        r = replace(r, low=min(r.estimate, max(forecast.response_ms.low or 0.0, floor.response_ms.low)))
    return replace(forecast, throughput=x, response_ms=r)


def fitted(
    label: str,
    selection: Selection,
    stages: Stages,
    pipelines: tuple[float, ...],
    level: float,
    resamples: int,
    seed: int,
) -> FittedSystem:
    """The system with intervals by a bootstrap of residuals: each resample is the model's prediction plus drawn
    residuals.

    Repetitions of a point share the model's error there, so points are resampled, not rows. The bootstrap draws pairs
    of mean logarithmic residuals (throughput, response time) of a point, and widens them for the parameters' degrees of
    freedom (Davison & Hinkley 1997, §6.3.3 and §7.3). The error of a further run is one such residual plus the
    deviation of one repetition from its point.
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
    picked = rng.integers(points.size, size=(resamples, points.size))
    again = (fitted * np.exp(misfit[picked][:, of_row])).swapaxes(1, 2).reshape(resamples, -1)
    shown = np.ones(again.shape, dtype=np.bool_)
    draws, _ = search(model, curve, again, shown, np.tile(values, (resamples, 1)), _RESAMPLE_TOLERANCE)
    deviations = np.log(np.stack(model.predict(draws, curve), axis=-1) / fitted)
    stretch = _stretch(curve, len(values), level)
    logs_of = np.log(draws) - np.log(values)
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
        draws=draws,
        misfit=misfit,
        scatter=scatter,
        drift=float(np.sqrt(np.mean(np.square(deviations)))),
        stages=stages,
        pipelines=pipelines,
        level=level,
    )


def _stretch(curve: Curve, parameters: int, level: float) -> float:
    """Ratio of an interval of this level to the interval between the resamples' _TAIL quantiles. The tails beyond are
    assumed normal, and Student's t replaces z, because the residuals' spread is itself uncertain."""
    spare = max(1, curve.facts_a_point * np.unique(curve.point).size - parameters)
    return float(special.stdtrit(spare, (1 + level) / 2) / special.ndtri(1 - _TAIL))


def network_of(fit: Fit, scenario: Scenario) -> Network | None:
    """A fitted model's network for a scenario; None if the model has no stations."""
    return fit.model.network(fit.values, round(scenario.customers), scenario.think_ms, scenario.slots)
