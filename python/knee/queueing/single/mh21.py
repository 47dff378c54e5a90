"""M/H_2/1: one server, and two kinds of exponential service, such as hits and misses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from knee.queueing.errors import ArgumentError
from knee.queueing.single.arguments import check_arrivals, check_customers, check_rate, check_time
from knee.queueing.single.station import SolvedStation


@dataclass(frozen=True)
class MH21(SolvedStation):
    """One server, with service rate μ₁ with probability p, and μ₂ otherwise.

    The waiting time's transform is rational: W*(s) = (1 − ρ) (s + μ₁) (s + μ₂) / ((s + r₁) (s + r₂)), from Pollaczek's
    and Khinchine's (Kleinrock 1975, §5.7). Hence P(W > t) = w₁ exp(−r₁ t) + w₂ exp(−r₂ t) with positive weights.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time.
    service_rates
        μ₁ and μ₂, per unit of time.
    first_probability
        p, above 0 and below 1.

    Raises
    ------
    ArgumentError
        If an argument is invalid; the error names it.
    UnstableError
        If ρ = λ (p / μ₁ + (1 − p) / μ₂) is 1 or more.
    """

    arrival_rate: float
    service_rates: tuple[float, float]
    first_probability: float
    servers: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        check_arrivals("arrival_rate", self.arrival_rate)
        if len(self.service_rates) != 2:
            raise ArgumentError("service_rates", f"expected two rates, not {self.service_rates!r}")
        for rate in self.service_rates:
            check_rate("service_rates", rate)
        if not 0 < self.first_probability < 1:
            raise ArgumentError("first_probability", f"expected above 0 and below 1, not {self.first_probability}")
        self._idle()

    @classmethod
    def balanced(cls, arrival_rate: float, service_rate: float, service_scv: float) -> MH21:
        """A station with mean service 1 / μ and c² of at least 1. Each kind is half of the work: p / μ₁ = (1 − p) / μ₂
        (Whitt 1982).
        """
        check_rate("service_rate", service_rate)
        if not 1 <= service_scv < math.inf:
            raise ArgumentError("service_scv", f"expected a finite number from 1, not {service_scv}")
        # (1 − √x) / 2 with x = (c² − 1) / (c² + 1), without its cancellation: 1 − x = 2 / (c² + 1).
        root = math.sqrt((service_scv - 1) / (service_scv + 1))
        rare = 1 / (service_scv + 1) / (1 + root)
        often = (1 + root) / 2
        return cls(arrival_rate, (2 * often * service_rate, 2 * rare * service_rate), often)

    @property
    def _service(self) -> Fraction:
        first, second = map(Fraction, self.service_rates)
        often = Fraction(self.first_probability)
        return often / first + (1 - often) / second

    @property
    def variance_service(self) -> float:
        """Var[S] = S² + 2 p (1 − p) (1 / μ₁ − 1 / μ₂)²."""
        first, second = self.service_rates
        mixed = self.first_probability * (1 - self.first_probability)
        return float(self.service_time**2 + 2 * mixed * ((second - first) / first / second) ** 2)

    @cached_property
    def _terms(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(w₁, r₁) and (w₂, r₂), without differences of nearly equal numbers.

        r₁ and r₂ solve r² − (μ₁ + μ₂ − λ) r + μ₁ μ₂ (1 − ρ) = 0. With μ₁ > μ₂ they are distinct, r₁ < μ₂ < r₂ < μ₁, and
        products of distances are (μ₁ − r₁) (μ₁ − r₂) = λ p (μ₁ − μ₂) and (μ₂ − r₁) (r₂ − μ₂) = λ (1 − p) (μ₁ − μ₂).
        """
        if self.arrival_rate == 0:
            return (0.0, self.service_rates[0]), (0.0, self.service_rates[1])
        shares = self.first_probability, 1 - self.first_probability
        (slow, rarely), (fast, often) = sorted(zip(self.service_rates, shares, strict=True))
        apart = fast - slow
        towards = apart - self.arrival_rate
        root = math.sqrt(towards**2 + 4 * self.arrival_rate * rarely * apart)
        long = (abs(towards) + root) / 2
        short = self.arrival_rate * rarely * apart / long
        above, below = (long, short) if towards >= 0 else (short, long)
        far = apart + below
        near = self.arrival_rate * often * apart / far
        second = slow + above
        first = fast * slow * self._idle() / second
        weights = far * below * second, near * above * first
        return (weights[0] / root / fast / slow, first), (weights[1] / root / fast / slow, second)

    @property
    def probability_waiting(self) -> float:
        """ρ = w₁ + w₂."""
        return self.utilisation

    def probability(self, customers: int) -> float:
        """p(n) = Σ w_i (r_i / λ) (λ / (λ + r_i))ⁿ, the arrivals during a customer's response time."""
        check_customers(customers)
        if self.arrival_rate == 0:
            return float(customers == 0)
        rate = self.arrival_rate
        return float(sum(weight * pole / rate * (rate / (rate + pole)) ** customers for weight, pole in self._terms))

    @property
    def mean_waiting(self) -> float:
        """W = Σ w_i / r_i."""
        return sum(weight / pole for weight, pole in self._terms)

    @property
    def variance_waiting(self) -> float:
        """Var[W] = Σ 2 w_i / r_i² − W²."""
        return float(sum(2 * weight / pole**2 for weight, pole in self._terms) - self.mean_waiting**2)

    @property
    def variance_queue(self) -> float:
        """Var[N_q] = λ W + λ² Var[W] (Keilson & Servi 1988)."""
        return self.mean_queue + self.arrival_rate**2 * self.variance_waiting

    @property
    def variance_customers(self) -> float:
        """Var[N] = λ R + λ² Var[R] (Keilson & Servi 1988)."""
        return self.mean_customers + self.arrival_rate**2 * self.variance_response

    def waiting_tail(self, time: float) -> float:
        """P(W > t) = Σ w_i exp(−r_i t)."""
        check_time(time)
        return sum(weight * math.exp(-pole * time) for weight, pole in self._terms)

    def response_tail(self, time: float) -> float:
        """P(R > t) = Σ w_i (1 + r_i / λ) exp(−r_i t)."""
        check_time(time)
        if self.arrival_rate == 0:
            shares = self.first_probability, 1 - self.first_probability
            return sum(share * math.exp(-mu * time) for share, mu in zip(shares, self.service_rates, strict=True))
        rate = self.arrival_rate
        return sum(weight * (1 + pole / rate) * math.exp(-pole * time) for weight, pole in self._terms)
