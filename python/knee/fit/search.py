"""Least squares: the parameters that bring a model closest to a curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from knee.fit.curve import Curve
from knee.fit.models import Model
from knee.stats.intervals import Floats

RANGE = 1e5
"""Largest factor between a parameter and its starting point."""

SURELY = 0.999
"""A later search replaces the best one only if its error is below this multiple of the best error, so that rounding
does not decide."""

TOLERANCE = 1e-8
"""Relative change of squares and parameters at which the search ends."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A model with its parameters.

    values  in the order of `model.parameters`
    error   root mean square of the relative residuals, throughputs and response times together
    """

    model: Model
    values: Floats
    error: float

    def predict(self, curve: Curve) -> tuple[Floats, Floats]:
        """Throughput (requests/s) and response time (ms) of every row."""
        return self.model.predict(self.values, curve)


def fit_model(model: Model, curve: Curve, start: Floats | None = None, tolerance: float = TOLERANCE) -> Fit:
    """The parameters that minimise the squares of ln(predicted / measured), equally for throughput and response time.

    Relative errors weigh all client counts equally, unlike absolute errors. The search runs over logarithms of the
    parameters, so these stay positive (trust region reflective: Branch, Coleman & Li 1999). It begins at `start`,
    by default at each of the model's starting points.
    """
    measured = np.log(np.concatenate([curve.throughput, curve.response_ms]))

    def residuals(logs: Floats) -> Floats:
        return np.asarray(np.log(np.concatenate(model.predict(np.exp(logs), curve))) - measured)

    def search(start: Floats) -> Fit:
        first, span = np.log(np.maximum(start, 1e-12)), np.log(RANGE)
        found = least_squares(
            residuals, first, bounds=(first - span, first + span), ftol=tolerance, xtol=tolerance, gtol=tolerance
        )
        return Fit(model, np.exp(found.x), float(np.sqrt(np.mean(found.fun**2))))

    best, *others = (search(start) for start in (model.starts(curve) if start is None else [start]))
    for fit in others:
        if fit.error < SURELY * best.error:
            best = fit
    return best
