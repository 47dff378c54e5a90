"""Published tables, reproduced; where one does not follow from its own data, the truth is tested and the table named.

docs/methods/ has the evidence for every deviation, in factorial.md, allocation-of-variation.md and audit.md.
`seed000_table27.csv` has a row per observation, y_mean + e as table 27 prints them; the other files in tests/data have
the tables' own rows.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from knee.data.csv import read, read_effects
from knee.factorial import (
    Analysis,
    analyse_model,
    audit_effects,
    audit_sentence,
    change,
    design_of,
    lenth_margins,
    predict,
)
from knee.factorial.transform import effects, responses, term_of

DATA = Path(__file__).parent.parent / "data"

# Seed 000, table 27: y_mean as printed, in its rows' order, which is standard order.
TABLE_27_MEANS = [3364.3, 4318.9, 2655.2, 3729.6, 5832.8, 7321.3, 4786.4, 6782.0]
TERMS_8 = ["A", "B", "C", "AB", "BC", "AC", "ABC"]


def analysis_of(
    file: str, response: str = "throughput", *, level: float = 0.95, multiplicative: bool = False
) -> Analysis:
    measured = read(DATA / file)
    design = design_of(measured.table, measured.factors, response)
    return analyse_model(design, "multiplicative" if multiplicative else "additive", level)


def q_of(analysis: Analysis) -> dict[str, float]:
    return {term.name: term.q.estimate for term in analysis.terms}


def shares_of(analysis: Analysis) -> dict[str, float]:
    return {term.name: term.share for term in analysis.terms}


def test_seed_000_table_28_effects_of_table_27() -> None:
    published = read_effects(DATA / "seed000_table28_effects.csv")["throughput"]
    q = q_of(analysis_of("seed000_table27.csv"))
    for name, value in published.items():
        # Table 27 prints the means to 0.1, so its effects are known to 0.05 at best.
        assert q[name] == pytest.approx(float(value), abs=0.05)
    assert audit_effects(TABLE_27_MEANS, published).verdict == "consistent"


def test_seed_000_table_28_to_all_printed_digits() -> None:
    # The other way round nothing is lost: the effects, to all their digits, give every mean of table 27 as printed.
    published = read_effects(DATA / "seed000_table28_effects.csv")["throughput"]
    terms = np.zeros(8)
    for name, value in published.items():
        terms[term_of(name)] = float(value)
    terms[0] = 4848.82  # not published; means from 4848.809 to 4848.822 do
    assert np.round(responses(terms), 1).tolist() == TABLE_27_MEANS
    assert effects(TABLE_27_MEANS)[0] == pytest.approx(terms[0], abs=0.05)


def test_seed_000_table_28_variation() -> None:
    analysis = analysis_of("seed000_table27.csv")
    shares = shares_of(analysis)
    true = {"A": 0.196, "B": 0.054, "C": 0.732, "AB": 0.003, "BC": 0.001, "AC": 0.014, "ABC": 0.001}
    assert {name: round(shares[name], 3) for name in TERMS_8} == pytest.approx(true)
    assert analysis.error.share == pytest.approx(0.00026, abs=5e-6)
    # The table prints 0.731 for C: its equation 3 as printed, 2² · q² beside a full SSE.
    published = {**true, "C": 0.731}
    assert {name: round(share, 3) for name, share in by_equation_3(analysis).items()} == pytest.approx(published)


def test_seed_000_table_10() -> None:
    # Multiplicative, throughput: the natural logarithm of each observation, then the mean.
    analysis = analysis_of("seed000_table27.csv", multiplicative=True)
    effects_published = {
        "A": 0.1457,
        "B": -0.0822,
        "C": 0.2832,
        "AB": 0.0264,
        "BC": 0.0137,
        "AC": -0.0017,
        "ABC": 0.0039,
    }
    q = q_of(analysis)
    assert {name: round(q[name], 4) for name in TERMS_8} == pytest.approx(effects_published)
    shares = shares_of(analysis)
    true = {"A": 0.194, "B": 0.062, "C": 0.735, "AB": 0.006, "BC": 0.002, "AC": 0.000, "ABC": 0.000}
    assert {name: round(shares[name], 3) for name in TERMS_8} == pytest.approx(true)
    assert analysis.error.share == pytest.approx(0.00054, abs=5e-6)
    # The table prints 0.733 for C, and the text 0.003 for the error: equation 3 as printed once more.
    wrong = by_equation_3(analysis)
    assert {name: round(share, 3) for name, share in wrong.items()} == pytest.approx({**true, "C": 0.733})
    assert 1 - sum(wrong.values()) == pytest.approx(0.003, abs=5e-4)


@pytest.mark.parametrize("multiplicative", [False, True])
def test_seed_000_equation_3_alone_misses_the_printed_shares(multiplicative: bool) -> None:
    shares = by_equation_3(analysis_of("seed000_table27.csv", multiplicative=multiplicative), runs=8)
    assert round(shares["C"], 3) == (0.734 if multiplicative else 0.732)


def by_equation_3(analysis: Analysis, runs: int = 4) -> dict[str, float]:
    """Shares with seed 000's equation 3 as printed, SSA = 2² · q_A², and its equation 4 for SSE."""
    squares = {term.name: runs * term.q.estimate**2 for term in analysis.terms}
    total = sum(squares.values()) + analysis.error.sum_of_squares
    return {name: square / total for name, square in squares.items()}


def test_seed_001_figures_4_and_5() -> None:
    analysis = analysis_of("seed001_figure4.csv")
    q = q_of(analysis)
    # Figure 5's totals, exactly; its last row is these over 8, truncated towards zero.
    totals = {"A": 824, "B": -880, "C": 10420, "AB": 998, "AC": 1034, "BC": -286, "ABC": 1132}
    assert {name: q[name] * 8 for name in totals} == totals
    assert analysis.mean.estimate * 8 == 48230
    published = read_effects(DATA / "seed001_figure5_effects.csv")["throughput"]
    assert {name: int(q[name]) for name in totals} == {n: int(v) for n, v in published.items() if n != "I"}
    assert int(analysis.mean.estimate) == int(published["I"])
    assert analysis.ranked[0].factors == ("database",)


def test_seed_002_table_2_response_times() -> None:
    published = read_effects(DATA / "seed002_table2_effects.csv")["response_ms"]
    analysis = analysis_of("seed002_table2.csv", "response_ms")
    q = {"I": analysis.mean.estimate, **q_of(analysis)}
    # Within a unit of the last digit; q_B and q_AB are truncated, q_CD and q_BCD are not, q_BD is neither.
    assert max(abs(q[name] - float(value)) for name, value in published.items()) < 0.01


def test_seed_002_table_3_response_times() -> None:
    shares = shares_of(analysis_of("seed002_table2.csv", "response_ms"))
    published = {"A": 0.12, "B": 77.57, "D": 17.80, "BD": 3.42, "CD": 0.07, "BCD": 0.03, "ABCD": 0.05}
    assert {name: round(100 * shares[name], 2) for name in published} == published


def test_seed_002_table_3_needs_the_corrected_row() -> None:
    published = {"A": 1.10, "B": 7.09, "D": 83.35, "BD": 2.82, "CD": 0.01, "ABCD": 1.02}
    as_printed = shares_of(analysis_of("seed002_table2.csv"))
    assert 100 * as_printed["D"] == pytest.approx(62.51, abs=0.005)
    measured = read(DATA / "seed002_table2.csv")
    last = pl.int_range(pl.len()) == pl.len() - 1
    corrected = measured.table.with_columns(throughput=pl.when(last).then(17616.0).otherwise("throughput"))
    analysis = analyse_model(design_of(corrected, measured.factors, "throughput"))
    shares = shares_of(analysis)
    for name, percent in published.items():
        assert 100 * shares[name] == pytest.approx(percent, abs=0.04)
    # The table prints 3.99 for BCD, which no reading of table 2 gives.
    assert 100 * shares["BCD"] == pytest.approx(2.99, abs=0.04)


def test_jains_memory_cache_example() -> None:
    # Jain 1991, example 17.1: 15, 45, 25, 75 MIPS.
    assert effects([15, 45, 25, 75]).tolist() == [40, 20, 10, 5]
    # Example 17.3: the variation, 2100 in all.
    table = pl.DataFrame({"memory": [4, 16, 4, 16], "cache": [1, 1, 2, 2], "mips": [15, 45, 25, 75]})
    analysis = analyse_model(design_of(table, ["memory", "cache"], "mips"))
    assert [term.sum_of_squares for term in analysis.terms] == [1600, 400, 100]
    assert analysis.total == 2100
    assert [round(100 * term.share) for term in analysis.terms] == [76, 19, 5]


def jain_18() -> Analysis:
    measured = read(DATA / "jain_example_18_1.csv", ["mips=throughput"])
    return analyse_model(design_of(measured.table, measured.factors, "throughput"), level=0.90)


def test_jains_replicated_memory_cache_example() -> None:
    analysis = jain_18()
    # Example 18.1: effects. Example 18.3: allocation of variation.
    assert analysis.mean.estimate == 41
    assert q_of(analysis) == {"A": 21.5, "B": 9.5, "AB": 5}
    assert [term.sum_of_squares for term in analysis.terms] == [5547, 1083, 300]
    assert analysis.error.sum_of_squares == 102
    assert analysis.total == 7032
    percents = [100 * term.share for term in analysis.terms]
    assert [*percents, 100 * analysis.error.share] == pytest.approx([78.88, 15.40, 4.27, 1.45], abs=0.005)
    # Example 18.4: s_e = 3.57, s_q = 1.03, t = 1.86; the book rounds s_q before multiplying.
    assert analysis.error.standard_deviation == pytest.approx(3.57, abs=0.005)
    intervals = [analysis.mean, *(term.q for term in analysis.terms)]
    book = [(39.08, 42.91), (19.58, 23.41), (7.58, 11.41), (3.08, 6.91)]
    for interval, (low, high) in zip(intervals, book, strict=True):
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.01)
    assert all(term.significant for term in analysis.terms)


def test_jains_prediction_for_the_memory_cache_example() -> None:
    # §18.6, at 4 MB and 1 kB, t[0.95; 8] = 1.860. A mean of three runs has the variance s_e²/3.
    analysis = jain_18()
    levels = {"memory_mb": 4, "cache_kb": 1}
    for observations, share in ((None, 1 / 3), (1, 1 / 3 + 1), (5, 1 / 3 + 1 / 5)):
        interval = predict(analysis, levels, observations=observations)
        assert interval.estimate == pytest.approx(15)
        assert interval.half_width == pytest.approx(1.8595 * 3.5707 * share**0.5, rel=1e-4)
    # Without the interaction the model has three parameters, each of variance s_e²/12.
    reduced = predict(analysis, levels, terms=["A", "B"])
    assert reduced.estimate == pytest.approx(41 - 21.5 - 9.5)
    assert reduced.half_width == pytest.approx(1.8595 * 3.5707 * (3 / 12) ** 0.5, rel=1e-4)


def test_jains_workstation_example_of_three_factors() -> None:
    # Jain 1991, example 17.4.
    q = effects([14, 22, 10, 34, 46, 58, 50, 86])
    assert q.tolist() == [40, 10, 5, 5, 20, 2, 3, 1]


def test_lenths_first_example() -> None:
    # Lenth 1989, example 1: the contrasts of a 2^(9−5) design of Taguchi's, s₀ = 0.45.
    contrasts = [0.13, -0.15, -0.30, -0.15, 0.40, -0.03, 0.38, 0.40, -0.05, 0.43, 0.13, 0.13, -0.38, 2.15, 3.10]
    found = lenth_margins(contrasts)
    assert found.pseudo_error == pytest.approx(0.225)
    assert sum(abs(contrast) > found.simultaneous for contrast in contrasts) == 2


def test_the_change_is_twice_the_effect() -> None:
    analysis = jain_18()
    step = change(analysis, "memory_mb")
    assert (step.before, step.after, step.by.estimate) == (4, 16, 43)
    q = analysis.term("A").q
    assert q.half_width is not None
    assert step.by.half_width == pytest.approx(2 * q.half_width)


def test_seed_002_table_2_audit_finds_the_misprint() -> None:
    measured = read(DATA / "seed002_table2.csv")
    design = design_of(measured.table, measured.factors, "throughput")
    published = read_effects(DATA / "seed002_table2_effects.csv")
    found = audit_effects(design.means(), published["throughput"])
    assert found.verdict == "one row explains it"
    assert len(found.beyond) == 16
    (row,) = found.rows
    assert row.levels == (1, 1, 1, 1) and row.printed == 12427
    assert row.implied == 17616 == sum(published["throughput"].values())
    assert (row.low, row.high) == pytest.approx((17606, 17628), abs=0.01)
    assert "row 16" in audit_sentence(found) and "12427" in audit_sentence(found) and "17616" in audit_sentence(found)
    # The mean alone implies 17604 ± 8, but that leaves q_AD at −18.6 beside −17: further off than any rounding.
    assert 14650 * 16 - (design.values.sum() - 12427) == 17604
    values = design.means()
    values[15] = 17604
    assert audit_effects(values, published["throughput"]).worst.apart == pytest.approx(1.625)
    values[15] = 17616
    assert audit_effects(values, published["throughput"]).verdict == "consistent"


def test_the_other_published_effects_pass_the_audit() -> None:
    for responses_file, effects_file, response in (
        ("seed001_figure4.csv", "seed001_figure5_effects.csv", "throughput"),
        ("seed002_table2.csv", "seed002_table2_effects.csv", "response_ms"),
    ):
        measured = read(DATA / responses_file)
        design = design_of(measured.table, measured.factors, response)
        published: dict[str, Decimal] = read_effects(DATA / effects_file)[response]
        assert audit_effects(design.means(), published).verdict == "consistent"
