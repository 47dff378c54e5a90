"""Simple predictions of a throughput, from the same runs as the layered model's and from more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from knee.stats.intervals import Floats

NAMES = ("USL", "line", "USL, other levels", "line, other levels")

COUNTS = ("workers", "connections", "hosts", "threads")
"""Settings that count servers, which the universal scalability law describes."""


@dataclass(frozen=True, eq=False)
class Seen:
    """Runs that a baseline sees.

    names       of the factors besides the clients
    point       equal for repetitions, (runs)
    customers   (runs)
    think_ms    (runs)
    levels      of the factors, (runs, factors)
    throughput  requests/s, (runs)
    """

    names: tuple[str, ...]
    point: Floats
    customers: Floats
    think_ms: Floats
    levels: Floats
    throughput: Floats

    def take(self, rows: np.ndarray) -> Seen:
        each = (self.point, self.customers, self.think_ms, self.levels, self.throughput)
        return Seen(self.names, *(values[rows] for values in each))


def baselines(seen: Seen, every: Seen, customers: float, think_ms: float, levels: Floats) -> dict[str, float]:
    """The throughput by each of NAMES; NaN where a baseline lacks levels.

    seen   the runs that the model sees
    every  all runs; the baselines of other levels see those whose levels differ from the asked ones
    """
    others = every.take((every.levels != levels).any(axis=1))
    predictions = (
        line(smoothed(seen), customers, think_ms, levels),
        line(seen, customers, think_ms, levels),
        usl_over_factor(others, customers, levels),
        line(others, customers, think_ms, levels, least=2),
    )
    return dict(zip(NAMES, predictions, strict=True))


def line(seen: Seen, customers: float, think_ms: float, levels: Floats, least: int = 1) -> float:
    """At the same number of customers, the line through the two levels next to the asked one; with one level, no change
    of the response time. NaN with fewer than `least` levels."""
    factor, known, throughput = over_factor(seen, customers, levels)
    if known.size < max(1, least):
        return float("nan")
    if known.size == 1:
        changed = (think_ms - seen.think_ms[seen.customers == customers].mean()) / 1000
        return float(1 / (1 / throughput[0] + changed / customers))
    asked = levels[factor]
    at = int(np.clip(np.searchsorted(known, asked), 1, known.size - 1))
    slope = (throughput[at] - throughput[at - 1]) / (known[at] - known[at - 1])
    return max(1.0, float(throughput[at] + slope * (asked - known[at])))


def over_factor(seen: Seen, customers: float, levels: Floats) -> tuple[int, Floats, Floats]:
    """The factor with the most levels while all others are as asked, its levels, and their mean throughputs. A factor
    that did not vary may have any level."""
    here = seen.take(seen.customers == customers)
    fixed = np.ptp(here.levels, axis=0) == 0 if len(here.customers) else np.zeros(len(levels), dtype=bool)
    same = (here.levels == levels) | fixed
    found = []
    for factor in range(len(levels)):
        rows = np.delete(same, factor, axis=1).all(axis=1)
        known = np.unique(here.levels[rows, factor])
        means = [here.throughput[rows & (here.levels[:, factor] == level)].mean() for level in known]
        found.append((factor, known, np.array(means)))
    return max(found, key=lambda each: each[1].size)


def smoothed(seen: Seen) -> Seen:
    """The throughputs by the universal scalability law over the customers, at each level."""
    throughput = seen.throughput.copy()
    for level in np.unique(seen.levels, axis=0):
        rows = (seen.levels == level).all(axis=1)
        throughput[rows] = usl(seen.customers[rows], seen.throughput[rows], seen.customers[rows])
    return replace(seen, throughput=throughput)


def usl_over_factor(seen: Seen, customers: float, levels: Floats) -> float:
    """The universal scalability law over a number of servers, from three levels at the same number of customers."""
    factor, known, throughput = over_factor(seen, customers, levels)
    if known.size < 3 or not seen.names[factor].endswith(COUNTS):
        return float("nan")
    return float(usl(known, throughput, levels[[factor]])[0])


def usl(size: Floats, throughput: Floats, asked: Floats) -> Floats:
    """N γ / (1 + α (N − 1) + β N (N − 1)) (Gunther 2007, ch. 4), by least squares of relative errors of N / X."""

    def terms(n: Floats) -> Floats:
        return np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)

    values = nnls(terms(size) * (throughput / size)[:, np.newaxis], np.ones_like(size))[0]
    return np.asarray(asked / (terms(asked) @ values))
