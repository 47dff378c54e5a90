"""Flow balance: what enters leaves, so over a whole run both sides of a tier count the same requests."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from knee.intervals import LEVEL, Interval, mean_interval
from knee.laws.residual import Verdict, measured

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


def conserved(rows: pl.DataFrame, *, level: float = LEVEL) -> ConservationCheck | None:
    """Middlewares answer what clients asked (Jain 1991, §33.2: job flow balance). None without middlewares."""
    if not measured(rows, "middleware_total", "load_total"):
        return None
    ratios = rows["middleware_total"] / rows["load_total"]
    apart = float((ratios - 1).abs().max())  # type: ignore[arg-type]
    return ConservationCheck(
        point=int(rows["point"][0]),
        clients=int(rows["clients"][0]),
        ratio=mean_interval(ratios.to_numpy(), level),
        apart=apart,
        verdict="holds" if apart <= CONSERVATION_TOLERANCE else "violated",
    )
