"""The scatter of repetitions at many points with few repetitions each, and repetitions that depart from others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from knee.stats.intervals import Floats

_VARIANCE_MIN = 1e-24
"""Below this, squared residuals are errors of floating-point numbers."""

_STEP_MIN = 1e-12
"""Relative step at which Newton's method ends."""

_OF_MEDIAN_MIN = 1e-4
"""Smallest variance of a group, as a share of the median: equal repetitions do not show that a point has no scatter."""


@dataclass(frozen=True, eq=False)
class Scatter:
    """Standard errors of the means of groups, and each value against the others of its group; NaN if unknown.

    error, freedom      of each group
    apart, probability  of each value: its value less the mean of the others, and the probability of one as large
    """

    error: Floats
    freedom: Floats
    apart: Floats
    probability: Floats


def scatter_of(values: Floats, starts: npt.NDArray[np.intp]) -> Scatter:
    """The scatter of groups of values from one of `starts` to the next; NaN values are left out.

    Few repetitions estimate a variance badly, so each group borrows strength from all groups: its variance is the mean
    of its own and a prior one, (d₀ s₀² + d s²) / (d₀ + d), with d₀ + d degrees of freedom, at most the sum of all d.
    The groups' variances determine s₀ and d₀, the more similar they are the larger d₀ (Smyth 2004, §6.2). A value is
    compared with the mean of the other values of its group, whose variance borrows from the other groups only.
    """
    known = np.isfinite(values)
    sizes = np.diff(starts, append=values.size)
    counts = np.add.reduceat(known, starts, dtype=np.intp)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.add.reduceat(np.where(known, values, 0.0), starts) / counts
        deviations = np.where(known, values - np.repeat(means, sizes), 0.0)
        squares = np.add.reduceat(deviations**2, starts)
        own = np.maximum(counts - 1, 0)
        variance, freedom = _borrowed(squares, own, _priors(squares, own, apart=False), own.sum())

        count, left = (np.repeat(each, sizes) for each in (counts, np.maximum(counts - 2, 0)))
        apart = np.where(known & (count > 1), deviations * count / (count - 1), np.nan)
        rest = np.maximum(np.repeat(squares, sizes) - deviations * apart, 0.0)
        total = own.sum() - np.repeat(own, sizes) + left
        priors = np.repeat(_priors(squares, own, apart=True), sizes, axis=1)
        of_others, freedom_of_others = _borrowed(rest, left, priors, total)
        # Others that scatter more than the other groups explain a difference, too.
        of_others = np.fmax(of_others, rest / left)
        ratio = np.abs(apart) / np.sqrt(of_others * count / (count - 1))
    return Scatter(
        np.where(freedom > 0, np.sqrt(variance / np.maximum(counts, 1)), np.nan),
        freedom,
        apart,
        np.where(freedom_of_others > 0, 2 * special.stdtr(np.maximum(freedom_of_others, 1e-9), -ratio), np.nan),
    )


def _borrowed(squares: Floats, own: Floats, priors: Floats, total: Floats) -> tuple[Floats, Floats]:
    prior, variance = priors
    weighted = (prior * variance + squares) / (prior + own)
    return np.where(np.isinf(prior), variance, weighted), np.minimum(prior + own, total)


def _priors(squares: Floats, own: Floats, *, apart: bool) -> Floats:
    """d₀ and s₀² from the groups' sums of squares, by the moments of the logarithms of their variances (Smyth 2004).
    With `apart`, for each group from the other ones. d₀ is 0 with fewer than two groups.
    """
    scattered = own > 0
    halves = np.where(scattered, own / 2, 1.0)
    variances = squares / np.maximum(own, 1)
    least = max(_VARIANCE_MIN, _OF_MEDIAN_MIN * float(np.median(variances[scattered]))) if scattered.any() else 1.0
    logs = np.log(np.maximum(variances, least)) - special.digamma(halves) + np.log(halves)
    parts = np.where(scattered, [np.ones(own.size), logs, logs**2, special.polygamma(1, halves)], 0.0)
    count, first, second, expected = parts.sum(axis=1, keepdims=True) - (parts if apart else 0.0)
    mean = first / count
    excess = (second - count * mean**2) / (count - 1) - expected / count
    half = np.where(excess > 0, _trigamma_inverse(np.where(excess > 0, excess, 1.0)), np.inf)
    shift = np.where(np.isinf(half), 0.0, special.digamma(np.minimum(half, 1e9)) - np.log(half))
    few = count < 2
    return np.where(few, 0.0, [2 * half, np.exp(mean + shift)])


def _trigamma_inverse(values: Floats) -> Floats:
    """y with ψ′(y) = values, by Newton's method on 1 / ψ′ (Smyth 2004, appendix)."""
    found = 0.5 + 1 / values
    for _ in range(30):
        trigamma = special.polygamma(1, found)
        step = trigamma * (1 - trigamma / values) / special.polygamma(2, found)
        found += step
        if (np.abs(step) <= _STEP_MIN * found).all():
            break
    return np.asarray(found)
