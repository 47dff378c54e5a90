"""The findings of a comparison as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from knee.compare.findings import Difference, Pair, Point
from knee.compare.ratios import POWER, SOUGHT, Ratio
from knee.compare.sides import QUANTITIES
from knee.data.measurements import label_of
from knee.stats.intervals import Interval, between, clients_about, counted, is_vague, listed, number, percent
from knee.stats.tables import columns
from knee.verdict.distributions import ALL
from knee.verdict.knee import PLATEAU

_WORDS = {"throughput": ("serves", "more", "less"), "response_ms": ("takes", "longer", "shorter")}
_OBSTACLES = {
    "no answer": "A or B answered nothing at a common point",
    "no point in common": "no point has the same settings in both",
    "one repetition": "one repetition; repeat at least 3 times",
    "equal repetitions": "all repetitions are equal, so the noise is unknown",
    "incomplete repetitions": "fewer than two repetitions have all points; resume the runs",
}
_MARK = "*"
_WIDE = 1.0
"""Relative half width above which the table shows no interval."""


def verdict(pair: Pair) -> str:
    """The verdict in one sentence."""
    if pair.obstacle == "equal measurements":
        return "A and B are equal in every repetition"
    if pair.obstacle:
        return f"cannot tell: {_OBSTACLES[pair.obstacle]}"
    found = pair.overall[pair.headline].interval
    where = "at the knee" if pair.at_knee else "at the only point" if pair.points == 1 else f"over {pair.points} points"
    if pair.differs:
        verb, more, less = _WORDS[pair.headline]
        assert found.low is not None and found.high is not None
        # The interval of a difference does not contain 1.
        least, most = (number(100 * end, 2) for end in sorted((abs(found.low - 1), abs(found.high - 1))))
        way = more if found.estimate > 1 else less
        return f"B {verb} {percent(abs(found.estimate - 1))} {way} {where} ({least} to {most}%)"
    change = f"{pair.headline} {change_of(found)} {where} ({_signed_ends(found)})"
    if not pair.different:
        return f"cannot tell A and B apart: {change}"
    names = [f"{_label(one.point, one.operation)} ({change_of(one.ratio.interval)})" for one in pair.different]
    return f"A and B differ in {pair.headline} at {counted(len(names), 'point')}: {listed(names)}; overall {change}"


def change_of(ratio: Interval) -> str:
    """The ratio as a change, “+12.5%”."""
    return f"{100 * (ratio.estimate - 1):+.1f}%".replace("-", "−")


def power(pair: Pair) -> str:
    """The smallest difference that the data could have shown, and how the noise was found; empty without noise."""
    smallest = None if pair.obstacle else pair.overall[pair.headline].smallest
    if smallest is None:
        return ""
    found = pair.overall[pair.headline]
    how = f"{counted(found.interval.repetitions, pair.unit)} each, " + ("in pairs" if pair.paired else "not paired")
    size = percent(smallest) if smallest <= 1 else "more than 100%"
    text = f"a difference of {size} would be found with a probability of {POWER:.0%} ({how})"
    if smallest <= SOUGHT:
        return text
    if found.needed is None:
        return f"{text}; {'separate runs' if pair.apart else 'repetitions with this noise'} cannot show {SOUGHT:.0%}"
    return f"{text}; {SOUGHT:.0%} needs about {counted(found.needed, pair.unit)} each"


def notes(pair: Pair) -> list[str]:
    """Assumptions, and reasons to distrust the comparison."""
    found = []
    if pair.kneeless:
        configurations = listed([_label(each) for each in pair.kneeless], "; ")
        found.append(f"the verdict covers plateaus, or all common points without a common plateau: {configurations}")
    if not pair.ordered and not pair.obstacle:
        found.append(
            "the order of the rows in time is unknown: A and B are assumed to be measured in turn; add a column "
            "run_order"
        )
    if pair.apart and not pair.obstacle:
        found.append(
            f"A and B were measured separately: two runs of one system are assumed to differ by {pair.apart:g} times "
            "the standard deviation of repetitions; alternate several runs of both, or measure both in one run"
        )
    failed = [f"{name} {percent(share)}" for name, share in zip("AB", pair.failed, strict=True) if share > PLATEAU]
    if failed:
        found.append(f"requests failed ({', '.join(failed)}): throughput leaves them out, response times include them")
    found += [
        f"{name} answered nothing at {listed([_label(*each) for each in places], '; ')}: no ratio includes this"
        for name, places in zip("AB", pair.silent, strict=True)
        if places
    ]
    found += [
        f"only {name} has {counted(len(points), 'point')}: {listed([_label(point) for point in points], '; ')}"
        for name, points in zip("AB", pair.only, strict=True)
        if points
    ]
    return found


def render_text(pairs: Sequence[Pair]) -> str:
    """Every pair, for a terminal."""
    return "\n\n".join("\n".join(_lines(pair)) for pair in pairs)


def render_markdown(pairs: Sequence[Pair]) -> str:
    """Every pair as a section with a table, for a pull request."""
    parts = []
    for pair in pairs:
        head, *rows = _table(pair)
        table = [_row(head), _row(["---"] * len(head)), *map(_row, rows)] if rows else []
        facts = [
            f"* {_escaped(line)}"
            for line in (power(pair), *_knees(pair), *_differing(pair), *notes(pair), *_gates(pair))
        ]
        lines = [f"**{_escaped(_sentence(pair))}**", "", f"A = `{pair.names[0]}`, B = `{pair.names[1]}`", "", *table]
        parts.append("\n".join([*lines, "", *(line for line in facts if line != "* ")]))
    return "\n\n".join(parts)


def _lines(pair: Pair) -> list[str]:
    facts = [("A", pair.names[0]), ("B", pair.names[1]), ("Verdict", _sentence(pair)), ("Power", power(pair))]
    facts += [("Knee", line) for line in _knees(pair)]
    facts += [
        ("Overall", f"{name} {change_of(found.interval)} ({_signed_ends(found.interval)})")
        for name, found in pair.overall.items()
        if found.interval.low is not None and pair.obstacle != "no answer"
    ]
    facts += [("Changed", line) for line in _differing(pair)] + [("Note", line) for line in notes(pair)]
    facts += [("Gate", line) for line in _gates(pair)]
    lines, last = [], ""
    for name, text in facts:
        if text:
            lines.append(f"{'' if name == last else name:<10}{text}")
            last = name
    head, *rows = _table(pair)
    if rows:
        lines += ["", *columns([head, *rows], (0, 1))]
        lines.append(
            f"Changes of B in %, with {pair.level:.0%} intervals. {_MARK}: differs, for all rows of the column."
        )
    return lines


def _sentence(pair: Pair) -> str:
    text = verdict(pair)
    level = "" if pair.obstacle else f"; {pair.overall[pair.headline].interval.level:.0%} interval"
    return f"{text[0].upper()}{text[1:]}{level}."


def _table(pair: Pair) -> list[list[str]]:
    """A header, and a row for each point and operation."""
    names = [name for name in QUANTITIES if any(one.quantity == name for one in pair.compared)]
    cells = {(one.point, one.operation): ["", ""] for one in pair.compared}
    found = {(one.point, one.operation, one.quantity): one for one in pair.compared}
    rows = [["point", "operation", "A /s", "B /s", *names]]
    for point, operation in cells:
        rate = found.get((point, operation, "throughput"))
        row = [_label(point), operation, number(rate.a) if rate else "–", number(rate.b) if rate else "–"]
        for name in names:
            one = found.get((point, operation, name))
            row.append("–" if one is None else _cell(one.ratio, one.differs))
        rows.append(row)
    return rows


def _cell(ratio: Ratio, differs: bool) -> str:
    interval = ratio.interval
    change = change_of(interval).removesuffix("%")
    mark = _MARK if differs else " "
    if interval.half_width is None or interval.half_width > _WIDE * interval.estimate:
        return f"{change} ± ?{mark}"
    return f"{change} ± {100 * interval.half_width:.1f}{mark}"


def _knees(pair: Pair) -> list[str]:
    return [f"{_label(at) + ': ' if at else ''}A {clients_about(a)}, B {clients_about(b)}" for at, a, b in pair.knees]


def _differing(pair: Pair) -> list[str]:
    def shown(found: Difference) -> str:
        return f"{found.name}: {found.a} → {found.b}"

    same = [] if pair.origin or pair.origin is None else ["no recorded version or property of the machine differs"]
    return [*map(shown, (*pair.settings, *(pair.origin or ()))), *same]


def _gates(pair: Pair) -> list[str]:
    return [
        f"{gate.condition}: {gate.state}{f' ({gate.reason})' if gate.reason else ''}"
        + ("" if gate.ratio.low is None else f" ({change_of(gate.ratio)}, {_signed_ends(gate.ratio)})")
        for gate in pair.gates
    ]


def _label(point: Point, operation: str = ALL) -> str:
    label = label_of(dict(point)) or "the only point"  # type: ignore[arg-type]
    return label if operation == ALL else f"{label}, {operation}"


def _signed_ends(ratio: Interval) -> str:
    assert ratio.low is not None and ratio.high is not None
    if is_vague(ratio):
        return between(ratio)
    return f"{100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f}%".replace("-", "−")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
