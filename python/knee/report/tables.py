"""HTML tables of the charts' numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from knee.stats.intervals import Interval, cannot_tell, is_vague, number, quantity

_NAME_CHARACTERS = 24

_PERCENT = re.compile(r"(more than )?-?[\d.,]+%( ± [\d.,]+%)?|–")

_DIGITS = 5
"""Significant digits of a measured number in a mapping."""

Cell = str | int | float | None | Interval


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]], *, wrap: bool = False) -> str:
    """A table. Text is left-aligned. Numbers, with three significant digits, and shares are right-aligned. A missing
    value is a dash.

    With `wrap`, text may break over lines.
    """
    body = [list(row) for row in rows]
    texts = [
        [row[column] for row in body if isinstance(row[column], str) and not _PERCENT.fullmatch(str(row[column]))]
        for column in range(len(header))
    ]
    is_text = [bool(column) for column in texts]
    # Only long names may break.
    long = bool(texts[0]) and max(len(str(name)) for name in texts[0]) > _NAME_CHARACTERS
    head = "".join(_cell("th", escape(name), text, False) for name, text in zip(header, is_text, strict=True))
    lines = [
        "<tr>"
        + "".join(
            _cell("td", escape(_shown(value)), text, wrap, _tone(value))
            for value, text in zip(row, is_text, strict=True)
        )
        + "</tr>"
        for row in body
    ]
    named = ' class="named"' if long else ""
    return (
        f'<div class="scroll"><table{named}><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def columns(rows: Sequence[Mapping[str, Cell]]) -> tuple[Sequence[str], Sequence[Sequence[Cell]]]:
    """Rows by the names of their columns, as the header and the rows of a table."""
    return tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows]


def estimate_and_ends(interval: Interval) -> tuple[Cell, Cell, Cell]:
    """An estimate and the ends of its interval as three cells. A vague interval has no ends."""
    if is_vague(interval):
        return interval.estimate, cannot_tell(interval), None
    return interval.estimate, interval.low, interval.high


def numbers(shown: str, content: str) -> str:
    """A section's figures or sentences, and then its table: closed below them, and open if there are none."""
    return shown + (folded("The numbers", content) if shown else content)


def grid(*figures: str) -> str:
    """Figures side by side; empty if all of them stand below "More figures"."""
    inner = "".join(figures)
    return f'<div class="grid">{inner}</div>' if inner else ""


def heading(title: str) -> str:
    """A heading within a section; empty without a title."""
    return f"<h3>{escape(title)}</h3>" if title else ""


def paragraphs(sentences: Iterable[str], kind: str = "") -> str:
    """A paragraph of this kind for each sentence that is not empty."""
    start = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{start}{escape(sentence)}</p>" for sentence in sentences if sentence)


def folded(summary: str, content: str) -> str:
    """Content that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def mapping(values: Mapping[str, object]) -> str:
    """Nested values, such as a manifest's, as a table of dotted names."""
    return table(("field", "value"), _flat("", values), wrap=True)


def _flat(prefix: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        return [
            row for name, inner in value.items() for row in _flat(f"{prefix}.{name}" if prefix else str(name), inner)
        ]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if any(isinstance(inner, Mapping) for inner in value):
            return [row for i, inner in enumerate(value) for row in _flat(f"{prefix}[{i}]", inner)]
        return [(prefix, " ".join(str(inner) for inner in value))]
    if isinstance(value, float):  # The manifest in the run folder has all digits.
        return [(prefix, number(value, _DIGITS))]
    return [(prefix, "–" if value is None else str(value))]


def _cell(tag: str, content: str, text: bool, wrap: bool, tone: str = "") -> str:
    classes = " ".join(filter(None, ("text" if text else "", "wrap" if wrap and text else "", tone)))
    return f'<{tag} class="{classes}">{content}</{tag}>' if classes else f"<{tag}>{content}</{tag}>"


def _shown(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, Interval):
        return quantity(value) if math.isfinite(value.estimate) else "–"
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _tone(value: Cell) -> str:
    if value in ("holds", "violated"):
        return str(value)
    return "unsure" if value == "cannot tell" else ""
