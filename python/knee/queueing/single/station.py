"""The results that every model of a single station has.

Symbols: λ arrival rate, μ service rate of one server, S = 1 / μ service time, m servers, a = λ S offered load,
ρ = a / m, X throughput, R response time, W waiting time, N customers there, N_q of them waiting. Times are in any unit,
if the caller uses it throughout; rates are per that unit. Unless a model says otherwise, arrivals are a Poisson
process. Service is first come, first served.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from sys import float_info

from knee.queueing.errors import UnstableError
from knee.queueing.single.arguments import check_arrivals, check_rate, check_share


class SingleStation(ABC):
    """Means of a station in its steady state.

    arrival_rate  λ, customers that arrive per unit of time, lost ones included
    service_rate  μ of each server, unless a model has several
    servers       m; infinite if no customer ever waits
    """

    arrival_rate: float
    service_rate: float
    servers: float

    def __post_init__(self) -> None:
        check_arrivals("arrival_rate", self.arrival_rate)
        check_rate("service_rate", self.service_rate)

    @property
    def _service(self) -> Fraction:
        """S without rounding."""
        return 1 / Fraction(self.service_rate)

    @property
    def service_time(self) -> float:
        """S, the mean time that a server spends on a customer."""
        return float(self._service)

    @property
    def offered_load(self) -> float:
        """a = λ S, in erlangs: the servers that would be busy if there were infinitely many."""
        return float(Fraction(self.arrival_rate) * self._service)

    @property
    def throughput(self) -> float:
        """X, customers served per unit of time."""
        return self.arrival_rate

    @property
    def utilisation(self) -> float:
        """X S / m, the mean share of the servers that are busy (utilisation law; Jain 1991, ch. 33)."""
        return self.throughput * self.service_time / self.servers

    @property
    @abstractmethod
    def probability_waiting(self) -> float:
        """The share of the served customers that find no free server."""

    @property
    @abstractmethod
    def mean_waiting(self) -> float:
        """W, the mean time before service begins, over all served customers; customers that do not wait count as 0."""

    @property
    def mean_response(self) -> float:
        """R = W + S."""
        return self.mean_waiting + self.service_time

    @property
    def mean_queue(self) -> float:
        """N_q = X W, the mean number of waiting customers (Little 1961)."""
        return self.throughput * self.mean_waiting

    @property
    def mean_customers(self) -> float:
        """N = X R, the mean number of customers, waiting or in service (Little 1961)."""
        return self.throughput * self.mean_response

    def _idle(self) -> float:
        """1 − ρ, rounded once: near saturation a difference of rounded numbers would have no digits left.

        Raises UnstableError if ρ is 1 or more.
        """
        rho = Fraction(self.arrival_rate) * self._service / Fraction(self.servers)
        if rho >= 1:
            raise UnstableError(float(rho))
        return float(1 - rho)


class SolvedStation(SingleStation):
    """A station whose distributions have closed forms, too."""

    @abstractmethod
    def probability(self, customers: int) -> float:
        """p(n), the share of time with n customers; 0 if too small for a float."""

    @property
    def probability_idle(self) -> float:
        """p(0), the share of time without a customer."""
        return self.probability(0)

    @property
    @abstractmethod
    def variance_customers(self) -> float:
        """Var[N], of the number of customers."""

    @property
    @abstractmethod
    def variance_queue(self) -> float:
        """Var[N_q], of the number of waiting customers."""

    @property
    @abstractmethod
    def variance_waiting(self) -> float:
        """Var[W], of a served customer's waiting time."""

    @property
    def variance_service(self) -> float:
        """Var[S]: S² for exponential service."""
        return self.service_time**2

    @property
    def variance_response(self) -> float:
        """Var[R] = Var[W] + Var[S]: a customer's waiting time does not depend on its own service."""
        return self.variance_waiting + self.variance_service

    @abstractmethod
    def waiting_tail(self, time: float) -> float:
        """P(W > t), the share of the served customers that wait longer than `time`."""

    @abstractmethod
    def response_tail(self, time: float) -> float:
        """P(R > t), the share of the served customers with a response time above `time`."""

    def waiting_quantile(self, share: float) -> float:
        """Quantile of the waiting time: a `share` of customers waits at most this long; 0 if so many do not wait."""
        check_share(share)
        return inverted(self.waiting_tail, share, self.service_time)

    def response_quantile(self, share: float) -> float:
        """Quantile of the response time: a `share` of the served customers takes at most this long."""
        check_share(share)
        return inverted(self.response_tail, share, self.service_time)


def inverted(tail: Callable[[float], float], share: float, scale: float) -> float:
    """The time at which a falling tail reaches 1 − share, to the last digits of a float."""
    from scipy.optimize import brentq

    excess = 1 - share
    if tail(0.0) <= excess:
        return 0.0
    low, high = 0.0, scale
    while tail(high) > excess:
        low, high = high, 2 * high
    return float(brentq(lambda time: tail(time) - excess, low, high, xtol=float_info.min, maxiter=2000))
