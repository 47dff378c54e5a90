"""M/M/∞: a delay centre with a server for every customer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from knee.queueing.errors import ArgumentError
from knee.queueing.single.arguments import STATES_MAX, check_customers, check_share, check_time
from knee.queueing.single.erlang import Floats, occupancy_weights
from knee.queueing.single.station import SolvedStation


@dataclass(frozen=True)
class MMInfinity(SolvedStation):
    """Infinitely many exponential servers: no customer waits. Kleinrock 1975, §3.4; Jain 1991, ch. 31.

    The number of customers and all means hold for any service time with the same mean (M/G/∞). Quantiles of the
    response time hold for exponential service only.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time.
    service_rate
        μ of each server, per unit of time; λ / μ at most STATES_MAX.

    Raises
    ------
    ArgumentError
        If a rate is not positive and finite (λ may be 0).
    """

    arrival_rate: float
    service_rate: float
    servers: float = field(default=math.inf, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arrival_rate / self.service_rate > STATES_MAX:
            raise ArgumentError("arrival_rate", f"expected at most {STATES_MAX:,} times the service rate")

    @cached_property
    def _probabilities(self) -> Floats:
        # Sixty standard deviations and a thousand customers above the mean, less than the least float is left.
        most = math.ceil(self.offered_load + 60 * math.sqrt(self.offered_load)) + 1000
        weights = occupancy_weights(self.offered_load, most, most)
        probabilities: Floats = weights / weights.sum()
        return probabilities

    @property
    def probability_waiting(self) -> float:
        return 0.0

    def probability(self, customers: int) -> float:
        """p(n) = exp(−a) aⁿ / n!."""
        check_customers(customers)
        return float(self._probabilities[customers]) if customers < self._probabilities.size else 0.0

    @property
    def mean_waiting(self) -> float:
        return 0.0

    @property
    def variance_customers(self) -> float:
        """Var[N] = a."""
        return self.offered_load

    @property
    def variance_queue(self) -> float:
        return 0.0

    @property
    def variance_waiting(self) -> float:
        return 0.0

    def waiting_tail(self, time: float) -> float:
        check_time(time)
        return 0.0

    def response_tail(self, time: float) -> float:
        """P(R > t) = exp(−μ t)."""
        check_time(time)
        return math.exp(-self.service_rate * time)

    def response_quantile(self, share: float) -> float:
        """−ln(1 − q) / μ."""
        check_share(share)
        return -math.log1p(-share) * self.service_time
