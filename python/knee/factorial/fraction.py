"""Regular fractions of a 2^k design: defining relation, aliases, resolution (Box & Hunter 1961; Jain 1991, ch. 19).

A word is a set of factors whose product of signs is the same in every run, for example I = ABCD. The words and their
products form the defining relation. Two terms whose product is a word are confounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from knee.errors import DesignError
from knee.factorial.transform import LETTERS, Floats, effects, term_name, term_of

FACTORS_MAX = 20
"""Largest k of a 2^k design: the transform of its sign table takes milliseconds."""

_WORDS_MAX = 15
"""Largest number of words in a printed defining relation (p = 4)."""

_GENERATOR = re.compile(r"([A-Z])=([+-]?)([A-Z]{2,})")


@dataclass(frozen=True)
class Fraction:
    """A regular fraction 2^(k−p) of a 2^k design; without words, the full design.

    factors   k
    relation  the sign of every word of the defining relation, by its bits; 2^p − 1 of them
    """

    factors: int
    relation: Mapping[int, int]

    @property
    def removed(self) -> int:
        """p: the design is one of 2^p equal parts of the full one."""
        return len(self.relation).bit_length()

    @property
    def runs(self) -> int:
        """2^(k−p), the number of different runs."""
        return 1 << (self.factors - self.removed)

    @property
    def resolution(self) -> int | None:
        """Letters of the shortest word; None for a full design.

        III confuses main effects with two-factor interactions, IV confuses two-factor interactions, V confuses neither.
        """
        return min((word.bit_count() for word in self.relation), default=None)

    def aliases(self, term: int) -> dict[int, int]:
        """The terms that are confounded with this one, with their signs; without the term itself."""
        return {term ^ word: sign for word, sign in sorted(self.relation.items())}

    def representatives(self) -> list[int]:
        """The term with the fewest factors of each set of aliases, in Yates' order, which also decides ties. The first
        is the mean.
        """
        terms = np.arange(1 << self.factors)
        by_size = terms[np.argsort(np.bitwise_count(terms), kind="stable")]
        # Aliases become equal if products with words remove every generator's own factor from them.
        reduced = by_size.copy()
        for word in self._generators:
            reduced ^= word * (reduced >> (word.bit_length() - 1) & 1)
        first = np.unique(reduced, return_index=True)[1]
        return sorted(by_size[first].tolist())

    def present(self) -> npt.NDArray[np.bool_]:
        """Which rows of the full design, in standard order, belong to the fraction."""
        rows = np.arange(1 << self.factors)
        chosen = np.ones(rows.size, dtype=np.bool_)
        for word in self._generators:
            lows = np.bitwise_count(~rows & word)
            chosen &= 1 - 2 * (lows & 1).astype(np.int64) == self.relation[word]
        return chosen

    @cached_property
    def _generators(self) -> tuple[int, ...]:
        """p words that generate all others; each has a last factor that no other word contains."""
        found: list[int] = []
        for word in sorted(self.relation):
            for known in found:
                word = min(word, word ^ known)
            if word:
                pivot = word.bit_length() - 1
                found = [*(known ^ word if known >> pivot & 1 else known for known in found), word]
        return tuple(found)

    def effects(self, responses: Floats) -> Floats:
        """Every term's effect from one response per run of the fraction, in the standard order of the full design.

        Aliased terms get the same value, up to their sign. Missing runs get the mean of the others, which does not
        change the effects.
        """
        mean = float(responses.mean())
        full = np.zeros(1 << self.factors)
        full[self.present()] = responses - mean
        found = effects(full) * (1 << self.removed)
        found[0] += mean
        for word, sign in self.relation.items():
            found[word] = sign * found[0]
        return found


def full(factors: int) -> Fraction:
    return Fraction(factors, {})


def from_generators(factors: int, generators: Sequence[str]) -> Fraction:
    """The fraction whose added factors have the signs of products of others: `["D=ABC", "E=-AB"]`.

    Raises DesignError for a generator that is not an equation of letters, names an unknown factor, or does not halve
    the design.
    """
    if not 1 <= factors <= FACTORS_MAX:
        raise DesignError(f"{factors} factors: expected 1 to {FACTORS_MAX}")
    relation: dict[int, int] = {}
    for text in generators:
        match = _GENERATOR.fullmatch(text.replace(" ", "").replace("−", "-"))
        if match is None:
            raise DesignError(f"generator {text!r}: expected a factor and a product of others, such as D=ABC or E=-AB")
        added, minus, product = match.groups()
        try:
            word = term_of(added + product)
        except ValueError as error:
            raise DesignError(f"generator {text!r}: a factor is given twice") from error
        if word >> factors:
            raise DesignError(f"generator {text!r}: the design's factors are A to {LETTERS[factors - 1]}")
        if word in relation:
            raise DesignError(f"generator {text!r}: follows from earlier generators, or contradicts them")
        sign = -1 if minus else 1
        relation |= {word: sign} | {word ^ known: sign * of_known for known, of_known in relation.items()}
    return Fraction(factors, relation)


def detect(present: npt.NDArray[np.bool_]) -> Fraction | None:
    """The regular fraction that consists of these rows of the full design; None if they do not form one.

    The spectrum of the rows' indicator shows it: every run has the same sign at a word, so the word's effect equals the
    indicator's mean. A regular fraction has 2^p − 1 such words and no other effects.
    """
    factors = present.size.bit_length() - 1
    runs = int(present.sum())
    if runs == 0 or runs & (runs - 1):
        return None
    spectrum = np.rint(effects(present.astype(np.float64)) * present.size).astype(np.int64)
    words = np.flatnonzero(np.abs(spectrum) == runs)
    if words.size * runs != present.size:
        return None
    return Fraction(factors, {int(word): int(np.sign(spectrum[word])) for word in words if word})


def defining_relation(fraction: Fraction) -> str:
    """I = ABCD = −ABE = …, the shortest words first; the empty text for a full design."""
    words = sorted(fraction.relation.items(), key=lambda item: (item[0].bit_count(), item[0]))
    named = [signed_name(word, sign) for word, sign in words[:_WORDS_MAX]]
    more = f" and {len(words) - _WORDS_MAX:,} more words" if len(words) > _WORDS_MAX else ""
    return " = ".join(["I", *named]) + more if words else ""


def signed_name(term: int, sign: int) -> str:
    """A term's letters, with a minus sign if negative."""
    return ("−" if sign < 0 else "") + term_name(term)


def roman(resolution: int) -> str:
    """A resolution as a Roman numeral: III, IV, V, …."""
    numerals = ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
    text = ""
    for value, numeral in numerals:
        while resolution >= value:
            text += numeral
            resolution -= value
    return text
