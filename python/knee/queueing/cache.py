"""The hit ratio of a cache whose values have a lifetime."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from knee.queueing.errors import ArgumentError

_HALVINGS = 200


def cache_hit_ratio(
    popularity: npt.ArrayLike,
    reads_per_s: float,
    lifetime_s: float,
    *,
    items_max: float = np.inf,
    writes_per_read: float = 0.0,
) -> float:
    """Share of reads that a cache answers, if a write removes its value, and a value ends some time after its read.

    The reads and writes of each key are Poisson. A miss brings the value at once. The value ends after the lifetime, at
    the next write, or after the cache's characteristic time: then the cache has so many newer values that it evicts
    this one. Che, Tung and Wang take that time as the same for all keys. It is the time at which the expected number of
    values fits. Eviction is first in, first out; CLOCK evicts no worse. So a copy of a key with read rate λ and write
    rate μ lives L = (1 − exp(−μ t)) / μ on average, where t is the smaller of the two times. The key's hit ratio is
    λ L / (1 + λ L).

    Parameters
    ----------
    popularity
        Shares of the keys among reads, and among writes; any positive numbers, which are scaled to a sum of 1.
    reads_per_s
        Reads of all keys per second, above 0.
    lifetime_s
        From the read to the end of its value, above 0; `inf` for no end.
    items_max
        Number of values for which the cache has room.
    writes_per_read
        Number of writes for each read, from 0.

    Raises
    ------
    ArgumentError
        If an argument is invalid; the error names it.

    References
    ----------
    Che, Tung & Wang 2002, equation 4; Martina, Garetto & Leonardi 2014, §IV.A, for first in, first out.
    """
    weights = np.asarray(popularity, dtype=np.float64)
    if weights.ndim != 1 or not weights.size or not (np.isfinite(weights) & (weights > 0)).all():
        raise ArgumentError("popularity", "expected positive numbers")
    for name, value in (("reads_per_s", reads_per_s), ("lifetime_s", lifetime_s), ("items_max", items_max)):
        if not value > 0:
            raise ArgumentError(name, f"expected a number above 0, not {value!r}")
    if not 0 <= writes_per_read < np.inf:
        raise ArgumentError("writes_per_read", f"expected a number from 0, not {writes_per_read!r}")
    share = weights / weights.sum()
    reads, writes = reads_per_s * share, reads_per_s * writes_per_read * share

    def present(time_s: float) -> npt.NDArray[np.float64]:
        # Poisson reads find a value as often as it is there.
        ends = writes * time_s
        lives = time_s * np.where(ends > 0, -np.expm1(-ends) / np.where(ends > 0, ends, 1.0), 1.0)
        found: npt.NDArray[np.float64] = reads * lives / (1 + reads * lives)
        return found

    # No value is read again after this time; it stands for no end.
    longest = min(lifetime_s, 1e12 / reads.min())
    low, high = 0.0, longest
    if present(longest).sum() <= items_max:
        low = longest
    else:
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if present(middle).sum() <= items_max else (low, middle)
    return float((share * present(low)).sum())
