"""Tables of known factorial designs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from knee.factorial.transform import responses

LEVELS: dict[str, Sequence[Any]] = {"middlewares": (1, 2), "servers": (1, 3), "workers": (8, 32)}


def full_design(
    levels: Mapping[str, Sequence[Any]],
    means: Sequence[float],
    *,
    repetitions: int = 1,
    noise: float = 0.0,
    seed: int = 0,
) -> pl.DataFrame:
    """A table in standard order, the first factor varying fastest, with normal noise."""
    rng = np.random.default_rng(seed)
    cells = [combination[::-1] for combination in itertools.product(*reversed(levels.values()))]
    return pl.DataFrame(
        [
            dict(zip(levels, cell, strict=True))
            | {"repetition": repetition, "throughput": float(mean + noise * rng.standard_normal())}
            for cell, mean in zip(cells, means, strict=True)
            for repetition in range(1, repetitions + 1)
        ]
    )


TRUTH = [5000.0, 700, -360, 80, 1300, 180, -40, 0]
"""Effects in standard order."""


def noisy() -> pl.DataFrame:
    """TRUTH, three times, with normal noise."""
    return full_design(LEVELS, responses(TRUTH).tolist(), repetitions=3, noise=30)
