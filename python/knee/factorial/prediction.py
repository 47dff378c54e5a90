"""Predictions of the response at measured levels, and of changes between levels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from knee.errors import DesignError
from knee.factorial.analysis import Analysis, Cell
from knee.factorial.design import Design, Level
from knee.factorial.noise import in_unit
from knee.factorial.transform import Floats, term_of
from knee.stats.intervals import Interval


def predict(
    analysis: Analysis,
    levels: Mapping[str, Level],
    *,
    terms: Collection[str] | None = None,
    observations: int | None = None,
    level: float | None = None,
) -> Interval:
    """The predicted response at a combination of measured levels, in the response's unit.

    The variance of the prediction is exact for the model's weights w over equally noisy cells, s_e² · (Σ w²/n + 1/m);
    for a full model with r repetitions that is s_e² · (1/r + 1/m) (Jain 1991, §18.6; see docs/methods/predictions.md).

    `terms`: letters of the terms in the model, besides the mean; all by default. `observations`: m: number of future
    observations whose mean the interval covers; None for the true mean.

    Raises DesignError for an unknown factor or level. Raises KeyError for an unknown term.
    """
    design = analysis.design
    kept = analysis.terms if terms is None else [analysis.term(name) for name in terms]
    chosen = _level_numbers(design, levels)
    weights = _weights(design, [0, *(term_of(term.name) for term in kept)], chosen)
    means = analysis.means
    measured = design.counts > 0
    centre = float(np.mean(means[measured]))
    estimate = centre + float(np.sum(weights[measured] * (means[measured] - centre)))
    if observations is not None and observations < 1:
        raise ValueError(f"expected one future observation or more, not {observations}")
    squares, future = weights**2, 0.0
    if observations is not None:
        cell = int(np.ravel_multi_index(chosen[::-1], design.shape))
        if measured[cell]:
            # n / m of the variance of the cell's mean is that of a mean of m observations.
            squares[cell] += design.counts[cell] / observations
        else:
            future = 1 / observations
    noise = replace(analysis.noise, level=analysis.level if level is None else level)
    return in_unit(noise.sum_interval(estimate, squares, future=future), analysis.model)


@dataclass(frozen=True)
class Change:
    """The effect of a change between two levels of a factor, averaged over the other factors.

    by  the difference of the response in its own unit; in the multiplicative model the ratio
    """

    factor: str
    before: Level
    after: Level
    by: Interval


def change(analysis: Analysis, factor: str, where: Mapping[str, Level] | None = None) -> Change:
    """The change from a factor's lowest to its highest level, at the given levels of other factors or over all levels.

    With more than two levels, the change is from the level with the least mean response to the one with the largest.
    The interval allows for this selection.

    Raises KeyError for a factor that the design lacks.
    """
    levels = next((one.levels for one in analysis.design.factors if one.name == factor), None)
    if levels is None:
        raise KeyError(factor)
    of_level = [_marginal(analysis, {**(where or {}), factor: level}) for level in levels]
    means = [mean for mean, _ in of_level]
    low, high = (0, 1) if len(levels) == 2 else (int(np.argmin(means)), int(np.argmax(means)))
    if low == high:  # all means are equal
        low, high = 0, len(levels) - 1
    # The two levels have no cell in common.
    squares = of_level[low][1] + of_level[high][1]
    by = analysis.noise.sum_interval(means[high] - means[low], squares, among=len(levels))
    return Change(factor, levels[low], levels[high], in_unit(by, analysis.model))


def marginal_means(analysis: Analysis, factors: Sequence[str]) -> tuple[Cell, ...]:
    """The mean response at every combination of these factors' levels, over all cells that have them: with two factors,
    the lines of an interaction plot. In the response's own unit, geometric in the multiplicative model.

    Raises KeyError for a factor that the design lacks.
    """
    known = {one.name: one.levels for one in analysis.design.factors}
    combinations = [dict(zip(factors, levels, strict=True)) for levels in product(*(known[name] for name in factors))]
    return tuple(
        Cell(levels, in_unit(analysis.noise.sum_interval(*_marginal(analysis, levels)), analysis.model))
        for levels in combinations
    )


def _marginal(analysis: Analysis, levels: Mapping[str, Level]) -> tuple[float, Floats]:
    """Mean of the cells with these levels, in the model's scale, and the squares of the cells' weights."""
    design = analysis.design
    measured = np.flatnonzero(design.counts)
    at = np.unravel_index(measured, design.shape)[::-1]
    chosen = np.ones(measured.size, dtype=np.bool_)
    for factor, numbers in zip(design.factors, at, strict=True):
        if factor.name in levels:
            chosen &= numbers == factor.levels.index(levels[factor.name])
    cells = measured[chosen]
    squares = np.zeros(design.counts.size)
    squares[cells] = 1 / cells.size**2
    return float(np.mean(analysis.means[cells])), squares


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
    """Weight of each cell's mean in a prediction with these terms, shape (cells,)."""
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
