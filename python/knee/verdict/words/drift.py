"""Drift within runs, in words."""

from __future__ import annotations

from collections.abc import Mapping

from knee.stats.comparisons import EQUAL
from knee.stats.intervals import counted, listed
from knee.verdict.drift import Drift
from knee.verdict.knee import PLATEAU

_HALVES = "from the first half of a run to the second"


def drift(drifts: Mapping[int, Drift], names: Mapping[int, str]) -> str:
    """Whether throughput changes within runs, where it changes most, and where that is unknown.

    An interval that contains 0 shows no change, but rules out only what lies beyond its ends. `names` are those of the
    points.
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
        sentences.append(f"Cannot tell at {listed(vague, '; ')}: measure longer, with more repetitions.")
    elif vague:
        sentences.append(
            f"Cannot tell whether throughput changes {_HALVES} at {listed(vague, '; ')}: measure longer, with more "
            "repetitions."
        )
    elif equal:
        # No point scatters: beside one that does these would be judged.
        sentences.append(f"Cannot tell whether throughput changes {_HALVES} at {listed(equal, '; ')}: {EQUAL}.")
    if few and (known or vague or equal):
        sentences.append(f"Too few repetitions to tell at {listed(few, '; ')}.")
    if silent:
        sentences.append(f"No request succeeded for half of the time or longer in {listed(silent, '; ')}.")
    return " ".join(sentences)


def _changes(known: Mapping[int, Drift], names: Mapping[int, str], *, everywhere: bool) -> str:
    """What is known of points that can be judged; `everywhere` if these are all that were measured."""
    moved = [point for point, one in known.items() if one.moves] or [p for p, one in known.items() if one.may_move]
    if moved:
        most = max(moved, key=lambda point: abs(known[point].change.estimate))
        change = known[most].change
        where = f"{change.estimate:+.1%} ± {change.half_width:.1%} at {names[most]}"
        surely = "surely changes" if known[most].moves else f"changes, if not surely by more than {PLATEAU:.0%}"
        also = f", and as surely at {counted(len(moved) - 1, 'other point')}" if len(moved) > 1 else ""
        return f"F{_HALVES[1:]} throughput {surely}: by {where}{also}."
    reach = max(one.reach for one in known.values())
    if reach <= PLATEAU:
        where = "" if everywhere else " wherever it is known"
        return f"F{_HALVES[1:]} throughput surely stays the same{where}, to within {reach:.1%}."
    where = "anywhere" if everywhere else "wherever it is known"
    return f"Nothing shows that throughput changes {_HALVES}: by no more than {reach:.1%} {where}."
