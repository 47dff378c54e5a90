"""Arrival rates in words."""

from __future__ import annotations

from knee.stats.intervals import counted, quantity
from knee.verdict.arrivals import Arrivals, AtRate
from knee.verdict.naming import rate_in_words

_AGAIN = "Measure longer, with more repetitions, on a quieter machine."


def arrivals(found: Arrivals) -> str:
    """Up to which rate throughput follows, and where it dips below; empty without a throughput."""
    return _up_to(found) + _below(found) if found.measured else ""


def _up_to(found: Arrivals) -> str:
    follows, behind = found.follows, found.behind
    if behind is not None:
        here = f"at {_at(behind)}.{_limit(found, behind)}"
        if follows is None:
            return f"Throughput follows the arrival rate nowhere: {here} Measure lower rates."
        return f"Throughput follows the arrival rate up to {rate_in_words(follows)}, and no longer: {here}"
    last = found.measured[-1]
    largest = last.rate
    if follows == largest and not found.varied:
        text = f"Throughput follows the arrival rate, {rate_in_words(largest)}: it is {quantity(last.throughput)}"
        if last.completed is not None and not last.throughput_reaches:
            text += f", and {last.completed.estimate / largest:.1%} of the requests that came due were over in time"
        return text + "."
    if follows == largest:
        return (
            f"Throughput follows the arrival rate up to {rate_in_words(largest)}, the largest measured. Measure higher "
            "rates to see where it stops."
        )
    if follows is None:
        return f"Cannot tell whether throughput follows the arrival rate: at {_at(last)}. {_AGAIN}"
    return (
        f"Throughput follows the arrival rate up to {rate_in_words(follows)}. Cannot tell whether it does above: at "
        f"{_at(last)}. {_AGAIN}"
    )


def _below(found: Arrivals) -> str:
    text = ""
    if dips := found.dips:
        also = f", and it falls behind at {counted(len(dips) - 1, 'other rate')}" if len(dips) > 1 else ""
        text = f" But not everywhere below: at {_at(dips[0])}{also}.{_limit(found, dips[0])}"
    if unsettled := found.unsettled:
        also = f", and at {counted(len(unsettled) - 1, 'other rate')} below" if len(unsettled) > 1 else ""
        worst = min(unsettled, key=lambda one: one.throughput.estimate / one.rate)
        text += f" Cannot tell everywhere below: at {_at(worst)}{also}."
    return text


def _at(one: AtRate) -> str:
    return f"{rate_in_words(one.rate)} it is {quantity(one.throughput, 'requests/s')}"


def _limit(found: Arrivals, one: AtRate) -> str:
    return " The load generator was itself a limit there." if found.is_limited(one) else ""
