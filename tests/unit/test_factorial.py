"""Factorial analysis: effects of known models, with their intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from designs import LEVELS, TRUTH, full_design, noisy
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn

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
    sentences,
)
from knee.factorial.transform import responses, sign_table


@pytest.fixture
def table() -> pl.DataFrame:
    return noisy()


# Estimates


@given(st.lists(st.integers(-1000, 1000), min_size=8, max_size=8), st.integers(1, 4))
@settings(deadline=None, max_examples=drawn(40))
def test_the_effects_of_a_known_model_are_recovered(truth: list[int], repetitions: int) -> None:
    exact = full_design(LEVELS, responses([float(q) for q in truth]).tolist(), repetitions=repetitions)
    analysis = analyse_model(design_of(exact, list(LEVELS), "throughput"))
    found = [analysis.mean.estimate, *(term.q.estimate for term in analysis.terms)]
    assert found == pytest.approx(truth, abs=1e-9)
    assert analysis.error.sum_of_squares == 0


@given(st.integers(0, 2**32 - 1), st.sampled_from(["additive", "multiplicative"]), st.data())
@settings(deadline=None, max_examples=drawn(40))
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
@settings(deadline=None, max_examples=drawn(40))
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
@settings(deadline=None, max_examples=drawn(10))
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


def test_noise_alone_rarely_gives_any_significant_effect() -> None:
    rng = np.random.default_rng(0)
    levels = {"a": (1, 2, 3), "b": (1, 2)}
    design = design_of(full_design(levels, [0.0] * 6, repetitions=3), list(levels), "throughput")
    called = 0
    trials = 100
    for trial in range(trials):
        sizes = np.repeat([1.0, 1, 1, 1, 1, 10 if trial % 2 else 1], 3)
        null = replace(design, values=100 + sizes * rng.standard_normal(18))
        called += any(term.significant for term in analyse_model(null).terms)
    # 5 %, within two and a half standard errors, with equal and with unequal noise.
    assert called / trials < 0.11


def test_a_noisy_cell_widens_the_intervals_that_use_it() -> None:
    rng = np.random.default_rng(1)
    design = design_of(full_design(LEVELS, [0.0] * 8, repetitions=2), list(LEVELS), "throughput")
    covered = trials = 0
    for _ in range(150):
        noisy = replace(design, values=np.repeat([1.0] * 7 + [10], 2) * rng.standard_normal(16))
        low, high = (q := analyse_model(noisy).term("A").q).low, q.high
        covered += low is not None and high is not None and low <= 0 <= high
        trials += 1
    # 0.94; a pooled variance gives 0.81.
    assert covered / trials > 0.88


def test_one_scattering_cell_has_its_own_degrees_of_freedom() -> None:
    design = design_of(full_design(LEVELS, [0.0] * 8, repetitions=2), list(LEVELS), "throughput")
    rng = np.random.default_rng(0)
    called = covered = 0
    for _ in range(200):
        coarse = replace(design, values=np.array([100.0] * 14 + list(100 + 10 * rng.standard_normal(2))))
        analysis = analyse_model(coarse)
        assert analysis.noise.degrees == pytest.approx(1)
        called += any(term.significant for term in analysis.terms)
        low, high = (q := analysis.term("A").q).low, q.high
        covered += low is not None and high is not None and low <= 0 <= high
    # None and 96 %; with the degrees of freedom of all cells, 18 % and 72 %.
    assert called <= 10 and covered >= 186
    (note,) = analysis.notes
    assert note.startswith("The repetitions of some cells are equal, so each interval uses the variances of its own")


def test_most_cells_with_two_repetitions_are_not_pooled() -> None:
    rng = np.random.default_rng(0)
    levels = dict.fromkeys("ab", (0, 1))
    once = full_design(levels, [0.0] * 4)
    counts = [2, 2, 2, 9]
    table = once[np.repeat(np.arange(4), counts).tolist()].drop("repetition")
    design = design_of(table, list(levels), "throughput")
    for _ in range(20):
        analysis = analyse_model(replace(design, values=rng.standard_normal(15)))
        assert analysis.noise.variances.freedoms is not None


@pytest.mark.parametrize("noisy", [1, 10], ids=["equal noise", "a noisy cell"])
def test_shares_of_unequal_repetitions_end_where_their_effects_end(noisy: int) -> None:
    rng = np.random.default_rng(0)
    counts = [3, 3, 4, 12]
    table = full_design({"a": (0, 1), "b": (0, 1)}, [10.0, 40, 20, 80])[np.repeat(np.arange(4), counts).tolist()]
    sizes = np.repeat([1, 1, 1, noisy], counts)
    values = table["throughput"].to_numpy() + sizes * rng.standard_normal(22)
    design = design_of(table.drop("repetition"), ["a", "b"], "throughput")
    analysis = analyse_model(replace(design, values=values))
    assert (analysis.noise.variances.freedoms is None) == (noisy == 1)
    for term in analysis.terms:
        rest = analysis.total - term.sum_of_squares
        each = term.sum_of_squares / term.q.estimate**2
        assert term.q.low is not None and term.q.high is not None and term.share_ends is not None
        far = each * max(term.q.low**2, term.q.high**2)
        assert term.share_ends[1] == pytest.approx(far / (far + rest))


# Predictions


def test_predictions_widen_for_fewer_future_observations(table: pl.DataFrame) -> None:
    analysis = analyse_model(design_of(table, list(LEVELS), "throughput"))
    at = {"middlewares": 1, "servers": 1, "workers": 8}
    widths = [predict(analysis, at, observations=m).half_width for m in (1, 5, 1000, None)]
    assert all(width is not None for width in widths)
    assert widths == sorted(widths, reverse=True)  # type: ignore[type-var]
    cell = table.filter(pl.col("workers") == 8, pl.col("servers") == 1, pl.col("middlewares") == 1)
    assert predict(analysis, at).estimate == pytest.approx(cell["throughput"].mean())


def test_prediction_names_unknown_levels(table: pl.DataFrame) -> None:
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


def test_largest_change_allows_for_having_been_picked() -> None:
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


def test_change_of_equal_means_spans_first_to_last_level() -> None:
    same = pl.DataFrame({"f": ["a", "b", "c"] * 2, "y": [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]})
    step = change(analyse_model(design_of(same, ["f"], "y")), "f")
    assert (step.before, step.after, step.by.estimate) == ("a", "c", 0)


def test_overflowing_interval_is_open() -> None:
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


@pytest.mark.parametrize("effects", [7, 31, 127])
def test_lenths_margins_hold_their_level_on_pure_noise(effects: int) -> None:
    rng = np.random.default_rng(0)
    trials, beyond, any_beyond = 1000, 0, 0
    for _ in range(trials):
        noise = rng.standard_normal(effects)
        margins = lenth_margins(noise.tolist())
        beyond += int(np.count_nonzero(np.abs(noise) > margins.margin))
        any_beyond += bool((np.abs(noise) > margins.simultaneous).any())
    # 5 %, within three standard errors. Lenth's t quantiles give 2 % and 1 % of seven effects.
    assert 0.03 < beyond / trials / effects < 0.07
    assert 0.03 < any_beyond / trials < 0.07


def test_noise_without_repetitions_rarely_gives_any_significant_effect() -> None:
    levels = dict.fromkeys("abcd", (0, 1))
    design = design_of(full_design(levels, [0.0] * 16), list(levels), "throughput")
    rng = np.random.default_rng(0)
    called = sum(
        any(term.significant for term in analyse_model(replace(design, values=rng.standard_normal(16))).terms)
        for _ in range(200)
    )
    # 5 %, within three standard errors; by the margin of a single effect it would be 38 %.
    assert 1 <= called <= 19


def test_the_first_of_two_equal_effects_without_repetitions_rarely_leads() -> None:
    levels = dict.fromkeys("abc", (0, 1))
    means = responses([100.0, 5, 5, 0, 0, 0, 0, 0]).tolist()
    design = design_of(full_design(levels, means), list(levels), "throughput")
    rng = np.random.default_rng(0)
    called = sum(
        bool(analyse_model(replace(design, values=design.values + rng.standard_normal(8))).leads) for _ in range(400)
    )
    # 5 %, within three standard errors; by √2 times the margin of a single effect it would be 9 %.
    assert 8 <= called <= 33


def test_too_few_effects_without_repetitions_cannot_be_judged() -> None:
    two = full_design({"a": (0, 1), "b": (0, 1)}, [15, 45, 25, 75])
    found = analyse(two, ["a", "b"], "throughput")
    assert {term.significant for term in found.analysis.terms} == {None}
    assert any("the noise is unknown" in note for note in found.analysis.notes)
    assert "significance is unknown" in sentences(found)[0]


def test_highest_interaction_stands_for_the_error() -> None:
    # Jain 1991, ch. 21: a two-factor design without repetitions, its interactions taken for errors.
    levels = {"cache": ["two", "one", "none"], "workload": ["asm", "tecf", "diff"]}
    data = full_design(levels, [54.0, 55.0, 106.0, 60.0, 60.0, 123.0, 43.0, 43.0, 120.0])
    analysis = analyse_model(design_of(data, list(levels), "throughput"))
    assert [term.name for term in analysis.terms] == ["A", "B"]
    assert (analysis.error.source, analysis.error.degrees) == ("highest interaction", 4)
    assert any("interaction of all factors serves as the error estimate" in note for note in analysis.notes)


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


def test_factors_changed_together_are_refused() -> None:
    pairs = pl.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "c": [0, 1, 0, 1], "y": [1.0, 2, 3, 4]})
    with pytest.raises(DesignError, match="factors b and c always change together"):
        design_of(pairs, ["a", "b", "c"], "y")


def test_fifteen_factors_are_screened_in_sixteen_runs() -> None:
    # Box, Hunter & Hunter 1978, ch. 13: the saturated fraction 2^(15−11).
    signs = sign_table(4)
    names = [f"f{number}" for number in range(15)]
    columns = [1, 2, 4, 8, *(term for term in range(1, 16) if term.bit_count() > 1)]
    runs = pl.DataFrame({name: signs[:, column] for name, column in zip(names, columns, strict=True)})
    response = runs.select(throughput=100.0 + 10 * pl.col("f2") - 4 * pl.col("f11"))
    found = analyse(runs.with_columns(response["throughput"]), names, "throughput")
    assert found.analysis.design.label == "2^(15−11) fractional factorial design"
    assert [term.factors for term in found.analysis.terms] == [(name,) for name in names]
    assert {term.name: round(term.q.estimate, 9) for term in found.analysis.ranked[:2]} == {"C": 10.0, "M": -4.0}
    text = render_text(found)
    assert "resolution III" in text and "and 2,032 more words: each estimate" in text
    assert "No interaction" not in text
    assert max(map(len, text.splitlines())) < 700
