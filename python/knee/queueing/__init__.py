"""Queueing models and their solvers: pure functions of numbers.

Times are in any unit, if the caller uses it throughout; rates are per that unit.

    errors       the exception tree
    arguments    checks of numeric arguments
    network      the description: stations, visits, classes
    solution     what all solutions have: points by name, tables
    routing      visits from routing probabilities
    switching    customers that change their class, as chains
    closed       exact solutions for every population
    open         exact solutions with arrivals from outside
    mixed        exact solutions with classes of both kinds
    approximate  Bard–Schweitzer and Linearizer
    bounds       asymptotic, balanced-job and geometric bounds
    group_commit commits that share the syncs of a disk
    simulate     discrete-event simulation of all of these, and of finite queues and forks
    shapes       distributions of the simulator's times
    rounds       routes of the simulator's customers: passes, forks, routing
    simulation   estimates from the simulator's replications
    cache        the hit ratio of a cache whose values have a lifetime
    single       one station: M/M/1, M/M/m, M/M/∞, M/M/m/K, M/G/1, G/G/m, M/H_2/1, Erlang, Engset
"""

from knee.queueing.approximate import ApproximateSolution, bard_schweitzer, linearizer
from knee.queueing.bounds import Bounds, ClassBounds, ClosedBounds, class_bounds, closed_bounds, throughput_bounds
from knee.queueing.cache import cache_hit_ratio
from knee.queueing.closed import (
    POPULATION_MAX,
    ClosedSolution,
    ClosedStation,
    LatticeSolution,
    solve_classes,
    solve_closed,
)
from knee.queueing.errors import ArgumentError, ConvergenceError, QueueingError, SizeError, UnstableError
from knee.queueing.group_commit import GroupCommit
from knee.queueing.mixed import solve_mixed
from knee.queueing.network import Delay, LoadDependent, Network, Queue, Station
from knee.queueing.open import OpenSolution, OpenStation, solve_open
from knee.queueing.routing import visits_from_routing
from knee.queueing.shapes import (
    Deterministic,
    Erlang,
    Exponential,
    HyperExponential,
    Lognormal,
    Quantiles,
    Samples,
    Shape,
)
from knee.queueing.simulate import simulate
from knee.queueing.simulation import Estimates, Simulation
from knee.queueing.single.erlang import engset, erlang_b, erlang_c
from knee.queueing.single.ggm import GGm
from knee.queueing.single.mg1 import MG1
from knee.queueing.single.mh21 import MH21
from knee.queueing.single.mm_infinity import MMInfinity
from knee.queueing.single.mmm import MM1, MMm
from knee.queueing.single.mmmk import MMmK
from knee.queueing.single.station import SingleStation, SolvedStation
from knee.queueing.solution import ClassSolution, NetworkPoint, Solution, StationPoint
from knee.queueing.switching import Chains

__all__ = [
    "MG1",
    "MH21",
    "MM1",
    "POPULATION_MAX",
    "ApproximateSolution",
    "ArgumentError",
    "Bounds",
    "Chains",
    "ClassBounds",
    "ClassSolution",
    "ClosedBounds",
    "ClosedSolution",
    "ClosedStation",
    "ConvergenceError",
    "Delay",
    "Deterministic",
    "Erlang",
    "Estimates",
    "Exponential",
    "GGm",
    "GroupCommit",
    "HyperExponential",
    "LatticeSolution",
    "LoadDependent",
    "Lognormal",
    "MMInfinity",
    "MMm",
    "MMmK",
    "Network",
    "NetworkPoint",
    "OpenSolution",
    "OpenStation",
    "Quantiles",
    "Queue",
    "QueueingError",
    "Samples",
    "Shape",
    "Simulation",
    "SingleStation",
    "SizeError",
    "Solution",
    "SolvedStation",
    "Station",
    "StationPoint",
    "UnstableError",
    "bard_schweitzer",
    "cache_hit_ratio",
    "class_bounds",
    "closed_bounds",
    "engset",
    "erlang_b",
    "erlang_c",
    "linearizer",
    "simulate",
    "solve_classes",
    "solve_closed",
    "solve_mixed",
    "solve_open",
    "throughput_bounds",
    "visits_from_routing",
]
