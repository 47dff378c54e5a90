"""Computes visits from routing probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knee.queueing.errors import ArgumentError
from knee.queueing.network import refuse_twice

# Decimals are rounded: 0.7 + 0.2 + 0.1 is below 1.
ROW_TOLERANCE = 1e-9
RETURN_TOLERANCE = 1e-4


def visits_from_routing(stations: Sequence[str], routing: ArrayLike, reference: str | None = None) -> dict[str, float]:
    """V_k, the visits to each station per visit to the reference: V_j = Σ_i V_i P_ij, V_reference = 1.

    (Jain 1991, ch. 33; Lazowska et al. 1984, ch. 3.) The reference is a station or the outside. The outside is the
    source and sink of an open network, and the place of thinking in a closed one.

    Parameters
    ----------
    routing
        P_ij, the probability that a customer goes from i to j. Without `reference`, (stations + 1, stations + 1) with
        the outside as first row and column; with `reference`, (stations, stations).
    reference
        The station with one visit.

    Raises
    ------
    ArgumentError
        For a wrong shape, values that are not probabilities, rows that do not sum to one, unreachable stations,
        stations from which hardly any customer returns, and duplicate names.
    """
    refuse_twice("stations", stations)
    names = list(stations) if reference is not None else ["the outside", *stations]
    probabilities = np.array(routing, dtype=np.float64)
    _refuse(names, probabilities)
    if reference is not None and reference not in names:
        raise ArgumentError("reference", f"no station {reference!r}: expected one of {names}")
    start = names.index(reference) if reference is not None else 0

    steps = probabilities > 0
    for goes, problem in ((steps, "no path leads there from"), (steps.T, "no path leads back to")):
        missed = [name for name, reached in zip(names, _reached(goes, start), strict=True) if not reached]
        if missed:
            raise ArgumentError("routing", f"{', '.join(map(repr, missed))}: {problem} {names[start]!r}")

    others = [index for index in range(len(names)) if index != start]
    visits = np.ones(len(names))
    if others:
        among = probabilities[np.ix_(others, others)]
        try:
            visits[others] = np.linalg.solve(np.eye(len(others)) - among.T, probabilities[start, others])
        except np.linalg.LinAlgError:
            visits[others] = np.inf
    # A customer that leaves the start returns to it, except for rounding errors.
    if not ((visits > 0) & np.isfinite(visits)).all() or abs(visits @ probabilities[:, start] - 1) > RETURN_TOLERANCE:
        raise ArgumentError("routing", f"so few customers return to {names[start]!r} that rounding hides the visits")
    return dict(zip(stations, visits[0 if reference is not None else 1 :].tolist(), strict=True))


def _refuse(names: Sequence[str], probabilities: NDArray[np.float64]) -> None:
    if probabilities.shape != (len(names), len(names)):
        raise ArgumentError("routing", f"expected a row and a column for each of {names}, not {probabilities.shape}")
    if not np.all((probabilities >= 0) & (probabilities <= 1)):
        raise ArgumentError("routing", "expected probabilities from 0 to 1")
    for name, total in zip(names, probabilities.sum(axis=1), strict=True):
        if abs(total - 1) > ROW_TOLERANCE:
            raise ArgumentError("routing", f"the row of {name!r} sums to {total:.6g}, not to 1")


def _reached(steps: NDArray[np.bool_], start: int) -> NDArray[np.bool_]:
    """The states that are reachable from the start."""
    reached = np.zeros(len(steps), dtype=np.bool_)
    reached[start] = True
    while True:
        further = reached | steps[reached].any(axis=0)
        if (further == reached).all():
            return reached
        reached = further
