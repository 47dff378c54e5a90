"""Checks of what a model's intervals take for granted: residuals that are normal, alike everywhere, and independent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from knee.factorial.transform import Floats

SIGNIFICANCE = 0.05
"""Below this probability a check speaks against its assumption."""

PERMUTATIONS = 2000

_OBSERVATIONS_MIN = 6
_OBSERVATIONS_MAX = 5000
"""Beyond, the probabilities of the Shapiro–Wilk test are not known to be right (Royston 1995)."""

Question = Literal["normality", "spread", "run order"]
Verdict = Literal["nothing against it", "doubtful", "cannot tell"]


@dataclass(frozen=True)
class Check:
    """One assumption, tested.

    statistic    its value and, in `statistic_name`, which it is; NaN where it was not computed
    probability  of a value as extreme when the assumption holds
    """

    question: Question
    statistic_name: str
    statistic: float
    probability: float | None
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, eq=False)
class Residuals:
    """The residuals of a replicated design, in the model's own scale, and what they say.

    values, predicted   of every observation, in the table's order
    order               the observation's place in time, where known
    normal_quantiles    where the residuals would lie, were they standard normal; pairs with `values`
    """

    values: Floats
    predicted: Floats
    order: Floats | None
    normal_quantiles: Floats
    checks: tuple[Check, ...]


def examine(values: Floats, predicted: Floats, order: Floats | None, per_cell: int) -> Residuals:
    """Check residuals about their cells' means; `per_cell` is the fewest observations that a cell has."""
    ranks = stats.rankdata(values)
    return Residuals(
        values=values,
        predicted=predicted,
        order=order,
        normal_quantiles=np.asarray(stats.norm.ppf((ranks - 0.375) / (values.size + 0.25)), dtype=np.float64),
        checks=(
            _normality(values, per_cell),
            _spread(values, predicted),
            _run_order(values, order),
        ),
    )


def p_value(probability: float) -> str:
    """A probability to two digits, with its sign of comparison."""
    return "< 0.0001" if probability < 1e-4 else f"= {probability:.2g}"


def _untested(question: Question, name: str, reason: str) -> Check:
    return Check(question, name, float("nan"), None, "cannot tell", reason)


def _normality(values: Floats, per_cell: int) -> Check:
    """Shapiro & Wilk's W (1965; probabilities by Royston 1995)."""
    name = "Shapiro–Wilk W"
    if per_cell < 3:
        return _untested(
            "normality",
            name,
            "Normality of the errors was not tested: with two repetitions a cell's residuals are mirror images.",
        )
    if not _OBSERVATIONS_MIN <= values.size <= _OBSERVATIONS_MAX or np.ptp(values) == 0:
        return _untested("normality", name, f"Normality of the errors cannot be judged from {values.size} residuals.")
    found = stats.shapiro(values)
    statistic, probability = float(found.statistic), float(found.pvalue)
    if probability < SIGNIFICANCE:
        sentence = (
            f"The errors do not look normal (Shapiro–Wilk W = {statistic:.3f}, p {p_value(probability)}): look for "
            "single outlying runs; intervals are rough."
        )
        return Check("normality", name, statistic, probability, "doubtful", sentence)
    sentence = f"Nothing speaks against normal errors (Shapiro–Wilk W = {statistic:.3f}, p {p_value(probability)})."
    return Check("normality", name, statistic, probability, "nothing against it", sentence)


def _spread(values: Floats, predicted: Floats) -> Check:
    """Spearman's rank correlation of |residual| and prediction: does the noise grow with the response?"""
    name = "Spearman's rho"
    if values.size < _OBSERVATIONS_MIN or np.ptp(predicted) == 0 or np.ptp(np.abs(values)) == 0:
        return _untested("spread", name, "Whether the errors grow with the response cannot be judged.")
    found = stats.spearmanr(np.abs(values), predicted)
    statistic, probability = float(found.statistic), float(found.pvalue)
    evidence = f"rank correlation of their size with the prediction {statistic:+.2f}, p {p_value(probability)}"
    if probability >= SIGNIFICANCE:
        sentence = f"The errors are of like size over all predictions ({evidence})."
        return Check("spread", name, statistic, probability, "nothing against it", sentence)
    direction = "grow" if statistic > 0 else "shrink"
    sentence = f"The errors {direction} with the prediction ({evidence}): one standard error does not suit all cells."
    return Check("spread", name, statistic, probability, "doubtful", sentence)


def _run_order(values: Floats, order: Floats | None) -> Check:
    """Durbin & Watson's d over the runs in time (1950), judged by permutation: residuals about cells' means are no
    regression residuals that the tables were made for, but without a drift any order of them is as likely."""
    name = "Durbin–Watson d"
    if order is None:
        return _untested("run order", name, "Drift over time was not tested: the order of the runs is not known.")
    total = float(np.sum(values**2))
    if values.size < _OBSERVATIONS_MIN or total == 0:
        return _untested("run order", name, f"Drift over time cannot be judged from {values.size} residuals.")
    in_time = values[np.argsort(order, kind="stable")]
    statistic = float(np.sum(np.diff(in_time) ** 2)) / total
    rng = np.random.default_rng(0)
    shuffled = rng.permuted(np.broadcast_to(in_time, (PERMUTATIONS, in_time.size)), axis=1)
    others = np.sum(np.diff(shuffled, axis=1) ** 2, axis=1) / total
    expected = float(others.mean())
    as_extreme = int(np.count_nonzero(np.abs(others - expected) >= abs(statistic - expected) * (1 - 1e-12)))
    probability = (as_extreme + 1) / (PERMUTATIONS + 1)
    evidence = f"Durbin–Watson d = {statistic:.2f}, about {expected:.1f} expected, p {p_value(probability)}"
    if probability >= SIGNIFICANCE:
        sentence = f"No drift over time shows in the errors ({evidence})."
        return Check("run order", name, statistic, probability, "nothing against it", sentence)
    if statistic < expected:
        sentence = f"Errors of successive runs are alike ({evidence}): something drifted, and intervals are too narrow."
    else:
        sentence = f"Errors of successive runs are opposed ({evidence}): runs disturb the ones after them."
    return Check("run order", name, statistic, probability, "doubtful", sentence)
