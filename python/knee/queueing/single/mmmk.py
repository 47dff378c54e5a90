"""M/M/m/K: m exponential servers, and at most K customers; arrivals at a full station are lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from knee.queueing.errors import ArgumentError
from knee.queueing.single.arguments import STATES_MAX, check_count, check_customers, check_time
from knee.queueing.single.erlang import Floats, occupancy_weights
from knee.queueing.single.line import Line
from knee.queueing.single.station import SolvedStation


@dataclass(frozen=True)
class MMmK(SolvedStation):
    """m exponential servers and K − m places to wait. Kleinrock 1975, §3.6 and 3.7; Jain 1991, ch. 31.

    The station is stable at any arrival rate. Waiting and response times are those of admitted customers.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time, lost customers included.
    service_rate
        μ of each server, per unit of time.
    servers
        m, from 1.
    capacity
        K, largest number of customers, including those in service; at least m. K = m is Erlang's loss system.

    Raises
    ------
    ArgumentError
        If a rate is not positive and finite (λ may be 0), or a number not whole or out of its range.
    """

    arrival_rate: float
    service_rate: float
    servers: int
    capacity: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("servers", self.servers, 1)
        check_count("capacity", self.capacity, 1)
        if self.capacity < self.servers:
            raise ArgumentError("capacity", f"expected at least the {self.servers} servers, not {self.capacity}")
        if self.arrival_rate / self.service_rate > STATES_MAX:
            raise ArgumentError("arrival_rate", f"expected at most {STATES_MAX:,} times the service rate")

    @cached_property
    def _probabilities(self) -> Floats:
        """p(0), …, p(K)."""
        weights = occupancy_weights(self.offered_load, self.servers, self.capacity)
        probabilities: Floats = weights / weights.sum()
        return probabilities

    @cached_property
    def _arrivals_behind(self) -> Floats:
        """Shares of the admitted customers that find m, m + 1, …, K − 1 customers; with the k-th share, k − 1 customers
        wait."""
        shares: Floats = self._probabilities[self.servers : -1] / self._probabilities[:-1].sum()
        return shares

    @cached_property
    def _waiting_places(self) -> Floats:
        """1, …, K − m."""
        return np.arange(1.0, self.capacity - self.servers + 1)

    @property
    def loss_probability(self) -> float:
        """p(K), the share of lost arrivals; Poisson arrivals see time averages (Wolff 1982)."""
        return float(self._probabilities[-1])

    @property
    def throughput(self) -> float:
        """X = λ (1 − p(K)), the effective arrival rate."""
        return self.arrival_rate * float(self._probabilities[:-1].sum())

    @property
    def probability_waiting(self) -> float:
        """(p(m) + … + p(K − 1)) / (1 − p(K))."""
        return float(self._arrivals_behind.sum())

    def probability(self, customers: int) -> float:
        """p(n) = p(n − 1) a / min(n, m), and 0 above K."""
        check_customers(customers)
        return float(self._probabilities[customers]) if customers <= self.capacity else 0.0

    @property
    def mean_waiting(self) -> float:
        """W: a customer that finds all servers busy and k − 1 customers waiting waits for k departures at the rate m
        μ."""
        return float(self._arrivals_behind @ self._waiting_places) * self.service_time / self.servers

    @property
    def mean_queue(self) -> float:
        """N_q = Σ (n − m) p(n) over n > m."""
        return float(self._probabilities[self.servers + 1 :] @ self._waiting_places)

    @property
    def mean_customers(self) -> float:
        """N = Σ n p(n)."""
        return float(self._probabilities @ np.arange(self.capacity + 1))

    @property
    def variance_customers(self) -> float:
        """Var[N] = Σ (n − N)² p(n)."""
        return float(self._probabilities @ (np.arange(self.capacity + 1) - self.mean_customers) ** 2)

    @property
    def variance_queue(self) -> float:
        """Var[N_q], as Var[N]."""
        waiting = np.maximum(np.arange(self.capacity + 1) - self.servers, 0)
        return float(self._probabilities @ (waiting - self.mean_queue) ** 2)

    @property
    def variance_waiting(self) -> float:
        """Var[W], of a mixture of Erlang times with k stages of rate m μ: E[W²] = Σ q_k k (k + 1) / (m μ)²."""
        stage = self.service_time / self.servers
        waiting = float(self._arrivals_behind @ self._waiting_places) * stage
        none = 1 - self.probability_waiting
        around = (self._waiting_places * stage - waiting) ** 2 + self._waiting_places * stage**2
        return none * waiting**2 + float(self._arrivals_behind @ around)

    def waiting_tail(self, time: float) -> float:
        """P(W > t), of a mixture of Erlang times."""
        check_time(time)
        return self._line.waiting_tail(time)

    def response_tail(self, time: float) -> float:
        """P(R > t), uniformised at the rate m μ."""
        check_time(time)
        return self._line.response_tail(time)

    @cached_property
    def _line(self) -> Line:
        return Line(self._arrivals_behind, self.servers, self.service_rate)
