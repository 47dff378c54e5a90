"""Queueing models and their solvers: pure functions of numbers.

Times are in any one unit that the caller keeps to, and rates are per that unit.

    errors       the exception tree
    single       one station: M/M/1, M/M/m, M/M/∞, M/M/m/K, M/G/1, G/G/m, M/H_2/1
"""

from knee.queueing.single import (
    MG1,
    MH21,
    MM1,
    GGm,
    MMInfinity,
    MMm,
    MMmK,
    SingleStation,
    SolvedStation,
    erlang_b,
    erlang_c,
)

__all__ = [
    "MG1",
    "MH21",
    "MM1",
    "GGm",
    "MMInfinity",
    "MMm",
    "MMmK",
    "SingleStation",
    "SolvedStation",
    "erlang_b",
    "erlang_c",
]
