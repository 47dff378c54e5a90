"""The sentences on operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from knee.stats.intervals import Interval, between, counted, listed, number, percent, quantity, ratio_interval
from knee.verdict.details import Details
from knee.verdict.knee import PLATEAU
from knee.verdict.naming import Naming
from knee.verdict.operations import Operation

_COMPARED_MAX = 4
"""The most configurations in one sentence; the charts show all."""

_ONE_REPETITION = "with one repetition the error is unknown"
_ALL_EQUAL = "all repetitions are equal, so the error is unknown"


def operations(details: Details, naming: Naming) -> list[str]:
    """The response times of operations under the largest load, by configuration; empty for a single operation."""
    found = details.operations
    names = sorted({name for each in found.values() for name in each})
    if len(names) < 2:
        return []
    most = max(naming.axis.levels)
    at_most = {naming.series[point]: point for point in found if naming.load[point] == most}
    load = naming.in_words(most)
    if naming.configurations:
        at_most = {naming.in_words(naming.load[point]): point for point in found}
        load = counted(naming.counts[0], "client")
    sentences = [
        beside_others(name, of_name, load)
        for name in names
        if 1
        < len(of_name := [(label, found[point][name]) for label, point in at_most.items() if name in found[point]])
        <= _COMPARED_MAX
    ]
    apart = details.apart_from_mix
    sentences += together_or_alone([(label, apart[point], found[point]) for label, point in at_most.items()], load)
    return [sentence for sentence in sentences if sentence]


def beside_others(name: str, configurations: Sequence[tuple[str, Operation]], load: str) -> str:
    """The response time of an operation in each configuration as a ratio to the first, and the configurations in which
    the operation failed.

    `configurations` have names; `load` is a phrase, such as “8 clients”.
    """
    parts = []
    known = [(label, one) for label, one in configurations if one.is_comparable]
    if len(known) > 1:
        (first_label, first), *others = known
        against = [f"{_against(one.mean_ms, first.mean_ms)} with {label}" for label, one in others]
        parts.append(
            f"At {load}, {name} took {quantity(first.mean_ms, 'ms')} with {first_label}, {'; '.join(against)}."
        )
    failing = [f"{label} ({percent(one.failed)})" for label, one in configurations if one.failed > PLATEAU]
    if failing:
        parts.append(
            f"At {load}, {name} failed with {listed(failing, '; ')}: the response times of {name} cannot be compared."
        )
    return " ".join(parts)


def together_or_alone(configurations: Sequence[tuple[str, object, Mapping[str, Operation]]], load: str) -> list[str]:
    """How much time one bulk_put of many keys saves in each configuration with a bulk_put.

    A bulk_put is compared with the puts (of one key) of its configuration. If the configuration has no put, the
    bulk_put is compared with the puts of every configuration that differs only in the mix of operations.
    `configurations` has, for each configuration, its name, a key and its operations by name. Configurations that differ
    only in the mix have the same key. `load` is as in :func:`beside_others`.
    """
    puts = [(label, apart, found["put"]) for label, apart, found in configurations if "put" in found]
    sentences = []
    for label, apart, found in configurations:
        if "bulk_put" in found:
            elsewhere = [(other, put) for other, of_other, put in puts if of_other == apart]
            beside = [(label, found["put"])] if "put" in found else elsewhere
            sentences.append(_together_or_alone((label, found["bulk_put"]), beside, bool(puts), load))
    return [sentence for sentence in sentences if sentence]


def _together_or_alone(
    together: tuple[str, Operation], puts: Sequence[tuple[str, Operation]], has_other_puts: bool, load: str
) -> str:
    puts = [(label, put) for label, put in puts if put.is_comparable] or puts
    asked = [together, *puts]
    failing = [f"{percent(one.failed)} of {one.name}{_with(label)}" for label, one in asked if one.failed > PLATEAU]
    if failing:
        return f"At {load}, {listed(failing)} failed, so how much time a bulk_put saves is unknown."
    if not all(one.is_comparable for _, one in asked):
        return ""
    label, bulk = together
    each = bulk.mean_ms.scaled(1 / bulk.items)
    took = (
        f"At {load}, one bulk_put of {bulk.items} keys{_with(label)} took {quantity(bulk.mean_ms, 'ms')}, or "
        f"{quantity(each, 'ms')} per key"
    )
    if not puts:
        where = "configuration that differs only in the mix of operations" if has_other_puts else "configuration"
        return f"{took}. How much time this saves is unknown: no {where} has a put of one key."
    parts = [
        f"One put{'' if other == label else _with(other)} took {quantity(alone.mean_ms, 'ms')}: writing the same keys "
        f"with one put after the other takes {_against(alone.mean_ms, each)}."
        for other, alone in puts
    ]
    return f"{took}. {' '.join(parts)}"


def _with(label: str) -> str:
    return f" with {label}" if label else ""


def _against(one: Interval, first: Interval) -> str:
    """The ratio of two response times, with its interval."""
    ratio = ratio_interval(one, first)
    times = f"{number(ratio.estimate, 2)} times as long"
    if ratio.low is None or ratio.high is None:
        return f"{times} ({_ONE_REPETITION if ratio.repetitions < 2 else _ALL_EQUAL})"
    return f"{times} ({between(ratio)}" + (", so perhaps equally long)" if ratio.low <= 1 <= ratio.high else ")")
