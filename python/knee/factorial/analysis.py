"""Factorial analysis under one model: effects with intervals, allocation of variation, predictions.

The additive model is y = q₀ + q_A x_A + q_B x_B + q_AB x_A x_B + … + e (Jain 1991, ch. 17 and 18); the multiplicative
one is the same for ln y, with logarithms taken before averaging (§18.8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from knee.errors import DesignError
from knee.factorial.decomposition import TermEffects, decompose
from knee.factorial.design import Design, Level
from knee.factorial.fraction import signed_name
from knee.factorial.lenth import CONTRASTS_MIN, Lenth, lenth_margins
from knee.factorial.noise import Model, Noise, in_unit
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
    f_ratio, probability
                    of a mean square as large without the effect; None without an estimate of the error
    significant     whether the effect is significant at the analysis' level; None if the data cannot show it
    aliases         terms of a fraction that are confounded with this one, with their signs
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
    total: float
    cells: tuple[Cell, ...]
    residuals: Residuals | None
    lenth: Lenth | None
    notes: tuple[str, ...]

    def term(self, name: str) -> Term:
        """The term with these letters, in any order, or its alias. Raises KeyError."""
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

        Sizes are √SS, which for terms of two levels is |q| in units of its own standard error. Comparing the two
        largest needs no correction for their selection (Gutmann & Maymin 1987).
        """
        if not self.total or len(self.terms) < 2:
            return None
        first, second = self.ranked[:2]
        if self.error.standard_deviation:
            variance = self.error.standard_deviation**2
            # Noise adds its variance to SS for each degree of freedom.
            sizes = [math.sqrt(max(one.sum_of_squares - (one.degrees - 1) * variance, 0.0)) for one in (first, second)]
            margin = float(stats.t.ppf((1 + self.level) / 2, self.error.degrees)) * self.error.standard_deviation
        elif self.lenth is not None:
            sizes, margin = [abs(one.q.estimate) for one in (first, second)], self.lenth.margin
        else:
            return None
        return sizes[0] - sizes[1] > math.sqrt(2) * margin


def analyse_model(design: Design, model: Model = "additive", level: float = LEVEL) -> Analysis:
    """Estimate every effect that a design allows.

    Repetitions give the error. Without repetitions, Lenth's method judges factors with two levels. With more levels,
    the interaction of all factors serves as the error estimate. The notes report this.

    Raises
    ------
    DesignError
        If a response is not positive in the multiplicative model.
    """
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie between 0 and 1, not {level}")
    values = _scaled(design, model)
    means = design.means(values)
    q0, of_mean, parts = decompose(design, means)
    residuals = values - means[design.cells]
    source, parts, squares, degrees = _error_of(design, parts, residuals)
    rounding = values.size * (_ROUNDING * float(np.ptp(values))) ** 2
    # An interaction of exactly zero is not an estimate of the noise.
    known = degrees > 0 and (source == "repetitions" or squares > rounding)
    spread = math.sqrt(squares / degrees) if known else None
    total = squares + sum(part.squares for part in parts) if np.ptp(values) else 0.0
    quiet = _lenth_of(design, parts, degrees, level, rounding)
    noise = Noise(spread, degrees, level, design.repetitions[0])
    terms = tuple(_term(design, part, total, rounding, quiet, noise) for part in parts)
    return Analysis(
        design=design,
        model=model,
        level=level,
        values=values,
        means=means,
        mean=noise.interval(q0, of_mean),
        terms=terms,
        error=Error(source, squares, degrees, squares / total if total else math.nan, spread),
        total=total,
        cells=_cells(design, model, means, noise),
        residuals=Residuals(residuals, means[design.cells], design.cells, design.order)
        if source == "repetitions"
        else None,
        lenth=quiet,
        notes=(*design.notes, *_notes(design, source, spread, total, quiet)),
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


def _error_of(
    design: Design, parts: list[TermEffects], residuals: Floats
) -> tuple[ErrorSource, list[TermEffects], float, int]:
    """The source of the error, the remaining terms, the error's sum of squares and its degrees of freedom."""
    degrees = residuals.size - design.runs
    if degrees:
        return "repetitions", parts, float(np.sum(residuals**2)), degrees
    if design.fraction is None and len(design.factors) > 1:
        highest = parts[-1]
        return "highest interaction", parts[:-1], highest.squares, highest.degrees
    return "none", parts, 0.0, 0


def _lenth_of(design: Design, parts: list[TermEffects], degrees: int, level: float, rounding: float) -> Lenth | None:
    if degrees or design.fraction is None or len(parts) < CONTRASTS_MIN:
        return None
    return lenth_margins([float(part.values[0]) if part.squares > rounding else 0.0 for part in parts], level)


def _term(design: Design, part: TermEffects, total: float, rounding: float, quiet: Lenth | None, noise: Noise) -> Term:
    f_ratio = probability = significant = None
    if total and noise.spread is not None:
        mean_square, variance = part.squares / part.degrees, noise.spread**2
        f_ratio = 0.0 if part.squares <= rounding else mean_square / variance if variance else math.inf
        probability = float(stats.f.sf(f_ratio, part.degrees, noise.degrees))
        significant = bool(probability < 1 - noise.level)
    elif total and quiet is not None:
        significant = bool(abs(part.values[0]) > quiet.margin and part.squares > rounding)
    members = [factor for number, factor in enumerate(design.factors) if part.term >> number & 1]
    return Term(
        name=term_name(part.term),
        factors=tuple(factor.name for factor in members),
        effects=_effects(design, part, noise),
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


def _effects(design: Design, part: TermEffects, noise: Noise) -> tuple[Effect, ...]:
    members = [factor for number, factor in enumerate(design.factors) if part.term >> number & 1]
    if design.fraction is not None:
        high = {factor.name: factor.levels[1] for factor in members}
        return (Effect(high, noise.interval(float(part.values[0]), float(part.variance[0]))),)
    return tuple(
        Effect(
            {factor.name: factor.levels[number] for factor, number in zip(members, reversed(index), strict=True)},
            noise.interval(float(part.values[index]), float(part.variance[index])),
        )
        for index in np.ndindex(part.values.shape)
    )


def _cells(design: Design, model: Model, means: Floats, noise: Noise) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            {f.name: f.levels[n] for f, n in zip(design.factors, design.level_of(int(cell)), strict=True)},
            in_unit(
                # An interaction in place of the error has no estimate for a single cell.
                Interval(float(means[cell]), None, None, noise.level, 1)
                if design.repetitions[1] == 1
                else noise.interval(float(means[cell]), 1 / int(design.counts[cell])),
                model,
            ),
        )
        for cell in np.flatnonzero(design.counts)
    )


def _notes(design: Design, source: ErrorSource, spread: float | None, total: float, quiet: Lenth | None) -> list[str]:
    if total == 0:
        return [f"{design.response} is the same in every row: there is no variation to allocate."]
    if source == "repetitions":
        said = "All repetitions agree to the last digit: they are copies, or the response is too coarse to show noise."
        return [said] if spread == 0 else []
    if source == "highest interaction":
        if spread is None:
            return ["No run was repeated, and the interaction of all factors is zero: the noise is unknown."]
        return [
            "No run was repeated: the interaction of all factors serves as the error estimate. If this interaction is "
            "real, intervals are too wide."
        ]
    if quiet is not None:
        return ["No run was repeated, so effects have no standard error: Lenth's method judges them."]
    few = "" if design.fraction is None else f", and Lenth's method needs {CONTRASTS_MIN} effects"
    return [f"No run was repeated{few}: the noise is unknown. Measure each cell three times."]
