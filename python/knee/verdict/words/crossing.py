"""The sentence on two response times that cross."""

from __future__ import annotations

from knee.stats.intervals import number
from knee.verdict.crossing import Crossing


def crossing(found: Crossing | None) -> str:
    """Where two response times cross, and which is shorter on either side; empty unless their means cross once."""
    if found is None:
        return ""
    at, low, high = found.at, found.at.low, found.at.high
    place = f"at {found.axis} = {number(at.estimate)}"
    sides = f"Below, {found.before} is faster; above, {found.after} is faster."
    if low is None or high is None:
        return f"The response times cross {place} (with one repetition the error is unknown). {sides}"
    interval = f"{at.level:.0%} interval: {number(low)} to {number(high)}"
    if found.is_sure:
        return f"The response times cross {place} ({interval}). {sides}"
    if found.is_inside:
        return (
            f"Cannot tell whether the response times cross. The means cross {place} ({interval}), but on one side the "
            "difference may be chance. Measure more values or more repetitions."
        )
    return (
        f"Cannot tell whether the response times cross. The means cross {place}, but the interval reaches the end of "
        f"the measured values ({interval})."
    )
