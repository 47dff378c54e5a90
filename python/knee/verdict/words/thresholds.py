"""The sentences on the limits of the experiment file: which points miss which limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from knee.stats.intervals import counted, listed, quantity
from knee.verdict.thresholds import Judged, Threshold


def thresholds(found: Sequence[Threshold], names: Mapping[int, str]) -> list[str]:
    """A sentence for each limit that points miss, or that the data cannot judge, and one for the kept limits."""
    missed, unclear, kept = [], [], []
    for one in found:
        missing, unknown = one.of("misses"), one.of("cannot tell")
        limit, total = _limit(one), len(one.judged)
        if missing:
            verb = "misses" if len(missing) == 1 else "miss"
            missed.append(f"{_of(missing, total)} {verb} {limit}: {_points(one, missing, names)}.")
        if unknown:
            verb = "keeps" if len(unknown) == 1 else "keep"
            # More repetitions narrow a measured value's interval; an unknown quantity has no value at any point.
            more = " Measure more repetitions." if any(each.value.repetitions for each in unknown) else ""
            unclear.append(
                f"Cannot tell whether {_of(unknown, total).lower()} {verb} {limit}: "
                f"{_points(one, unknown, names)}.{more}"
            )
        if one.judged and not missing and not unknown:
            kept.append(limit)
    return [*missed, *unclear, *([f"Every measured point keeps {' and '.join(kept)}."] if kept else [])]


def _of(some: Sequence[Judged], total: int) -> str:
    if total == 1:
        return "The only point"
    return f"{len(some)} of {counted(total, 'point')}" if len(some) < total else f"All {total} points"


def _limit(one: Threshold) -> str:
    unit = " requests/s" if one.quantity == "throughput" else ""  # other names have their unit
    return f"{one.quantity} {'≥' if one.at_least else '≤'} {one.bound:,.15g}{unit}"


def _points(one: Threshold, points: Sequence[Judged], names: Mapping[int, str]) -> str:
    return listed([f"{names.get(each.point, f'point {each.point}')} ({_value(one, each)})" for each in points], "; ")


def _value(one: Threshold, found: Judged) -> str:
    if found.silent:
        return "a repetition got no answer"
    if not found.value.repetitions:
        return "not measured"
    spread = "" if found.value.half_width is not None else ", one repetition"
    return f"{quantity(found.value)}{spread}"
