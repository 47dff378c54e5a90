"""Factorial findings in words."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from designs import LEVELS, TRUTH, full_design, noisy
from soak import SOAK

from knee.factorial import analyse, analyse_model, design_of, from_generators, render_text, sentences
from knee.factorial.transform import responses, term_name


@pytest.fixture
def table() -> pl.DataFrame:
    return noisy()


def test_text_names_the_largest_effect(table: pl.DataFrame) -> None:
    found = analyse(table, list(LEVELS), "throughput", model="additive")
    text = render_text(found)
    first = sentences(found)[0]
    assert first.startswith(
        "Largest effect on throughput: workers. Going from 8 to 32 raises throughput by 2,592 ± 19 requests/s"
    )
    assert "requests/s" in first and "p < 0.0001" in first and "95%" in first
    assert "servers. Going from 1 to 3 lowers throughput by 7" in text
    assert "middlewares × workers" in next(s for s in sentences(found) if s.startswith("Interactions that matter"))
    assert "Not significant at 95%: middlewares × servers × workers" in text
    assert sum(line.endswith("significant") for line in text.splitlines()) == 6


def test_every_term_has_a_row_in_the_table(table: pl.DataFrame) -> None:
    lines = render_text(analyse(table, list(LEVELS), "throughput")).splitlines()
    for term in range(1, 8):
        assert sum(line.startswith(term_name(term) + " ") for line in lines) == 1


def test_a_large_table_is_cut() -> None:
    levels = dict.fromkeys("abcdefg", (0, 1))
    noise = np.random.default_rng(0).normal(100, 1, 128).tolist()
    lines = render_text(analyse(full_design(levels, noise), list(levels), "throughput")).splitlines()
    assert lines[-1].startswith("… 63 smaller effects")


def test_largest_of_many_noise_effects_is_not_certain() -> None:
    levels = dict.fromkeys("abcdefg", (0, 1))
    called = 0
    seeds = 20 if SOAK else 4
    for seed in range(seeds):
        noise = full_design(levels, [100.0] * 128, repetitions=2, noise=1, seed=seed)
        first = sentences(analyse(noise, list(levels), "throughput", model="additive"))[0]
        called += "Chance hardly explains" in first
    # One in twenty is the level; without regard to the number of effects it would be nearly all.
    assert called <= seeds // 4


def test_the_first_of_two_equal_effects_is_not_called_the_larger_one() -> None:
    called = certain = 0
    for seed in range(100):
        pair = full_design(
            LEVELS, responses([100.0, 10, 10, 0, 0, 0, 0, 0]).tolist(), repetitions=3, noise=5, seed=seed
        )
        called += bool(analyse_model(design_of(pair, list(LEVELS), "throughput")).leads)
        far = full_design(LEVELS, responses([100.0, 20, 5, 0, 0, 0, 0, 0]).tolist(), repetitions=3, noise=5, seed=seed)
        certain += bool(analyse_model(design_of(far, list(LEVELS), "throughput")).leads)
    # 5 %, within three standard errors; 15 beside a margin of about 3 is always found.
    assert called <= 11 and certain == 100


def test_largest_effect_says_whether_it_leads_by_chance() -> None:
    pair = full_design(LEVELS, responses([100.0, 10, 10, 0, 0, 0, 0, 0]).tolist(), repetitions=3, noise=1, seed=2)
    first = sentences(analyse(pair, list(LEVELS), "throughput"))[0]
    assert (
        "Chance hardly explains this effect" in first
        and "Cannot tell whether this effect is larger than the next" in first
    )
    noise = full_design(LEVELS, [100.0] * 8, repetitions=3, noise=1, seed=1)
    assert sentences(analyse(noise, list(LEVELS), "throughput"))[0].startswith("No factor surely changed throughput")


def test_unequal_noise_of_the_cells_is_named_and_allowed_for() -> None:
    rng = np.random.default_rng(0)
    growing = full_design(LEVELS, responses([100.0, 40, 30, 0, 20, 0, 0, 0]).tolist(), repetitions=4).with_columns(
        throughput=pl.col("throughput") * (1 + 0.05 * rng.standard_normal(32))
    )
    found = analyse(growing, list(LEVELS), "throughput", model="additive")
    assert "which is doubtful" not in sentences(found)[0]
    assert any("noisier than others (Bartlett's test" in note for note in found.analysis.notes)
    half_widths = [cell.mean.half_width or 0.0 for cell in found.analysis.cells]
    assert max(half_widths) > 2 * min(half_widths)


def test_drift_is_a_doubt_of_the_first_finding_only(table: pl.DataFrame) -> None:
    order = np.random.default_rng(4).permutation(24)
    drifting = table.with_columns(run_order=pl.Series(order), throughput=pl.col("throughput") + 20 * pl.Series(order))
    found = analyse(drifting, list(LEVELS), "throughput", model="additive", run_order="run_order")
    first, *others = sentences(found)
    assert "; p and intervals assume no drift over time, which is doubtful)" in first
    assert any(sentence.startswith("Next effect:") for sentence in others)
    assert not any("which is doubtful" in sentence for sentence in others)


@pytest.mark.parametrize(
    ("interaction", "said"),
    [
        (3, "No significant interaction explains 1%"),
        (9, "Interactions that may explain as much: middlewares × servers ("),
        (25, "Interactions that matter: middlewares × servers ("),
    ],
)
def test_interactions_matter_from_one_per_cent(interaction: float, said: str) -> None:
    means = responses([1000.0, 0, 0, interaction, 100, 0, 0, 0]).tolist()
    found = analyse(
        full_design(LEVELS, means, repetitions=9, noise=10, seed=1), list(LEVELS), "throughput", model="additive"
    )
    text = " ".join(sentences(found))
    assert said in text
    assert ("No significant interaction explains 1%" in text) == (interaction < 25)


def test_effects_without_any_noise_are_not_called_certain() -> None:
    levels = {"cache": ["a", "b", "c"], "workload": ["x", "y"]}
    additive = analyse(full_design(levels, [54.0, 55, 106, 60, 61, 112]), list(levels), "throughput")
    assert additive.analysis.error.standard_deviation is None
    # The only interaction was to stand in for the error, so nothing is said of interactions.
    assert "No interaction" not in render_text(additive)
    assert "significance is unknown" in sentences(additive)[0]
    assert any("the noise is unknown" in note for note in additive.analysis.notes)
    copies = analyse(full_design(LEVELS, responses(TRUTH).tolist(), repetitions=2), list(LEVELS), "throughput")
    assert "significance is unknown" in sentences(copies)[0]
    assert "Holm" not in render_text(copies)


def test_rounding_is_no_effect_to_lenths_method() -> None:
    # 0.1 and 0.3 are no binary fractions: all but one effect are rounding.
    found = analyse(full_design(LEVELS, [0.1, 0.3, 0.1, 0.3, 0.7 - 0.6, 0.3, 0.1, 0.3]), list(LEVELS), "throughput")
    assert [term.name for term in found.analysis.terms if term.significant] == ["A"]
    assert any("finds no noise" in sentence for sentence in sentences(found))


def test_fraction_names_aliases() -> None:
    fraction = from_generators(3, ["C=AB"])
    truth = [100.0, 10, 2, 0, 1, 0, 0, 0]
    third = full_design(LEVELS, responses(truth).tolist(), repetitions=3, noise=0.1).filter(
        pl.Series(np.repeat(fraction.present(), 3))
    )
    first = sentences(analyse(third, list(LEVELS), "throughput"))[0]
    assert "middlewares (or servers × workers: this fraction cannot distinguish them)" in first


def test_a_level_is_not_rounded_to_certainty(table: pl.DataFrame) -> None:
    text = render_text(analyse(table, list(LEVELS), "throughput", level=0.9999))
    assert "99.99%" in text and "100%" not in text
