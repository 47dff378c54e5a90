"""Flow balance: what enters leaves, so over a whole run both sides of a tier count the same requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.intervals import LEVEL, Interval, mean_intervals
from knee.laws.residual import Verdict, grouped, measured_throughout

CONSERVATION_TOLERANCE = 0.005
"""Largest relative difference between what clients and middlewares counted over the whole run."""


@dataclass(frozen=True)
class ConservationCheck:
    """Requests counted by the middlewares against those counted by the clients, nothing trimmed.

    `apart` is the largest relative difference in any repetition: means would let opposite errors cancel.
    """

    point: int
    clients: int
    ratio: Interval
    apart: float
    verdict: Verdict


def conserved(runs: pl.DataFrame, *, level: float = LEVEL) -> list[ConservationCheck]:
    """Middlewares answer what clients asked (Jain 1991, §33.2: job flow balance), at every point that has them."""
    table, starts = grouped(measured_throughout(runs, "middleware_total", "load_total"))
    if not starts.size:
        return []
    ratios = (table["middleware_total"] / table["load_total"]).to_numpy()
    return [
        ConservationCheck(point, clients, ratio, apart, "holds" if apart <= CONSERVATION_TOLERANCE else "violated")
        for point, clients, ratio, apart in zip(
            table["point"].gather(starts).to_list(),
            table["clients"].gather(starts).to_list(),
            mean_intervals(ratios, starts, level),
            np.fmax.reduceat(np.abs(ratios - 1), starts).tolist(),
            strict=True,
        )
    ]
