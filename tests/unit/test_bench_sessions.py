"""The page of sessions."""

from __future__ import annotations

import csv

from bench.sessions import PAGE, SESSIONS, page


def test_page_is_that_of_its_numbers() -> None:
    with PAGE.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert page(rows) == PAGE.read_text()
    measured = {row["session"] for row in rows}
    assert measured and measured <= SESSIONS.keys()
    assert all(f"| `{name}` | {SESSIONS[name].settings[0].name} |" in page(rows) for name in measured)
