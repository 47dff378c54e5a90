"""Queueing models and their solvers: pure functions of numbers.

Times are in any one unit that the caller keeps to, and rates are per that unit.

    errors       the exception tree
    network      the description: stations, visits, classes
    routing      visits from where customers go next
    closed       exact solutions for every population
    single       one station: M/M/1, M/M/m, M/M/∞, M/M/m/K, M/G/1, G/G/m, M/H_2/1
"""

from knee.queueing.closed import POPULATION_MAX, ClosedSolution, LatticeSolution, solve_classes, solve_closed
from knee.queueing.errors import ArgumentError, ConvergenceError, QueueingError, SizeError, UnstableError
from knee.queueing.network import Delay, LoadDependent, Network, Queue, Station
from knee.queueing.routing import visits_from_routing
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
    "POPULATION_MAX",
    "ArgumentError",
    "ClosedSolution",
    "ConvergenceError",
    "Delay",
    "GGm",
    "LatticeSolution",
    "LoadDependent",
    "MMInfinity",
    "MMm",
    "MMmK",
    "Network",
    "Queue",
    "QueueingError",
    "SingleStation",
    "SizeError",
    "SolvedStation",
    "Station",
    "UnstableError",
    "erlang_b",
    "erlang_c",
    "solve_classes",
    "solve_closed",
    "visits_from_routing",
]
