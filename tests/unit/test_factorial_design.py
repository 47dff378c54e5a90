"""Which observations are a design: what is refused, what is treated and said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from designs import LEVELS, TRUTH, full_design, noisy

from knee.errors import DesignError
from knee.factorial import analyse, analyse_model, change, design_of, predict, render_text, sentences
from knee.factorial.transform import responses


@pytest.fixture
def table() -> pl.DataFrame:
    return noisy()


# What is refused


def test_missing_cells_are_named(table: pl.DataFrame) -> None:
    holed = table.filter(~((pl.col("servers") == 3) & (pl.col("workers") == 8) & (pl.col("middlewares") == 2)))
    with pytest.raises(DesignError, match="1 of 8 cells is missing") as error:
        design_of(holed, list(LEVELS), "throughput")
    assert "middlewares = 2, servers = 3, workers = 8" in str(error.value)


def test_many_missing_cells_are_counted() -> None:
    sparse = pl.DataFrame({"a": range(10), "b": range(10), "y": [1.0] * 10})
    with pytest.raises(DesignError, match="90 of 100 cells are missing") as error:
        design_of(sparse, ["a", "b"], "y")
    assert "and 85 more" in str(error.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"throughput": pl.lit(None, pl.Float64)}, r"column throughput: rows 1, 2, 3, 4, 5 and 19 more have no value"),
        # No file shows the rows of a run folder.
        (
            {
                "throughput": pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise("throughput"),
                "point": pl.int_range(pl.len()),
                "repetition": pl.lit(2),
            },
            r"the run .*servers = .*, repetition = 2 has no value",
        ),
        ({"throughput": pl.lit(math.nan)}, "no number from 1e-100 to 1e100"),
        ({"throughput": pl.lit(math.inf)}, "no number from 1e-100 to 1e100"),
        ({"throughput": pl.lit(1e300)}, "no number from 1e-100 to 1e100"),
        ({"throughput": pl.lit(1e-300)}, "no number from 1e-100 to 1e100"),
        ({"throughput": pl.lit(math.nan), "line": pl.int_range(2, pl.len() + 2)}, "lines 2, 3, 4, 5, 6 and 19 more"),
        ({"throughput": pl.lit("fast")}, "no number from 1e-100 to 1e100"),
        ({"servers": pl.lit(3)}, "factor servers: has the level 3 in all rows"),
        (
            {"servers": pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise("servers")},
            "servers: row 5 has no level",
        ),
        (
            {"repetition": pl.lit(1)},
            "rows 1 and 2 are the same run: middlewares = 1, servers = 1, workers = 8, repetition 1; leave one out",
        ),
    ],
)
def test_bad_input_is_named(table: pl.DataFrame, spoil: dict[str, pl.Expr], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        design_of(table.with_columns(**spoil), list(LEVELS), "throughput")


@pytest.mark.parametrize(
    ("factors", "response", "message"),
    [
        ([], "throughput", "no factors"),
        (["servers", "servers"], "throughput", "twice"),
        (["server"], "throughput", "no column server: did you mean servers"),
        (["servers"], "throughputs", "did you mean throughput"),
        (["servers", "throughput"], "throughput", "both a factor and the response"),
        ([f"f{number}" for number in range(21)], "throughput", "21 factors: expected 20 at most"),
    ],
)
def test_wrong_columns_are_named(table: pl.DataFrame, factors: list[str], response: str, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        design_of(table, factors, response)


def test_too_many_effects_are_refused() -> None:
    full = full_design({f"f{number}": (0, 1) for number in range(13)}, [1.0] * (1 << 13))
    with pytest.raises(DesignError, match="13 factors have 8,192 effects: expected 4,096 at most"):
        design_of(full, full.columns[:13], "throughput")


def test_an_empty_table_is_refused(table: pl.DataFrame) -> None:
    with pytest.raises(DesignError, match="no observations"):
        design_of(table.clear(), list(LEVELS), "throughput")


def test_nonpositive_response_has_no_logarithm(table: pl.DataFrame) -> None:
    zero = table.with_columns(throughput=pl.when(pl.int_range(pl.len()) == 6).then(0.0).otherwise("throughput"))
    with pytest.raises(DesignError, match="throughput is 0 in row 7"):
        analyse(zero, list(LEVELS), "throughput", model="multiplicative")
    found = analyse(zero, list(LEVELS), "throughput")
    assert found.analysis.model == "additive" and found.other is None
    assert any("not positive" in sentence for sentence in sentences(found))


def test_an_impossible_level_is_refused(table: pl.DataFrame) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        analyse(table, list(LEVELS), "throughput", level=95)


# What is treated, and said


def test_unequal_replication_is_noted(table: pl.DataFrame) -> None:
    fewer = table[:-1]
    analysis = analyse_model(design_of(fewer, list(LEVELS), "throughput"))
    note = analysis.notes[0]
    assert "2 to 3 times" in note and "middlewares = 2, servers = 3, workers = 32" in note
    # Effects are least squares, so the saturated regression has the same estimates and standard errors.
    signs = np.array([[1 if number else -1 for number in row] for row in analysis.design.levels])
    columns = [
        np.prod([signs[:, bit] for bit in range(3) if term >> bit & 1], axis=0) if term else np.ones(fewer.height)
        for term in range(8)
    ]
    x = np.column_stack(columns)
    y = fewer["throughput"].to_numpy()
    estimates, squares, *_ = np.linalg.lstsq(x, y)
    found = [analysis.mean, *(term.q for term in analysis.terms)]
    assert [one.estimate for one in found] == pytest.approx(estimates.tolist())
    variances = np.diag(np.linalg.inv(x.T @ x)) * float(squares[0]) / (fewer.height - 8)
    t = 2.1314  # t(0.975; 15)
    assert [one.half_width for one in found] == pytest.approx((t * np.sqrt(variances)).tolist(), rel=1e-4)


def test_unequal_replication_has_exact_standard_errors() -> None:
    levels = {"a": (1, 2, 3), "b": (1, 2)}
    uneven = full_design(levels, [10, 20, 40, 15, 22, 50], repetitions=4, noise=1, seed=9)[[*range(5), *range(6, 22)]]
    analysis = analyse_model(design_of(uneven, list(levels), "throughput"))
    means = uneven.group_by("b", "a", maintain_order=True).agg(pl.col("throughput").mean(), pl.len())
    y, n = means["throughput"].to_numpy().reshape(2, 3), means["len"].to_numpy().reshape(2, 3)
    spread = analysis.error.standard_deviation
    assert spread is not None and n.min() < n.max()
    first = analysis.term("A").effects[0].value
    weights = np.array([[2 / 3, -1 / 3, -1 / 3]] * 2) / 2
    assert first.estimate == pytest.approx(float((weights * y).sum()))
    t = 2.1314  # t(0.975; 15)
    assert analysis.error.degrees == 15
    assert first.half_width == pytest.approx(t * spread * math.sqrt(float((weights**2 / n).sum())), rel=1e-4)
    corner = next(e.value for e in analysis.term("AB").effects if e.levels == {"a": 1, "b": 1})
    weights = np.array([[2 / 3, -1 / 3, -1 / 3], [-2 / 3, 1 / 3, 1 / 3]]) / 2
    assert corner.estimate == pytest.approx(float((weights * y).sum()))
    assert corner.half_width == pytest.approx(t * spread * math.sqrt(float((weights**2 / n).sum())), rel=1e-4)
    # Predictions and changes weigh the cells likewise.
    assert predict(analysis, {"a": 1, "b": 1}).half_width == pytest.approx(t * spread / math.sqrt(n[0, 0]), rel=1e-4)
    step = change(analysis, "a")
    assert (step.before, step.after) == (1, 3)
    kramer = 3.673 / math.sqrt(2)  # q(0.95; 3, 15)
    expected = kramer * spread * math.sqrt(float((1 / n[:, [0, 2]]).sum()) / 4)
    assert step.by.half_width == pytest.approx(expected, rel=1e-3)


def test_unequal_replication_with_more_levels_has_exact_probabilities() -> None:
    levels = {"a": (1, 2, 3), "b": (1, 2, 3, 4)}
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 6, 12)
    even = full_design(levels, [10.0] * 12, repetitions=5, noise=1, seed=3)
    uneven = even.filter(pl.Series(np.concatenate([np.arange(5) < count for count in counts])))
    analysis = analyse_model(design_of(uneven, list(levels), "throughput"))
    y = uneven["throughput"].to_numpy()

    def contrasts(name: str) -> np.ndarray[Any, Any]:
        *rest, last = levels[name]
        column = uneven[name].to_numpy()
        return np.column_stack([(column == level).astype(float) - (column == last) for level in rest])

    def error_of(parts: Sequence[np.ndarray[Any, Any]]) -> float:
        return float(np.linalg.lstsq(np.column_stack([np.ones(y.size), *parts]), y)[1][0])

    a, b = contrasts("a"), contrasts("b")
    parts = [a, b, (a[:, :, None] * b[:, None, :]).reshape(y.size, -1)]
    full = error_of(parts)
    for number, term in enumerate(analysis.terms):
        squares = error_of([part for other, part in enumerate(parts) if other != number]) - full
        assert term.sum_of_squares == pytest.approx(squares)
        assert term.f_ratio == pytest.approx(squares / term.degrees / (full / (y.size - 12)))


def test_without_a_repetition_column_equal_levels_are_repetitions(table: pl.DataFrame) -> None:
    assert design_of(table.drop("repetition"), list(LEVELS), "throughput").label == "2^3·3 full factorial design"


def test_constant_response_has_no_variation() -> None:
    flat = full_design(LEVELS, [0.1] * 8, repetitions=3)
    found = analyse(flat, list(LEVELS), "throughput")
    assert all(math.isnan(term.share) and term.significant is None for term in found.analysis.terms)
    assert any("the same in every row" in sentence for sentence in sentences(found))
    assert render_text(found)


def test_copied_repetitions_are_noticed() -> None:
    copies = full_design(LEVELS, responses([0.1 * value for value in TRUTH]).tolist(), repetitions=3)
    found = analyse(copies, list(LEVELS), "throughput")
    assert any("agree to the last digit" in sentence for sentence in sentences(found))
    # The effect that is zero stays so, though there is no noise to hide its rounding.
    assert found.analysis.term("ABC").significant is False
    assert found.analysis.term("A").significant is True
