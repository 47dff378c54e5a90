"""Lenth's method (1989): which effects matter in a design without repetitions. Most effects of a large design are
noise, so the effects themselves give an estimate of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from knee.stats.intervals import LEVEL

CONTRASTS_MIN = 7
"""Number of effects of a 2^3 design. With fewer, the pseudo standard error has less than 7/3 degrees of freedom."""


@dataclass(frozen=True)
class Lenth:
    """The noise of effects, all in the effects' own unit.

    pseudo_error      PSE, a standard error from the effects that are not outstanding
    margin            ME: the limit beyond which a single effect is active
    simultaneous      SME: the limit beyond which, with this confidence, no inactive effect lies
    degrees           d = m/3, degrees of freedom of the t quantiles
    """

    pseudo_error: float
    margin: float
    simultaneous: float
    degrees: float
    level: float


def lenth_margins(effects: Sequence[float], level: float = LEVEL) -> Lenth:
    """PSE = 1.5 · median of |q| below 2.5 s₀, s₀ = 1.5 · median |q| (Lenth 1989, eqs. 1 to 4).

    `effects` are all effects but the mean, orthogonal and of equal variance. With fewer than CONTRASTS_MIN, the margins
    are too wide to be useful.
    """
    if not 0 < level < 1:
        raise ValueError(f"confidence level must lie between 0 and 1, not {level}")
    sizes = np.abs(np.asarray(effects, dtype=np.float64))
    if not sizes.size:
        raise ValueError("no effects")
    first = 1.5 * float(np.median(sizes))
    quiet = sizes[sizes < 2.5 * first]
    pseudo_error = 1.5 * float(np.median(quiet)) if quiet.size else 0.0
    degrees = sizes.size / 3
    each = (1 + level) / 2
    together = (1 + level ** (1 / sizes.size)) / 2
    return Lenth(
        pseudo_error=pseudo_error,
        margin=float(stats.t.ppf(each, degrees)) * pseudo_error,
        simultaneous=float(stats.t.ppf(together, degrees)) * pseudo_error,
        degrees=degrees,
        level=level,
    )
