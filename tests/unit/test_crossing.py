"""Where two response times cross: on lines whose crossing is known, and how often the interval holds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from soak import drawn
from tests.browser import unmarked

from knee.data import csv
from knee.data.measurements import Measurements
from knee.report.page import html
from knee.verdict import Findings, analyse, words
from knee.verdict.crossing import Crossing, crossing
from knee.verdict.text import render_text

pytestmark = pytest.mark.usefixtures("scriptless", "modelless")

KEYS = (1, 3, 6, 9)
SHARDED, WHOLE = [4.0, 4.5, 5.0, 5.5], [2.0, 3.5, 6.0, 8.5]
"""The differences are 2, 1, −1 and −3, so they cross at 4.5 keys."""
TRIALS = drawn(200)


def table(
    noise: float, *, repetitions: int = 3, seed: int = 1, lines: Sequence[Sequence[float]] = (SHARDED, WHOLE)
) -> str:
    """Response times of each line over the keys of a multi-get."""
    rng = np.random.default_rng(seed)
    rows = [
        f"{how},{keys},{number},{each * (1 + noise * rng.standard_normal()):.9g},1000,8,0"
        for how, line in zip(("sharded", "whole"), lines, strict=True)
        for keys, each in zip(KEYS, line, strict=True)
        for number in range(1, repetitions + 1)
    ]
    return "\n".join(["how,keys,repetition,response_ms,throughput,clients,think_ms", *rows]) + "\n"


def of(text: str) -> Findings:
    return analyse(csv.parse(text, "lines.csv"))


def test_crossing_is_interpolated_and_named() -> None:
    found = of(table(0.005))
    assert found.crossing is not None and found.crossing.is_sure
    assert found.crossing.at.estimate == pytest.approx(4.5, abs=0.1)
    said = words.crossing(found.crossing)
    assert said.startswith("The response times cross at keys = 4.") and "Below, how = whole is faster; above" in said
    assert said in render_text(found) and said in unmarked(html(found))


def test_crossing_near_last_level_is_doubted() -> None:
    found = of(table(0.05, seed=4, lines=(SHARDED, [2.0, 3.5, 4.9, 5.8]))).crossing
    assert found is not None and not found.is_sure and found.at.high == KEYS[-1]
    assert "but the interval reaches the end of the measured values" in words.crossing(found)


def test_lines_that_are_equal_above_rarely_cross_for_sure() -> None:
    naming = of(table(0.0)).naming
    tables = (table(0.02, seed=seed, lines=(SHARDED, [2.0, 4.5, 5.0, 5.5])) for seed in range(60))
    found = [crossing(csv.parse(text, "lines.csv").table, naming) for text in tables]
    inside = [each for each in found if each is not None and each.is_inside]
    assert sum(each.is_sure for each in inside) <= 4
    doubted = next(each for each in inside if not each.is_sure)
    assert "but on one side the difference may be chance" in words.crossing(doubted)


def test_crossing_without_repetitions_has_no_interval() -> None:
    assert "with one repetition the error is unknown" in words.crossing(of(table(0.0, repetitions=1)).crossing)


@pytest.mark.parametrize("whole", [[2.0, 3.0, 4.0, 5.0], [2.0, 5.0, 4.0, 8.0]])
def test_lines_that_do_not_cross_once_have_no_crossing(whole: Sequence[float]) -> None:
    assert of(table(0.0, lines=(SHARDED, whole))).crossing is None


def test_interval_holds_crossing_as_often_as_it_says() -> None:
    naming, held = of(table(0.0)).naming, 0
    for seed in range(TRIALS):
        measured: Measurements = csv.parse(table(0.05, seed=seed), "lines.csv")
        found: Crossing | None = crossing(measured.table, naming)
        assert found is not None and found.at.low is not None and found.at.high is not None
        held += found.at.low <= 4.5 <= found.at.high
    assert held / TRIALS >= 0.95 - 4 * (0.95 * 0.05 / TRIALS) ** 0.5
