"""Lenth's method (1989): which effects matter in a design without repetitions. Most effects of a large design are
noise, so the effects themselves give an estimate of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from knee.factorial.transform import Floats
from knee.stats.intervals import LEVEL

CONTRASTS_MIN = 7
"""Number of effects of a 2^3 design. With fewer, the pseudo standard error has less than 7/3 degrees of freedom."""

_SIMULATED_MAX = 100
"""Largest number of effects whose critical values are simulated. With more, Lenth's t quantiles are good
approximations."""

_DRAWN = 2_000_000
"""Simulated effects: critical values are then within a per cent."""


@dataclass(frozen=True)
class Lenth:
    """The noise of effects, all in the effects' own unit.

    pseudo_error      PSE, a standard error from the effects that are not outstanding
    margin            ME: noise alone moves a single effect beyond it with a probability of 1 − level
    simultaneous      SME: noise alone moves any of the effects beyond it with this probability
    lead              noise alone moves the sizes of two equal active effects further apart with this probability
    """

    pseudo_error: float
    margin: float
    simultaneous: float
    lead: float
    level: float


def lenth_margins(effects: Sequence[float], level: float = LEVEL) -> Lenth:
    """PSE = 1.5 · median of |q| below 2.5 s₀, s₀ = 1.5 · median |q| (Lenth 1989, eqs. 1 and 2), times the quantiles of
    |q| / PSE and max |q| / PSE of noise (Ye & Hamada 2000).

    `effects` are all effects but the mean, orthogonal and of equal variance. With fewer than CONTRASTS_MIN, the margins
    are too wide to be useful.
    """
    sizes = np.abs(np.asarray(effects, dtype=np.float64))
    pseudo_error = float(_pseudo_errors(sizes))
    each, together, apart = (one * pseudo_error for one in _critical_values(sizes.size, level))
    return Lenth(pseudo_error, each, together, apart, level)


def _pseudo_errors(sizes: Floats) -> Floats:
    """PSE of designs with effects of these sizes, shape (…, effects); 0 if most effects are zero."""
    ordered = np.sort(sizes, axis=-1)
    first = 1.5 * np.median(ordered, axis=-1, keepdims=True)
    quiet = np.count_nonzero(ordered < 2.5 * first, axis=-1, keepdims=True)
    # The median of the quiet effects is the mean of the middle two.
    middle = np.take_along_axis(ordered, np.maximum(np.concatenate([quiet - 1, quiet], axis=-1) // 2, 0), axis=-1)
    return np.where(quiet[..., 0] > 0, 1.5 * middle.mean(axis=-1), 0.0)


@lru_cache
def _critical_values(effects: int, level: float) -> tuple[float, float, float]:
    """Quantiles of |q| / PSE for one effect and for the largest of all, if all are noise, and of the difference of two
    equal active effects, if the others are. The seed is fixed."""
    if effects > _SIMULATED_MAX:
        each, together = special.stdtrit(effects / 3, [(1 + level) / 2, (1 + level ** (1 / effects)) / 2])
        return float(each), float(together), math.sqrt(2) * float(each)
    noise = np.random.default_rng(0).standard_normal((_DRAWN // effects, effects))
    sizes = np.abs(noise)
    ratios = sizes / _pseudo_errors(sizes)[:, None]
    sizes[:, :2] = np.inf
    apart = np.abs(noise[:, 0] - noise[:, 1]) / _pseudo_errors(sizes)
    each, together, lead = (np.quantile(one, level) for one in (ratios, ratios.max(axis=1), apart))
    return float(each), float(together), float(lead)
