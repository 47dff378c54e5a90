"""Chooses the model that best predicts hidden client counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from knee.errors import FitError
from knee.fit.curve import Curve
from knee.fit.models import Model, candidates
from knee.fit.search import Fit, fit_subsets
from knee.queueing import QueueingError
from knee.stats.intervals import Floats

TIE = 1.25
"""A simpler model may have at most this multiple of the best model's error. With few client counts the standard error
of the difference is too uncertain to be the only criterion."""

ALIKE = 1.05
"""Two models whose errors differ by at most this factor tie, even if the difference is significant."""

NEGLIGIBLE = 1e-3
"""Errors below this count as equal: in data without scatter, rounding would decide."""


NEAR = 2.0
"""Models with at most this multiple of the best model's error may describe the system as well."""

FALLS_NEAR = 1.5
"""After a measured fall, so may models that fall beyond the largest count, if they fit all counts with at most this
multiple of the chosen model's residuals: hidden counts hardly show how the fall goes on."""

UNFIT = 0.15
"""Error on hidden client counts above which no model describes the measurements."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A model's cross-validation: each client count but the smallest is hidden in turn and predicted from the others.

    The largest count is extrapolated from the smaller ones, like most later predictions. The smallest count is never
    hidden, because only it shows the response time without contention.

    fit       the fit to all client counts
    left_out  the client count of every hidden point, ascending. Points that differ in slots share a client count
    throughput_error, response_error
              relative errors of the predictions, predicted / measured − 1; geometric means over the runs of each point
    squares   for each hidden count, the mean over its points of the squared mean logarithmic errors of throughput and
              response time. The scatter of runs within a point is excluded, because it is equal for every model
    falls     whether throughput falls with many clients: it does in the model, or the fit predicts less at twice the
              largest count than at that count
    """

    fit: Fit
    left_out: tuple[float, ...]
    throughput_error: Floats
    response_error: Floats
    squares: Floats
    falls: bool

    @property
    def model(self) -> Model:
        """The model that was tried."""
        return self.fit.model

    @property
    def score(self) -> float:
        """Root mean square of the logarithmic errors, with equal weight for each hidden count."""
        return math.sqrt(float(self.squares.mean()))

    @property
    def inner_error(self) -> float:
        """Root mean square logarithmic error of the counts between the smallest and the largest."""
        return math.sqrt(float(self.squares[:-1].mean()))

    @property
    def edge_error(self) -> float:
        """Root mean square logarithmic error of the largest count, which is extrapolated."""
        return math.sqrt(float(self.squares[-1]))

    def ties_with(self, best: Trial) -> bool:
        """Whether chance may explain why `best` has the smaller error.

        Two models tie in any of three cases. (1) The mean difference of their squares is at most one standard error,
        and the scores differ by at most TIE (Breiman, Friedman, Olshen & Stone 1984, §3.4.3: the one-standard-error
        rule; paired by client count, because all models meet the same outliers). (2) The scores differ by at most
        ALIKE. (3) This score is at most NEGLIGIBLE.
        """
        worse = self.squares - best.squares
        error = float(worse.std(ddof=1)) / math.sqrt(worse.size)
        tie = float(worse.mean()) <= error and self.score <= TIE * best.score
        return tie or self.is_as_good_as(best.score)

    def is_as_good_as(self, score: float) -> bool:
        """Whether this score exceeds a better one by too little to matter."""
        return self.score <= max(ALIKE * score, NEGLIGIBLE)


@dataclass(frozen=True, eq=False)
class Selection:
    """The trials of all candidate models, in the order of :func:`knee.fit.models.candidates`, and the chosen one.

    Among the models that tie with the best, Knee chooses the one with the fewest parameters. Of several such models it
    takes the more accurate. If their errors hardly differ, it takes the first in order. A model whose throughput falls
    with many clients is chosen only if a fall was measured: a sharp bend looks like the beginning of a fall.
    """

    curve: Curve
    trials: tuple[Trial, ...]
    chosen: Trial

    @property
    def best(self) -> Trial:
        """The trial with the smallest error on hidden client counts, of those that may be chosen."""
        return min(_choosable(self.curve, self.trials), key=lambda trial: trial.score)

    @property
    def passed_over(self) -> Trial | None:
        """The trial with the smallest error, if that model may not be chosen: it falls, and no fall was measured."""
        nearest = min(self.trials, key=lambda trial: trial.score)
        return None if self.chosen.is_as_good_as(nearest.score) or nearest is self.best else nearest

    @property
    def near(self) -> list[Trial]:
        """The chosen trial, and those of models that may describe the system as well (NEAR, FALLS_NEAR). Models that
        fall belong to them even if no fall was measured.
        """
        most = max(NEAR * self.best.score, NEGLIGIBLE)
        error = FALLS_NEAR * self.chosen.fit.error if self.curve.falls else 0.0
        return [
            trial
            for trial in self.trials
            if trial is self.chosen or trial.score <= most or (trial.falls and trial.fit.error <= error)
        ]

    @property
    def is_unfit(self) -> bool:
        """Whether no model describes the measurements."""
        return self.chosen.score > UNFIT


def select(curve: Curve, models: Sequence[Model] | None = None) -> Selection:
    """Fit every model, and choose by the error of predictions for hidden client counts. Raises FitError if no model can
    be fitted.
    """
    tried = [trial for model in (candidates(curve) if models is None else models) if (trial := _try(model, curve))]
    if not tried:
        raise FitError("no model could be fitted: none describes these throughputs and response times")
    choosable = _choosable(curve, tried)
    best = min(choosable, key=lambda trial: trial.score)
    tied = [trial for trial in choosable if trial is best or trial.ties_with(best)]
    fewest = min(len(trial.model.parameters) for trial in tied)
    simplest = [trial for trial in tied if len(trial.model.parameters) == fewest]
    nearest = min(trial.score for trial in simplest)
    chosen = next(trial for trial in simplest if trial.is_as_good_as(nearest))
    return Selection(curve, tuple(tried), chosen)


def _choosable(curve: Curve, tried: Sequence[Trial]) -> Sequence[Trial]:
    """Without models that fall, unless a fall was measured or nothing else could be fitted."""
    return tried if curve.falls else [trial for trial in tried if not trial.falls] or tried


def _try(model: Model, curve: Curve) -> Trial | None:
    """The trial of a model; None if the search reached parameters for which the model has no solution."""
    try:
        everything = np.ones(len(curve), dtype=np.bool_)
        shown = [curve.customers != count for count in curve.counts[1:]]
        fit, *others = fit_subsets(model, curve, [everything, *shown])
        errors = [_left_out(other, curve.where(~rows)) for other, rows in zip(others, shown, strict=True)]
    except (QueueingError, FloatingPointError):
        return None
    trial = Trial(
        fit=fit,
        left_out=tuple(count for count, logs in zip(curve.counts[1:], errors, strict=True) for _ in logs),
        throughput_error=np.exp(np.concatenate(errors)[:, 0]) - 1,
        response_error=np.exp(np.concatenate(errors)[:, 1]) - 1,
        squares=np.array([float(np.mean(logs**2)) for logs in errors]),
        falls=model.falls or _falls(fit, curve.where(curve.customers == curve.counts[-1])),
    )
    return trial if math.isfinite(fit.error) and np.isfinite(trial.squares).all() else None


def _falls(fit: Fit, most: Curve) -> bool:
    """Whether a fit predicts a fall from the client count of `most` to twice as many clients."""
    at, _ = fit.predict(most)
    twice, _ = fit.predict(replace(most, customers=2 * most.customers))
    return bool((twice < (1 - NEGLIGIBLE) * at).any())


def _left_out(fit: Fit, own: Curve) -> Floats:
    """Mean logarithmic errors of throughput and response time at the points of a client count, predicted from the other
    counts. Shape (points, 2).

    The search does not start from the fit to all counts. Otherwise a parameter that only the hidden count determines
    would keep its value.
    """
    throughput, response_ms = fit.predict(own)
    logs = np.log(np.stack([throughput / own.throughput, response_ms / own.response_ms], axis=1))
    return np.array([logs[own.point == point].mean(axis=0) for point in np.unique(own.point)])
