"""Factorial analysis under one model: effects with intervals, allocation of variation, predictions.

The additive model is y = q₀ + q_A x_A + q_B x_B + q_AB x_A x_B + … + e (Jain 1991, ch. 17 and 18); the multiplicative
one is the same for ln y, with logarithms taken before averaging (§18.8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from knee.errors import DesignError
from knee.factorial.decomposition import TermEffects, decompose
from knee.factorial.design import Design, Level
from knee.factorial.fraction import signed_name
from knee.factorial.lenth import CONTRASTS_MIN, Lenth, lenth_margins
from knee.factorial.noise import Model, Noise, equal_variances, in_unit, variances_of
from knee.factorial.residuals import Residuals
from knee.factorial.transform import Floats, term_name, term_of
from knee.stats.intervals import LEVEL, Interval

_ROUNDING = 1e-14
"""Effects below this share of the observations' range count as rounding errors."""

ErrorSource = Literal["repetitions", "highest interaction", "none"]


@dataclass(frozen=True)
class Effect:
    """A term's effect at one combination of its factors' levels, with its interval."""

    levels: Mapping[str, Level]
    value: Interval


@dataclass(frozen=True)
class Term:
    """A factor or an interaction.

    name            its letters: AB
    factors         the names of its factors
    effects         with two levels one effect, q, at the high levels; else one for every combination of levels
    sum_of_squares  2^k · r · q² with two levels
    share           share of the variation, 0 to 1; NaN if nothing varies
    share_ends      interval of the share; None without an estimate of the error
    f_ratio, probability
                    the mean square over the error's, and the chance of one as large without the effect; None without an
                    estimate of the error
    significant     whether the effect is significant among all effects (Holm; Lenth without repetitions). If no effect
                    is real, any is significant with a probability of at most 1 − level. None if the data cannot show it
    aliases         terms of a fraction that are confounded with this one, with their signs
    """

    name: str
    factors: tuple[str, ...]
    effects: tuple[Effect, ...]
    sum_of_squares: float
    degrees: int
    share: float
    share_ends: tuple[float, float] | None
    f_ratio: float | None
    probability: float | None
    significant: bool | None
    aliases: tuple[str, ...]

    @property
    def q(self) -> Interval:
        """The effect of a term of two-level factors: half of the change from low to high. Raises ValueError if a factor
        has more levels.
        """
        if len(self.effects) != 1:
            raise ValueError(f"{self.name} has {len(self.effects)} effects: its factors have more than two levels")
        return self.effects[0].value


@dataclass(frozen=True)
class Error:
    """The variation that the model does not explain.

    standard_deviation  s_e of one observation, in the model's scale; None without degrees of freedom, or if the
                        interaction that replaces the error is zero
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
    means      mean of every cell, in the model's scale; NaN if a fraction has no run there
    mean       q₀
    terms      in Yates' order: A, B, AB, C, …
    noise      the variances of the cells' means
    total      sum of squares of all terms and the error
    residuals  None without repetitions
    lenth      Lenth's analysis, for two-level factors without repetitions and with enough effects; else None
    """

    design: Design
    model: Model
    level: float
    values: Floats
    means: Floats
    mean: Interval
    terms: tuple[Term, ...]
    error: Error
    noise: Noise
    total: float
    cells: tuple[Cell, ...]
    residuals: Residuals | None
    lenth: Lenth | None
    notes: tuple[str, ...]

    def term(self, name: str) -> Term:
        """The term with these letters, in any order, or the term that is confounded with it. Raises KeyError."""
        wanted = term_name(term_of(name))
        for term in self.terms:
            if wanted == term.name or wanted in (alias.removeprefix("−") for alias in term.aliases):
                return term
        raise KeyError(name)

    @property
    def ranked(self) -> tuple[Term, ...]:
        """The terms by explained variation, the largest first."""
        return tuple(sorted(self.terms, key=lambda term: -term.sum_of_squares))

    @property
    def leads(self) -> bool | None:
        """Whether the first of `ranked` is significantly larger than the second; None if the data cannot show it.

        Sizes are √SS, which for terms of two levels is proportional to |q| over its standard error. Comparing the two
        largest needs no correction for their selection (Gutmann & Maymin 1987).
        """
        if not self.total or len(self.terms) < 2:
            return None
        first, second = self.ranked[:2]
        spread = self.error.standard_deviation
        if spread and self.design.fraction is not None:
            return self._larger(first, second)
        if spread:
            sizes = [_size(one.sum_of_squares, one.degrees, self.noise.of_effect) for one in (first, second)]
            margin = math.sqrt(2) * self.noise.margin
        elif self.lenth is not None:
            sizes, margin = [abs(one.q.estimate) for one in (first, second)], self.lenth.lead
        else:
            return None
        return sizes[0] - sizes[1] > margin

    def _larger(self, first: Term, second: Term) -> bool:
        """Whether |q₁| − |q₂|, a signed sum of the means of half of the cells, is significantly above zero."""
        rows = np.arange(self.design.counts.size)
        lows = [np.bitwise_count(~rows & term_of(one.name)) & 1 for one in (first, second)]
        opposed = (lows[0] != lows[1]) == (first.q.estimate * second.q.estimate >= 0)
        apart = abs(first.q.estimate) - abs(second.q.estimate)
        low = self.noise.sum_interval(apart, 4 * opposed / self.design.runs**2).low
        return low is not None and low > 0


def analyse_model(design: Design, model: Model = "additive", level: float = LEVEL) -> Analysis:
    """Estimate every effect that a design allows.

    Repetitions give the error. Without repetitions, Lenth's method judges factors with two levels if there are
    `CONTRASTS_MIN` effects. With more levels, the interaction of all factors serves as the error estimate. The notes
    report this.

    Raises DesignError if a response is not positive in the multiplicative model.
    """
    values = _scaled(design, model)
    means = design.means(values)
    residuals = values - means[design.cells]
    rounding = values.size * (_ROUNDING * float(np.ptp(values))) ** 2
    repeated = values.size - design.runs
    variances = (
        variances_of(design, residuals)
        if repeated and float(np.sum(residuals**2)) > rounding
        else equal_variances(design, repeated or _highest_degrees(design))
    )
    effects = decompose(design, means, variances)
    source, parts, squares, degrees = _error_of(design, effects.terms, residuals)
    # An interaction of exactly zero is not an estimate of the noise.
    known = degrees > 0 and (source == "repetitions" or squares > rounding)
    spread = math.sqrt(squares / degrees) if known else None
    total = squares + sum(part.squares for part in parts) if np.ptp(values) else 0.0
    quiet = None
    if not degrees and design.fraction is not None and len(parts) >= CONTRASTS_MIN:
        quiet = lenth_margins([float(part.values[0]) if part.squares > rounding else 0.0 for part in parts], level)
    noise = Noise(spread, variances, level, design.repetitions[0])
    terms = _terms(design, parts, total, rounding, quiet, noise)
    return Analysis(
        design=design,
        model=model,
        level=level,
        values=values,
        means=means,
        mean=noise.interval(effects.mean, effects.variance, effects.freedoms),
        terms=terms,
        error=Error(source, squares, degrees, squares / total if total else math.nan, spread),
        noise=noise,
        total=total,
        cells=_cells(design, model, means, noise),
        residuals=Residuals(residuals, means[design.cells], design.cells, design.order)
        if source == "repetitions"
        else None,
        lenth=quiet,
        notes=(*design.notes, *_notes(design, source, noise, total, quiet)),
    )


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


def _highest_degrees(design: Design) -> int:
    """Degrees of freedom of the interaction of all factors if it serves as the error; 0 if it does not."""
    if design.fraction is not None or len(design.factors) < 2:
        return 0
    return math.prod(len(factor.levels) - 1 for factor in design.factors)


def _error_of(
    design: Design, parts: list[TermEffects], residuals: Floats
) -> tuple[ErrorSource, list[TermEffects], float, int]:
    """The source of the error, the remaining terms, the error's sum of squares and its degrees of freedom."""
    degrees = residuals.size - design.runs
    if degrees:
        return "repetitions", parts, float(np.sum(residuals**2)), degrees
    if _highest_degrees(design):
        highest = parts[-1]
        return "highest interaction", parts[:-1], highest.squares, highest.degrees
    return "none", parts, 0.0, 0


def _terms(
    design: Design, parts: list[TermEffects], total: float, rounding: float, quiet: Lenth | None, noise: Noise
) -> tuple[Term, ...]:
    ratios: list[float | None] = [None] * len(parts)
    probabilities: list[float | None] = [None] * len(parts)
    significant: list[bool | None] = [None] * len(parts)
    if total and noise.spread is not None:
        variance = noise.spread**2
        large = [part.ratio / variance if variance else math.inf for part in parts]
        known = [0.0 if part.squares <= rounding else ratio for part, ratio in zip(parts, large, strict=True)]
        chances = special.fdtrc([part.numerator for part in parts], noise.degrees, known).tolist()
        ratios, probabilities = [*known], [*chances]
        significant = [one < 1 - noise.level for one in _together(chances)]
    elif total and quiet is not None:
        significant = [abs(part.values[0]) > quiet.simultaneous and part.squares > rounding for part in parts]
    return tuple(
        _term(design, part, total, noise, ratio, probability, None if found is None else bool(found))
        for part, ratio, probability, found in zip(parts, ratios, probabilities, significant, strict=True)
    )


def _together(probabilities: Sequence[float]) -> list[float]:
    """Probabilities adjusted for their number (Holm 1979). If effects below α count as significant, any is so by chance
    with a probability of at most α."""
    order = np.argsort(probabilities, kind="stable")
    ranked = np.asarray(probabilities)[order] * np.arange(order.size, 0, -1)
    adjusted = np.empty(order.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(ranked), 1.0)
    return [float(one) for one in adjusted]


def _size(squares: float, degrees: int, of_effect: float) -> float:
    """√SS without the noise of all degrees of freedom but the first: noise adds its variance to SS for each."""
    return math.sqrt(max(squares - (degrees - 1) * of_effect**2, 0.0))


def _share_ends(part: TermEffects, total: float, noise: Noise) -> tuple[float, float] | None:
    """The share of the variation at both ends of the effect's interval, with the other variation unchanged."""
    if not noise.spread or not total:
        return None
    size, rest = _size(part.squares, part.degrees, noise.of_effect), max(total - part.squares, 0.0)
    low, high = (end**2 for end in (max(size - noise.margin, 0.0), size + noise.margin))
    return low / (low + rest), high / (high + rest)


def _term(
    design: Design,
    part: TermEffects,
    total: float,
    noise: Noise,
    f_ratio: float | None,
    probability: float | None,
    significant: bool | None,
) -> Term:
    members = [factor for number, factor in enumerate(design.factors) if part.term >> number & 1]
    return Term(
        name=term_name(part.term),
        factors=tuple(factor.name for factor in members),
        effects=_effects(design, part, noise),
        sum_of_squares=part.squares,
        degrees=part.degrees,
        share=part.squares / total if total else math.nan,
        share_ends=_share_ends(part, total, noise),
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


def _effects(design: Design, part: TermEffects, noise: Noise) -> tuple[Effect, ...]:
    members = [factor for number, factor in enumerate(design.factors) if part.term >> number & 1]
    if design.fraction is not None:
        high = {factor.name: factor.levels[1] for factor in members}
        return (Effect(high, noise.interval(*_at(part, 0))),)
    return tuple(
        Effect(
            {factor.name: factor.levels[number] for factor, number in zip(members, reversed(index), strict=True)},
            noise.interval(*_at(part, index)),
        )
        for index in np.ndindex(part.values.shape)
    )


def _at(part: TermEffects, index: int | tuple[int, ...]) -> tuple[float, float, float]:
    """An effect, its variance and its degrees of freedom."""
    return float(part.values[index]), float(part.variance[index]), float(part.freedoms[index])


def _cells(design: Design, model: Model, means: Floats, noise: Noise) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            {f.name: f.levels[n] for f, n in zip(design.factors, design.level_of(int(cell)), strict=True)},
            in_unit(
                # Without repetitions, a cell has no error estimate of its own.
                Interval(float(means[cell]), None, None, noise.level, 1)
                if design.repetitions[1] == 1
                else noise.of_cell(float(means[cell]), int(cell)),
                model,
            ),
        )
        for cell in np.flatnonzero(design.counts)
    )


def _notes(design: Design, source: ErrorSource, noise: Noise, total: float, quiet: Lenth | None) -> list[str]:
    if total == 0:
        return [f"{design.response} is the same in every row: there is no variation to allocate."]
    if source == "repetitions":
        said = "All repetitions agree to the last digit: they are copies, or the response is too coarse to show noise."
        return [said] if noise.spread == 0 else [*noise.variances.reason]
    if source == "highest interaction":
        if noise.spread is None:
            return ["No run was repeated, and the interaction of all factors is zero: the noise is unknown."]
        return [
            "No run was repeated: the interaction of all factors serves as the error estimate. If this interaction is "
            "real, intervals are too wide."
        ]
    if quiet is not None:
        return ["No run was repeated, so effects have no standard error: Lenth's method judges them."]
    few = "" if design.fraction is None else f", and Lenth's method needs {CONTRASTS_MIN} effects"
    return [f"No run was repeated{few}: the noise is unknown. Measure each cell three times."]
