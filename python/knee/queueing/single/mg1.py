"""M/G/1: Poisson arrivals, any service times, one server (Pollaczek 1930; Khinchine 1932)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from knee.queueing.errors import ArgumentError
from knee.queueing.single.arguments import check_scv
from knee.queueing.single.station import SingleStation


@dataclass(frozen=True)
class MG1(SingleStation):
    """One server with independent service times of any distribution. Kleinrock 1975, §5.5 to 5.7; Jain 1991, ch. 31.

    Means need the first two moments of the service time, and variances also the third.

    Parameters
    ----------
    arrival_rate
        λ from 0, per unit of time.
    service_rate
        μ = 1 / S, per unit of time.
    service_scv
        c² = Var[S] / S²: 0 for constant, 1 for exponential service.
    service_skewness
        γ = E[(S − E S)³] / Var[S]^{3/2}, 2 for exponential service; None if unknown. Times are not negative, so it is
        c − 1 / c or more. Constant service has none.

    Raises
    ------
    ArgumentError
        If an argument is invalid, or if a variance needs a missing `service_skewness`; the error names the argument.
    UnstableError
        If ρ = λ / μ is 1 or more.
    """

    arrival_rate: float
    service_rate: float
    service_scv: float
    service_skewness: float | None = None
    servers: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scv("service_scv", self.service_scv)
        if self.service_skewness is not None:
            self._check_skewness(self.service_skewness)
        self._idle()

    def _check_skewness(self, skewness: float) -> None:
        if self.service_scv == 0:
            raise ArgumentError("service_skewness", "constant service (service_scv = 0) has no skewness; leave it out")
        variation = math.sqrt(self.service_scv)
        least = variation - 1 / variation
        # Service with the two values 0 and x is at the limit; rounding may put its skewness below it.
        if not least - 1e-9 * max(1.0, abs(least)) <= skewness < math.inf:
            raise ArgumentError(
                "service_skewness",
                f"expected c − 1 / c = {least:.6g} or more, because times are not negative; not {skewness}",
            )

    @property
    def probability_idle(self) -> float:
        """p(0) = 1 − ρ, for any service times."""
        return self._idle()

    @property
    def probability_waiting(self) -> float:
        """ρ: Poisson arrivals see time averages (Wolff 1982)."""
        return self.utilisation

    @property
    def mean_waiting(self) -> float:
        """W = ρ S (1 + c²) / (2 (1 − ρ)), the Pollaczek–Khinchine formula."""
        return self.utilisation * self.service_time * (1 + self.service_scv) / 2 / self._idle()

    @property
    def variance_waiting(self) -> float:
        """Var[W] = W² + λ E[S³] / (3 (1 − ρ)), E[S³] = S³ (1 + 3 c² + γ c³)."""
        third = self.service_time**3 * (1 + 3 * self.service_scv + self._skew)
        return self.mean_waiting**2 + self.arrival_rate * third / 3 / self._idle()

    @property
    def variance_response(self) -> float:
        """Var[R] = Var[W] + c² S²."""
        return self.variance_waiting + self.service_scv * self.service_time**2

    @property
    def variance_queue(self) -> float:
        """Var[N_q] = λ W + λ² Var[W]: a customer that begins service leaves the arrivals of its waiting time in the
        queue (Keilson & Servi 1988).
        """
        return self.mean_queue + self.arrival_rate**2 * self.variance_waiting

    @property
    def variance_customers(self) -> float:
        """Var[N] = λ R + λ² Var[R]: a departing customer leaves the arrivals of its response time (Keilson & Servi
        1988)."""
        return self.mean_customers + self.arrival_rate**2 * self.variance_response

    @property
    def _skew(self) -> float:
        """γ c³."""
        if self.service_skewness is not None:
            return float(self.service_skewness * self.service_scv**1.5)
        if self.service_scv == 0:
            return 0.0
        raise ArgumentError("service_skewness", "is needed for variances")
