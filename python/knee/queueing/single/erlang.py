"""Erlang's and Engset's formulas, and the occupancy of a birth–death station from which they follow.

Every weight is a product of ratios below one, starting from the most likely state. So there are no factorials, powers
or subtractions, and only negligible probabilities underflow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from knee.queueing.errors import ArgumentError, UnstableError
from knee.queueing.single.arguments import STATES_MAX, check_count

Floats = npt.NDArray[np.float64]


def erlang_b(servers: int, offered_load: float) -> float:
    """B(m, a), the share of calls that find all m servers busy in a system without waiting.

    Relative error below 1e-12 for up to a million servers, as long as B itself is above 1e-200.

    Parameters
    ----------
    servers
        m, from 1.
    offered_load
        a = λ S in erlangs, from 0.

    Raises
    ------
    ArgumentError
        If an argument is invalid; the error names it.

    References
    ----------
    Erlang 1917; Kleinrock 1975, §3.7. The usual recursion B(n) = a B(n − 1) / (n + a B(n − 1)) (Jagerman 1974) is the
    same sum of products, term by term.
    """
    _check(servers, offered_load)
    weights = occupancy_weights(offered_load, servers, servers)
    return float(weights[-1] / weights.sum())


def erlang_c(servers: int, offered_load: float) -> float:
    """C(m, a), the share of customers that wait at an M/M/m station.

    The relative error is that of :func:`erlang_b`, even if a is close to m.

    Parameters
    ----------
    servers
        m, from 1.
    offered_load
        a = λ S in erlangs, from 0 and below m.

    Raises
    ------
    ArgumentError
        If an argument is invalid; the error names it.
    UnstableError
        If a is m or more.

    References
    ----------
    Erlang 1917; Kleinrock 1975, §3.5; Jain 1991, the ϱ of box 31.2.
    """
    _check(servers, offered_load)
    if offered_load >= servers:
        raise UnstableError(offered_load / servers)
    weights = occupancy_weights(offered_load, servers, servers)
    # The weights of all states from m on sum to w(m) / (1 − ρ).
    idle = (servers - offered_load) / servers
    return float(weights[-1] / (weights[-1] + idle * weights[:-1].sum()))


def engset(servers: int, sources: int, offered_load: float) -> float:
    """The share of calls of N sources that find all m servers busy in a system without waiting (call congestion).

    A lost call is not repeated: its source is idle for another Z. So a source completes (1 − B) / (Z + (1 − B) S) calls
    per unit of time. The share of time with all servers busy (time congestion) is `engset(m, N + 1, a)`, because a
    caller sees the other sources' steady state. Both hold for any service and idle times with these means.

    Parameters
    ----------
    servers
        m, from 1.
    sources
        N, from 1.
    offered_load
        a = S / Z of one idle source, from 0.

    Raises
    ------
    ArgumentError
        If an argument is invalid; the error names it.

    References
    ----------
    Engset 1918; Kleinrock 1975, §3.10: B = C(N − 1, m) aᵐ / Σ_{n ≤ m} C(N − 1, n) aⁿ.
    """
    _check(servers, offered_load)
    check_count("sources", sources, 1)
    if sources <= servers:
        return 0.0
    busy = np.arange(1, servers + 1)
    weights = _weights(offered_load * (sources - busy) / busy)
    return float(weights[-1] / weights.sum())


def occupancy_weights(offered_load: float, servers: int, most: int) -> Floats:
    """Weights of 0 to `most` customers, p(n) / p(n − 1) = a / min(n, m), so that the largest is 1.

    The ratios fall with n, so the weights rise to a peak and then fall.
    """
    return _weights(offered_load / np.minimum(np.arange(1, most + 1), servers))


def _weights(ratios: Floats) -> Floats:
    """Weights with these falling ratios, so that the largest is 1."""
    peak = int(np.count_nonzero(ratios >= 1))
    falling = np.cumprod(ratios[peak:])
    rising = np.cumprod(1 / ratios[:peak][::-1])[::-1]
    return np.concatenate([rising, [1.0], falling])


def _check(servers: int, offered_load: float) -> None:
    check_count("servers", servers, 1)
    if not 0 <= offered_load <= STATES_MAX:
        raise ArgumentError("offered_load", f"expected a number from 0, at most {STATES_MAX:,}, not {offered_load}")
