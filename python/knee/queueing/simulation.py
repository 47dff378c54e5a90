"""Estimates from independent replications of a simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from knee.queueing.errors import ArgumentError
from knee.queueing.network import Floats
from knee.stats.intervals import Interval


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates with Student's t intervals over the replications (Law & Kelton 2000, §9.5.2).

    estimate, half_width  arrays of any shape. The half width is NaN with a single replication. Both are NaN without
                          observations
    replications          the value of each replication, (R, …)
    level                 confidence level
    """

    estimate: Floats
    half_width: Floats
    replications: Floats
    level: float

    @classmethod
    def of(cls, replications: Floats, level: float, estimate: Floats | None = None) -> Estimates:
        """Estimates: means, or a pooled value, with intervals from the scatter of the replications."""
        count = len(replications)
        mean = replications.mean(axis=0)
        half_width = np.full(mean.shape, math.nan)
        if count > 1:
            student = float(special.stdtrit(count - 1, (1 + level) / 2))
            half_width = student * replications.std(axis=0, ddof=1) / math.sqrt(count)
        return cls(mean if estimate is None else estimate, half_width, replications, level)

    @property
    def low(self) -> Floats:
        return self.estimate - self.half_width

    @property
    def high(self) -> Floats:
        return self.estimate + self.half_width

    def interval(self, *index: int) -> Interval:
        """One estimate, by its indices."""
        half_width = float(self.half_width[index])
        known = half_width if math.isfinite(half_width) else None
        return Interval.around(float(self.estimate[index]), known, self.level, len(self.replications))


@dataclass(frozen=True, eq=False)
class Simulation:
    """The results of a simulation, without warm-up.

    stations, classes  names of the axes, (K) and (C)
    warmup             warm-up of each replication: completed rounds of all classes, or time if `time` was given
    duration           observed time of each replication, (R)
    throughput         X_c, completed rounds per unit of time, (C)
    lost               the share of rounds that ended because a station refused the customer, (C)
    response_time      R_c of completed rounds, (C)
    residence_time     V_kc times the mean time of a visit, waiting included, (K, C). With forks, the sum over stations
                       exceeds R
    queue_length       Q_kc, the mean number at each station, waiting or served, (K, C). Each sibling counts
    utilisation        for a queue the mean share of busy servers, for a load-dependent station the share of time with
                       any customer, for a delay NaN, (K)
    refused            the share of arrivals at a station that find no place, (K, C)
    """

    stations: tuple[str, ...]
    classes: tuple[str, ...]
    warmup: float
    duration: Floats
    throughput: Estimates
    lost: Estimates
    response_time: Estimates
    residence_time: Estimates
    queue_length: Estimates
    utilisation: Estimates
    refused: Estimates
    #: By replication and class, (buckets, 3): begin, end and number of response times of each bucket.
    histograms: Sequence[Sequence[Floats]]

    def response_quantile(self, probability: float) -> Estimates:
        """The response time that a share `probability` of completed rounds does not exceed, (C).

        The estimate uses the merged histograms of all replications, with a resolution of 2⁻⁸ = 0.4 %. The interval is
        from the scatter of the replications' own quantiles.

        Raises
        ------
        ArgumentError
            For a probability that is not between 0 and 1.
        """
        if not 0 < probability < 1:
            raise ArgumentError("probability", f"expected more than 0 and less than 1, not {probability}")
        each = np.array([[quantile_of(one, probability) for one in classes] for classes in self.histograms])
        together = [
            quantile_of(np.concatenate([classes[index] for classes in self.histograms]), probability)
            for index in range(len(self.classes))
        ]
        return Estimates.of(each, self.throughput.level, np.array(together))


def quantile_of(histogram: Floats, probability: float) -> float:
    """The quantile, interpolated within its bucket. Buckets may be in any order, and occur more than once."""
    if not len(histogram):
        return math.nan
    begins, ends, counts = histogram[np.argsort(histogram[:, 0])].T
    below = np.cumsum(counts)
    rank = probability * below[-1]
    # Equal buckets count as one.
    begin = begins[np.searchsorted(below, rank)]
    first, last = np.searchsorted(begins, begin, "left"), np.searchsorted(begins, begin, "right") - 1
    before = below[first] - counts[first]
    return float(begin + (ends[first] - begin) * (rank - before) / (below[last] - before))
