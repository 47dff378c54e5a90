"""Closed loops that are a model: what they would show, and what is fitted to that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from knee.fit import FittedSystem, Model, fit_systems

COUNTS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
SLOTS = 16


def table(
    model: Model,
    values: tuple[float, ...],
    noise: float = 0.0,
    *,
    seed: int = 0,
    repetitions: int = 1,
    counts: tuple[int, ...] = COUNTS,
    view: str = "client",
) -> pl.DataFrame:
    """What a system that is the model would show, with relative noise on its throughput; N = X (R + Z) holds."""
    rng = np.random.default_rng(seed)
    cycle = model.cycle_ms(np.array(values), np.array(counts, dtype=float), 0.0, float(SLOTS))
    rows = []
    for repetition in range(1, repetitions + 1):
        for point, count in enumerate(counts):
            response = cycle[point] * np.exp(rng.normal(0, noise))
            row = {"point": point, "repetition": repetition, "clients": count, "throughput": 1000 * count / response}
            row |= {"think_ms": 0.0, "workers": SLOTS, "middlewares": 1}
            if view == "client":
                row["response_ms"] = response
            else:
                inside = (response - values[0]) * np.exp(rng.normal(0, noise))
                row |= {"queueing_ms": inside / 2, "service_ms": inside / 2}
            rows.append(row)
    return pl.DataFrame(rows)


def fitted(
    rows: pl.DataFrame, settings: Mapping[str, int | float | str | bool] | None = None, resamples: int = 10
) -> FittedSystem:
    ((system, _),) = fit_systems(rows, [], settings, resamples=resamples)
    return system
