"""The sentences on drift within runs."""

from __future__ import annotations

from collections.abc import Mapping

from knee.stats.comparisons import EQUAL
from knee.stats.intervals import counted, listed
from knee.verdict.drift import Drift
from knee.verdict.knee import PLATEAU

_HALVES = "from the first half of a run to the second"


def drift(drifts: Mapping[int, Drift], names: Mapping[int, str]) -> str:
    """Whether throughput changes within runs, at which point it changes most, and at which points that is unknown.

    An interval that contains 0 shows no change, but rules out only changes beyond its ends. `names` is by point.
    """
    known = {point: one for point, one in drifts.items() if one.is_judged and not one.is_vague}
    vague = [names[point] for point, one in drifts.items() if one.is_vague]
    unjudged = {point: one for point, one in drifts.items() if not one.is_judged and not one.silent}
    few = [names[point] for point, one in unjudged.items() if one.change.repetitions < 2]
    equal = [names[point] for point, one in unjudged.items() if one.change.repetitions > 1]
    silent = [
        f"{one.silent} of {counted(one.runs, 'run')} at {names[point]}" for point, one in drifts.items() if one.silent
    ]
    sentences = []
    if known:
        sentences.append(_changes(known, names, everywhere=not (vague or silent or few)))
    if vague and known:
        sentences.append(f"Cannot tell at {listed(vague, '; ')}. Measure longer, with more repetitions.")
    elif vague:
        everywhere = len(vague) == len(drifts) > 1
        sentences.append(
            f"At no measured point can Knee tell whether throughput changes {_HALVES}."
            if everywhere
            else f"Cannot tell whether throughput changes {_HALVES} at {listed(vague, '; ')}."
        )
        sentences.append("Measure longer, with more repetitions.")
    elif equal:
        # No point scatters: if one did, these points would have its variance (`change_intervals`).
        sentences.append(f"Cannot tell whether throughput changes {_HALVES} at {listed(equal, '; ')}: {EQUAL}.")
    if few and (known or vague or equal):
        sentences.append(f"There are too few repetitions to tell at {listed(few, '; ')}.")
    if silent:
        sentences.append(f"In {listed(silent, '; ')}, no request succeeded during the first or the second half.")
    return " ".join(sentences)


def _changes(known: Mapping[int, Drift], names: Mapping[int, str], *, everywhere: bool) -> str:
    """The change at the points that can be judged; `everywhere` if these are all measured points."""
    moved = [point for point, one in known.items() if one.moves] or [p for p, one in known.items() if one.may_move]
    if moved:
        most = max(moved, key=lambda point: abs(known[point].change.estimate))
        change = known[most].change
        by = f"{change.estimate:+.1%} ± {change.half_width:.1%} at {names[most]}"
        perhaps = "" if known[most].moves else f" The change may be smaller than {PLATEAU:.0%}."
        also = f", and changes at {counted(len(moved) - 1, 'other point')}" if len(moved) > 1 else ""
        return f"F{_HALVES[1:]}, throughput changes by {by}{also}.{perhaps}"
    reach = max(one.reach for one in known.values())
    points = "all points" if everywhere else "all points that can be judged"
    if reach <= PLATEAU:
        return f"F{_HALVES[1:]}, throughput stays the same to within {reach:.1%} at {points}."
    return f"No measurement shows that throughput changes {_HALVES}. Any change is at most {reach:.1%} at {points}."
