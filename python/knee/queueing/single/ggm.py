"""G/G/m by Allen and Cunneen's approximation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from knee.queueing.single.arguments import check_count, check_scv
from knee.queueing.single.mmm import MMm
from knee.queueing.single.station import SingleStation


@dataclass(frozen=True)
class GGm(SingleStation):
    """An approximation of m servers with any arrivals and service times, from their first two moments.

    Exact for M/M/m and M/G/1. It uses the exact delay probability of M/M/m instead of the estimate in the sources
    (Allen 1990, ch. 5; Bolch et al. 2006, ch. 6). docs/methods/single-stations.md gives its errors.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time.
    service_rate
        μ = 1 / S of each server, per unit of time.
    servers
        m, from 1.
    arrival_scv
        c_a² of the times between arrivals: 1 for a Poisson process.
    service_scv
        c² of the service times.

    Raises
    ------
    ArgumentError
        If an argument is invalid; the error names it.
    UnstableError
        If ρ = λ / (m μ) is 1 or more.
    """

    arrival_rate: float
    service_rate: float
    servers: int
    arrival_scv: float
    service_scv: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("servers", self.servers, 1)
        check_scv("arrival_scv", self.arrival_scv)
        check_scv("service_scv", self.service_scv)
        self._idle()

    @property
    def probability_waiting(self) -> float:
        """C(m, a) of M/M/m; the approximation assumes it for any variation."""
        return self._exponential.probability_waiting

    @property
    def mean_waiting(self) -> float:
        """W ≈ C / (m μ (1 − ρ)) · (c_a² + c²) / 2."""
        return self._exponential.mean_waiting * (self.arrival_scv + self.service_scv) / 2

    @cached_property
    def _exponential(self) -> MMm:
        return MMm(self.arrival_rate, self.service_rate, self.servers)
