"""M/M/m and M/M/1: Poisson arrivals, exponential service, servers behind one queue."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from knee.queueing.single.arguments import check_count, check_customers, check_share, check_time
from knee.queueing.single.erlang import Floats, occupancy_weights
from knee.queueing.single.station import SolvedStation

#: exp(−x) is 0 for a float if x is at least this, or infinite.
NOBODY_LEFT = 1e4


@dataclass(frozen=True)
class MMm(SolvedStation):
    """m exponential servers that share an unlimited queue. Kleinrock 1975, §3.5; Jain 1991, box 31.2.

    C is Erlang's delay probability (Jain's ϱ), θ = m μ − λ.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time.
    service_rate
        μ of each server, per unit of time.
    servers
        m, from 1.

    Raises
    ------
    ArgumentError
        If a rate is not positive and finite (λ may be 0), or `servers` is not a whole number from 1.
    UnstableError
        If ρ = λ / (m μ) is 1 or more.
    """

    arrival_rate: float
    service_rate: float
    servers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("servers", self.servers, 1)
        self._idle()

    @property
    def _spare_rate(self) -> float:
        """θ, at which the queue drains while all servers are busy."""
        return self._idle() * self.servers * self.service_rate

    @cached_property
    def _probabilities(self) -> Floats:
        """p(0), …, p(m); all states from m on together are p(m) / (1 − ρ)."""
        weights = occupancy_weights(self.offered_load, self.servers, self.servers)
        probabilities: Floats = weights / (weights[:-1].sum() + weights[-1] / self._idle())
        return probabilities

    @property
    def probability_waiting(self) -> float:
        """C(m, a) = p(m) / (1 − ρ), Erlang's second formula."""
        return float(self._probabilities[-1]) / self._idle()

    def probability(self, customers: int) -> float:
        """p(n) = p(0) aⁿ / n! up to m customers, and p(m) ρⁿ⁻ᵐ beyond."""
        check_customers(customers)
        if customers <= self.servers:
            return float(self._probabilities[customers])
        return float(self._probabilities[-1] * self.utilisation ** (customers - self.servers))

    @property
    def mean_waiting(self) -> float:
        """W = C / θ."""
        return self.probability_waiting / self._spare_rate

    @property
    def variance_customers(self) -> float:
        """Var[N] = a + ρ C ((1 + ρ − ρ C) / (1 − ρ)² + m)."""
        return self.offered_load + self.variance_queue + self.offered_load * self.probability_waiting

    @property
    def variance_queue(self) -> float:
        """Var[N_q] = ρ C (1 + ρ − ρ C) / (1 − ρ)²."""
        rho = self.utilisation
        waiting = rho * self.probability_waiting
        return waiting * (1 + rho - waiting) / self._idle() ** 2

    @property
    def variance_waiting(self) -> float:
        """Var[W] = C (2 − C) / θ²."""
        return self.probability_waiting * (2 - self.probability_waiting) / self._spare_rate**2

    def waiting_tail(self, time: float) -> float:
        """P(W > t) = C exp(−θ t)."""
        check_time(time)
        return self.probability_waiting * math.exp(-self._spare_rate * time)

    def response_tail(self, time: float) -> float:
        """P(R > t) = (1 − C) exp(−μ t) + C (θ exp(−μ t) − μ exp(−θ t)) / (θ − μ).

        The code computes the second term in a form without cancellation if θ is close or equal to μ. One more server
        can make them equal.
        """
        check_time(time)
        slow, fast = sorted((self.service_rate, self._spare_rate))
        if slow * time > NOBODY_LEFT:
            return 0.0
        apart = (fast - slow) * time
        both = math.exp(-fast * time)
        both += fast * time * math.exp(-slow * time) * (-math.expm1(-apart) / apart if apart else 1.0)
        waiting = self.probability_waiting
        return (1 - waiting) * math.exp(-self.service_rate * time) + waiting * both

    def waiting_quantile(self, share: float) -> float:
        """max(0, ln(C / (1 − q)) / θ) (Jain 1991, box 31.2)."""
        check_share(share)
        if self.probability_waiting <= 1 - share:
            return 0.0
        return (math.log(self.probability_waiting) - math.log1p(-share)) / self._spare_rate


@dataclass(frozen=True)
class MM1(MMm):
    """One exponential server: C = ρ and θ = μ − λ. Kleinrock 1975, §3.2; Jain 1991, box 31.1."""

    servers: int = field(default=1, init=False)

    def response_quantile(self, share: float) -> float:
        """−ln(1 − q) / (μ − λ) (Jain 1991, box 31.1)."""
        check_share(share)
        return -math.log1p(-share) / self._spare_rate
