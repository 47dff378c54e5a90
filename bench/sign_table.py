"""The time of the transform of a sign table, compared with the product with the table, if the table fits the memory.

python -m bench.sign_table
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

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
            by_table = _best(partial(np.matmul, sign_table(factors).T.astype(np.float64), responses))
        print(f"{1 << factors:>10,}  {_best(partial(effects, responses)):>12}  {by_table:>12}")


def _best(call: Callable[[], object]) -> str:
    return f"{min(_once_s(call) for _ in range(ROUNDS)) * 1e3:.3f} ms"


def _once_s(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
