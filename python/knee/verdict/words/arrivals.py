"""The sentences on arrival rates."""

from __future__ import annotations

from collections.abc import Sequence

from knee.stats.intervals import quantity
from knee.verdict.arrivals import Arrivals, AtRate
from knee.verdict.naming import rate_in_words

_AGAIN = "Measure longer, with more repetitions, on a quieter machine."


def arrivals(found: Arrivals) -> str:
    """The largest rate that throughput follows, and lower rates that it does not follow; empty without throughput."""
    return _up_to(found) + _below(found) if found.measured else ""


def _up_to(found: Arrivals) -> str:
    follows, behind = found.follows, found.behind
    if behind is not None:
        here = f"{_at(behind)}.{_limit(found, behind)}"
        if follows is None:
            return f"Throughput follows none of the measured arrival rates: at {here} Measure lower rates."
        return f"Throughput follows the arrival rate up to {rate_in_words(follows)}. At {here}"
    last = found.measured[-1]
    largest = last.rate
    if follows == largest and not found.varied:
        text = f"Throughput follows the arrival rate: at {_at(last)}."
        if last.completed is not None and not last.throughput_reaches:
            share = f"{last.completed.estimate / largest:.1%}"
            text += f" {share} of the due requests got an answer or failed before the end of the run."
        return text
    if follows == largest:
        return (
            f"Throughput follows the arrival rate up to {rate_in_words(largest)}, the largest measured. Measure higher "
            "rates to see where it stops."
        )
    if follows is None:
        return f"Cannot tell whether throughput follows the arrival rate: at {_at(last)}. {_AGAIN}"
    return (
        f"Throughput follows the arrival rate up to {rate_in_words(follows)}. Cannot tell whether it follows higher "
        f"rates: at {_at(last)}. {_AGAIN}"
    )


def _below(found: Arrivals) -> str:
    text = ""
    if dips := found.dips:
        text = f" But throughput falls behind at {_lower(dips)}: at {_at(dips[0])}."
        text += _limit(found, dips[0])
    if unsettled := found.unsettled:
        worst = min(unsettled, key=lambda one: one.throughput.estimate / one.rate)
        text += f" Cannot tell whether throughput follows {_lower(unsettled)}: at {_at(worst)}."
    return text


def _lower(rates: Sequence[AtRate]) -> str:
    return "a lower rate" if len(rates) == 1 else f"{len(rates)} lower rates"


def _at(one: AtRate) -> str:
    return f"{rate_in_words(one.rate)}, throughput is {quantity(one.throughput, 'requests/s')}"


def _limit(found: Arrivals, one: AtRate) -> str:
    return " The load generator was itself a limit at this rate." if found.is_limited(one) else ""
