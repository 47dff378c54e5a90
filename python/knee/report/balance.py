"""The requests of each store, and how even they are."""

from __future__ import annotations

from knee.report.sheet import Sheet
from knee.report.tables import Cell, paragraphs
from knee.verdict import words


def section(sheet: Sheet) -> str:
    """Empty without several stores behind middlewares."""
    details = sheet.findings.details
    if details is None:
        return ""
    found, missing = details.balances, words.uncounted(*details.uncounted)
    if not found:
        return paragraphs([missing])
    stores = range(max(len(one.requests) for one in found.values()))
    rows: list[tuple[Cell, ...]] = [
        (
            sheet.naming.series[point],
            sheet.naming.load[point],
            *(found[point].requests[i] if i < len(found[point].requests) else None for i in stores),
            *(found[point].bytes[i] / 1e6 if i < len(found[point].bytes) else None for i in stores),
            found[point].fairness,
        )
        for point, _ in sheet.naming.points
        if point in found
    ]
    names = [f"store-{i} ({unit})" for unit in ("requests", "MB") for i in stores]
    numbers = sheet.of_lines((*names, "fairness index"), rows)
    sentence = words.balance(found, dict(sheet.naming.points))
    repetitions = "all other repetitions" if missing else "all repetitions"
    rest = (
        "the bytes of the blocks that they read or write. A request for parts of two stores goes to both."
        if details.items == "blocks"
        else "the bytes of these requests and of their answers. A write goes to every store that holds a copy."
    )
    what = f"Requests that the middlewares sent in the measured seconds of {repetitions}, and {rest}"
    return paragraphs([missing, sentence]) + numbers + paragraphs([what], "doubt")
