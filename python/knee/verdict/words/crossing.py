"""The sentence on two response times that cross."""

from __future__ import annotations

from knee.stats.intervals import number
from knee.verdict.crossing import Crossing


def crossing(found: Crossing | None) -> str:
    """Where the lines cross, and which is shorter on either side; empty if they do not cross once."""
    if found is None:
        return ""
    at, low, high = found.at, found.at.low, found.at.high
    interval = "with one repetition the error is unknown"
    if low is not None and high is not None:
        interval = f"{at.level:.0%} interval: {number(low)} to {number(high)}"
    doubt = (
        ""
        if found.is_sure or low is None
        else " This interval reaches the end of the measured values: perhaps they do not cross."
    )
    return (
        f"The response times cross at {found.axis} = {number(at.estimate)} ({interval}). Below, {found.before} is "
        f"faster; above, {found.after}.{doubt}"
    )
