"""Checks of arguments; an error names the argument. Types are the callers' responsibility."""

from __future__ import annotations

from knee.queueing.errors import ArgumentError


def checked_whole(argument: str, value: float, least: int, most: int) -> int:
    """A whole number from `least` to `most`. Raises ArgumentError."""
    if not (least <= value <= most and value == int(value)):
        raise ArgumentError(argument, f"expected a whole number from {least} to {most:,}, not {value!r}")
    return int(value)
