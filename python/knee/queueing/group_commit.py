"""Group commit: commits that wait at the same time share a sync of the disk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from knee.queueing.arguments import checked_whole
from knee.queueing.errors import ArgumentError

CLIENTS_MAX = 2_000
Floats = NDArray[np.float64]
# Gauss and Legendre's rule on the interval from 0 to 1.
_NODES, _WEIGHTS = ((np.polynomial.legendre.leggauss(24)[0] + 1) / 2, np.polynomial.legendre.leggauss(24)[1] / 2)


@dataclass(frozen=True)
class GroupCommit:
    """A closed loop of clients whose commits share syncs. Helland et al. 1989; the chain is that of Bailey 1954.

    A sync takes all waiting commits, or the oldest ones up to a limit, and answers them at its end. Clients then think
    for an exponential time. A commit that finds no sync waits for company. The model counts the commits at the begin of
    each sync, as a Markov chain. One thing is approximate: if a limit leaves commits behind, the oldest of them has
    waited for one sync.

    Parameters
    ----------
    clients
        N, from 1 to 2,000.
    think
        Z > 0, the mean time from an answer to the next commit, with the time that the client and the server need.
    sync
        s > 0, the time of a sync.
    each
        d ≥ 0, the time that each commit adds to its sync.
    dally
        D ≥ 0, the longest wait of a commit for company, from its arrival.
    batch_max
        B, the largest number of commits in a sync; None for no limit.

    Raises
    ------
    ArgumentError
        If an argument is out of its range.
    """

    clients: int
    think: float
    sync: float
    each: float = 0.0
    dally: float = 0.0
    batch_max: int | None = None

    def __post_init__(self) -> None:
        checked_whole("clients", self.clients, 1, CLIENTS_MAX)
        for name, least in (("think", "above 0"), ("sync", "above 0"), ("each", "from 0"), ("dally", "from 0")):
            value = getattr(self, name)
            if not (0 <= value < np.inf) or (value == 0 and least == "above 0"):
                raise ArgumentError(name, f"expected a finite time {least}, not {value!r}")
        if self.batch_max is not None and self.batch_max < 1:
            raise ArgumentError("batch_max", f"expected at least 1, not {self.batch_max!r}")

    @property
    def throughput(self) -> float:
        """X, commits per unit of time: commits of a sync over the time between the begins of two syncs."""
        return self.batch / self._cycle

    @property
    def mean_response(self) -> float:
        """R = N / X − Z (Little), from a commit's arrival to its answer."""
        return self.clients / self.throughput - self.think

    @property
    def batch(self) -> float:
        """Mean number of commits of a sync."""
        return float(self._shares @ self._batches)

    @cached_property
    def _batches(self) -> Floats:
        """Commits of a sync that begins with 1, …, N waiting commits."""
        waiting = np.arange(1.0, self.clients + 1)
        return waiting if self.batch_max is None else np.minimum(waiting, self.batch_max)

    @property
    def _cycle(self) -> float:
        return float(self._shares @ self._chain[1])

    @cached_property
    def _shares(self) -> Floats:
        """Shares of the syncs that begin with 1, …, N waiting commits."""
        step = self._chain[0]
        equations = np.vstack([step.T - np.eye(len(step)), np.ones(len(step))])
        shares: Floats = np.linalg.lstsq(equations, np.append(np.zeros(len(step)), 1.0), rcond=None)[0]
        return shares

    @cached_property
    def _chain(self) -> tuple[Floats, Floats]:
        """The probabilities of each number of waiting commits at the next sync, and the mean time until it begins."""
        population, steps, times = self.clients, [], []
        for waiting, batch in enumerate(self._batches, 1):
            lasts, left = self.sync + self.each * batch, waiting - int(batch)
            step, time = np.zeros(population + 1), lasts
            for arrivals, share in enumerate(self._arrivals(population - waiting, lasts)):
                found = left + arrivals
                if found == 0:
                    # The disk is idle until the first commit.
                    time += share * self.think / population
                for rest, part in self._rests(lasts, left, arrivals):
                    company, wait = self._company(max(found, 1), rest)
                    time += share * part * wait
                    step[max(found, 1) :][: len(company)] += share * part * company
            steps.append(step[1:])
            times.append(time)
        return np.array(steps), np.array(times)

    def _arrivals(self, thinking: int, time: float) -> Floats:
        """Probabilities of 0, …, `thinking` arrivals within a time."""
        if time == 0:
            return np.ones(1)
        arrivals, share = np.arange(thinking + 1), -np.expm1(-time / self.think)
        probabilities: Floats = np.diff(special.bdtr(arrivals, thinking, share), prepend=0.0)
        return probabilities

    def _rests(self, lasts: float, left: int, arrivals: int) -> list[tuple[float, float]]:
        """What is left of the oldest commit's wait after a sync, and the probability of each such time."""
        if self.dally == 0 or left + arrivals == 0:
            return [(self.dally, 1.0)]
        if left > 0:
            # It arrived before the sync; how long before is unknown.
            return [(max(0.0, self.dally - lasts), 1.0)]
        # The first of the arrivals, each exponential within the sync, at quantiles of those whose wait is not over.
        within = -np.expm1(-lasts / self.think)
        over = 1 - (1 + np.expm1(-max(0.0, lasts - self.dally) / self.think) / within) ** arrivals
        quantiles = over + (1 - over) * _NODES
        first = -self.think * np.log1p(-within * (1 - (1 - quantiles) ** (1 / arrivals)))
        rests = np.maximum(0.0, self.dally - lasts + first)
        return [(0.0, over), *zip(rests, (1 - over) * _WEIGHTS, strict=True)]

    def _company(self, found: int, rest: float) -> tuple[Floats, float]:
        """Probabilities of 0, …, further commits until a sync begins, and the mean time until then, at most `rest`."""
        thinking, lacking = self.clients - found, self.clients if self.batch_max is None else self.batch_max - found
        if lacking <= 0 or rest == 0:
            return np.ones(1), 0.0
        company = self._arrivals(thinking, rest)
        if lacking > thinking:
            return company, rest
        # The wait ends when the group is full: ∫ P(fewer have come by t) dt.
        fewer = special.bdtr(lacking - 1, thinking, -np.expm1(-rest * _NODES / self.think))
        return np.append(company[:lacking], company[lacking:].sum()), float(rest * (_WEIGHTS @ fewer))
