"""Operational laws: checks whether measurements are consistent, and finds the station that limits throughput. Pure.

The laws hold for any distribution (Denning & Buzen 1978), so a violation shows an error of the measurement, not of the
system. Symbols: N clients, X throughput, R response time, Z think time, Q mean queue length, W time at a station, S
service time, U utilisation, V visits, D = V S demand, m servers.

    residual     measured against predicted values, with the uncertainty of both, and the verdict
    scatter      variances estimated with the help of other points, and repetitions that differ from others
    interactive  X = N / (R + Z), for all requests and per type, as clients and middlewares measure it
    stations     Little's law, the utilisation law, the forced flow law
    flow         arrivals equal completions
    configuration  one configuration as columns of numbers
    bounds       bounds on throughput from the busiest station, and N*
    demands      D = V S, and the bottleneck
    causes       why a law may be violated
    pooled       each law over all points together, and the smallest violation that the data could show
    findings     all laws for a table
    tables       converts a run folder's windows to the input tables of the laws
    foreign      converts a foreign CSV to the same tables
    text         the results as sentences
    listing      the results as plain-text tables
"""

from knee.laws.demands import Demand, service_demands
from knee.laws.findings import LawReport, check_laws
from knee.laws.foreign import laws_of_measurements
from knee.laws.interactive import InteractiveCheck
from knee.laws.listing import render_text
from knee.laws.residual import TOLERANCE, Comparison, judge
from knee.laws.stations import STATIONS
from knee.laws.tables import laws_of_run
from knee.laws.text import capacity, outliers, sentences
from knee.queueing import throughput_bounds

__all__ = [
    "STATIONS",
    "TOLERANCE",
    "Comparison",
    "Demand",
    "InteractiveCheck",
    "LawReport",
    "capacity",
    "check_laws",
    "judge",
    "laws_of_measurements",
    "laws_of_run",
    "outliers",
    "render_text",
    "sentences",
    "service_demands",
    "throughput_bounds",
]
