"""The audit of published effects: what it finds, what it must not find, how it says so."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from soak import drawn

from knee.errors import DesignError
from knee.factorial import audit_design, audit_effects, audit_sentence, design_of, render_audit
from knee.factorial.transform import effects, sign_table, term_name

RESPONSES = [3364, 4319, 2655, 3730, 5833, 7321, 4786, 6782]


def published(responses: list[float] | list[int], places: int = 1) -> dict[str, Decimal]:
    """Effects as a careful author prints them, rounded to the nearest."""
    return {term_name(term): Decimal(f"{q:.{places}f}") for term, q in enumerate(effects(responses))}


@given(
    st.integers(2, 5).flatmap(lambda k: st.lists(st.integers(1, 99_999), min_size=1 << k, max_size=1 << k)),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=drawn(60))
def test_rounded_effects_are_consistent(responses: list[int], places: int) -> None:
    assert audit_effects(responses, published(responses, places)).verdict == "consistent"
    unit = Decimal(1).scaleb(-places)
    truncated = {
        term_name(term): Decimal(float(q)).quantize(unit, "ROUND_DOWN") for term, q in enumerate(effects(responses))
    }
    assert audit_effects(responses, truncated).verdict == "consistent"


@given(
    st.integers(2, 5).flatmap(lambda k: st.lists(st.integers(1000, 20_000), min_size=1 << k, max_size=1 << k)),
    st.data(),
)
@settings(deadline=None, max_examples=drawn(60))
def test_one_wrong_response_is_found_wherever_it_stands(responses: list[int], data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(responses) - 1))
    wrong = data.draw(st.integers(1000, 20_000))
    # A change of less than what rounding of every effect may hide cannot be found by anybody.
    assume(abs(wrong - responses[row]) > 4 * len(responses))
    printed = [*responses[:row], wrong, *responses[row + 1 :]]
    found = audit_effects(printed, published(responses))
    assert found.verdict == "one row explains it"
    (explanation,) = found.rows
    assert (explanation.row, explanation.printed) == (row, wrong)
    assert explanation.low <= responses[row] <= explanation.high
    # Every effect is off by 0.05 at most, and the response is their sum.
    assert explanation.implied == pytest.approx(responses[row], abs=0.05 * len(responses) + 1e-6)
    assert explanation.levels == tuple(
        sign_table(len(responses).bit_length() - 1)[row, [1 << bit for bit in range(len(responses).bit_length() - 1)]]
    )


def test_two_wrong_responses_are_found_together() -> None:
    printed = [RESPONSES[0] + 400, *RESPONSES[1:5], RESPONSES[5] - 300, *RESPONSES[6:]]
    found = audit_effects(printed, published(RESPONSES))
    assert found.verdict == "some rows explain it"
    assert found.rows == () and len(found.beyond) > 1
    assert [one.row for one in found.together] == [0, 5]
    assert [one.implied for one in found.together] == pytest.approx([RESPONSES[0], RESPONSES[5]], abs=0.4)
    assert "No single response explains it, but 2 together do" in audit_sentence(
        found
    ) and "swapped" not in audit_sentence(found)


def test_swapped_rows_are_found() -> None:
    printed = [*RESPONSES[:2], RESPONSES[3], RESPONSES[2], *RESPONSES[4:]]
    found = audit_effects(printed, published(RESPONSES))
    assert [one.row for one in found.together] == [2, 3]
    assert "each implied value is printed in the other row, so they were swapped" in audit_sentence(found)


@given(st.lists(st.integers(1000, 20_000), min_size=16, max_size=16), st.data())
@settings(deadline=None, max_examples=drawn(60))
def test_no_sound_row_is_accused(responses: list[int], data: st.DataObject) -> None:
    printed = list(responses)
    rows = data.draw(st.sets(st.integers(0, 15), min_size=2, max_size=6))
    for row in rows:
        printed[row] += data.draw(st.integers(200, 5000)) * data.draw(st.sampled_from([-1, 1]))
    effects_printed = published(responses)
    if data.draw(st.booleans()):
        effects_printed["BC"] += 500
        rows = set()
    found = audit_effects(printed, effects_printed)
    assert {one.row for one in (*found.rows, *found.together)} in ({*rows}, set())
    if 0 < len(rows) <= 4:
        assert {one.row for one in found.together} == rows


def test_effects_of_other_responses_are_blamed_on_no_row() -> None:
    found = audit_effects(RESPONSES, published([value * 1.1 for value in RESPONSES]))
    assert found.verdict == "cannot be explained"
    assert found.rows == found.together == () and "No single response or effect" in audit_sentence(found)


def test_an_effect_is_given_the_rounding_of_its_own_digits() -> None:
    # Three significant digits each: 4.85e+03 and 78.4 are of one table.
    q = {name: Decimal(f"{float(value):.3g}") for name, value in published(RESPONSES, 6).items()}
    assert len({value.as_tuple().exponent for value in q.values()}) > 2
    assert audit_effects(RESPONSES, q).verdict == "consistent"


@given(
    st.integers(2, 5).flatmap(lambda k: st.lists(st.integers(1000, 20_000), min_size=1 << k, max_size=1 << k)),
    st.data(),
)
@settings(deadline=None, max_examples=drawn(40))
def test_another_convention_is_no_misprint(responses: list[int], data: st.DataObject) -> None:
    # The author took the first level of some factors for +1, or effects for the change from low to high.
    factors = len(responses).bit_length() - 1
    flipped = data.draw(st.integers(0, len(responses) - 1))
    doubled = data.draw(st.booleans())
    theirs = [responses[row ^ flipped] for row in range(len(responses))]
    q = effects(theirs) * np.where(np.arange(len(responses)) == 0, 1, 2 if doubled else 1)
    found = audit_effects(responses, {term_name(term): Decimal(f"{value:.1f}") for term, value in enumerate(q)})
    assume(all(abs(value) > 1 for value in q))
    if flipped or doubled:
        assert found.convention is not None
        assert found.convention.doubled == doubled
        assert set(found.convention.reversed) == {term_name(1 << bit) for bit in range(factors) if flipped >> bit & 1}
        assert found.together == ()
        if len(responses) > 4:
            assert found.verdict == "another convention explains it"
    else:
        assert found.verdict == "consistent"


def test_another_convention_is_named() -> None:
    q = effects(RESPONSES) * np.array([1, -2, 2, -2, 2, -2, 2, -2])
    found = audit_effects(RESPONSES, {term_name(term): Decimal(f"{value:.1f}") for term, value in enumerate(q)})
    assert "the levels of A have the opposite order" in audit_sentence(found)
    assert "changes from the low to the high level (2q)" in audit_sentence(found)


def test_wrong_effect_differs_from_wrong_response() -> None:
    effects_printed = published(RESPONSES) | {"AB": Decimal("87.4")}
    found = audit_effects(RESPONSES, effects_printed)
    assert found.verdict == "one effect explains it"
    assert found.beyond == ("AB",) and found.worst.term == "AB"


def test_with_few_effects_published_several_rows_may_explain_it() -> None:
    wrong = [RESPONSES[0] + 800, *RESPONSES[1:]]
    only = {name: value for name, value in published(RESPONSES).items() if name in ("A", "B")}
    found = audit_effects(wrong, only)
    assert found.verdict == "one of several explains it"
    # Rows 1 and 5 have the signs of A and B in common, rows 4 and 8 the opposite ones.
    assert [one.row for one in found.rows] == [0, 3, 4, 7]


def test_coarse_responses_are_given_their_rounding() -> None:
    rounded = [round(value, -2) for value in RESPONSES]
    q = published(RESPONSES)
    assert audit_effects(rounded, q, response_unit=100).verdict == "consistent"
    assert audit_effects(rounded, q, response_unit=1).verdict != "consistent"


def test_repetitions_are_audited_by_their_cells_means() -> None:
    table = pl.DataFrame(
        {"a": [1, 2] * 4, "b": [1, 1, 2, 2] * 2, "y": [15.0, 45.0, 25.0, 75.0, 17.0, 43.0, 25.0, 75.0]}
    )
    design = design_of(table, ["a", "b"], "y")
    assert audit_design(design, published([16, 44, 25, 75], 2)).verdict == "consistent"
    found = audit_design(design, published([16, 44, 25, 95], 2))
    assert found.rows[0].row == 3
    assert "the mean at a = 2, b = 2 prints 75, but the effects imply 95" in audit_sentence(found)


def test_means_of_fewer_decimals_are_given_their_rounding() -> None:
    """Means to 0.1 with errors to 0.01 beside them: rounding of the means is what sets the effects apart."""
    true = [value + 0.04 * (-1) ** row for row, value in enumerate(RESPONSES)]
    errors = [(0.31, -0.33, 0.02), (1.27, -0.11, -1.16), (2.5, -2.5, 0.01)]
    table = pl.DataFrame(
        [
            {"a": row & 1, "b": row >> 1 & 1, "c": row >> 2, "y": round(mean + error, 2)}
            for row, mean in enumerate(RESPONSES)
            for error in errors[row % 3]
        ]
    )
    design = design_of(table, ["a", "b", "c"], "y")
    q = published(true, 4)
    found = audit_design(design, q)
    # RESPONSES are whole numbers, so that the means may have been rounded to 1 at the coarsest.
    assert found.verdict == "consistent" and found.units[0] == pytest.approx(1)
    assert "(responses to 1, effects to 0.0001)" in audit_sentence(found)
    assert audit_design(design, q, resolution=0.1).verdict == "consistent"
    assert "(responses to 0.25, " in audit_sentence(audit_design(design, q, resolution=0.25))
    assert audit_design(design, q, resolution=0.01).verdict != "consistent"


def test_a_row_is_named_by_its_place_in_the_table_and_its_levels() -> None:
    table = pl.DataFrame({"a": [2, 2, 1, 1], "b": [2, 1, 2, 1], "y": [75.0, 45.0, 25.0, 15.0]})
    found = audit_design(design_of(table, ["a", "b"], "y"), published([15, 45, 25, 95], 2))
    assert "row 1 (a = 2, b = 2) prints 75, but the effects imply 95" in audit_sentence(found)


def test_only_full_two_level_designs_are_audited() -> None:
    three = pl.DataFrame({"a": [1, 2, 3], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(DesignError, match="full designs with two levels"):
        audit_design(design_of(three, ["a"], "y"), {"A": Decimal(1)})


@pytest.mark.parametrize(
    ("responses", "named", "message"),
    [
        ([1, 2, 3], {"A": "1"}, "3 responses: a full design"),
        ([1], {"I": "1"}, "1 responses"),
        ([1, 2], {}, "no published effects"),
        ([1, np.nan], {"A": "1"}, "response in row 2: nan is not a finite number"),
        ([1, 2], {"A": "NaN"}, "effect A: NaN is not a finite number"),
        ([1, 2], {"B": "1"}, "effect B: the design's factors are A to A"),
        ([1, 2], {"A x": "1"}, "'A x' names no term"),
        ([1, 2, 3, 4], {"AB": "1", "BA": "1"}, "effect BA: given twice"),
    ],
)
def test_bad_input_is_named(responses: list[float], named: dict[str, str], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        audit_effects(responses, {name: Decimal(value) for name, value in named.items()})


def test_text_marks_effects_beyond_rounding() -> None:
    text = render_audit(audit_effects(RESPONSES, published(RESPONSES) | {"AB": Decimal("87.4")}))
    marked = [line for line in text.splitlines() if line.endswith("beyond rounding")]
    assert len(marked) == 1 and marked[0].startswith("AB")
    assert text.startswith("1 of 8 published effects do not follow")
