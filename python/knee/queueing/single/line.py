"""Times at m exponential servers with one FCFS queue, from the number of customers that an arrival finds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from scipy import special

from knee.queueing.single.erlang import Floats


@dataclass(frozen=True, eq=False)
class Line:
    """A line of customers behind m servers of the rate μ.

    found  q_1, q_2, …; q_k is the share of customers that find m + k − 1 others. Such a customer waits for k departures
    """

    found: Floats
    servers: int
    service_rate: float

    def waiting_tail(self, time: float) -> float:
        """P(W > t): fewer than k departures have happened. Their number is Poisson, with mean m μ t."""
        places = np.arange(1.0, len(self.found) + 1)
        return float(self.found @ special.gammaincc(places, self.servers * self.service_rate * time))

    def response_tail(self, time: float) -> float:
        """P(R > t), uniformised at the rate m μ.

        Events are departures, at the rate m μ. After the k-th event the customer is in service. Each further event is
        its own departure with probability 1 / m. Let h(j) be the probability that an arriving customer has to wait, and
        is in service after j events: h(j) = q_j + (1 − 1 / m) h(j − 1). Only positive terms are added.
        """
        events, stays = self.servers * self.service_rate * time, 1 - 1 / self.servers
        # No customer stays that long.
        if not math.isfinite(events):
            return 0.0
        places = len(self.found)
        # The terms before `least` and beyond `most` underflow, or change no digit of the sum.
        spread = 40 * math.sqrt(events) + 100
        least = max(1, math.floor(stays * events - spread))
        most = min(math.ceil(events + spread), places + 745 * self.servers)
        number = np.arange(least, most + 1)
        happened = np.exp(special.xlogy(number, events) - special.gammaln(number + 1) - events)
        beyond = np.maximum(number - places, 0)
        in_service = self._in_service[np.minimum(number, places)] * stays**beyond
        at_once = (1 - float(self.found.sum())) * math.exp(-self.service_rate * time)
        return at_once + self.waiting_tail(time) + float(happened @ in_service)

    @cached_property
    def _in_service(self) -> Floats:
        """h(0) = 0, h(1), …, h of the last place."""
        stays = 1 - 1 / self.servers
        return np.array(list(accumulate(self.found.tolist(), lambda h, q: stays * h + q, initial=0.0)))
