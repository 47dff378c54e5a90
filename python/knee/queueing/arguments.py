"""Checks of a network's arguments; an error names the argument."""

from __future__ import annotations

from numbers import Real
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from knee.queueing.errors import ArgumentError


def checked_numbers(argument: str, values: object) -> NDArray[np.float64]:
    """A number, or an array of numbers. Raises ArgumentError for any other value, and for booleans."""
    try:
        # With dtype object, a boolean among numbers remains a boolean.
        array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
        if array.dtype.kind in "iuf" or (array.dtype.kind == "O" and all(map(_is_number, array.flat))):
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        # Rows of different lengths, or numbers that overflow.
        pass
    raise ArgumentError(argument, f"expected numbers, not {values!r}")


def checked_number(argument: str, value: object) -> float:
    """One number. Raises ArgumentError."""
    if _is_number(value):
        try:
            return float(value)
        except OverflowError:
            # The number overflows.
            pass
    raise ArgumentError(argument, f"expected a number, not {value!r}")


def checked_whole(argument: str, value: object, least: int, most: int) -> int:
    """A whole number from `least` to `most`. Raises ArgumentError."""
    if is_whole(value, least, most):
        return int(value)
    raise ArgumentError(argument, f"expected a whole number from {least} to {most:,}, not {value!r}")


def is_whole(value: object, least: int, most: int) -> TypeGuard[float]:
    """Whether the value is a whole number from `least` to `most`, of any numeric type."""
    return _is_number(value) and least <= value <= most and int(value) == value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)
