"""Confidence intervals over repetitions.

A repetition is one observation: windows within a run are correlated, so their spread does not predict the result of a
second run. So all functions here take one number per repetition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt

LEVEL = 0.95
"""Default confidence level."""

_DECIMALS_MAX = 5
"""Largest number of decimals of a printed interval; smaller values are rounding errors."""

_VAGUE_TIMES = 100.0
"""Ratio of the ends above which an interval is vague: two decades."""

_LOGARITHM_MAX = 300.0

NAMED_MAX = 6
"""Largest number of names in a sentence."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; `low` and `high` are None without an interval."""

    estimate: float
    low: float | None
    high: float | None
    level: float
    repetitions: int

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float | None:
        """Half width as a share of the estimate; None without an interval or at an estimate of zero."""
        half_width = self.half_width
        if half_width is None or self.estimate == 0:
            return None
        return half_width / abs(self.estimate)

    @classmethod
    def around(cls, estimate: float, half_width: float | None, level: float, repetitions: int) -> Interval:
        """An estimate ± a half width; None for no interval."""
        if half_width is None:
            return cls(estimate, None, None, level, repetitions)
        return cls(estimate, estimate - half_width, estimate + half_width, level, repetitions)

    def scaled(self, factor: float, shift: float = 0.0) -> Interval:
        """The interval times a factor above zero, plus a shift."""
        low, high = (None if end is None else end * factor + shift for end in (self.low, self.high))
        return replace(self, estimate=self.estimate * factor + shift, low=low, high=high)


def mean_interval(values: Sequence[float] | Floats, level: float = LEVEL) -> Interval:
    """Mean with its Student's t interval, mean ± t(1 − α/2; r − 1) · s / √r (Jain 1991, §13.2).

    One repetition yields no interval. Missing and non-finite values are left out; with none left the estimate is NaN.
    """
    _check_level(level)
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    count = int(finite.size)
    if count == 0:
        return Interval(math.nan, None, None, level, 0)
    half_width = _student(level, count - 1) * float(finite.std(ddof=1)) / math.sqrt(count) if count > 1 else None
    return Interval.around(float(finite.mean()), half_width, level, count)


def mean_intervals(values: Floats, starts: npt.NDArray[np.intp], level: float = LEVEL) -> list[Interval]:
    """:func:`mean_interval` of many groups at once; a group has the values from one of `starts` to the next."""
    _check_level(level)
    if not starts.size:
        return []
    finite = np.isfinite(values)
    counts = np.add.reduceat(finite, starts, dtype=np.intp)
    known = np.where(finite, values, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.add.reduceat(known, starts) / counts
        deviations = np.where(finite, known - np.repeat(means, np.diff(starts, append=values.size)), 0.0)
        spreads = np.sqrt(np.add.reduceat(deviations * deviations, starts) / (counts - 1))
    found = []
    for mean, spread, count in zip(means.tolist(), spreads.tolist(), counts.tolist(), strict=True):
        half_width = _student(level, count - 1) * spread / math.sqrt(count) if count > 1 else None
        found.append(Interval.around(mean if count else math.nan, half_width, level, count))
    return found


def median_interval(values: Sequence[float] | Floats) -> Interval:
    """Median with the smallest and the largest value as its interval.

    The level of n values is 1 − 2^(1 − n): with this probability, the ends enclose the median of any distribution
    (Conover 1999, §3.2). One value has no interval.
    """
    count = len(values)
    if count < 2:
        return Interval(float(np.median(values)), None, None, 0.0, count)
    ends = float(min(values)), float(max(values))
    return Interval(float(np.median(values)), *ends, 1 - 2.0 ** (1 - count), count)


def difference_interval(
    minuend: Sequence[float] | Floats, subtrahend: Sequence[float] | Floats, level: float = LEVEL
) -> Interval:
    """Difference of two means with Welch's interval: unequal variances, unpaired (Jain 1991, §13.4.2).

    With fewer than two repetitions of either mean, there is no interval.
    """
    _check_level(level)
    left = np.asarray(minuend, dtype=np.float64)
    right = np.asarray(subtrahend, dtype=np.float64)
    estimate = float(left.mean() - right.mean())
    repetitions = int(min(left.size, right.size))
    if repetitions < 2:
        return Interval.around(estimate, None, level, repetitions)
    left_variance = float(left.var(ddof=1)) / left.size
    right_variance = float(right.var(ddof=1)) / right.size
    variance = left_variance + right_variance
    if variance == 0:
        return Interval.around(estimate, 0.0, level, repetitions)
    freedom = variance**2 / (left_variance**2 / (left.size - 1) + right_variance**2 / (right.size - 1))
    return Interval.around(estimate, _student(level, freedom) * math.sqrt(variance), level, repetitions)


def product_interval(left: Interval, right: Interval, *, offset: float = 0.0) -> Interval:
    """(left + offset) · right of two independent means, with its propagated uncertainty.

    If one mean has no interval, the product has none.
    """
    whole = left.estimate + offset
    estimate = whole * right.estimate
    repetitions = min(left.repetitions, right.repetitions)
    error = _relative_error((left, whole), (right, right.estimate))
    return Interval.around(estimate, None if error is None else error * abs(estimate), left.level, repetitions)


def ratio_interval(numerator: Interval, denominator: Interval) -> Interval:
    """The ratio of two independent means, both above zero.

    The interval is symmetric about the logarithm: it never reaches zero, and the inverse ratio has the inverse
    interval. If one mean has no interval, the ratio has none. If one mean is not positive, the estimate is NaN.
    """
    repetitions = min(numerator.repetitions, denominator.repetitions)
    if not (numerator.estimate > 0 and denominator.estimate > 0):
        return Interval(math.nan, None, None, numerator.level, repetitions)
    estimate = numerator.estimate / denominator.estimate
    error = _relative_error((numerator, numerator.estimate), (denominator, denominator.estimate))
    if error is None:
        return Interval(estimate, None, None, numerator.level, repetitions)
    return Interval(estimate, estimate * _exp(-error), estimate * _exp(error), numerator.level, repetitions)


def paired_ratio_interval(ratios: Sequence[float] | Floats, level: float = LEVEL) -> Interval:
    """The geometric mean of ratios of two values measured together, all above zero: the t interval of their logarithms.

    As in :func:`ratio_interval`, the inverse ratios have the inverse interval.
    """
    logarithm = mean_interval(np.log(np.asarray(ratios, dtype=np.float64)), level)
    low, high = (None if end is None else _exp(end) for end in (logarithm.low, logarithm.high))
    return Interval(_exp(logarithm.estimate), low, high, level, logarithm.repetitions)


def above_zero(mean: Interval) -> Interval:
    """The interval of a positive quantity's mean, symmetric about the logarithm: both ends differ from the mean by the
    same factor.

    The error of ln x̄ is the relative error of x̄, to first order (Meeker & Escobar 1998, §7.3).
    """
    width = mean.relative_half_width
    if width is None or mean.estimate < 0:
        return replace(mean, low=None, high=None)
    return replace(mean, low=mean.estimate * _exp(-width), high=mean.estimate * _exp(width))


def _exp(logarithm: float) -> float:
    """e to this power, without overflow: two very different repetitions give very long intervals."""
    return float(np.exp(np.clip(logarithm, -_LOGARITHM_MAX, _LOGARITHM_MAX)))


def _relative_error(*factors: tuple[Interval, float]) -> float | None:
    """Relative half width of a product or a quotient of values with these intervals.

    Relative variances add to first order (Taylor 1997, §3.3); the degrees of freedom are Welch & Satterthwaite's.
    """
    parts = []
    for interval, value in factors:
        if interval.half_width is None or interval.repetitions < 2 or value == 0:
            return None
        degrees = interval.repetitions - 1
        parts.append((abs(interval.half_width / value) / _student(interval.level, degrees), degrees))
    variance = sum(error**2 for error, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance**2 / sum(error**4 / degrees for error, degrees in parts)
    return _student(factors[0][0].level, freedom) * math.sqrt(variance)


def pooled_bootstrap(
    samples: Sequence[Floats],
    statistic: Callable[[Sequence[Floats]], Floats],
    *,
    positive: bool = False,
    level: float = LEVEL,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Bootstrap of a statistic of several points with few repetitions each.

    With three repetitions, a point's own residuals are too few for resampling: the interval would be far too narrow. So
    relative residuals are pooled over all points, scaled by √(r / (r − 1)) because the mean was subtracted, and added
    to each point's mean: model-based resampling (Davison & Hinkley 1997, §6.3). Quantiles of few residuals are too
    narrow, as z is narrower than t: the tails are expanded to Φ(−t(1 − α/2; ν)) with ν the residuals' degrees of
    freedom (Hesterberg 2015, "expanded percentile"). The method assumes equal relative noise at all points. Quantities
    measured together stay together.

    Parameters
    ----------
    samples
        One array per point, shape (repetitions, quantities); the counts of repetitions may differ.
    statistic
        Takes arrays shaped as `samples`, with the resamples as a further first axis, and returns an estimate for each;
        a non-finite value drops that resample.
    positive
        Whether all samples, and so the statistic, lie above zero. Residuals are then those of logarithms, and no
        resample is below zero. The interval is the basic one of the statistic's logarithm, T² / T*(1 − α/2) to
        T² / T*(α/2) (Davison & Hinkley 1997, §5.2), and above zero. Noise makes some statistics too large, such as the
        largest of several means; the basic interval corrects this bias, and percentiles would double it.

    Returns
    -------
    The statistic of the samples, with the interval from its resamples: percentiles unless `positive`. Without
    repetitions there is no interval.
    """
    _check_level(level)
    estimate = float(statistic([sample[np.newaxis] for sample in samples])[0])
    repetitions = min((sample.shape[0] for sample in samples), default=0)
    measured = [np.log(sample) for sample in samples] if positive else samples
    residuals = [
        (sample - sample.mean(axis=0) if positive else sample / sample.mean(axis=0) - 1)
        * math.sqrt(sample.shape[0] / (sample.shape[0] - 1))
        for sample in measured
        if sample.shape[0] >= 2
    ]
    if not residuals:
        return Interval(estimate, None, None, level, repetitions)
    pool = np.concatenate(residuals)
    rng = np.random.default_rng(seed)
    means = np.concatenate([np.broadcast_to(sample.mean(axis=0), sample.shape) for sample in measured])
    ends = np.cumsum([sample.shape[0] for sample in samples]).tolist()
    points = [slice(end - sample.shape[0], end) for end, sample in zip(ends, samples, strict=True)]
    chosen = pool[rng.integers(pool.shape[0], size=(resamples, means.shape[0]))]
    drawn = np.exp(means + chosen) if positive else means * (1 + chosen)
    estimates = statistic([drawn[:, point] for point in points])
    estimates = estimates[np.isfinite(estimates)]
    if estimates.size < resamples / 2:
        return Interval(estimate, None, None, level, repetitions)
    freedom = sum(residual.shape[0] - 1 for residual in residuals)
    # erfc(x / √2) / 2 is Φ(−x).
    tail = math.erfc(_student(level, freedom) / math.sqrt(2)) / 2
    low, high = (float(end) for end in np.quantile(estimates, [tail, 1 - tail]))
    if positive:
        low, high = estimate * (estimate / high), estimate * (estimate / low)
    return Interval(estimate, low, high, level, repetitions)


@lru_cache
def _student(level: float, freedom: float) -> float:
    """t(1 − α/2; ν), cached: thousands of points need the same few values."""
    # Imported late: `knee run` does not need scipy.
    from scipy import special

    return float(special.stdtrit(freedom, (1 + level) / 2))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie between 0 and 1, not {level}")


def number(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, thousands separators and no exponent."""
    if value != value:  # NaN
        return "–"
    if value == 0:
        return "0"
    exponent = _exponent(value, digits)
    decimals = max(0, digits - 1 - exponent)
    # A large float would print further digits after the rounded ones; Decimal prints zeros.
    return f"{Decimal(f'{value:.{digits - 1}e}'):,.{decimals}f}"


def quantity(interval: Interval, unit: str = "") -> str:
    """An estimate ± its half width, and the unit. Decimals end at the half width's second digit, or before, at the
    larger number's fourth digit."""
    suffix = f" {unit}" if unit else ""
    half_width = interval.half_width
    if half_width is None:
        return f"{number(interval.estimate)}{suffix}"
    if half_width < 10**-_DECIMALS_MAX:
        return f"{number(round(interval.estimate, _DECIMALS_MAX))} ± 0{suffix}"
    leading = max(abs(interval.estimate), half_width)
    decimals = min(max(0, min(1 - _exponent(half_width), 3 - _exponent(leading))), _DECIMALS_MAX)
    rounded = round(interval.estimate, decimals) + 0.0  # turns −0 into 0
    return f"{rounded:,.{decimals}f} ± {half_width:,.{decimals}f}{suffix}"


def percent(share: float) -> str:
    """A share in per cent: "0%" only for 0, and "100%" only for 1."""
    text = f"{number(100 * share)}%"
    return "more than 99.9%" if share < 1 and text.startswith("100") else text


def client_count(estimate: float) -> str:
    """An estimated count of clients, with one decimal below 10."""
    return f"{estimate:,.{0 if estimate >= 10 else 1}f}"


def between(ratio: Interval) -> str:
    """The ends of a ratio's interval, “2.1 to 5.4”, unless it is vague."""
    assert ratio.low is not None and ratio.high is not None
    return cannot_tell(ratio) if is_vague(ratio) else f"{number(ratio.low, 2)} to {number(ratio.high, 2)}"


def is_vague(interval: Interval) -> bool:
    """Whether the interval of a quantity above zero spans more than two decades, or reaches zero."""
    if interval.low is None or interval.high is None:
        return False
    return interval.high > _VAGUE_TIMES * interval.low


def cannot_tell(interval: Interval) -> str:
    """Text in place of a vague interval: “cannot tell from two repetitions”."""
    few = ("no repetition", "one repetition", "two repetitions", "three repetitions", "four repetitions")
    count = interval.repetitions
    return f"cannot tell from {few[count] if count < len(few) else f'{count} repetitions'}"


def clients_between(clients: Interval) -> str:
    """The ends of the interval of an estimated count of clients, “2.1 to 15.3”, unless it is vague."""
    assert clients.low is not None and clients.high is not None
    if is_vague(clients):
        return cannot_tell(clients)
    low = f"{clients.low:,.1f}" if clients.low >= 0.05 else "less than 0.1"
    return f"{low} to {clients.high:,.1f}"


def clients_about(clients: Interval) -> str:
    """“11 clients (2.1 to 15.3)”; without an interval “11 clients”."""
    ends = "" if clients.low is None else f" ({clients_between(clients)})"
    return f"{client_count(clients.estimate)} clients{ends}"


def counted(count: int, noun: str) -> str:
    """“1 repetition”, “2 repetitions”."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def listed(names: Sequence[str], apart: str = ", ") -> str:
    """“a, b, c and 4 more”: at most NAMED_MAX names."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return apart.join(names[:NAMED_MAX]) + more


def capital(text: str) -> str:
    """The start of a sentence."""
    return text[:1].upper() + text[1:]


def _exponent(value: float, digits: int = 2) -> int:
    """The power of ten of a value's first digit after rounding to `digits` digits."""
    return int(f"{abs(value):.{digits - 1}e}".split("e")[1])
