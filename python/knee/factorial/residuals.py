"""Checks of the assumptions of a model's intervals: normal, homoscedastic and independent residuals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from knee.factorial.transform import Floats

SIGNIFICANCE = 0.05
"""Below this probability a check speaks against its assumption."""

ROUNDS_MAX, ROUNDS_MIN = 1000, 200
"""Largest and smallest number of simulations or permutations in a test; more residuals mean fewer rounds."""

_DRAWN_MAX = 5_000_000
"""Largest total of drawn residuals, unless ROUNDS_MIN requires more."""

_AT_ONCE = 500_000
"""Residuals that one step draws."""

_OBSERVATIONS_MIN = 6
_OBSERVATIONS_MAX = 20_000
"""Largest number of observations for tests by simulation; more would take many seconds."""

_SHAPIRO_MAX = 5000
"""Largest sample for which the Shapiro–Wilk probabilities are validated (Royston 1995)."""

_ARRANGEMENTS_MIN = 40
"""Least number of arrangements of residuals within cells: with fewer, no result is significant."""

Question = Literal["normality", "spread", "run order"]
Verdict = Literal["nothing against it", "doubtful", "cannot tell"]


@dataclass(frozen=True)
class Check:
    """One assumption, tested.

    probability  of a statistic as extreme if the assumption holds; None if untested
    """

    question: Question
    probability: float | None
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, eq=False)
class Residuals:
    """The residuals of a replicated design, in the model's scale, and their tests.

    values, predicted   of every observation, in the table's order; residuals are about the cells' means
    cells               the number of each observation's cell
    order               the observation's place in time, if known
    """

    values: Floats
    predicted: Floats
    cells: npt.NDArray[np.int64]
    order: Floats | None

    @cached_property
    def normal_quantiles(self) -> Floats:
        """Normal scores of the residuals (Blom 1958), in the order of `values`."""
        from scipy.stats import rankdata

        ranks = rankdata(self.values)
        return np.asarray(special.ndtri((ranks - 0.375) / (ranks.size + 0.25)), dtype=np.float64)

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        return (
            _normality(self.values, int(np.unique(self.cells, return_counts=True)[1].min())),
            _spread(self.values, self.predicted, self.cells),
            _run_order(self.values, self.cells, self.order),
        )


def p_value(probability: float) -> str:
    """A probability to two digits, with its sign of comparison."""
    return "< 0.0001" if probability < 1e-4 else f"= {probability:.2g}"


def _untested(question: Question, reason: str) -> Check:
    return Check(question, None, "cannot tell", reason)


def _tested(question: Question, probability: float, kept: str, doubtful: str) -> Check:
    """A check with the sentence for an assumption that is `kept`, or for a `doubtful` one."""
    if probability < SIGNIFICANCE:
        return Check(question, probability, "doubtful", doubtful)
    return Check(question, probability, "nothing against it", kept)


def _normality(values: Floats, per_cell: int) -> Check:
    """Shapiro & Wilk's W (1965; probabilities by Royston 1995)."""
    if per_cell < 3:
        reason = "Normality of the errors was not tested: the test needs three repetitions of every cell."
        return _untested("normality", reason)
    if not _OBSERVATIONS_MIN <= values.size <= _SHAPIRO_MAX or np.ptp(values) == 0:
        return _untested("normality", f"Normality of the errors cannot be judged from {values.size:,} residuals.")
    from scipy.stats import shapiro

    statistic, probability = map(float, shapiro(values))
    evidence = f"Shapiro–Wilk W = {statistic:.3f}, p {p_value(probability)}"
    return _tested(
        "normality",
        probability,
        f"There is no evidence against normal errors ({evidence}).",
        f"The errors do not look normal ({evidence}): look for single outlying runs; intervals are approximate.",
    )


def _spread(values: Floats, predicted: Floats, cells: npt.NDArray[np.int64]) -> Check:
    """Spearman's rank correlation of |residual| and prediction: does the noise grow with the response?

    Residuals of a cell are dependent (two have equal size), so tables of probabilities do not apply. Instead, the test
    simulates homoscedastic normal errors for the same design.
    """
    counts = np.bincount(cells)[cells]
    # A cell with one measurement has no residual. Other residuals have 1 − 1/n of the errors' variance.
    chosen = counts > 1
    scale = 1 / np.sqrt(1 - 1 / counts[chosen])
    sizes, at, of_cell = (
        np.abs(values[chosen]) * scale,
        predicted[chosen],
        np.unique(cells[chosen], return_inverse=True)[1],
    )
    if not _OBSERVATIONS_MIN <= sizes.size <= _OBSERVATIONS_MAX or np.ptp(at) == 0 or np.ptp(sizes) == 0:
        return _untested("spread", "Cannot tell whether the errors grow with the response.")
    from scipy.stats import rankdata, spearmanr

    ranks = rankdata(at) - (sizes.size + 1) / 2
    repetitions = np.bincount(of_cell)

    by_cell = np.argsort(of_cell, kind="stable")
    firsts = np.cumsum(repetitions) - repetitions

    def draw(rng: np.random.Generator, rounds: int) -> Floats:
        errors = rng.standard_normal((rounds, sizes.size))
        errors -= (np.add.reduceat(errors[:, by_cell], firsts, axis=1) / repetitions)[:, of_cell]
        return np.asarray(rankdata(np.abs(errors) * scale, axis=1) @ ranks)

    probability, _ = _judge(float(ranks @ rankdata(sizes)), draw, sizes.size)
    statistic = float(spearmanr(sizes, at).statistic)
    evidence = f"rank correlation of their size with the prediction {statistic:+.2f}, p {p_value(probability)}"
    return _tested(
        "spread",
        probability,
        f"There is no evidence that the errors grow or shrink with the prediction ({evidence}).",
        f"The errors {'grow' if statistic > 0 else 'shrink'} with the prediction ({evidence}): one standard error does "
        "not suit all cells.",
    )


def _run_order(values: Floats, cells: npt.NDArray[np.int64], order: Floats | None) -> Check:
    """Durbin & Watson's d over the runs in time (1950), judged by permutation within cells.

    The published tables do not apply: residuals of a cell sum to zero, so successive runs of a cell have opposed
    residuals even without drift. But without drift, every order of a cell's residuals is equally likely.
    """
    if order is None:
        return _untested("run order", "Drift over time was not tested: the order of the runs is not known.")
    in_time = np.argsort(order, kind="stable")
    values, cells = values[in_time], cells[in_time]
    counts = np.bincount(cells)
    total = float(np.sum(values**2))
    arrangements = float(np.sum(special.gammaln(counts + 1.0)))
    if (
        not _OBSERVATIONS_MIN <= values.size <= _OBSERVATIONS_MAX
        or not total
        or arrangements < math.log(_ARRANGEMENTS_MIN)
    ):
        return _untested("run order", f"Drift over time cannot be judged from {values.size:,} residuals.")
    if np.count_nonzero(np.diff(cells)) == np.count_nonzero(counts) - 1:
        return _untested(
            "run order",
            "Cannot tell drift over time from effects: the repetitions of every cell ran in succession. "
            "Run them in random order.",
        )
    by_cell = np.argsort(cells, kind="stable")
    grouped, key = values[by_cell], cells[by_cell]

    def draw(rng: np.random.Generator, rounds: int) -> Floats:
        shuffled = np.empty((rounds, values.size))
        shuffled[:, by_cell] = grouped[np.argsort(key + rng.random(shuffled.shape), axis=1)]
        return np.asarray(np.sum(np.diff(shuffled, axis=1) ** 2, axis=1) / total)

    statistic = float(np.sum(np.diff(values) ** 2)) / total
    probability, expected = _judge(statistic, draw, values.size)
    evidence = f"Durbin–Watson d = {statistic:.2f}, about {expected:.1f} expected, p {p_value(probability)}"
    return _tested(
        "run order",
        probability,
        f"There is no evidence of drift over time ({evidence}).",
        f"Errors of successive runs are similar ({evidence}): the system drifted, and intervals may be too narrow."
        if statistic < expected
        else f"Errors of successive runs have opposite signs ({evidence}): runs disturb later runs.",
    )


def _judge(statistic: float, draw: Callable[[np.random.Generator, int], Floats], size: int) -> tuple[float, float]:
    """The probability of a statistic as far from its mean, and that mean, by simulation under the null hypothesis.

    The seed is fixed: the same data give the same probability.
    """
    rng = np.random.default_rng(0)
    rounds, others = min(ROUNDS_MAX, max(ROUNDS_MIN, _DRAWN_MAX // size)), np.empty(0)
    while rounds > others.size:
        others = np.append(others, draw(rng, min(rounds - others.size, max(1, _AT_ONCE // size))))
    expected = float(others.mean())
    as_extreme = int(np.count_nonzero(np.abs(others - expected) >= abs(statistic - expected) * (1 - 1e-12)))
    return (as_extreme + 1) / (others.size + 1), expected
