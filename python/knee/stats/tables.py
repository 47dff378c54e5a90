"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """A line for each row. Columns are as wide as their widest cell, and right-aligned unless they are in `left`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
