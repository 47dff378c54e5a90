"""The sentence on the stores' shares of the requests."""

from __future__ import annotations

from collections.abc import Mapping

from knee.stats.intervals import counted, number, percent
from knee.verdict.balance import Balance

EVEN = 0.999
"""An index of this value or more counts as even: the busier of two stores then gets at most 51.6 % of the requests."""


def balance(found: Mapping[int, Balance], names: Mapping[int, str]) -> str:
    """The smallest fairness index of all points, and the shares there; empty without several stores."""
    if not found:
        return ""
    point, least = min(found.items(), key=lambda pair: pair[1].fairness.estimate)
    shares = least.shares
    if least.fairness.estimate >= EVEN:
        return (
            f"The {len(shares)} stores share the requests evenly, reads and writes together: "
            f"Jain's fairness index is {EVEN} or more (1 means equal shares)."
        )
    most = max(range(len(shares)), key=shares.__getitem__)
    place = f"The stores share the requests least evenly at {names[point]}. " if len(found) > 1 else ""
    alone = number(1 / len(shares), 2)
    return (
        f"{place}Jain's fairness index of the requests of {len(shares)} stores is {number(least.fairness.estimate)} "
        f"(reads and writes together). 1 means equal shares, and {alone} means that one store gets all requests. "
        f"store-{most} got {percent(shares[most])} of the requests. The store with the fewest requests got "
        f"{percent(min(shares))}."
    )


def uncounted(runs: int, among: int) -> str:
    """The cause and the remedy if `runs` runs lack a count of requests for each store; empty if `runs` is 0."""
    if not runs:
        return ""
    return (
        f"The requests of each store are missing in {runs} of {counted(among, 'run')}: an earlier version of Knee did "
        "not count them every second. Measure again to see all shares."
    )
