"""M/M/1: Poisson arrivals, exponential service, one server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from knee.queueing.single.arguments import check_arrivals, check_customers, check_rate, check_share, check_time
from knee.queueing.single.station import SolvedStation


@dataclass(frozen=True)
class MM1(SolvedStation):
    """One exponential server. Kleinrock 1975, §3.2; Jain 1991, box 31.1.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time.
    service_rate
        μ, per unit of time.

    Raises
    ------
    ArgumentError
        If a rate is not positive and finite (λ may be 0).
    UnstableError
        If ρ = λ / μ is 1 or more.
    """

    arrival_rate: float
    service_rate: float
    servers: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        check_arrivals("arrival_rate", self.arrival_rate)
        check_rate("service_rate", self.service_rate)
        self._idle()

    @property
    def _service(self) -> Fraction:
        return 1 / Fraction(self.service_rate)

    @property
    def probability_waiting(self) -> float:
        """ρ: Poisson arrivals see time averages (Wolff 1982)."""
        return self.utilisation

    def probability(self, customers: int) -> float:
        """p(n) = (1 − ρ) ρⁿ."""
        check_customers(customers)
        return float(self._idle() * self.utilisation**customers)

    @property
    def mean_waiting(self) -> float:
        """W = ρ / (μ − λ)."""
        return self.utilisation * self.service_time / self._idle()

    @property
    def variance_customers(self) -> float:
        """Var[N] = ρ / (1 − ρ)²."""
        return self.utilisation / self._idle() ** 2

    @property
    def variance_queue(self) -> float:
        """Var[N_q] = ρ² (1 + ρ − ρ²) / (1 − ρ)²."""
        rho = self.utilisation
        return rho**2 * (1 + rho - rho**2) / self._idle() ** 2

    @property
    def variance_waiting(self) -> float:
        """Var[W] = ρ (2 − ρ) / (μ − λ)²."""
        rho = self.utilisation
        return rho * (2 - rho) * (self.service_time / self._idle()) ** 2

    def waiting_tail(self, time: float) -> float:
        """P(W > t) = ρ exp(−(μ − λ) t)."""
        return self.utilisation * self.response_tail(time)

    def response_tail(self, time: float) -> float:
        """P(R > t) = exp(−(μ − λ) t)."""
        check_time(time)
        return math.exp(-self._idle() * self.service_rate * time)

    def waiting_quantile(self, share: float) -> float:
        """max(0, ln(ρ / (1 − q)) / (μ − λ)) (Jain 1991, box 31.1)."""
        check_share(share)
        if self.utilisation <= 1 - share:
            return 0.0
        return max(0.0, (math.log(self.utilisation) - math.log1p(-share)) * self.service_time / self._idle())

    def response_quantile(self, share: float) -> float:
        """−ln(1 − q) / (μ − λ) (Jain 1991, box 31.1)."""
        check_share(share)
        return -math.log1p(-share) * self.service_time / self._idle()
