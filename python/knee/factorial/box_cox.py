"""The scale in which the model is simplest: the likelihood of Box & Cox's transformations (1964).

y^λ, with λ = 0 for the logarithm: λ = 1 is the additive model, λ = 0 the multiplicative one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from knee.factorial.decomposition import harmonic_count
from knee.factorial.design import Design
from knee.factorial.noise import confidence
from knee.factorial.transform import Floats
from knee.stats.intervals import LEVEL, counted

LAMBDA_MAX = 3.0
_STEPS = 601

_DEGREES_MIN = 3

_EXPONENT_MAX = 300.0
"""Largest exponent of e, so that squares of transformed responses stay finite."""

Fit = Literal["additive", "multiplicative", "either", "neither", "cannot tell"]


@dataclass(frozen=True)
class BoxCox:
    """The transformation that suits the data best.

    best, low, high  λ of the largest likelihood, and its profile likelihood interval; an end at ±LAMBDA_MAX is
                     open. None if no likelihood could be computed
    fit              which of the two models the interval allows
    sentence         the finding and its grounds
    """

    best: float | None
    low: float | None
    high: float | None
    level: float
    fit: Fit
    sentence: str


def box_cox(design: Design, level: float = LEVEL) -> BoxCox:
    """The power λ of the response on which main effects alone predict the cells best (Box & Cox 1964, §3).

    With repetitions, R(λ) = SS(interactions) / s_e² of the transformed responses. Its interval is { λ : R(λ) ≤
    R_min + F(level; 1, ν) · max(1, R_min / (d − 1)) } about the best λ, with ν = n − cells and d degrees of freedom
    of the interactions. s_e is that of each scale, so the noise alone does not decide: an additive system may have
    proportional noise. If the design has no interactions, λ is the scale that equalises the errors of all cells.
    With too few repetitions, the errors are those of the cells' means about main effects. Both have the profile
    likelihood L(λ) = −ν/2 · log S(z(λ)), with S the sum of squares of ν degrees of freedom.
    """
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie between 0 and 1, not {level}")
    values = design.values
    if (values <= 0).any():
        return BoxCox(
            None, None, None, level, "cannot tell", "Some responses are not positive: only the additive model applies."
        )
    within = values.size - design.runs
    between = design.runs - 1 - sum(len(factor.levels) - 1 for factor in design.factors)
    replicated = within >= _DEGREES_MIN
    joint = replicated and between > 0
    degrees = within if replicated else between
    if degrees < _DEGREES_MIN:
        return _unknown(level, f"{counted(max(degrees, 0), 'degree')} of freedom are too few to tell")
    # Scaled by the geometric mean the Jacobian is one; its logarithm is taken about the middle, for precision.
    logs = np.log(values)
    logs -= logs.mean()
    if LAMBDA_MAX * float(np.abs(logs).max()) > _EXPONENT_MAX:
        return _unknown(level, "the responses lie too many orders of magnitude apart")
    lambdas = np.linspace(-LAMBDA_MAX, LAMBDA_MAX, _STEPS)
    scaled = [np.expm1(power * logs) / power if abs(power) > 1e-12 else logs for power in lambdas]
    squares_of = _within_cells if replicated else _about_main_effects
    squares = np.array([squares_of(design, one) for one in scaled])
    if (squares <= 1e-24 * values.size).any():
        return _unknown(level, "the noise is unknown")
    if joint:
        of_cells = np.array([_about_main_effects(design, one) for one in scaled])
        badness = of_cells * harmonic_count(design) / (squares / degrees)
        misfit = float(badness.min()) / (between - 1) if between > 1 else 1.0
        margin = float(special.fdtri(1, degrees, level)) * max(1.0, misfit)
    else:
        badness, margin = degrees * np.log(squares), float(special.chdtri(1, 1 - level))
    at = int(badness.argmin())
    # A far power may fit again, because it inflates the errors of the extreme cells.
    outside = badness > badness[at] + margin
    below, above = np.flatnonzero(outside[:at]), np.flatnonzero(outside[at:])
    best = float(lambdas[at])
    low = float(lambdas[below[-1] + 1 if below.size else 0])
    high = float(lambdas[at + above[0] - 1 if above.size else -1])
    if abs(best) >= LAMBDA_MAX:
        return _unknown(level, f"no power of the response between −{LAMBDA_MAX:.0f} and {LAMBDA_MAX:.0f} is the best")
    fit = _fit(low, high)
    grounds = "equalises the errors of all cells" if replicated and not joint else "avoids interactions"
    return BoxCox(best, low, high, level, fit, _sentence(best, low, high, level, fit, grounds))


def _within_cells(design: Design, values: Floats) -> float:
    return float(np.sum((values - design.means(values)[design.cells]) ** 2))


def _about_main_effects(design: Design, values: Floats) -> float:
    """The residual sum of squares of the cells' means. Each cell counts once, so the factors are orthogonal and are
    fitted one after the other."""
    measured = np.flatnonzero(design.counts)
    means = design.means(values)[measured]
    left = means - means.mean()
    for at in np.unravel_index(measured, design.shape):
        left = left - (np.bincount(at, weights=left) / np.bincount(at))[at]
    return float(np.sum(left**2))


def _fit(low: float, high: float) -> Fit:
    additive, multiplicative = low <= 1 <= high, low <= 0 <= high
    if additive and multiplicative:
        return "either"
    if additive:
        return "additive"
    return "multiplicative" if multiplicative else "neither"


def _unknown(level: float, reason: str) -> BoxCox:
    return BoxCox(None, None, None, level, "cannot tell", f"Cannot tell which model fits better: {reason}.")


def _sentence(best: float, low: float, high: float, level: float, fit: Fit, grounds: str) -> str:
    left = "below −3" if low <= -LAMBDA_MAX else f"{low:.2f}"
    right = "above 3" if high >= LAMBDA_MAX else f"{high:.2f}"
    found = (
        f"the power of the response that best {grounds} is {best:.2f} ({left} to {right}, {confidence(level)} interval)"
    )
    verdict: dict[Fit, str] = {
        "additive": "The data fit the additive model, not the multiplicative one",
        "multiplicative": "The data fit the multiplicative model, not the additive one",
        "either": "The data fit both models",
        "neither": "The data fit neither model",
    }
    return f"{verdict[fit]}: {found}; power 1 is the additive model, 0 the multiplicative one."
