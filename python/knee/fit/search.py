"""Least squares: the parameters that bring a model closest to a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knee.fit.curve import Curve, Mask
from knee.fit.models import Model
from knee.stats.intervals import Floats

Whole = np.ndarray[tuple[int], np.dtype[np.int64]]

RANGE = 1e5
"""Largest factor between a parameter and its starting point."""

SURELY = 0.999
"""A later search replaces the best one only if its error is below this multiple of the best error, so that rounding
does not decide."""

TOLERANCE = 1e-8
"""Relative change of squares and parameters at which the search ends."""

_STEPS_MAX = 400
_STEP_MAX = 2.0
"""Largest change of a logarithm in one step."""

_BESIDE = float(np.sqrt(np.finfo(float).eps))
"""Change of a logarithm from which a slope is computed."""

_DAMPING = 1e-3
"""Damping of the first step, relative to the curvature."""

_FLAT = 1e-8
"""Least curvature in a parameter that damping assumes, relative to the largest. It keeps a parameter in its range
that has no effect."""


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


def fit_model(model: Model, curve: Curve) -> Fit:
    """The parameters that minimise the squares of ln(predicted / measured), equally for throughput and response time.

    Relative errors weigh all client counts equally, unlike absolute errors. The search begins at each of the model's
    starting points.
    """
    return fit_subsets(model, curve, [np.ones(len(curve), dtype=np.bool_)])[0]


def fit_subsets(model: Model, curve: Curve, subsets: Sequence[Mask]) -> list[Fit]:
    """A fit to each subset of the rows, independent of the other subsets."""
    starts = [(i, start) for i, rows in enumerate(subsets) for start in model.starts(curve.where(rows))]
    of = np.array([i for i, _ in starts])
    measured = np.concatenate([curve.throughput, curve.response_ms])
    shown = np.tile(np.array(subsets), 2)[of]
    values, errors = search(
        model, curve, np.tile(measured, (of.size, 1)), shown, np.array([start for _, start in starts]), TOLERANCE
    )
    best: dict[int, Fit] = {}
    for i, own, error in zip(of.tolist(), values, errors.tolist(), strict=True):
        if i not in best or error < SURELY * best[i].error:
            best[i] = Fit(model, own, error)
    return [best[i] for i in range(len(subsets))]


def search(
    model: Model, curve: Curve, measured: Floats, shown: Mask, starts: Floats, tolerance: float
) -> tuple[Floats, Floats]:
    """Several searches side by side, as one prediction for all takes little longer than for one.

    The search runs over logarithms of the parameters, so these stay positive (Levenberg–Marquardt: Moré 1978). Each
    search has its own damping, and ends by itself.

    Parameters
    ----------
    measured
        Throughputs and response times that each search fits, in the order of `curve`, shape (searches, 2n).
    shown
        Which of them it fits; the others have no influence.
    starts
        Shape (searches, p).

    Returns
    -------
    Values, shape (searches, p), and root mean square residuals.
    """
    logs = np.log(np.maximum(starts, 1e-12))
    low, high = logs - np.log(RANGE), logs + np.log(RANGE)
    goal, size = np.log(measured), logs.shape[1]

    def residuals(logs: Floats, of: Whole) -> Floats:
        predicted = np.log(np.concatenate(model.predict(np.exp(logs), curve), axis=-1))
        return np.where(shown[of], predicted - goal[of], 0.0)

    moved = going = np.arange(len(logs))
    off = residuals(logs, going)
    squares = np.square(off).sum(axis=1)
    slopes = np.empty((len(logs), size, off.shape[1]))
    damping, raised = np.full(len(logs), _DAMPING), np.full(len(logs), 2.0)
    for _ in range(_STEPS_MAX):
        if moved.size:
            beside = (logs[moved, np.newaxis] + _BESIDE * np.eye(size)).reshape(-1, size)
            changed = residuals(beside, np.repeat(moved, size)).reshape(-1, size, off.shape[1])
            slopes[moved] = (changed - off[moved, np.newaxis]) / _BESIDE
        at, own = logs[going], slopes[going]
        gradient = np.einsum("spn,sn->sp", own, off[going])
        at_end = ((at <= low[going]) & (gradient > 0)) | ((at >= high[going]) & (gradient < 0))
        gradient, own = np.where(at_end, 0.0, gradient), np.where(at_end[..., np.newaxis], 0.0, own)
        curvature = own @ own.swapaxes(1, 2)
        scale = np.einsum("spp->sp", curvature)
        scale = np.maximum(scale, _FLAT * scale.max(axis=1, keepdims=True) + 1e-300)
        damped = curvature + (damping[going, np.newaxis] * scale)[..., np.newaxis] * np.eye(size)
        step = np.clip(-np.linalg.solve(damped, gradient[..., np.newaxis])[..., 0], -_STEP_MAX, _STEP_MAX)
        step = np.clip(at + step, low[going], high[going]) - at
        foreseen = -2 * (gradient * step).sum(axis=1) - np.einsum("sp,spq,sq->s", step, curvature, step)
        tried = residuals(at + step, going)
        gain = squares[going] - np.square(tried).sum(axis=1)
        better, agreement = gain > 0, np.clip(gain / np.maximum(foreseen, 1e-300), 0.0, 1.0)
        moved = going[better]
        logs[moved], off[moved] = (at + step)[better], tried[better]
        squares[moved] = np.square(tried[better]).sum(axis=1)
        # Nielsen (1999), with a faster decrease.
        damping[going] *= np.where(better, np.maximum(0.1, 1 - (2 * agreement - 1) ** 3), raised[going])
        raised[going] = np.where(better, 2.0, 2 * raised[going])
        ends = better & (gain <= tolerance * squares[going]) & (agreement > 0.25)
        ends |= np.abs(step).max(axis=1) < tolerance * (tolerance + np.abs(at).max(axis=1))
        ends |= np.abs(gradient).max(axis=1) < tolerance
        moved, going = going[better & ~ends], going[~ends]
        if not going.size:
            break
    return np.exp(logs), np.sqrt(squares / shown.sum(axis=1))
