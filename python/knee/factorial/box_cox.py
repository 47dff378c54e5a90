"""Which scale makes the model simple: the likelihood of Box & Cox's transformations (1964).

y^λ, with λ = 0 for the logarithm: λ = 1 is the additive model, λ = 0 the multiplicative one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from knee.factorial.design import Design
from knee.factorial.transform import Floats
from knee.intervals import LEVEL

LAMBDA_MAX = 3.0
_STEPS = 601

_DEGREES_MIN = 3

Fit = Literal["additive", "multiplicative", "either", "neither", "cannot tell"]


@dataclass(frozen=True)
class BoxCox:
    """The transformation that the data ask for.

    best, low, high  λ of the largest likelihood, and its profile likelihood interval; an end at ±LAMBDA_MAX is
                     open. None where no likelihood could be computed
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
    """Profile likelihood of λ, L(λ) = −ν/2 · log S(z(λ)), with z scaled by the geometric mean (Box & Cox 1964, §3).

    S is the sum of squares within cells, of ν = n − cells degrees of freedom. Without repetitions it is that about a
    model of main effects alone, so that λ then says on which scale interactions vanish.
    """
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie between 0 and 1, not {level}")
    values = design.values
    if (values <= 0).any():
        return BoxCox(
            None, None, None, level, "cannot tell", "Some responses are not positive: only the additive model applies."
        )
    replicated = values.size - design.runs >= _DEGREES_MIN
    basis = None if replicated else _main_effects(design)
    degrees = values.size - (design.runs if basis is None else basis.shape[1])
    if degrees < _DEGREES_MIN:
        return _unknown(level, f"{max(degrees, 0)} degrees of freedom are too few to tell")
    # Scaled by the geometric mean the Jacobian is one; its logarithm is taken about the middle, for precision.
    logs = np.log(values)
    logs -= logs.mean()
    lambdas = np.linspace(-LAMBDA_MAX, LAMBDA_MAX, _STEPS)
    squares = np.array([_squares(design, basis, _transformed(logs, power)) for power in lambdas])
    if (squares <= 1e-24 * values.size).any():
        return _unknown(level, "there is no noise to tell from")
    likelihood = -degrees / 2 * np.log(squares)
    inside = lambdas[likelihood >= likelihood.max() - float(stats.chi2.ppf(level, 1)) / 2]
    best, low, high = float(lambdas[likelihood.argmax()]), float(inside.min()), float(inside.max())
    if abs(best) >= LAMBDA_MAX:
        return _unknown(level, f"no power of the response between −{LAMBDA_MAX:.0f} and {LAMBDA_MAX:.0f} is the best")
    fit = _fit(low, high)
    return BoxCox(best, low, high, level, fit, _sentence(best, low, high, level, fit, replicated))


def _transformed(logs: Floats, power: float) -> Floats:
    return logs if abs(power) < 1e-12 else np.expm1(power * logs) / power


def _squares(design: Design, basis: Floats | None, values: Floats) -> float:
    fitted = design.means(values)[design.cells] if basis is None else basis @ (basis.T @ values)
    return float(np.sum((values - fitted) ** 2))


def _main_effects(design: Design) -> Floats:
    """An orthonormal basis of the models of a mean and main effects, shape (observations, parameters)."""
    columns = [np.ones(design.values.size)]
    for number, factor in enumerate(design.factors):
        columns += [(design.levels[:, number] == level).astype(np.float64) for level in range(1, len(factor.levels))]
    return np.asarray(np.linalg.qr(np.column_stack(columns))[0], dtype=np.float64)


def _fit(low: float, high: float) -> Fit:
    additive, multiplicative = low <= 1 <= high, low <= 0 <= high
    if additive and multiplicative:
        return "either"
    if additive:
        return "additive"
    return "multiplicative" if multiplicative else "neither"


def _unknown(level: float, reason: str) -> BoxCox:
    return BoxCox(None, None, None, level, "cannot tell", f"Which model fits better cannot be told: {reason}.")


def _sentence(best: float, low: float, high: float, level: float, fit: Fit, replicated: bool) -> str:
    grounds = "makes the errors alike in all cells" if replicated else "leaves the least to interactions"
    left = "below −3" if low <= -LAMBDA_MAX else f"{low:.2f}"
    right = "above 3" if high >= LAMBDA_MAX else f"{high:.2f}"
    found = f"the power of the response that {grounds} is {best:.2f} ({left} to {right}, {level:.0%} interval)"
    verdict: dict[Fit, str] = {
        "additive": "The additive model fits, the multiplicative one does not",
        "multiplicative": "The multiplicative model fits, the additive one does not",
        "either": "Both models fit; the data do not say which fits better",
        "neither": "Neither model fits well",
    }
    return f"{verdict[fit]}: {found}; 1 is additive, 0 multiplicative."
