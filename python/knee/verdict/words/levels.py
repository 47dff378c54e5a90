"""The sentences on the levels (values) of a single factor."""

from __future__ import annotations

from collections.abc import Iterable

from knee.stats.comparisons import EQUAL
from knee.stats.intervals import Interval, capital, listed, number, percent, quantity
from knee.verdict.knee import PLATEAU
from knee.verdict.levels import Levels, Name


def levels(found: Levels) -> str:
    """The best level, the levels that may be as good, those that are surely worse, and those that are unknown."""
    return " ".join(filter(None, (_best(found), *_worse(found), *_not_compared(found))))


def _best(found: Levels) -> str:
    what = "throughput" if found.of_throughput else "the response time"
    few = found.few
    if found.best is None:
        again = "every value" if len(few) == len(found.measured) else _named(one.level for one in few)
        return f"Cannot tell without repetitions how {found.factor} changes {what}. Measure {again} more than once."
    here = f"with {found.factor} = {_name(found.best.level)}"
    value = quantity(found.best.found, found.unit if found.of_throughput else "ms")
    if not found.behind and not few:
        return f"{capital(what)} can be judged only {here}: {value}."
    is_known = all(one.found.low is not None for one in found.behind)
    extreme = "largest" if found.of_throughput else "shortest"
    most = f"{what} {'is' if is_known else 'was'} {extreme} {here}: {value}."
    if found.of_throughput and (found.overloaded or found.unsure):
        # With a level that follows the rate without failures, Knee would compare response times.
        failing = len(found.overloaded) + len(found.unsure) < len(found.measured)
        falls = ("may fall" if found.unsure else "falls") + " behind the arrival rate" + ", or requests fail" * failing
        return f"At every value of {found.factor}, throughput {falls}. {capital(most)}"
    if found.apart:
        return f"Among the values that can be compared, {most}"
    return f"Among the values with repetitions, {most}" if few else capital(most)


def _worse(found: Levels) -> list[str]:
    more = found.of_throughput
    surely = [one for one in found.behind if one.found.low is not None and one.found.low > 0]
    close = [one for one in surely if one.found.high is not None and one.found.high <= PLATEAU]
    unknown = [one for one in found.behind if one.found.low is None]
    silent = [one.level for one in unknown if more and one.found.estimate == 1]
    equal = [one.level for one in unknown if one.level not in silent]
    maybe = [one.level for one in found.behind if one not in surely and one not in unknown]
    worse = [f"{_name(one.level)} ({_how_much(one.found)})" for one in surely if one not in close]
    what = "throughput" if more else "the response time"
    return [
        f"Cannot tell whether {what} is {'lower' if more else 'longer'} with {_named(equal)}: {EQUAL}."
        if equal
        else "",
        f"With {_named(silent)}, no request was answered." if silent else "",
        f"{capital(what)} may be as {'large' if more else 'short'} with {_named(maybe)}." if maybe else "",
        f"{capital(what)} is {'lower' if more else 'longer'} by {PLATEAU:.0%} or less with "
        f"{_named(one.level for one in close)}."
        if close
        else "",
        f"{capital(what)} is surely {'lower' if more else 'longer'} with {listed(worse)}." if worse else "",
    ]


def _not_compared(found: Levels) -> list[str]:
    """Levels that were not compared, and requests that were left out."""
    none = [one.level for one in found.few if not one.found.repetitions]
    once = [one.level for one in found.few if one.found.repetitions] if found.best is not None else []
    failed = listed([f"{_name(level)} ({percent(share)})" for level, share in found.failing])
    lines = [
        f"Cannot judge {_named(once)}: only one measurement." if once else "",
        f"There are no measurements with {_named(none)}." if none else "",
    ]
    if found.of_throughput:
        return [*lines, f"This comparison leaves out failed requests, which occurred with {failed}." if failed else ""]
    return [
        *lines,
        f"With {_named(found.overloaded)}, throughput does not follow the arrival rate: the response time has no "
        "steady value."
        if found.overloaded
        else "",
        f"With {_named(found.unsure)}, throughput may not follow the arrival rate: the response time may have no "
        "steady value."
        if found.unsure
        else "",
        f"With {failed}, requests failed: the response time cannot be compared." if failed else "",
    ]


def _how_much(share: Interval) -> str:
    """By how much a level is worse than the best, as a share or, if that is above 100 %, as a ratio."""
    return f"by {share.estimate:.0%}" if share.estimate <= 1 else f"{number(1 + share.estimate, 2)} times as long"


def _named(levels: Iterable[Name]) -> str:
    return listed([_name(level) for level in levels])


def _name(level: Name) -> str:
    return "none" if level is None else str(level)
