"""What an argument of a station may be; whatever it may not is refused by its name."""

from __future__ import annotations

import math
import operator

from knee.queueing.arguments import checked_number
from knee.queueing.errors import ArgumentError

STATES_MAX = 10_000_000
"""Of servers, of places and of offered erlangs: a distribution is held in an array of this length at most."""

_MAGNITUDE_MAX = 1e50
"""Of rates, their inverses and variations, so that floats can hold third moments."""


def check_rate(argument: str, value: float) -> None:
    """A rate must be positive, and neither so small nor so large that its powers leave the range of floats."""
    if not 1 / _MAGNITUDE_MAX <= checked_number(argument, value) <= _MAGNITUDE_MAX:
        raise ArgumentError(argument, f"expected a rate from {1 / _MAGNITUDE_MAX:g} to {_MAGNITUDE_MAX:g}, not {value}")


def check_scv(argument: str, value: float) -> None:
    """A squared coefficient of variation must not be negative."""
    if not 0 <= checked_number(argument, value) <= _MAGNITUDE_MAX:
        raise ArgumentError(argument, f"expected 0 to {_MAGNITUDE_MAX:g}, not {value}")


def check_count(argument: str, value: int, least: int) -> None:
    """A number of servers or customers must be whole and within what can be held."""
    if not least <= _whole(argument, value) <= STATES_MAX:
        raise ArgumentError(argument, f"expected {least:,} to {STATES_MAX:,}, not {value}")


def check_customers(value: int) -> None:
    """How many customers a probability is asked for."""
    if _whole("customers", value) < 0:
        raise ArgumentError("customers", f"expected a whole number from 0, not {value}")


def check_time(value: float) -> None:
    """A time that a tail is asked for."""
    if not 0 <= checked_number("time", value) < math.inf:
        raise ArgumentError("time", f"expected a finite time from 0, not {value}")


def check_share(value: float) -> None:
    """The share of customers that a quantile is asked for: all of them have no quantile but infinity."""
    if not 0 <= checked_number("share", value) < 1:
        raise ArgumentError("share", f"expected 0 up to, but without, 1, not {value}")


def _whole(argument: str, value: int) -> int:
    # A truth value has an index, too.
    if isinstance(value, bool):
        raise ArgumentError(argument, f"expected a whole number, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(argument, f"expected a whole number, not {value!r}") from None
