"""The audit of published effects as sentences and as a table."""

from __future__ import annotations

import math

from knee.factorial.audit import Audit
from knee.factorial.explanations import Convention, RowExplanation
from knee.stats.tables import columns


def audit_sentence(found: Audit) -> str:
    """The verdict with its evidence."""
    verdict = found.verdict
    count = len(found.differences)
    if verdict == "consistent":
        return (
            f"All {count} published effects follow from the published responses within their rounding (responses to "
            f"{found.units[0]:g}, effects to {found.units[1]:g})."
        )
    worst = found.worst
    response_unit, effect_unit = found.units
    computed = _digits(worst.computed, effect_unit / 100)
    disagree = (
        f"{len(found.beyond)} of {count} published effects do not follow from the published responses (worst "
        f"{worst.term}: {worst.published} published, {computed} computed; rounding allows {worst.tolerance:.3g})"
    )
    replaced = [_replacement(one, response_unit) for one in found.rows or found.together]
    if verdict == "one row explains it":
        return f"{disagree}. One row explains it: {replaced[0]}; with this value, all {count} agree within rounding."
    if verdict == "one effect explains it":
        return f"{disagree}. No row explains it, but a misprint of this effect does: all other effects agree."
    if verdict == "another convention explains it" and found.convention is not None:
        return f"{disagree}. All {count} follow if {_worded(found.convention)}."
    if verdict == "one of several explains it":
        changes = [*replaced, *([f"effect {found.beyond[0]} alone is misprinted"] if len(found.beyond) == 1 else [])]
        if found.convention is not None:
            changes.append(f"all effects follow if {_worded(found.convention)}")
        return f"{disagree}. Several single changes explain it: {'; or '.join(changes)}."
    if verdict == "some rows explain it":
        swapped = _swapped(found.together)
        return (
            f"{disagree}. No single response explains it, but {len(replaced)} together do: {'; and '.join(replaced)}"
            f"{'; each implied value is printed in the other row, so they were swapped' if swapped else ''}."
        )
    return f"{disagree}. No single response or effect explains it."


def _replacement(one: RowExplanation, unit: float) -> str:
    return (
        f"{one.name} prints {_digits(one.printed, unit)}, but the effects imply {_digits(one.implied, unit)} "
        f"({_digits(one.low, unit)} to {_digits(one.high, unit)})"
    )


def _worded(convention: Convention) -> str:
    said = []
    if convention.reversed:
        said.append(f"the levels of {' and '.join(convention.reversed)} have the opposite order")
    if convention.doubled:
        said.append("effects are changes from the low to the high level (2q)")
    return " and ".join(said)


def _swapped(rows: tuple[RowExplanation, ...]) -> bool:
    if len(rows) != 2:
        return False
    first, second = rows
    return first.low <= second.printed <= first.high and second.low <= first.printed <= second.high


def _digits(value: float, unit: float) -> str:
    """A number, rounded to this unit."""
    return f"{value:.{max(0, -round(math.log10(unit)))}f}"


def render_audit(found: Audit) -> str:
    """The verdict, and a table of all effects, published and computed."""
    header = ("effect", "published", "computed", "apart", "")
    rows = [
        (
            one.term,
            str(one.published),
            _digits(one.computed, found.units[1] / 100),
            _digits(one.apart, found.units[1] / 100),
            "beyond rounding" if one.beyond else "",
        )
        for one in found.differences
    ]
    return "\n".join([audit_sentence(found), "", *columns([header, *rows], {0})])
