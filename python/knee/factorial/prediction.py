"""What a model says about the response at measured levels, and about going from one level to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from knee.errors import DesignError
from knee.factorial.analysis import Analysis
from knee.factorial.design import Design, Level
from knee.factorial.noise import Noise, in_unit
from knee.factorial.transform import Floats, term_of
from knee.intervals import Interval


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
    noise = Noise(
        analysis.error.standard_deviation,
        analysis.error.degrees,
        analysis.level if level is None else level,
        design.repetitions[0],
    )
    return in_unit(noise.interval(estimate, variance), analysis.model)


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
    noise = Noise(analysis.error.standard_deviation, analysis.error.degrees, analysis.level, int(counts.min()))
    by = in_unit(noise.interval(of_level[high] - of_level[low], variance), analysis.model)
    return Change(factor, levels[low], levels[high], by)


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
