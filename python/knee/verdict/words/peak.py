"""The largest throughput in words."""

from __future__ import annotations

from knee.data.measurements import label_of
from knee.stats.comparisons import EQUAL
from knee.stats.intervals import NAMED_MAX, cannot_tell, counted, is_vague, listed, number, percent
from knee.verdict.peak import Peak


def peak(found: Peak) -> list[str]:
    """Where throughput is largest, where it may be as large, and what was left out."""
    largest = f"largest with {label_of(found.factors)}: {number(found.throughput.estimate)} requests/s"
    if found.is_of_once:
        were = "was" if found.once == 1 else "were"
        return [
            f"Throughput was {largest}. Cannot tell without repetitions where it is largest: "
            f"{counted(found.once, 'configuration')} of {found.compared + found.once} {were} measured once.",
            *_failed(found),
        ]
    what = "Of the configurations with repetitions, throughput" if found.once else "Throughput"
    once = f" {counted(found.once, 'configuration')} more cannot be judged: measured once." if found.once else ""
    if found.throughput.low is None or found.throughput.high is None:
        if found.silent == found.compared - 1:
            return [f"{what} was {largest}.", _others(found) + once, *_failed(found)]
        return [f"{what} was {largest}. Cannot tell where it is largest: {EQUAL}.{once}", *_failed(found)]
    low, high = found.throughput.low, found.throughput.high
    interval = f"{found.throughput.level:.0%} interval: {number(low)} to {number(high)}"
    if is_vague(found.throughput):
        interval = cannot_tell(found.throughput)
    text = f"{what} is {largest} ({interval})."
    if found.is_vague and found.has_few_repetitions:
        text = f"{what} was {largest}. So few repetitions leave its error open ({interval}): repeat more often."
    elif found.is_vague:
        text = f"{what} was {largest}. Repetitions differ too much to tell its error ({interval})."
    return [text, _others(found) + once, _chosen(found), *_failed(found)]


def names_all(found: Peak) -> bool:
    """Whether the sentences name all configurations that may be as large."""
    return len(found.as_large) <= NAMED_MAX


def _chosen(found: Peak) -> str:
    """A configuration that is far ahead was not chosen by luck."""
    if not found.as_large:
        return f"The interval holds whichever of the {found.compared} is chosen."
    return (
        f"As the largest of {found.compared} this mean is likelier too high than too low: expect less of another run. "
        "The interval holds whichever of them is chosen."
    )


def _failed(found: Peak) -> list[str]:
    named = listed([f"{label_of(factors)} ({percent(share)})" for factors, share in found.failing], "; ")
    return [f"Failed requests are not counted, as with {named}."] if named else []


def _others(found: Peak) -> str:
    parts = []
    if found.as_large and not found.less and not found.silent and not names_all(found):
        parts.append(f"With each of the {len(found.as_large)} others it may be as large.")
    elif found.as_large:
        parts.append(f"It may be as large with {listed([label_of(factors) for factors, _ in found.as_large], '; ')}.")
    if found.less:
        parts.append(f"With {_rest(found.less, others=found.silent)} it is surely less.")
    if found.silent:
        parts.append(f"With {_rest(found.silent, others=found.less)} no request was answered.")
    return " ".join(parts)


def _rest(count: int, *, others: int) -> str:
    """The configurations that were not named, or some of them where there are `others` as well."""
    if others:
        return f"{count} of the {count + others} others"
    return "the other" if count == 1 else f"the {count} others"
