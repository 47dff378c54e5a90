"""The sign table of a 2^k design, and the fast transform that replaces it.

Rows and terms are numbered by bits, bit 0 for the first factor (Yates' standard order: the first factor varies
fastest). In a row, a set bit is a factor at its high level, +1; in a term, it is a factor of the term. So row 5 has A
and C high, and term 5 is AC.
"""

from __future__ import annotations

import string

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_RADIX_BITS = 4
"""Factors per pass over the array: a butterfly of 16 points is a small matrix product, and five passes cover 2^20
rows."""

_COLUMNS_MAX = 512
"""Largest number of columns of a product: for larger products, the linear algebra library starts threads, which cost
more time than they save."""

LETTERS = string.ascii_uppercase.replace("I", "")
"""Factors are A, B, C, … in formulas and tables, as in Jain (1991); I is the mean and no factor."""


def sign_table(factors: int) -> npt.NDArray[np.int64]:
    """The signs of every term in every row of a full design, shape (2^k rows, 2^k terms); term 0 is the mean."""
    rows = np.arange(1 << factors)
    lows = np.bitwise_count(~rows[:, None] & rows[None, :])
    return np.asarray(1 - 2 * (lows & 1).astype(np.int64))


def effects(responses: npt.ArrayLike) -> Floats:
    """Effects q of a full 2^k design: q = Sᵀ y / 2^k, in O(k · 2^k) (Yates 1937; Good 1958).

    The transform first subtracts a number near the mean from the responses. This subtraction is nearly exact (Sterbenz'
    lemma), so a common offset does not cost digits of the effects.

    `responses`: one per row in standard order: 2^k finite numbers.

    Returns
    -------
    q in the order of the terms' bits; q[0] is the grand mean.
    """
    values = np.asarray(responses, dtype=np.float64)
    _check_length(values)
    centre = float(values.mean())
    found = _butterflies(values - centre, transposed=True)
    found /= values.size
    found[0] += centre
    return found


def responses(terms: npt.ArrayLike) -> Floats:
    """The inverse of :func:`effects`: the predictions of a full model with these effects in every row, y = S q."""
    values = np.array(terms, dtype=np.float64)
    _check_length(values)
    mean = float(values[0])
    values[0] = 0.0
    found = _butterflies(values, transposed=False)
    found += mean
    return found


def _check_length(values: Floats) -> None:
    if values.ndim != 1 or values.size == 0 or values.size & (values.size - 1):
        raise ValueError(f"expected 2^k values in one dimension, not shape {values.shape}")


def _butterflies(values: Floats, *, transposed: bool) -> Floats:
    """The product with the sign table, or with its transpose, as a Kronecker product of small ones.

    `values` is overwritten: the passes alternate between it and one spare array.
    """
    factors = values.size.bit_length() - 1
    spare = np.empty_like(values)
    for done in range(0, factors, _RADIX_BITS):
        bits = min(_RADIX_BITS, factors - done)
        table = sign_table(bits).astype(np.float64)
        kernel = table.T if transposed else table
        if done == 0:  # tall products instead of many with a single column
            rows = min(_COLUMNS_MAX, values.size >> bits)
            shape: tuple[int, ...] = (-1, rows, 1 << bits)
            np.matmul(values.reshape(shape), kernel.T, out=spare.reshape(shape))
        else:
            columns = min(_COLUMNS_MAX, 1 << done)
            shape = (-1, 1 << bits, (1 << done) // columns, columns)
            np.matmul(kernel, values.reshape(shape).swapaxes(1, 2), out=spare.reshape(shape).swapaxes(1, 2))
        values, spare = spare, values
    return values


def term_name(term: int) -> str:
    """The letters of a term, AC for 5; I for the mean."""
    return "".join(LETTERS[bit] for bit in range(term.bit_length()) if term >> bit & 1) or "I"


def term_of(name: str) -> int:
    """The bits of a term from its letters, in any order; I is the mean.

    Raises ValueError for anything but distinct capital letters.
    """
    if name == "I":
        return 0
    if not name or len(set(name)) < len(name) or not set(name) <= set(LETTERS):
        raise ValueError(f"{name!r} names no term: expected letters of factors, such as AB, or I for the mean")
    return sum(1 << LETTERS.index(letter) for letter in name)
