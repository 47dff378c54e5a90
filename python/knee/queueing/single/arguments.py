"""Checks of a station's arguments; an error names the argument."""

from __future__ import annotations

import math

from knee.queueing.arguments import checked_whole
from knee.queueing.errors import ArgumentError

STATES_MAX = 10_000_000
"""Largest number of servers, places and offered erlangs: the longest array for a distribution."""

_MAGNITUDE_MAX = 1e50
"""Limit of rates, their inverses and variations, so that third moments do not overflow."""


def check_rate(argument: str, value: float) -> None:
    """A rate must be positive, and its powers must neither overflow nor underflow."""
    if not 1 / _MAGNITUDE_MAX <= value <= _MAGNITUDE_MAX:
        raise ArgumentError(argument, f"expected a rate from {1 / _MAGNITUDE_MAX:g} to {_MAGNITUDE_MAX:g}, not {value}")


def check_arrivals(argument: str, value: float) -> None:
    """A rate of arrivals may also be 0."""
    if value != 0:
        check_rate(argument, value)


def check_scv(argument: str, value: float) -> None:
    """A squared coefficient of variation must not be negative."""
    if not 0 <= value <= _MAGNITUDE_MAX:
        raise ArgumentError(argument, f"expected 0 to {_MAGNITUDE_MAX:g}, not {value}")


def check_count(argument: str, value: int, least: int) -> None:
    """A number of servers or customers must be whole and at most STATES_MAX."""
    checked_whole(argument, value, least, STATES_MAX)


def check_customers(value: int) -> None:
    if not 0 <= value < math.inf or value != int(value):
        raise ArgumentError("customers", f"expected a whole number from 0, not {value}")


def check_time(value: float) -> None:
    if not 0 <= value < math.inf:
        raise ArgumentError("time", f"expected a finite time from 0, not {value}")


def check_share(value: float) -> None:
    """Checks the probability of a quantile, below 1: the quantile of 1 is infinity."""
    if not 0 <= value < 1:
        raise ArgumentError("share", f"expected a number from 0 to below 1, not {value}")
