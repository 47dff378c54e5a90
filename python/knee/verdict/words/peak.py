"""The sentences on the largest throughput."""

from __future__ import annotations

from knee.data.measurements import label_of
from knee.stats.comparisons import EQUAL
from knee.stats.intervals import NAMED_MAX, cannot_tell, counted, is_vague, listed, number, percent
from knee.verdict.peak import Peak


def peak(found: Peak) -> list[str]:
    """The configuration with the largest throughput, those that may be as good, and those left out."""
    largest = f"largest with {label_of(found.factors)}: {number(found.throughput.estimate)} {found.unit}"
    if found.is_of_once:
        were = "was" if found.once == 1 else "were"
        return [
            f"Throughput was {largest}. Cannot tell without repetitions which configuration is best: "
            f"{counted(found.once, 'configuration')} of {found.compared + found.once} {were} measured once.",
            *_failed(found),
        ]
    what = "Among the configurations with repetitions, throughput" if found.once else "Throughput"
    once = (
        f" {counted(found.once, 'further configuration')} cannot be judged from one measurement." if found.once else ""
    )
    if found.throughput.low is None or found.throughput.high is None:
        if found.silent == found.compared - 1:
            return [f"{what} was {largest}.", _others(found) + once, *_failed(found)]
        return [f"{what} was {largest}. Cannot tell which configuration is best: {EQUAL}.{once}", *_failed(found)]
    low, high = found.throughput.low, found.throughput.high
    interval = f"{found.throughput.level:.0%} interval: {number(low)} to {number(high)}"
    if is_vague(found.throughput):
        interval = cannot_tell(found.throughput)
    text = f"{what} is {largest} ({interval})."
    if found.is_vague and found.has_few_repetitions:
        why = f"With so few repetitions the error of this mean is unknown ({interval}). Repeat more often."
        text = f"{what} was {largest}. {why}"
    elif found.is_vague:
        text = f"{what} was {largest}. Repetitions scatter too much to tell the error of this mean ({interval})."
    return [text, _others(found) + once, _chosen(found), *_failed(found)]


def names_all(found: Peak) -> bool:
    """Whether the sentences name all configurations whose throughput may be as large."""
    return len(found.as_large) <= NAMED_MAX


def _chosen(found: Peak) -> str:
    """The effect of choosing the largest mean: a bias, unless the configuration is surely ahead of all others."""
    if not found.as_large:
        return f"The interval accounts for choosing the largest of {found.compared} means."
    return (
        f"The largest of {found.compared} means is more often too high than too low: expect less from another run. "
        "The interval accounts for this choice."
    )


def _failed(found: Peak) -> list[str]:
    named = listed([f"{label_of(factors)} ({percent(share)})" for factors, share in found.failing], "; ")
    return [f"This comparison leaves out failed requests, which occurred with {named}."] if named else []


def _others(found: Peak) -> str:
    parts = []
    if found.as_large and not found.less and not found.silent and not names_all(found):
        parts.append(f"Throughput may be as large with each of the {len(found.as_large)} others.")
    elif found.as_large:
        parts.append(
            f"Throughput may be as large with {listed([label_of(factors) for factors, _ in found.as_large], '; ')}."
        )
    if found.less:
        parts.append(f"With {_rest(found.less, others=found.silent)}, throughput is surely lower.")
    if found.silent:
        parts.append(f"With {_rest(found.silent, others=found.less)}, no request was answered.")
    return " ".join(parts)


def _rest(count: int, *, others: int) -> str:
    """The configurations that the sentence does not name: all of them, or `count` of `count + others`."""
    if others:
        return f"{count} of the {count + others} others"
    return "the other" if count == 1 else f"the {count} others"
