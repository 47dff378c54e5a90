"""Flow balance: arrivals equal completions, so over a whole run both sides of a tier count the same requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from knee.laws.residual import Verdict, grouped, measured_throughout
from knee.stats.intervals import LEVEL, Interval, mean_intervals

CONSERVATION_TOLERANCE = 0.005
"""Largest relative difference between the counts of clients and of the tier that they call, over the whole run."""

Tier = Literal["middlewares", "stores"]
"""The tier that serves the clients."""

_TOTALS: dict[Tier, str] = {"middlewares": "middleware_total", "stores": "store_total"}


@dataclass(frozen=True)
class ConservationCheck:
    """The request count of the tier that the clients call, compared with the clients' count, over whole, untrimmed
    runs.

    The counts cover all request types, because clients may split a server's type by outcome. `apart` is the largest
    relative difference in any repetition; in a mean, opposite errors would cancel.
    """

    tier: Tier
    point: int
    clients: int
    ratio: Interval
    apart: float
    verdict: Verdict


def conserved(runs: pl.DataFrame, *, level: float = LEVEL) -> list[ConservationCheck]:
    """Job flow balance (Jain 1991, §33.2) at every point: the tier that the clients call completes as many requests
    as the clients sent."""
    checks = []
    for tier, total in _TOTALS.items():
        table, starts = grouped(measured_throughout(runs, total, "load_total"))
        if not starts.size:
            continue
        ratios = (table[total] / table["load_total"]).to_numpy()
        for point, clients, ratio, apart in zip(
            table["point"].gather(starts).to_list(),
            table["clients"].gather(starts).to_list(),
            mean_intervals(ratios, starts, level),
            np.fmax.reduceat(np.abs(ratios - 1), starts).tolist(),
            strict=True,
        ):
            verdict: Verdict = "holds" if apart <= CONSERVATION_TOLERANCE else "violated"
            checks.append(ConservationCheck(tier, point, clients, ratio, apart, verdict))
    return checks
