"""Single stations: one queue, one or more servers. Pure; formulas in docs/methods/single-stations.md.

station      the results that every model has
line         times of customers behind others, first come, first served
mm1, mmm, mm_infinity, mmmk, mg1, ggm, mh21
             a model each, by Kendall's notation
erlang       delay and loss probabilities
arguments    checks of arguments
"""

from knee.queueing.single.erlang import engset, erlang_b, erlang_c
from knee.queueing.single.ggm import GGm
from knee.queueing.single.mg1 import MG1
from knee.queueing.single.mh21 import MH21
from knee.queueing.single.mm1 import MM1
from knee.queueing.single.mm_infinity import MMInfinity
from knee.queueing.single.mmm import MMm
from knee.queueing.single.mmmk import MMmK
from knee.queueing.single.station import SingleStation, SolvedStation

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
    "engset",
    "erlang_b",
    "erlang_c",
]
