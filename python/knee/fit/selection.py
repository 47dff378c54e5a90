"""Which model to believe: the one that predicts best what it was not shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.errors import FitError
from knee.fit.curve import Curve
from knee.fit.models import Model, candidates
from knee.fit.search import Fit, fit_model
from knee.intervals import Floats


@dataclass(frozen=True, eq=False)
class Trial:
    """A model's cross-validation: each inner client count left out in turn and predicted from the others.

    Attributes
    ----------
    fit
        To all client counts.
    left_out
        The client counts that were left out, ascending.
    throughput_error, response_error
        Relative errors of the predictions, predicted / measured − 1, mean over the rows of each left-out count.
    edge_error
        The same of throughput and response time at the largest client count, predicted from all smaller ones: what
        extrapolation costs.
    score
        Root mean square of the logarithmic errors of the inner counts.
    spread
        Standard error of the squares' mean.
    """

    fit: Fit
    left_out: tuple[float, ...]
    throughput_error: Floats
    response_error: Floats
    edge_error: tuple[float, float]
    score: float
    spread: float

    @property
    def model(self) -> Model:
        """The model that was tried."""
        return self.fit.model


@dataclass(frozen=True, eq=False)
class Selection:
    """Every model that there were data for, simplest first, and the one that was chosen.

    The chosen one is the simplest whose mean squared error lies within one standard error of the best's (Breiman,
    Friedman, Olshen & Stone 1984, §3.4.3: the one-standard-error rule).
    """

    curve: Curve
    trials: tuple[Trial, ...]
    chosen: Trial

    @property
    def sentence(self) -> str:
        """Which model, and how well it predicts what it was not shown."""
        inner = self.chosen
        x, r = (100 * float(np.median(np.abs(errors))) for errors in (inner.throughput_error, inner.response_error))
        best = min(self.trials, key=lambda trial: trial.score)
        why = (
            "it predicts best what it was not shown"
            if best is inner
            else f"the {best.model.name} does not predict what it was not shown better by more than chance"
        )
        return (
            f"Model: {inner.model.name}, as {why}: left out, a client count is predicted within {x:.1f}% for "
            f"throughput and {r:.1f}% for response time (median). The largest count, from the smaller ones: "
            f"{inner.edge_error[0]:+.1%} and {inner.edge_error[1]:+.1%}."
        )


def select(curve: Curve, models: Sequence[Model] | None = None) -> Selection:
    """Fit every model and choose among them by leaving out one inner client count at a time.

    The smallest and the largest count stay in: without them the others would be extrapolated, which is told apart.

    Raises FitError where no model is left.
    """
    tried = [trial for model in (candidates(curve) if models is None else models) if (trial := _try(model, curve))]
    if not tried:
        raise FitError("no model could be fitted: the throughputs and response times suit none of them")
    best = min(tried, key=lambda trial: trial.score)
    enough = best.score**2 + best.spread
    chosen = min(
        (trial for trial in tried if trial.score**2 <= enough),
        key=lambda trial: (len(trial.model.parameters), trial.score),
    )
    return Selection(curve, tuple(tried), chosen)


def _try(model: Model, curve: Curve) -> Trial | None:
    fit = fit_model(model, curve)
    if not math.isfinite(fit.error):
        return None
    inner = curve.counts[1:-1]
    logs, throughput, response = [], [], []
    for count in inner:
        x, r = _left_out(model, curve, count, fit)
        throughput.append(float(np.mean(np.exp(x))) - 1)
        response.append(float(np.mean(np.exp(r))) - 1)
        logs.append(float(np.mean(x**2) + np.mean(r**2)) / 2)
    x, r = _left_out(model, curve, curve.counts[-1], fit)
    squares = np.array(logs)
    return Trial(
        fit=fit,
        left_out=tuple(inner),
        throughput_error=np.array(throughput),
        response_error=np.array(response),
        edge_error=(float(np.mean(np.exp(x))) - 1, float(np.mean(np.exp(r))) - 1),
        score=math.sqrt(float(squares.mean())),
        spread=float(squares.std(ddof=1)) / math.sqrt(squares.size) if squares.size > 1 else 0.0,
    )


def _left_out(model: Model, curve: Curve, count: float, near: Fit) -> tuple[Floats, Floats]:
    """Logarithmic errors of throughput and response time at a client count, predicted from the others."""
    out = curve.customers == count
    fit = fit_model(model, curve.where(~out), near.values)
    throughput, response_ms = fit.predict(curve.where(out))
    return np.log(throughput / curve.throughput[out]), np.log(response_ms / curve.response_ms[out])
