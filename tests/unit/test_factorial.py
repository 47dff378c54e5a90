"""Factorial analysis: effects of known models, what is refused, what is said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knee.errors import DesignError
from knee.factorial import (
    analyse,
    analyse_model,
    change,
    design_of,
    from_generators,
    lenth_margins,
    marginal_means,
    predict,
    render_text,
)
from knee.factorial.box_cox import box_cox
from knee.factorial.residuals import Residuals
from knee.factorial.transform import responses, term_name

LEVELS: dict[str, Sequence[Any]] = {"middlewares": (1, 2), "servers": (1, 3), "workers": (8, 32)}


def full_design(
    levels: Mapping[str, Sequence[Any]],
    means: Sequence[float],
    *,
    repetitions: int = 1,
    noise: float = 0.0,
    seed: int = 0,
) -> pl.DataFrame:
    """A table in standard order, the first factor varying fastest, with normal noise."""
    rng = np.random.default_rng(seed)
    cells = [combination[::-1] for combination in itertools.product(*reversed(levels.values()))]
    return pl.DataFrame(
        [
            dict(zip(levels, cell, strict=True))
            | {"repetition": repetition, "throughput": float(mean + noise * rng.standard_normal())}
            for cell, mean in zip(cells, means, strict=True)
            for repetition in range(1, repetitions + 1)
        ]
    )


TRUTH = [5000.0, 700, -360, 80, 1300, 180, -40, 0]


@pytest.fixture
def table() -> pl.DataFrame:
    return full_design(LEVELS, responses(TRUTH).tolist(), repetitions=3, noise=30)


# Estimates


@given(st.lists(st.integers(-1000, 1000), min_size=8, max_size=8), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_the_effects_of_a_known_model_are_recovered(truth: list[int], repetitions: int) -> None:
    exact = full_design(LEVELS, responses([float(q) for q in truth]).tolist(), repetitions=repetitions)
    analysis = analyse_model(design_of(exact, list(LEVELS), "throughput"))
    found = [analysis.mean.estimate, *(term.q.estimate for term in analysis.terms)]
    assert found == pytest.approx(truth, abs=1e-9)
    assert analysis.error.sum_of_squares == 0


@given(st.integers(0, 2**32 - 1), st.sampled_from(["additive", "multiplicative"]), st.data())
@settings(deadline=None, max_examples=40)
def test_the_variation_adds_up(seed: int, model: Any, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    levels = {f"f{number}": range(count) for number, count in enumerate(counts)}
    rng = np.random.default_rng(seed)
    means = rng.uniform(10, 100, math.prod(counts)).tolist()
    design = design_of(full_design(levels, means, repetitions=2, noise=1, seed=seed), list(levels), "throughput")
    analysis = analyse_model(design, model)
    shares = [term.share for term in analysis.terms]
    assert sum(shares) + analysis.error.share == pytest.approx(1)
    around_mean = float(np.sum((analysis.values - analysis.values.mean()) ** 2))
    assert analysis.total == pytest.approx(around_mean)
    assert sum(term.degrees for term in analysis.terms) + analysis.error.degrees == design.values.size - 1


@given(st.lists(st.floats(1, 100), min_size=8, max_size=8), st.integers(0, 2))
@settings(deadline=None, max_examples=40)
def test_relabelling_the_levels_of_a_factor_flips_its_signs(means: list[float], factor: int) -> None:
    plain = full_design(LEVELS, means)
    name = list(LEVELS)[factor]
    swapped = plain.with_columns((-pl.col(name)).alias(name))
    first, second = (analyse_model(design_of(one, list(LEVELS), "throughput")) for one in (plain, swapped))
    for term, other in zip(first.terms, second.terms, strict=True):
        sign = -1 if name in term.factors else 1
        assert other.q.estimate == pytest.approx(sign * term.q.estimate, abs=1e-9)
        assert other.sum_of_squares == pytest.approx(term.sum_of_squares, abs=1e-6)


@given(st.permutations(range(24)))
@settings(deadline=None, max_examples=10)
def test_the_order_of_the_rows_does_not_matter(order: list[int]) -> None:
    plain = full_design(LEVELS, responses(TRUTH).tolist(), repetitions=3, noise=30)
    first, second = (analyse_model(design_of(one, list(LEVELS), "throughput")) for one in (plain, plain[order]))
    for term, other in zip(first.terms, second.terms, strict=True):
        assert other.q.estimate == pytest.approx(term.q.estimate, abs=1e-9)
    assert first.error.standard_deviation == pytest.approx(second.error.standard_deviation)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    covered = trials = 0
    for seed in range(60):
        noisy = full_design(LEVELS, responses(TRUTH).tolist(), repetitions=3, noise=30, seed=seed)
        analysis = analyse_model(design_of(noisy, list(LEVELS), "throughput"), level=0.9)
        for truth, interval in zip(TRUTH, [analysis.mean, *(term.q for term in analysis.terms)], strict=True):
            assert interval.low is not None and interval.high is not None
            covered += interval.low <= truth <= interval.high
            trials += 1
    # 480 intervals of 90 %: within five standard errors of 1.4 %.
    assert abs(covered / trials - 0.9) < 0.07


def test_a_general_design_agrees_with_the_sign_table() -> None:
    # With a third level at the mean of the others nothing about the two-level formulas would hold, so compare at two.
    two = full_design(LEVELS, responses(TRUTH).tolist(), repetitions=3, noise=30)
    design = design_of(two, list(LEVELS), "throughput")
    by_signs = analyse_model(design)
    object.__setattr__(design, "fraction", None)
    general = analyse_model(design)
    for term, other in zip(by_signs.terms, general.terms, strict=True):
        assert (other.name, other.degrees) == (term.name, term.degrees)
        assert other.sum_of_squares == pytest.approx(term.sum_of_squares)
        high = other.effects[-1]
        assert high.value.estimate == pytest.approx(term.q.estimate)
        assert high.value.half_width == pytest.approx(term.q.half_width)
        assert dict(high.levels) == dict(term.effects[0].levels)


def test_jains_code_size_comparison() -> None:
    # Jain 1991, table 22.3 and 22.5 in shape: a two-factor design with repetitions, against the textbook sums.
    rng = np.random.default_rng(3)
    levels = {"processor": ["W", "X", "Y", "Z"], "workload": ["I", "J", "K", "L", "M"]}
    data = full_design(levels, rng.uniform(3, 5, 20).tolist(), repetitions=3, noise=0.05)
    analysis = analyse_model(design_of(data, list(levels), "throughput"))
    y = data["throughput"].to_numpy().reshape(5, 4, 3)
    mean = y.mean()
    alpha = y.mean(axis=(0, 2)) - mean
    beta = y.mean(axis=(1, 2)) - mean
    gamma = y.mean(axis=2) - mean - alpha[None, :] - beta[:, None]
    error = float(((y - y.mean(axis=2, keepdims=True)) ** 2).sum())
    squares = [15 * float((alpha**2).sum()), 12 * float((beta**2).sum()), 3 * float((gamma**2).sum())]
    assert [term.sum_of_squares for term in analysis.terms] == pytest.approx(squares)
    assert [term.degrees for term in analysis.terms] == [3, 4, 12]
    assert analysis.error.sum_of_squares == pytest.approx(error)
    assert [effect.value.estimate for effect in analysis.terms[0].effects] == pytest.approx(alpha.tolist())
    # Jain 1991, §22.4: s_α = s_e √((a − 1)/(abr)).
    s_e = math.sqrt(error / 40)
    half_width = analysis.terms[0].effects[0].value.half_width
    assert half_width == pytest.approx(2.0211 * s_e * math.sqrt(3 / 60), rel=1e-4)
    interaction = analysis.terms[2].effects[0].value.half_width
    assert interaction == pytest.approx(2.0211 * s_e * math.sqrt(3 * 4 / 60), rel=1e-4)


def test_the_multiplicative_model_finds_factors() -> None:
    factors = [math.exp(value) for value in responses([8, 0.3, -0.1, 0, 0.2, 0, 0, 0])]
    exact = full_design(LEVELS, factors, repetitions=2)
    analysis = analyse_model(design_of(exact, list(LEVELS), "throughput"), "multiplicative")
    assert change(analysis, "middlewares").by.estimate == pytest.approx(math.exp(0.6))
    prediction = predict(analysis, {"middlewares": 2, "servers": 3, "workers": 32})
    assert prediction.estimate == pytest.approx(math.exp(8.4))


def test_logarithms_are_taken_before_the_mean() -> None:
    pairs = pl.DataFrame({"f": [1, 1, 2, 2], "y": [1.0, 100.0, 10.0, 1000.0]})
    analysis = analyse_model(design_of(pairs, ["f"], "y"), "multiplicative")
    assert analysis.mean.estimate == pytest.approx(math.log(10) * 1.5)
    assert analysis.cells[0].mean.estimate == pytest.approx(10)  # the geometric mean


# Predictions


def test_predictions_widen_for_fewer_future_observations(table: pl.DataFrame) -> None:
    analysis = analyse_model(design_of(table, list(LEVELS), "throughput"))
    at = {"middlewares": 1, "servers": 1, "workers": 8}
    widths = [predict(analysis, at, observations=m).half_width for m in (1, 5, 1000, None)]
    assert all(width is not None for width in widths)
    assert widths == sorted(widths, reverse=True)  # type: ignore[type-var]
    cell = table.filter(pl.col("workers") == 8, pl.col("servers") == 1, pl.col("middlewares") == 1)
    assert predict(analysis, at).estimate == pytest.approx(cell["throughput"].mean())


def test_a_prediction_names_what_it_does_not_know(table: pl.DataFrame) -> None:
    analysis = analyse_model(design_of(table, list(LEVELS), "throughput"))
    with pytest.raises(DesignError, match="workers = 16 was not measured: its levels are 8, 32"):
        predict(analysis, {"middlewares": 1, "servers": 1, "workers": 16})
    with pytest.raises(DesignError, match="one level for each of"):
        predict(analysis, {"middlewares": 1})


def test_marginal_means_draw_the_interaction(table: pl.DataFrame) -> None:
    analysis = analyse_model(design_of(table, list(LEVELS), "throughput"))
    lines = marginal_means(analysis, ["workers", "middlewares"])
    assert [tuple(cell.levels.values()) for cell in lines] == [(8, 1), (8, 2), (32, 1), (32, 2)]
    by_hand = table.group_by("workers", "middlewares").agg(pl.col("throughput").mean()).sort("workers", "middlewares")
    assert [cell.mean.estimate for cell in lines] == pytest.approx(by_hand["throughput"].to_list())
    # Each mean is of two cells of three runs.
    whole = marginal_means(analysis, [])[0].mean
    assert lines[0].mean.half_width == pytest.approx(2 * (whole.half_width or math.nan))
    assert (whole.low, whole.high) == pytest.approx((analysis.mean.low, analysis.mean.high))
    at_two = change(analysis, "workers", {"middlewares": 2}).by.estimate
    assert at_two == pytest.approx(lines[3].mean.estimate - lines[1].mean.estimate)
    with pytest.raises(KeyError):
        change(analysis, "clients")


def test_the_largest_change_between_many_levels_allows_for_having_been_picked() -> None:
    found_something = 0
    for seed in range(100):
        alike = full_design({"f": range(6)}, [10.0] * 6, repetitions=5, noise=1, seed=seed)
        low = change(analyse_model(design_of(alike, ["f"], "throughput")), "f").by.low
        found_something += low is not None and low > 0
    # 5 %, within three standard errors; with Student's t for a difference that was not picked it is 36 %.
    assert found_something <= 11
    # Tukey's q(0.95; 6, 24) = 4.37.
    half_width = change(analyse_model(design_of(alike, ["f"], "throughput")), "f").by.half_width
    spread = analyse_model(design_of(alike, ["f"], "throughput")).error.standard_deviation
    assert spread is not None and half_width == pytest.approx(4.37 * spread / math.sqrt(5), rel=1e-3)


def test_a_change_between_equal_means_is_from_the_first_to_the_last_level() -> None:
    same = pl.DataFrame({"f": ["a", "b", "c"] * 2, "y": [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]})
    step = change(analyse_model(design_of(same, ["f"], "y")), "f")
    assert (step.before, step.after, step.by.estimate) == ("a", "c", 0)


def test_an_interval_that_no_number_can_hold_is_open() -> None:
    apart = pl.DataFrame({"f": [1, 1, 2], "y": [1.0, 1e4, 5.0]})
    step = change(analyse_model(design_of(apart, ["f"], "y"), "multiplicative", level=0.9999), "f")
    assert step.by.estimate == pytest.approx(0.05) and step.by.half_width is None


# No repetitions


def test_without_repetitions_lenths_method_finds_the_active_effects() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 1, 16)
    truth[[0, 1, 4]] = [500, 40, -25]
    levels = dict.fromkeys("abcd", (0, 1))
    analysis = analyse_model(design_of(full_design(levels, responses(truth).tolist()), list(levels), "throughput"))
    assert {term.name for term in analysis.terms if term.significant} == {"A", "C"}
    assert analysis.term("A").q.half_width is None
    assert analysis.lenth is not None and analysis.lenth.margin < analysis.lenth.simultaneous
    assert any("Lenth" in note for note in analysis.notes)


def test_lenths_margins_hold_their_level_on_pure_noise() -> None:
    rng = np.random.default_rng(0)
    trials, beyond, any_beyond = 300, 0, 0
    for _ in range(trials):
        noise = rng.standard_normal(15)
        margins = lenth_margins(noise.tolist())
        beyond += int(np.count_nonzero(np.abs(noise) > margins.margin))
        any_beyond += bool((np.abs(noise) > margins.simultaneous).any())
    # Lenth's t quantiles are conservative: about 4 % and 4 % instead of 5 %.
    assert 0.02 < beyond / trials / 15 < 0.06
    assert any_beyond / trials < 0.09


def test_too_few_effects_without_repetitions_cannot_be_judged() -> None:
    two = full_design({"a": (0, 1), "b": (0, 1)}, [15, 45, 25, 75])
    found = analyse(two, ["a", "b"], "throughput")
    assert {term.significant for term in found.analysis.terms} == {None}
    assert any("cannot be told" in note for note in found.analysis.notes)
    assert "How sure that is cannot be told" in found.sentences[0]


def test_without_repetitions_the_highest_interaction_stands_in_for_the_error() -> None:
    # Jain 1991, ch. 21: a two-factor design without repetitions, its interactions taken for errors.
    levels = {"cache": ["two", "one", "none"], "workload": ["asm", "tecf", "diff"]}
    data = full_design(levels, [54.0, 55.0, 106.0, 60.0, 60.0, 123.0, 43.0, 43.0, 120.0])
    analysis = analyse_model(design_of(data, list(levels), "throughput"))
    assert [term.name for term in analysis.terms] == ["A", "B"]
    assert (analysis.error.source, analysis.error.degrees) == ("highest interaction", 4)
    assert any("interaction of all factors is taken for the error" in note for note in analysis.notes)


# Fractions


def test_a_fraction_is_analysed_with_its_aliases() -> None:
    fraction = from_generators(4, ["D=ABC"])
    truth = np.zeros(16)
    truth[[0, 1, 8]] = [100, 10, -4]  # mean, A and D
    levels = dict.fromkeys("abcd", (0, 1))
    everything = full_design(levels, responses(truth).tolist())
    half = everything.filter(pl.Series(fraction.present()))
    found = analyse(half, list(levels), "throughput")
    assert found.analysis.design.label == "2^(4−1) fractional factorial design"
    assert len(found.analysis.terms) == 7
    assert found.analysis.term("A").q.estimate == pytest.approx(10)
    assert found.analysis.term("A").aliases == ("BCD",)
    assert found.analysis.term("BCD") is found.analysis.term("A")
    assert found.analysis.term("D").q.estimate == pytest.approx(-4)
    prediction = predict(found.analysis, {"a": 1, "b": 0, "c": 0, "d": 1})
    assert prediction.estimate == pytest.approx(106)
    text = render_text(found)
    assert "resolution IV" in text and "I = ABCD" in text and "BCD" in text


def test_factors_that_always_change_together_are_refused() -> None:
    pairs = pl.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "c": [0, 1, 0, 1], "y": [1.0, 2, 3, 4]})
    with pytest.raises(DesignError, match="factors b and c always change together"):
        design_of(pairs, ["a", "b", "c"], "y")


# What is refused


def test_missing_cells_are_named(table: pl.DataFrame) -> None:
    holed = table.filter(~((pl.col("servers") == 3) & (pl.col("workers") == 8) & (pl.col("middlewares") == 2)))
    with pytest.raises(DesignError, match="1 of 8 cells are missing") as error:
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
        ({"throughput": pl.lit(math.nan)}, "NaN or infinity"),
        ({"throughput": pl.lit(math.inf)}, "NaN or infinity"),
        ({"throughput": pl.lit(1e300)}, "a size beyond all measurement"),
        ({"throughput": pl.lit(1e-300)}, "a size beyond all measurement"),
        ({"throughput": pl.lit(math.nan), "line": pl.int_range(2, pl.len() + 2)}, "lines 2, 3, 4, 5, 6 and 19 more"),
        ({"throughput": pl.lit("fast")}, r"text \('fast'\) where a number was expected"),
        ({"servers": pl.lit(3)}, "factor servers: has the one level 3"),
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
        ([f"f{number}" for number in range(13)], "throughput", "13 factors: expected 12 at most"),
    ],
)
def test_wrong_columns_are_named(table: pl.DataFrame, factors: list[str], response: str, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        design_of(table, factors, response)


def test_an_empty_table_is_refused(table: pl.DataFrame) -> None:
    with pytest.raises(DesignError, match="no observations"):
        design_of(table.clear(), list(LEVELS), "throughput")


def test_a_response_that_is_not_positive_has_no_logarithm(table: pl.DataFrame) -> None:
    zero = table.with_columns(throughput=pl.when(pl.int_range(pl.len()) == 6).then(0.0).otherwise("throughput"))
    with pytest.raises(DesignError, match="throughput is 0 in row 7"):
        analyse(zero, list(LEVELS), "throughput", model="multiplicative")
    found = analyse(zero, list(LEVELS), "throughput")
    assert found.analysis.model == "additive" and found.other is None
    assert any("not positive" in sentence for sentence in found.sentences)


def test_an_impossible_level_is_refused(table: pl.DataFrame) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        analyse(table, list(LEVELS), "throughput", level=95)


# What is treated, and said


def test_unequal_replication_is_treated_and_said(table: pl.DataFrame) -> None:
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


def test_unequal_replication_with_more_levels_has_exact_standard_errors() -> None:
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


def test_without_a_repetition_column_equal_levels_are_repetitions(table: pl.DataFrame) -> None:
    assert design_of(table.drop("repetition"), list(LEVELS), "throughput").label == "2^3·3 full factorial design"


def test_a_response_that_does_not_vary_has_no_variation_to_allocate() -> None:
    flat = full_design(LEVELS, [0.1] * 8, repetitions=3)
    found = analyse(flat, list(LEVELS), "throughput")
    assert all(math.isnan(term.share) and term.significant is None for term in found.analysis.terms)
    assert any("the same in every row" in sentence for sentence in found.sentences)
    assert render_text(found)


def test_copied_repetitions_are_noticed() -> None:
    copies = full_design(LEVELS, responses([0.1 * value for value in TRUTH]).tolist(), repetitions=3)
    found = analyse(copies, list(LEVELS), "throughput")
    assert any("agree to the last digit" in sentence for sentence in found.sentences)
    # The effect that is zero stays so, though there is no noise to hide its rounding.
    assert found.analysis.term("ABC").significant is False
    assert found.analysis.term("A").significant is True


# Which model


def test_box_cox_finds_the_scale_that_noise_and_model_were_made_on() -> None:
    truth = responses([6, 0.8, -0.4, 0.1, 1.0, 0, 0, 0])
    rng = np.random.default_rng(5)
    table = full_design(LEVELS, truth.tolist(), repetitions=5).with_columns(
        throughput=np.exp(np.repeat(truth, 5) + 0.1 * rng.standard_normal(40))
    )
    hint = box_cox(design_of(table, list(LEVELS), "throughput"))
    assert hint.fit == "multiplicative"
    assert hint.low is not None and hint.high is not None and hint.low <= 0 <= hint.high < 1
    found = analyse(table, list(LEVELS), "throughput")
    assert found.analysis.model == "multiplicative"
    assert found.other is not None and found.other.model == "additive"
    squared = table.with_columns(throughput=pl.col("throughput").log())
    assert box_cox(design_of(squared, list(LEVELS), "throughput")).fit in ("additive", "either")


def test_box_cox_without_repetitions_asks_where_interactions_vanish() -> None:
    main = [3, 0.8, -0.6, 0, 1.0, 0, 0, 0, 0.5, *[0] * 7]
    rng = np.random.default_rng(2)
    levels = dict.fromkeys("abcd", (0, 1))
    products = np.exp(responses(main) + 0.01 * rng.standard_normal(16))
    assert (
        box_cox(design_of(full_design(levels, products.tolist()), list(levels), "throughput")).fit == "multiplicative"
    )


@pytest.mark.parametrize(
    ("scale", "fit"),
    [(1.0, "additive"), (1e12, "additive"), (1e-12, "additive")],
)
def test_box_cox_does_not_depend_on_the_unit(table: pl.DataFrame, scale: float, fit: str) -> None:
    plain = box_cox(design_of(table, list(LEVELS), "throughput"))
    scaled = box_cox(design_of(table.with_columns(pl.col("throughput") * scale), list(LEVELS), "throughput"))
    assert (scaled.best, scaled.low, scaled.high) == pytest.approx((plain.best, plain.low, plain.high))


def test_box_cox_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = known = 0
    for seed in range(40):
        noisy = full_design(LEVELS, responses([50, 20, 5, 0, 10, 0, 0, 0]).tolist(), repetitions=3, noise=2, seed=seed)
        hint = box_cox(design_of(noisy, list(LEVELS), "throughput"), 0.8)
        if hint.low is not None and hint.high is not None:
            known += 1
            held += hint.low <= 1 <= hint.high
    # 0.8 within two and a half standard errors; with three times the degrees of freedom it would be 0.57.
    assert known >= 35
    assert 0.65 < held / known < 1


def test_box_cox_does_not_judge_where_the_likelihood_has_no_top() -> None:
    # Seed 001, figure 4: three large responses beside five small ones that hardly differ.
    levels = {"connections": (20, 40), "threads": (20, 40), "database": (0, 1)}
    figure = full_design(levels, [4810, 4791, 4695, 4609, 7511, 7443, 6687, 7684])
    found = analyse(figure, list(levels), "throughput")
    assert found.box_cox.fit == "cannot tell" and found.analysis.model == "additive"


def test_box_cox_does_not_judge_what_no_power_can_hold() -> None:
    apart = pl.DataFrame({"f": [1, 1, 1, 2, 2, 2], "y": [1e-90, 2e-90, 3e-90, 1e90, 3e90, 4e90]})
    hint = box_cox(design_of(apart, ["f"], "y"))
    assert hint.fit == "cannot tell" and "orders of magnitude" in hint.sentence


# Residuals


def checks_of(
    values: np.ndarray[Any, Any], predicted: Any = None, order: Any = None, repetitions: int = 3
) -> dict[str, str]:
    cells = np.arange(values.size) // repetitions
    predicted = cells.astype(float) if predicted is None else predicted
    return {check.question: check.verdict for check in Residuals(values, predicted, cells, order).checks}


@pytest.mark.parametrize("repetitions", [2, 4])
@pytest.mark.parametrize("randomised", [True, False], ids=["random order", "in rounds"])
def test_good_residuals_are_doubted_as_rarely_as_the_checks_say(
    repetitions: int, randomised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("knee.factorial.residuals.ROUNDS_MAX", 100)
    rng = np.random.default_rng(repetitions)
    trials, doubted = 120, {"normality": 0, "spread": 0, "run order": 0}
    for _ in range(trials):
        values = rng.standard_normal((8, repetitions))
        residuals = (values - values.mean(axis=1, keepdims=True)).ravel()
        rounds = np.arange(8 * repetitions).reshape(repetitions, 8).T.ravel()
        order = rng.permutation(residuals.size) if randomised else rounds
        for question, verdict in checks_of(residuals, None, order.astype(float), repetitions).items():
            doubted[question] += verdict == "doubtful"
    # 5 % each, and four standard errors of that. Normality is not tested with two repetitions.
    assert max(doubted.values()) / trials < 0.05 + 4 * 0.0199
    assert min(count for question, count in doubted.items() if repetitions > 2 or question != "normality") > 0


def test_a_drift_is_not_told_from_effects_where_repetitions_follow_one_another() -> None:
    # Residuals of a cell add up to zero, so d is about 2.7 here without any disturbance.
    rng = np.random.default_rng(0)
    for _ in range(5):
        values = rng.standard_normal((8, 3))
        residuals = (values - values.mean(axis=1, keepdims=True)).ravel()
        assert checks_of(residuals, order=np.arange(24.0))["run order"] == "cannot tell"


def test_too_few_arrangements_of_the_runs_say_nothing_about_drift() -> None:
    # Two cells of two runs: four arrangements, so that none is rarer than one in four.
    assert checks_of(np.array([1.0, -1, 2, -2, 0.5, -0.5]), order=np.array([0.0, 3, 1, 4, 2, 5]), repetitions=2)[
        "run order"
    ] == ("cannot tell")


def test_an_outlier_is_not_normal() -> None:
    values = np.random.default_rng(0).standard_normal(24)
    values[5] = 12
    assert checks_of(values)["normality"] == "doubtful"


def test_noise_that_grows_is_noticed() -> None:
    predicted = np.repeat(np.arange(1.0, 9.0), 3)
    values = np.random.default_rng(0).standard_normal(24) * predicted**2
    assert checks_of(values, predicted)["spread"] == "doubtful"


def test_a_drift_is_noticed_only_in_the_order_of_the_runs() -> None:
    order = np.random.default_rng(4).permutation(24).reshape(8, 3).astype(float)
    drift = (order - order.mean(axis=1, keepdims=True)).ravel()
    assert checks_of(drift, order=order.ravel())["run order"] == "doubtful"
    assert checks_of(drift)["run order"] == "cannot tell"
    other = np.random.default_rng(5).permutation(24).astype(float)
    assert checks_of(drift, order=other)["run order"] == "nothing against it"


def test_two_repetitions_say_nothing_about_normality(table: pl.DataFrame) -> None:
    two = table.filter(pl.col("repetition") < 3)
    analysis = analyse_model(design_of(two, list(LEVELS), "throughput"))
    assert analysis.residuals is not None
    assert analysis.residuals.checks[0].verdict == "cannot tell"


def test_the_order_of_runs_is_read_from_its_column(table: pl.DataFrame) -> None:
    timed = table.with_columns(run_order=pl.int_range(pl.len(), 0, -1) * 60)
    analysis = analyse_model(design_of(timed, list(LEVELS), "throughput", run_order="run_order"))
    assert analysis.residuals is not None and analysis.residuals.order is not None
    assert analysis.residuals.order.tolist() == list(range(24, 0, -1))
    with pytest.raises(DesignError, match="orders the runs"):
        design_of(timed.with_columns(run_order=None), list(LEVELS), "throughput", run_order="run_order")


# In words


def test_the_text_says_what_moved_the_response_most(table: pl.DataFrame) -> None:
    found = analyse(table, list(LEVELS), "throughput", model="additive")
    text = render_text(found)
    first = found.sentences[0]
    assert first.startswith(
        "What moved throughput most: workers. Going from 8 to 32 raises it by 2,592 ± 19 requests/s"
    )
    assert "requests/s" in first and "p < 0.0001" in first and "95%" in first
    assert "servers. Going from 1 to 3 lowers it by 7" in text
    assert "middlewares × workers" in next(s for s in found.sentences if s.startswith("Interactions that matter"))
    assert "Not significant at 95%, no different from noise: middlewares × servers × workers" in text
    assert sum(line.endswith("significant") for line in text.splitlines()) == 6


def test_every_term_has_a_row_in_the_table(table: pl.DataFrame) -> None:
    lines = render_text(analyse(table, list(LEVELS), "throughput")).splitlines()
    for term in range(1, 8):
        assert sum(line.startswith(term_name(term) + " ") for line in lines) == 1


def test_a_large_table_is_cut() -> None:
    levels = dict.fromkeys("abcdefg", (0, 1))
    noise = np.random.default_rng(0).normal(100, 1, 128).tolist()
    lines = render_text(analyse(full_design(levels, noise), list(levels), "throughput")).splitlines()
    assert lines[-1].startswith("… 63 smaller ones")


def test_the_largest_of_many_effects_is_not_called_certain_when_all_are_noise() -> None:
    levels = dict.fromkeys("abcdefg", (0, 1))
    called = 0
    for seed in range(20):
        noise = full_design(levels, [100.0] * 128, repetitions=2, noise=1, seed=seed)
        first = analyse(noise, list(levels), "throughput", model="additive").sentences[0]
        called += "no chance finding" in first
    # One in twenty is the level; without regard to the number of effects it would be nearly all.
    assert called <= 5
