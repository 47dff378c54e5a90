"""What an argument of a network may be; whatever it may not is refused by its name."""

from __future__ import annotations

from numbers import Real
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from knee.queueing.errors import ArgumentError


def checked_numbers(argument: str, values: object) -> NDArray[np.float64]:
    """A number, or an array of them. Raises ArgumentError for whatever else, truth values among it."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iuf" or (array.dtype.kind == "O" and all(map(_is_number, array.flat))):
            return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        # Rows of different lengths, or numbers beyond all floats.
        pass
    raise ArgumentError(argument, f"expected numbers, not {values!r}")


def checked_whole(argument: str, value: object, least: int, most: int) -> int:
    """A whole number from `least` to `most`. Raises ArgumentError."""
    if _is_number(value) and least <= value <= most and int(value) == value:
        return int(value)
    raise ArgumentError(argument, f"expected a whole number from {least} to {most:,}, not {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)
