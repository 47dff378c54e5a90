"""What a comparison has found, ready to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """One table."""

    title: str
    #: The table with its circumstances and warnings.
    text: str
    #: Whether its aim was reached, in one line.
    verdict: str
    #: Every sample, for other programs.
    content: dict[str, Any]
    #: What could not be measured, with the reason.
    failures: list[str]


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table, the first of them its header, as lines of text: columns under each other."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
