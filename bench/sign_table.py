"""How long the transform of a sign table takes, beside the product with the table where that still fits.

python -m bench.sign_table
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from knee.factorial.transform import effects, sign_table

ROUNDS = 7
FACTORS = (5, 10, 15, 20)
TABLE_FACTORS_MAX = 12


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{'rows':>10}  {'transform':>12}  {'sign table':>12}   best of {ROUNDS}")
    for factors in FACTORS:
        responses = rng.normal(1e4, 1e3, 1 << factors)
        by_table = "–"
        if factors <= TABLE_FACTORS_MAX:
            signs = sign_table(factors).astype(np.float64)
            by_table = _shown(lambda signs=signs, y=responses: signs.T @ y / y.size)  # type: ignore[misc]
        print(f"{1 << factors:>10,}  {_shown(lambda y=responses: effects(y)):>12}  {by_table:>12}")  # type: ignore[misc]


def _shown(call: Callable[[], object]) -> str:
    best_s = min(_once_s(call) for _ in range(ROUNDS))
    return f"{best_s * 1e3:.3f} ms"


def _once_s(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
