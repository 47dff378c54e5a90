"""Factorial analysis under one model: effects with intervals, allocation of variation, predictions.

The additive model is y = q₀ + q_A x_A + q_B x_B + q_AB x_A x_B + … + e (Jain 1991, ch. 17 and 18); the multiplicative
one is the same for ln y, taken of each observation before averaging (§18.8).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from knee.errors import DesignError
from knee.factorial.decomposition import TermEffects, decompose
from knee.factorial.design import Design, Level
from knee.factorial.fraction import signed_name
from knee.factorial.lenth import CONTRASTS_MIN, Lenth, lenth_margins
from knee.factorial.residuals import Residuals, examine
from knee.factorial.transform import Floats, term_name, term_of
from knee.intervals import LEVEL, Interval

_ROUNDING = 1e-14
"""Effects smaller than this share of the observations' range are rounding, even without any noise."""

Model = Literal["additive", "multiplicative"]

ErrorSource = Literal["repetitions", "highest interaction", "none"]


@dataclass(frozen=True)
class Effect:
    """A term's effect at one combination of its factors' levels, in the model's scale."""

    levels: Mapping[str, Level]
    value: Interval


@dataclass(frozen=True)
class Term:
    """A factor or an interaction.

    name            its letters: AB
    factors         the names of its factors
    effects         two levels: q alone, at the high levels; else at every combination of levels
    sum_of_squares  2^k · r · q² with two levels
    share           of the variation, 0 to 1; NaN where nothing varies
    f_ratio, probability
                    of a mean square as large without the effect; None without an estimate of the error
    significant     whether it stands out from the error at the analysis' level; None when that cannot be told
    aliases         terms of a fraction that cannot be told apart from this one, with their signs
    """

    name: str
    factors: tuple[str, ...]
    effects: tuple[Effect, ...]
    sum_of_squares: float
    degrees: int
    share: float
    f_ratio: float | None
    probability: float | None
    significant: bool | None
    aliases: tuple[str, ...]

    @property
    def q(self) -> Interval:
        """The one effect of a term of two-level factors, half of what the change from low to high does.

        Raises ValueError where factors have more levels.
        """
        if len(self.effects) != 1:
            raise ValueError(f"{self.name} has {len(self.effects)} effects: its factors have more than two levels")
        return self.effects[0].value


@dataclass(frozen=True)
class Error:
    """What the model leaves unexplained.

    standard_deviation  s_e of one observation, in the model's scale; None without degrees of freedom
    """

    source: ErrorSource
    sum_of_squares: float
    degrees: int
    share: float
    standard_deviation: float | None


@dataclass(frozen=True)
class Cell:
    """The mean of a cell's observations, in the response's own unit: geometric in the multiplicative model."""

    levels: Mapping[str, Level]
    mean: Interval


@dataclass(frozen=True, eq=False)
class Analysis:
    """The factorial analysis of one response under one model.

    values     the observations in the model's scale: y, or ln y
    mean       q₀
    terms      in Yates' order: A, B, AB, C, …
    total      sum of squares of all terms and the error
    residuals  None without repetitions
    lenth      where two-level factors were not repeated and there are effects enough, else None
    """

    design: Design
    model: Model
    level: float
    values: Floats
    mean: Interval
    terms: tuple[Term, ...]
    error: Error
    total: float
    cells: tuple[Cell, ...]
    residuals: Residuals | None
    lenth: Lenth | None
    notes: tuple[str, ...]

    def term(self, name: str) -> Term:
        """The term of these letters, in any order, or the one that is aliased with it. Raises KeyError."""
        wanted = term_name(term_of(name))
        for term in self.terms:
            if wanted == term.name or wanted in (alias.removeprefix("−") for alias in term.aliases):
                return term
        raise KeyError(name)

    @property
    def ranked(self) -> tuple[Term, ...]:
        """The terms by the variation that they explain, most first."""
        return tuple(sorted(self.terms, key=lambda term: -term.sum_of_squares))


def analyse_model(design: Design, model: Model = "additive", level: float = LEVEL) -> Analysis:
    """Estimate every effect that a design allows.

    Repetitions give the error. Without them two-level factors are judged by Lenth's method, and with more levels the
    interaction of all factors stands in as the error; the notes say so.

    Raises
    ------
    DesignError
        Where the multiplicative model meets a response that is not positive.
    """
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie between 0 and 1, not {level}")
    values = _scaled(design, model)
    means = design.means(values)
    q0, of_mean, parts = decompose(design, means)
    residuals = values - means[design.cells]
    source, parts, squares, degrees = _error_of(design, parts, residuals)
    spread = math.sqrt(squares / degrees) if degrees else None
    total = squares + sum(part.squares for part in parts) if np.ptp(values) else 0.0
    quiet = _lenth_of(design, parts, degrees, level)
    scale = _Scale(spread, degrees, level, design.repetitions[0])
    rounding = values.size * (_ROUNDING * float(np.ptp(values))) ** 2
    terms = tuple(_term(design, part, total, rounding, quiet, scale) for part in parts)
    return Analysis(
        design=design,
        model=model,
        level=level,
        values=values,
        mean=scale.interval(q0, of_mean),
        terms=terms,
        error=Error(source, squares, degrees, squares / total if total else math.nan, spread),
        total=total,
        cells=_cells(design, model, means, scale),
        residuals=examine(residuals, means[design.cells], design.order, design.repetitions[0])
        if source == "repetitions"
        else None,
        lenth=quiet,
        notes=(*design.notes, *_notes(design, source, spread, total, quiet)),
    )


def predict(
    analysis: Analysis,
    levels: Mapping[str, Level],
    *,
    terms: Collection[str] | None = None,
    observations: int | None = None,
    level: float | None = None,
) -> Interval:
    """The response at a combination of levels that the design knows, in the response's own unit.

    The variance of the prediction is exact for the model's weights w over the cells, s_e² · (Σ w²/n + 1/m); for a
    full model with r repetitions that is s_e² · (1/r + 1/m) (Jain 1991, §18.6; see docs/methods/factorial.md).

    Parameters
    ----------
    terms
        Letters of those that the model keeps, besides the mean; all of them by default.
    observations
        m: the interval is for the mean of so many future observations; for the true mean when None.

    Raises
    ------
    DesignError
        For a factor or a level that the design does not know.
    KeyError
        For a term that the analysis does not have.
    """
    design = analysis.design
    kept = analysis.terms if terms is None else [analysis.term(name) for name in terms]
    chosen = _level_numbers(design, levels)
    weights = _weights(design, [0, *(term_of(term.name) for term in kept)], chosen)
    means = design.means(analysis.values)
    measured = design.counts > 0
    centre = float(np.mean(means[measured]))
    estimate = centre + float(np.sum(weights[measured] * (means[measured] - centre)))
    if observations is not None and observations < 1:
        raise ValueError(f"expected one future observation or more, not {observations}")
    variance = float(np.sum(weights[measured] ** 2 / design.counts[measured]))
    variance += 0.0 if observations is None else 1 / observations
    scale = _Scale(
        analysis.error.standard_deviation,
        analysis.error.degrees,
        analysis.level if level is None else level,
        design.repetitions[0],
    )
    return in_unit(scale.interval(estimate, variance), analysis.model)


@dataclass(frozen=True)
class Change:
    """What going from one level of a factor to another does, averaged over the other factors.

    by  the difference of the response in its own unit; in the multiplicative model the ratio
    """

    factor: str
    before: Level
    after: Level
    by: Interval


def change(analysis: Analysis, factor: str, where: Mapping[str, Level] | None = None) -> Change:
    """The change from a factor's lowest to its highest level (with more than two: from the one with the least mean
    response to the one with the largest), at these levels of other factors or over all of them.

    Raises KeyError for a factor that the design lacks.
    """
    design = analysis.design
    numbers = {one.name: number for number, one in enumerate(design.factors)}
    levels = design.factors[numbers[factor]].levels
    means = design.means(analysis.values)
    measured = np.flatnonzero(design.counts)
    at = np.array([design.level_of(int(cell)) for cell in measured])
    for name, level in (where or {}).items():
        chosen = at[:, numbers[name]] == design.factors[numbers[name]].levels.index(level)
        measured, at = measured[chosen], at[chosen]
    own = at[:, numbers[factor]]
    means, counts = means[measured], design.counts[measured]
    of_level = [float(np.mean(means[own == number])) for number in range(len(levels))]
    low, high = (0, 1) if len(levels) == 2 else (int(np.argmin(of_level)), int(np.argmax(of_level)))
    variance = sum(float(np.sum(1 / counts[own == end])) / np.count_nonzero(own == end) ** 2 for end in (low, high))
    scale = _Scale(analysis.error.standard_deviation, analysis.error.degrees, analysis.level, int(counts.min()))
    by = in_unit(scale.interval(of_level[high] - of_level[low], variance), analysis.model)
    return Change(factor, levels[low], levels[high], by)


def in_unit(interval: Interval, model: Model) -> Interval:
    """An interval from the model's scale back to the response's own unit."""
    if model == "additive":
        return interval
    low, high = (None if end is None else math.exp(end) for end in (interval.low, interval.high))
    return Interval(math.exp(interval.estimate), low, high, interval.level, interval.repetitions)


@dataclass(frozen=True)
class _Scale:
    """Turns variances in units of one observation's into intervals."""

    spread: float | None
    degrees: int
    level: float
    repetitions: int

    def interval(self, estimate: float, variance: float) -> Interval:
        if self.spread is None:
            return Interval(estimate, None, None, self.level, self.repetitions)
        quantile = float(stats.t.ppf((1 + self.level) / 2, self.degrees))
        half_width = quantile * self.spread * math.sqrt(variance)
        return Interval(estimate, estimate - half_width, estimate + half_width, self.level, self.repetitions)


def _scaled(design: Design, model: Model) -> Floats:
    if model == "additive":
        return design.values
    bad = np.flatnonzero(design.values <= 0)
    if bad.size:
        row = int(bad[0])
        more = f" and {bad.size - 1} more" if bad.size > 1 else ""
        raise DesignError(
            f"the multiplicative model needs positive responses: {design.response} is {design.values[row]:g} in row "
            f"{row + 1}{more}; use the additive model"
        )
    return np.log(design.values)


def _error_of(
    design: Design, parts: list[TermEffects], residuals: Floats
) -> tuple[ErrorSource, list[TermEffects], float, int]:
    """Where the error comes from, the terms that are left, its sum of squares and degrees of freedom."""
    degrees = residuals.size - design.runs
    if degrees:
        return "repetitions", parts, float(np.sum(residuals**2)), degrees
    if design.fraction is None and len(design.factors) > 1:
        highest = parts[-1]
        return "highest interaction", parts[:-1], highest.squares, highest.degrees
    return "none", parts, 0.0, 0


def _lenth_of(design: Design, parts: list[TermEffects], degrees: int, level: float) -> Lenth | None:
    if degrees or design.fraction is None or len(parts) < CONTRASTS_MIN:
        return None
    return lenth_margins([float(part.values[0]) for part in parts], level)


def _term(design: Design, part: TermEffects, total: float, rounding: float, quiet: Lenth | None, scale: _Scale) -> Term:
    f_ratio = probability = significant = None
    if total and scale.spread is not None:
        mean_square, noise = part.squares / part.degrees, scale.spread**2
        f_ratio = 0.0 if part.squares <= rounding else mean_square / noise if noise else math.inf
        probability = float(stats.f.sf(f_ratio, part.degrees, scale.degrees))
        significant = bool(probability < 1 - scale.level)
    elif total and quiet is not None:
        significant = bool(abs(part.values[0]) > quiet.margin)
    members = [factor for number, factor in enumerate(design.factors) if part.term >> number & 1]
    return Term(
        name=term_name(part.term),
        factors=tuple(factor.name for factor in members),
        effects=_effects(design, part, scale),
        sum_of_squares=part.squares,
        degrees=part.degrees,
        share=part.squares / total if total else math.nan,
        f_ratio=f_ratio,
        probability=probability,
        significant=significant,
        aliases=()
        if design.fraction is None
        else tuple(
            signed_name(term, sign)
            for term, sign in sorted(
                design.fraction.aliases(part.term).items(), key=lambda item: (item[0].bit_count(), item[0])
            )
        ),
    )


def _effects(design: Design, part: TermEffects, scale: _Scale) -> tuple[Effect, ...]:
    members = [factor for number, factor in enumerate(design.factors) if part.term >> number & 1]
    if design.fraction is not None:
        high = {factor.name: factor.levels[1] for factor in members}
        return (Effect(high, scale.interval(float(part.values[0]), float(part.variance[0]))),)
    return tuple(
        Effect(
            {factor.name: factor.levels[number] for factor, number in zip(members, reversed(index), strict=True)},
            scale.interval(float(part.values[index]), float(part.variance[index])),
        )
        for index in np.ndindex(part.values.shape)
    )


def _cells(design: Design, model: Model, means: Floats, scale: _Scale) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            {f.name: f.levels[n] for f, n in zip(design.factors, design.level_of(int(cell)), strict=True)},
            in_unit(
                # An interaction that was taken for the error says nothing about a single cell.
                Interval(float(means[cell]), None, None, scale.level, 1)
                if design.repetitions[1] == 1
                else scale.interval(float(means[cell]), 1 / int(design.counts[cell])),
                model,
            ),
        )
        for cell in np.flatnonzero(design.counts)
    )


def _notes(design: Design, source: ErrorSource, spread: float | None, total: float, quiet: Lenth | None) -> list[str]:
    notes = []
    if total == 0:
        notes.append(f"{design.response} is the same in every row: there is no variation to allocate.")
    elif spread == 0 and source == "repetitions":
        notes.append("The repetitions agree to the last digit: either they are copies, or too coarse to show noise.")
    if source == "highest interaction":
        notes.append(
            "Nothing was repeated: the interaction of all factors is taken for the error, so intervals are too wide "
            "where that interaction is real."
        )
    if source == "none":
        notes.append(
            "Nothing was repeated, so effects have no standard error: they are judged by Lenth's method."
            if quiet is not None
            else f"Nothing was repeated and {CONTRASTS_MIN} effects are needed for Lenth's method: what is noise and "
            "what is not cannot be told. Measure each cell three times."
        )
    return notes


def _level_numbers(design: Design, levels: Mapping[str, Level]) -> list[int]:
    names = [factor.name for factor in design.factors]
    if set(levels) != set(names):
        raise DesignError(f"expected one level for each of {', '.join(names)}; got {', '.join(levels) or 'none'}")
    numbers = []
    for factor in design.factors:
        if levels[factor.name] not in factor.levels:
            known = ", ".join(map(str, factor.levels))
            raise DesignError(f"{factor.name} = {levels[factor.name]} was not measured: its levels are {known}")
        numbers.append(factor.levels.index(levels[factor.name]))
    return numbers


def _weights(design: Design, terms: Collection[int], chosen: list[int]) -> Floats:
    """How much each cell's mean counts in a prediction with these terms, shape (cells,)."""
    weights = np.zeros(design.counts.size)
    for term in terms:
        of_term = np.ones(1)
        for number in reversed(range(len(design.factors))):
            count = len(design.factors[number].levels)
            along = np.full(count, 1 / count)
            if term >> number & 1:
                along = -along
                along[chosen[number]] += 1
            of_term = np.multiply.outer(of_term, along).ravel()
        weights += of_term
    removed = 0 if design.fraction is None else design.fraction.removed
    return weights * (1 << removed)
