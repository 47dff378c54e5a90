"""The sign table, its transform, and fractions of it."""

from __future__ import annotations

import itertools
from fractions import Fraction as Rational

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import drawn

from knee.errors import DesignError
from knee.factorial.fraction import defining_relation, detect, from_generators, full, roman
from knee.factorial.transform import effects, responses, sign_table, term_name, term_of


def exact_effects(values: list[int]) -> list[Rational]:
    """By the sign table, in rational arithmetic."""
    signs = sign_table(len(values).bit_length() - 1)
    return [
        sum((int(sign) * Rational(value) for sign, value in zip(column, values, strict=True)), Rational(0))
        / len(values)
        for column in signs.T
    ]


def test_sign_table_is_the_textbooks() -> None:
    # Jain 1991, table 17.3, columns I, A, B, AB.
    assert sign_table(2).tolist() == [[1, -1, -1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, 1, 1, 1]]


@pytest.mark.parametrize("factors", range(11))
def test_the_transform_is_the_product_with_the_sign_table(factors: int) -> None:
    rng = np.random.default_rng(factors)
    values = rng.normal(5, 2, 1 << factors)
    signs = sign_table(factors)
    np.testing.assert_allclose(effects(values), signs.T @ values / values.size, rtol=0, atol=1e-13)
    np.testing.assert_allclose(responses(values), signs @ values, rtol=0, atol=1e-11)


@given(
    st.integers(1, 6).flatmap(lambda k: st.lists(st.integers(-50, 50), min_size=1 << k, max_size=1 << k)),
    st.sampled_from([0, 10**6, 10**9, 10**12, -(10**12), 10**15]),
)
@settings(max_examples=drawn(100), deadline=None)
def test_an_offset_costs_the_effects_no_digits(values: list[int], offset: int) -> None:
    exact = exact_effects([value + offset for value in values])
    found = effects([float(value + offset) for value in values])
    # The effects are of the size of the small numbers, and so precise; only the mean has the offset's rounding.
    for one, other in zip(found[1:], exact[1:], strict=True):
        assert abs(Rational(float(one)) - other) <= Rational(1, 10**13) * 50
    assert float(found[0]) == pytest.approx(float(exact[0]), rel=1e-15)


@pytest.mark.parametrize("shape", [(0,), (3,), (6,), (2, 2)])
def test_other_than_two_level_designs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"2\^k"):
        effects(np.zeros(shape))


@given(st.integers(0, (1 << 25) - 1))
def test_terms_and_their_letters_are_the_same(term: int) -> None:
    assert term_of(term_name(term)) == term


def test_no_factor_has_the_letter_of_the_mean() -> None:
    assert [term_name(1 << bit) for bit in (0, 7, 8)] == ["A", "H", "J"]
    assert term_name(0) == "I" and term_of("I") == 0


@pytest.mark.parametrize("name", ["", "AA", "a", "A×B", "AI", "A B"])
def test_unknown_terms_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="names no term"):
        term_of(name)


def test_jains_fraction_of_seven_factors() -> None:
    # Jain 1991, §19.3: D=AB, E=AC, F=BC, G=ABC gives 2^(7−4), of resolution III.
    fraction = from_generators(7, ["D=AB", "E=AC", "F=BC", "G=ABC"])
    assert (fraction.runs, fraction.removed, fraction.resolution) == (8, 4, 3)
    assert len(fraction.relation) == 15
    assert {term_name(term) for term in fraction.aliases(term_of("A")) if term.bit_count() == 2} == {"BD", "CE", "FG"}


def test_the_half_with_the_longest_word_has_the_highest_resolution() -> None:
    # Jain 1991, §19.4: I = ABCD is better than I = ABD.
    long, short = from_generators(4, ["D=ABC"]), from_generators(4, ["D=AB"])
    assert (long.resolution, short.resolution) == (4, 3)
    assert defining_relation(long) == "I = ABCD"
    assert {term_name(term) for term in long.aliases(term_of("AB"))} == {"CD"}
    assert defining_relation(from_generators(5, ["D=AB", "E=-AC"])) == "I = ABD = −ACE = −BCDE"


def test_a_full_design_has_no_aliases() -> None:
    design = full(3)
    assert design.resolution is None and design.runs == 8
    assert design.aliases(5) == {} and design.present().all()
    assert defining_relation(design) == ""


GENERATORS = st.sampled_from(
    [
        (4, ("D=ABC",)),
        (4, ("D=-ABC",)),
        (5, ("D=AB", "E=AC")),
        (5, ("E=-ABCD",)),
        (6, ("E=ABC", "F=-BCD")),
        (7, ("D=AB", "E=AC", "F=BC", "G=-ABC")),
        (8, ("E=BCD", "F=ACD", "G=ABC", "H=ABD")),
    ]
)


@given(GENERATORS, st.data())
@settings(deadline=None)
def test_aliases_are_closed_under_the_defining_relation(
    design: tuple[int, tuple[str, ...]], data: st.DataObject
) -> None:
    fraction = from_generators(*design)
    for (word, sign), (other, of_other) in itertools.combinations(fraction.relation.items(), 2):
        assert fraction.relation[word ^ other] == sign * of_other
    term = data.draw(st.integers(1, (1 << fraction.factors) - 1))
    family = {term, *fraction.aliases(term)}
    assert len(family) == 1 << fraction.removed
    for alias in family - {term}:
        assert {alias, *fraction.aliases(alias)} == family
        # Aliases have the same column in the runs that were made, up to their sign.
    columns = sign_table(fraction.factors)[fraction.present()]
    for alias, sign in fraction.aliases(term).items():
        assert (columns[:, term] == sign * columns[:, alias]).all()


@given(GENERATORS)
@settings(deadline=None)
def test_a_fraction_is_recognised_by_its_runs(design: tuple[int, tuple[str, ...]]) -> None:
    fraction = from_generators(*design)
    present = fraction.present()
    assert present.sum() == fraction.runs
    found = detect(present)
    assert found is not None and dict(found.relation) == dict(fraction.relation)
    spoilt = present.copy()
    spoilt[[int(np.flatnonzero(present)[0]), int(np.flatnonzero(~present)[0])]] = [False, True]
    assert fraction.runs <= 2 or detect(spoilt) is None


@given(GENERATORS, st.data())
@settings(deadline=None, max_examples=drawn(30))
def test_a_fraction_estimates_the_sum_of_aliased_effects(
    design: tuple[int, tuple[str, ...]], data: st.DataObject
) -> None:
    fraction = from_generators(*design)
    size = 1 << fraction.factors
    truth = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=size, max_size=size)), dtype=np.float64)
    found = fraction.effects(responses(truth)[fraction.present()])
    for term in fraction.representatives():
        confounded = truth[term] + sum(sign * truth[alias] for alias, sign in fraction.aliases(term).items())
        assert found[term] == pytest.approx(confounded, abs=1e-9)


@pytest.mark.parametrize(
    ("generators", "message"),
    [
        (["D"], "expected a factor and a product"),
        (["D=A"], "expected a factor and a product"),
        (["D=ABD"], "given twice"),
        (["E=ABC"], "factors are A to D"),
        (["D=ABC", "D=ABC"], "follows from"),
        (["D=ABC", "C=-ABD"], "contradicts"),
    ],
)
def test_a_bad_generator_is_named(generators: list[str], message: str) -> None:
    with pytest.raises(DesignError, match=message) as error:
        from_generators(4, generators)
    assert generators[-1] in str(error.value)


def test_resolutions_are_roman() -> None:
    assert [roman(number) for number in (3, 4, 5, 6, 8, 9)] == ["III", "IV", "V", "VI", "VIII", "IX"]
