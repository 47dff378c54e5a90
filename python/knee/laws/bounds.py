"""What service demands allow: asymptotic and balanced-job bounds on throughput and response time of a closed system.

The asymptotic bounds hold for any distributions; the balanced-job bounds are tighter and take a product-form network
(exponential service where customers queue first come, first served). Docs: docs/methods/demands-and-bounds.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bounds at N clients; throughputs in requests/s. `think_ms` is Z."""

    clients: float
    think_ms: float
    asymptotic: tuple[float, float]
    balanced: tuple[float, float]

    @property
    def response_ms(self) -> tuple[float, float]:
        """What the balanced-job bounds leave for the response time, R = N / X − Z."""
        low, high = self.balanced
        return 1000 * self.clients / high - self.think_ms, 1000 * self.clients / low - self.think_ms


def throughput_bounds(
    clients: float, demands: Sequence[tuple[float, float]], think_ms: float = 0.0, *, elsewhere_ms: float = 0.0
) -> Bounds:
    """Bounds on X(N), from every station's demand D_k = V_k S_k (ms) and its number of servers m_k.

    With single servers the asymptotic bounds are N / (N D + Z) ≤ X ≤ min(1 / D_max, N / (D + Z)), the balanced-job
    bounds N / (D + Z + (N − 1) D_max / (1 + Z / (N D))) and N / (D + Z + (N − 1) D_avg / (1 + Z / D)) (Zahorjan,
    Sevcik, Eager & Galler 1982; Lazowska et al. 1984, table 5.2; Jain 1991, §34.4).

    A station with m servers counts for the upper bounds as a delay with capacity m / D, and for the lower ones as one
    server of demand D / m behind a delay of D (m − 1) / m (Seidmann, Schweitzer & Shalev-Oren 1987): throughput is
    monotone in the rates of a product-form network, and the one is nowhere slower, the other nowhere faster.

    Parameters
    ----------
    elsewhere_ms
        Response time without any waiting that is spent at none of the stations: for the upper bounds a delay, for
        the lower ones queues that are less loaded than the busiest station.

    Raises
    ------
    ValueError
        For fewer than one client, a negative or non-finite time, fewer than one server, or nothing to wait for.
    """
    times = [think_ms, elsewhere_ms, *(demand for demand, _ in demands)]
    if not clients >= 1 or not math.isfinite(clients):
        raise ValueError(f"clients: expected 1 or more, not {clients}")
    if any(not (time >= 0 and math.isfinite(time)) for time in times):
        raise ValueError(f"demands, think_ms, elsewhere_ms: expected finite times from 0, not {times}")
    if any(not servers >= 1 for _, servers in demands):
        raise ValueError(f"servers: expected 1 or more, not {[servers for _, servers in demands]}")
    total = sum(demand for demand, _ in demands) + elsewhere_ms
    if total == 0:
        raise ValueError("demands: all are zero, so nothing limits the throughput")
    most = max((demand / servers for demand, servers in demands), default=0.0)
    capacity = 1 / most if most else math.inf
    single = [demand for demand, servers in demands if servers == 1 and demand]
    queued, delayed = sum(single), think_ms + total - sum(single)
    fewest = (clients - 1) * queued / len(single) / (1 + delayed / queued) if single else 0.0
    # One server in place of m, and a delay for the rest.
    behind = think_ms + sum(demand * (servers - 1) / servers for demand, servers in demands)
    one = sum(demand / servers for demand, servers in demands) + elsewhere_ms
    longest = (clients - 1) * most / (1 + behind / (clients * one)) if most else (clients - 1) * one
    return Bounds(
        clients,
        think_ms,
        (1000 * clients / (clients * one + behind), 1000 * min(capacity, clients / (total + think_ms))),
        (1000 * clients / (one + behind + longest), 1000 * min(capacity, clients / (total + think_ms + fewest))),
    )
