"""The result of the factorial analysis of a table: both models, the better one, and the factor with the largest
effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from knee.factorial.analysis import Analysis, analyse_model
from knee.factorial.box_cox import BoxCox, box_cox
from knee.factorial.design import design_of
from knee.factorial.noise import Model
from knee.stats.intervals import LEVEL

RATIO_MIN = 3.0
"""Ratio of the largest to the smallest response below which both models agree, as the logarithm is nearly linear."""


@dataclass(frozen=True, eq=False)
class Findings:
    """The analysis of one response.

    analysis   under the requested model; by default under the better one
    other      under the other model; None if it does not apply
    box_cox    the likelihood of both models
    reason     why the model was chosen
    alike      the ratio of the largest to the smallest response, if it is too small for the models to differ
    """

    response: str
    analysis: Analysis
    other: Analysis | None
    box_cox: BoxCox
    reason: str
    alike: float | None


def analyse(
    table: pl.DataFrame,
    factors: Sequence[str],
    response: str,
    *,
    model: Model | None = None,
    level: float = LEVEL,
    run_order: str | None = None,
) -> Findings:
    """The factorial analysis of a table with one row per observation (:func:`knee.factorial.design_of`).

    `model`: the model to report; by default the better one, and the additive one without a clear difference.

    Raises DesignError if the table is not a factorial design, or the requested model does not apply.
    """
    design = design_of(table, factors, response, run_order=run_order)
    hint = box_cox(design, level)
    chosen, reason = (model, "as requested") if model is not None else _choose(hint)
    analysis = analyse_model(design, chosen, level)
    applies = chosen == "multiplicative" or bool((design.values > 0).all())
    other_model: Model = "multiplicative" if chosen == "additive" else "additive"
    other = analyse_model(design, other_model, level) if applies else None
    ratio = float(design.values.max() / design.values.min()) if (design.values > 0).all() else None
    alike = None if ratio is None or ratio >= RATIO_MIN else ratio
    return Findings(response, analysis, other, hint, reason, alike)


def _choose(hint: BoxCox) -> tuple[Model, str]:
    if hint.fit == "multiplicative":
        return "multiplicative", "which fits the data"
    if hint.fit == "additive":
        return "additive", "which fits the data"
    if hint.fit == "neither" and hint.best is not None:
        return "multiplicative" if abs(hint.best) < abs(hint.best - 1) else "additive", "the closer of the two"
    if hint.fit == "either":
        return "additive", "the simpler of the two that fit; the multiplicative model fits too"
    return "additive", "the simpler one"
