"""Effects of a factorial design and their variances, from the means of its cells.

With two levels per factor there is one effect per term, q, by the sign table (Jain 1991, §17.3). With more, a term has
an effect at every combination of its factors' levels; they add up to zero over each factor (Jain 1991, §22.2, §23).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knee.factorial.design import Design
from knee.factorial.fraction import Fraction
from knee.factorial.transform import Floats

_WEIGHTS_MAX = 4_000_000
"""Largest number of a term's weights over the cells; above it, the harmonic mean of the counts replaces the counts."""


@dataclass(frozen=True, eq=False)
class TermEffects:
    """A term's effects.

    term      the factors of the term, by their bits
    values    with two levels only q, shape (1,); else shape (levels of the last factor of the term, …, of its first)
    variance  of each effect, in units of the variance of one observation
    squares   the term's sum of squares; with unequal counts the partial sum, from omitting the term (Yates 1934)
    degrees   its degrees of freedom
    """

    term: int
    values: Floats
    variance: Floats
    squares: float
    degrees: int


def decompose(design: Design, means: Floats) -> tuple[float, float, list[TermEffects]]:
    """Split the cells' means into the grand mean and the effects of every term.

    Parameters
    ----------
    means
        Mean of every cell in standard order; NaN if a fraction has no run there.

    Returns
    -------
    The grand mean, its variance in units of one observation's, and the terms in Yates' order.
    """
    if design.fraction is not None:
        return _two_levels(design, design.fraction, means)
    return _many_levels(design, means)


def harmonic_count(design: Design) -> float:
    """Harmonic mean of the number of observations per measured cell."""
    counts = design.counts[design.counts > 0]
    return float(counts.size / np.sum(1 / counts))


def _two_levels(design: Design, fraction: Fraction, means: Floats) -> tuple[float, float, list[TermEffects]]:
    q = fraction.effects(means[fraction.present()])
    # Every effect is the sum of the cells' means with signs, over their number.
    variance = 1 / (fraction.runs * harmonic_count(design))
    terms = [
        TermEffects(
            term=term,
            values=q[term : term + 1],
            variance=np.array([variance]),
            squares=float(q[term] ** 2 / variance),
            degrees=1,
        )
        for term in fraction.representatives()
        if term
    ]
    return float(q[0]), variance, terms


def _many_levels(design: Design, means: Floats) -> tuple[float, float, list[TermEffects]]:
    """Split each axis in turn into its mean and the deviations from it, and the variances likewise."""
    centre = float(means.mean())
    # Array and variance of every set of factors that was split off so far.
    parts = {0: ((means - centre).reshape(design.shape), 1 / design.counts.reshape(design.shape))}
    axes = len(design.factors)
    for number in range(axes):
        axis = axes - 1 - number
        levels = design.shape[axis]
        split = {}
        for term, (values, variance) in parts.items():
            mean = values.mean(axis=axis, keepdims=True)
            of_mean = variance.sum(axis=axis, keepdims=True) / levels**2
            split[term] = mean, of_mean
            # A deviation weighs its own level with 1 − 1/l and the others with −1/l.
            split[term | 1 << number] = values - mean, of_mean + variance * (1 - 2 / levels)
        parts = split
    mean, of_mean = parts.pop(0)
    cells = design.counts.size
    count = harmonic_count(design)
    unequal = design.repetitions[0] < design.repetitions[1]
    terms = []
    for term, (values, variance) in sorted(parts.items()):
        degrees = int(np.prod([len(f.levels) - 1 for n, f in enumerate(design.factors) if term >> n & 1]))
        others = tuple(axis for axis in range(axes) if not term >> (axes - 1 - axis) & 1)
        terms.append(
            TermEffects(
                term=term,
                values=values.squeeze(others),
                variance=variance.squeeze(others),
                squares=_partial_squares(design, term, means - centre)
                if unequal and degrees * cells <= _WEIGHTS_MAX
                else float(count * cells / values.size * np.sum(values**2)),
                degrees=degrees,
            )
        )
    return float(mean.item()) + centre, float(of_mean.item()), terms


def _partial_squares(design: Design, term: int, means: Floats) -> float:
    """cᵀ (K N⁻¹ Kᵀ)⁻¹ c, with K the weights of the term's independent effects c = K ȳ over the cells."""
    weights = np.ones((1, 1))
    for number in reversed(range(len(design.factors))):
        levels = len(design.factors[number].levels)
        mean = np.full((1, levels), 1 / levels)
        weights = np.kron(weights, np.eye(levels)[:-1] - mean if term >> number & 1 else mean)
    effects = weights @ means
    return float(effects @ np.linalg.solve(weights / design.counts @ weights.T, effects))
