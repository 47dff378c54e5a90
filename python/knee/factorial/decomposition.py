"""Effects of a factorial design and their variances, from the means of its cells.

With two levels per factor there is one effect per term, q, by the sign table (Jain 1991, §17.3). With more, a term has
an effect at every combination of its factors' levels; they add up to zero over each factor (Jain 1991, §22.2, §23).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knee.factorial.design import Design
from knee.factorial.fraction import Fraction
from knee.factorial.noise import Variances
from knee.factorial.transform import Floats

_WEIGHTS_MAX = 4_000_000
"""Largest number of a term's weights over the cells; above it, the harmonic mean of the counts replaces the counts."""


@dataclass(frozen=True, eq=False)
class TermEffects:
    """A term's effects.

    term       the factors of the term, by their bits
    values     with two levels only q, shape (1,); else shape (levels of the last factor of the term, …, of its first)
    variance   of each effect, in units of s_e²
    freedoms   degrees of freedom of each effect's variance
    squares    the term's sum of squares; with unequal counts the partial sum, from omitting the term (Yates 1934)
    degrees    its degrees of freedom
    ratio      the term's mean square over its expectation without the effect, in units of s_e²
    numerator  degrees of freedom of the mean square: `degrees` if all cells are equally noisy
    """

    term: int
    values: Floats
    variance: Floats
    freedoms: Floats
    squares: float
    degrees: int
    ratio: float
    numerator: float


@dataclass(frozen=True, eq=False)
class Effects:
    """The grand mean, its variance in units of s_e² with the degrees of freedom, and the terms in Yates' order."""

    mean: float
    variance: float
    freedoms: float
    terms: list[TermEffects]


def decompose(design: Design, means: Floats, variances: Variances) -> Effects:
    """Split the cells' means into the grand mean and the effects of every term.

    With unequal variances, the ratio of a term is Brunner, Dette & Munk's ANOVA-type statistic (1997), with Box's
    degrees of freedom in the numerator (1954). Without repetitions or with equal counts, it is the F ratio's SS / df.

    `means`: mean of every cell in standard order; NaN if a fraction has no run there.
    """
    if design.fraction is not None:
        return _two_levels(design, design.fraction, means, variances)
    return _many_levels(design, means, variances)


def harmonic_count(design: Design) -> float:
    """Harmonic mean of the number of observations per measured cell."""
    counts = design.counts[design.counts > 0]
    return float(counts.size / np.sum(1 / counts))


def _two_levels(design: Design, fraction: Fraction, means: Floats, variances: Variances) -> Effects:
    q = fraction.effects(means[fraction.present()])
    # Every effect is the sum of the cells' means with signs, over their number.
    variance = np.array([variances.of_means.sum() / fraction.runs**2])
    freedoms = variances.degrees(variance, variances.largest.max() / fraction.runs**2)
    count = harmonic_count(design)
    terms = [
        TermEffects(
            term=term,
            values=q[term : term + 1],
            variance=variance,
            freedoms=freedoms,
            squares=float(fraction.runs * count * q[term] ** 2),
            degrees=1,
            ratio=float(q[term] ** 2 / variance[0]),
            numerator=1,
        )
        for term in fraction.representatives()
        if term
    ]
    return Effects(float(q[0]), float(variance[0]), float(freedoms[0]), terms)


def _many_levels(design: Design, means: Floats, variances: Variances) -> Effects:
    """Split each axis in turn into its mean and the deviations from it, and the variances likewise."""
    centre = float(means.mean())
    of_means = variances.of_means.reshape(design.shape)
    # For every set of factors that was split off so far: effects, variances, and their largest part over its freedoms.
    parts = {0: ((means - centre).reshape(design.shape), of_means, variances.largest.reshape(design.shape))}
    axes = len(design.factors)
    for number in range(axes):
        axis = axes - 1 - number
        levels = design.shape[axis]
        split = {}
        for term, (values, variance, largest) in parts.items():
            mean = values.mean(axis=axis, keepdims=True)
            of_mean = variance.sum(axis=axis, keepdims=True) / levels**2
            most = largest.max(axis=axis, keepdims=True) / levels**2
            split[term] = mean, of_mean, most
            # A deviation weighs its own level with 1 − 1/l and the others with −1/l.
            split[term | 1 << number] = (
                values - mean,
                of_mean + variance * (1 - 2 / levels),
                np.maximum(most, largest * (1 - 1 / levels) ** 2),
            )
        parts = split
    mean, of_mean, most = parts.pop(0)
    cells = design.counts.size
    count = harmonic_count(design)
    unequal = design.repetitions[0] < design.repetitions[1]
    terms = []
    for term, (values, variance, largest) in sorted(parts.items()):
        degrees = int(np.prod([len(f.levels) - 1 for n, f in enumerate(design.factors) if term >> n & 1]))
        others = tuple(axis for axis in range(axes) if not term >> (axes - 1 - axis) & 1)
        over_cells = float(cells / values.size * np.sum(values**2))
        squares = (
            _partial_squares(design, term, means - centre)
            if unequal and degrees * cells <= _WEIGHTS_MAX
            else count * over_cells
        )
        ratio, numerator = squares / degrees, float(degrees)
        if variances.freedoms is not None:
            expected = degrees * float(of_means.mean())
            ratio, numerator = over_cells / expected, expected**2 / float(np.sum(of_means * variance))
        terms.append(
            TermEffects(
                term=term,
                values=values.squeeze(others),
                variance=variance.squeeze(others),
                freedoms=variances.degrees(variance, largest).squeeze(others),
                squares=squares,
                degrees=degrees,
                ratio=ratio,
                numerator=numerator,
            )
        )
    freedoms = variances.degrees(of_mean, most)
    return Effects(float(mean.item()) + centre, float(of_mean.item()), float(freedoms.item()), terms)


def _partial_squares(design: Design, term: int, means: Floats) -> float:
    """cᵀ (K N⁻¹ Kᵀ)⁻¹ c, with K the weights of the term's independent effects c = K ȳ over the cells."""
    weights = np.ones((1, 1))
    for number in reversed(range(len(design.factors))):
        levels = len(design.factors[number].levels)
        mean = np.full((1, levels), 1 / levels)
        weights = np.kron(weights, np.eye(levels)[:-1] - mean if term >> number & 1 else mean)
    effects = weights @ means
    return float(effects @ np.linalg.solve(weights / design.counts @ weights.T, effects))
