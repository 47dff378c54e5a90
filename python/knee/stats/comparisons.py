"""Simultaneous intervals for the differences between several means and the best one. Pure. The best is chosen from the
same data, so the intervals hold for all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

from knee.stats.intervals import LEVEL, Floats, Interval, mean_interval
from knee.stats.tukey import studentized_range

ALIKE = 0.25
"""Significance at which variances count as different. It is larger than that of a finding, because pooling needs
evidence (Bancroft 1964)."""

EQUAL = "all repetitions are equal, so the noise is unknown"
"""The reason why means with repetitions are not compared."""

_ROUNDING = 1e-9
"""Relative differences below this count as rounding errors."""

L = TypeVar("L")


@dataclass(frozen=True)
class Noise:
    """Variances of relative residuals: one for each sample, or a shared one.

    variances, freedoms
            variance and degrees of freedom of each sample
    shares  the samples that use the shared variance
    common  for each sample Σ a b / ν over all estimates, with a the part of an estimate in the sample's variance, and b
            its part in the shared one. Variances from the same estimates are not independent
    """

    variances: Floats
    freedoms: Floats
    shares: npt.NDArray[np.bool_]
    common: Floats

    def differences(self, counts: Floats, at: int) -> tuple[Floats, Floats]:
        """The variances of the differences between each sample and the one `at`, with their degrees of freedom
        (Satterthwaite 1946). `counts` are the factors of each sample's variance in the difference."""
        terms = counts * self.variances
        squares = terms**2 / self.freedoms
        common = self.common if self.shares[at] else np.where(self.shares, self.common[at], 0.0)
        sums = terms + terms[at]
        return sums, sums**2 / (squares + squares[at] + 2 * counts * counts[at] * common)


def scatters(sample: Floats) -> bool:
    """Whether repetitions differ by more than rounding; none may be below zero."""
    return bool(np.ptp(sample) > _ROUNDING * sample.max())


def scattered_mean(sample: Floats, level: float = LEVEL) -> Interval:
    """The mean with its interval; without an interval if repetitions are equal (:func:`noise`). None may be below
    zero."""
    found = mean_interval(sample, level)
    known = sample[np.isfinite(sample)]
    return found if known.size < 2 or scatters(known) else replace(found, low=None, high=None)


def noise(samples: Sequence[Floats]) -> Noise | None:
    """The relative noise of samples, pooled unless it significantly differs; None if no sample scatters. Equal
    repetitions show the resolution of the measurement, not the absence of noise (JCGM 100:2008, F.2.2.1). Samples with
    equal repetitions do not enter the pooled variance, but use it.

    `samples`: two repetitions or more of each, none below zero.
    """
    scattered = np.array([scatters(sample) for sample in samples])
    residuals = [sample / sample.mean() - 1 for sample, one in zip(samples, scattered, strict=True) if one]
    if not residuals:
        return None
    variances = np.array([sample.var(ddof=1) for sample in residuals])
    freedoms = np.array([sample.size - 1 for sample in residuals], np.float64)
    parts = variances * freedoms / freedoms.sum()
    shared = parts.sum()
    if bartlett_probability(variances, freedoms) >= ALIKE:
        scattered[:] = False
        freedom = freedoms.sum()
    else:
        freedom = shared**2 / (parts**2 / freedoms).sum()
    found = np.tile([[shared], [freedom], [shared**2 / freedom]], len(samples))
    if scattered.any():
        found[:, scattered] = variances, freedoms, variances * parts / freedoms
    return Noise(found[0], found[1], ~scattered, found[2])


def shares_apart(samples: Mapping[L, Floats], best: L, level: float = LEVEL) -> dict[L, Interval]:
    """The difference of each mean to the best one, as a share of the best; `level` holds for all differences together.

    Tukey & Kramer's intervals (Kramer 1956) use the pooled variance of the relative residuals, because noise grows with
    the measured quantity. If these variances differ, each pair has its own two (Games & Howell 1976). If no sample
    scatters, there are no intervals (:func:`noise`). A sample of zeros has no noise of its own and gets that of the
    best, which may have been as low.

    `samples`: two repetitions or more of each, none below zero. `best`: the largest or the smallest, with a mean above
    zero.
    """
    means = np.array([sample.mean() for sample in samples.values()])
    sizes = np.array([sample.size for sample in samples.values()])
    at = list(samples).index(best)
    apart = np.abs(means[at] - means) / means[at]
    half_widths: list[float | None] = [None] * means.size
    if (known := noise(list(samples.values()))) is not None:
        # Variances of the differences, in units of the best mean.
        errors, freedoms = known.differences((means / means[at]) ** 2 / sizes, at)
        for i in range(means.size):
            if i != at:
                quantile = studentized_range(level, means.size, _floor(float(freedoms[i])))
                half_widths[i] = quantile * math.sqrt(errors[i] / 2)
    return {
        name: Interval.around(float(apart[i]), half_widths[i], level, int(min(sizes[at], sizes[i])))
        for i, name in enumerate(samples)
        if i != at
    }


def bartlett_probability(variances: Floats, freedoms: Floats) -> float:
    """Probability of variances as different if all are equal (Bartlett 1937); 1 for a single variance. All must be
    above zero."""
    if variances.size < 2:
        return 1.0
    freedom = freedoms.sum()
    apart = freedom * np.log((variances * freedoms).sum() / freedom) - (freedoms * np.log(variances)).sum()
    correction = 1 + ((1 / freedoms).sum() - 1 / freedom) / (3 * (variances.size - 1))
    return float(special.chdtrc(variances.size - 1, apart / correction))


def _floor(freedom: float) -> float:
    """The value rounded to two digits, so that few quantiles have to be computed."""
    digit = 10.0 ** (math.floor(math.log10(freedom)) - 1)
    return math.floor(freedom / digit + 1e-9) * digit
