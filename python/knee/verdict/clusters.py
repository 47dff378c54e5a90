"""Clusters of response times in a distribution, found from its shape alone, and the requests in each cluster. Pure.

The distribution is smoothed on a logarithmic axis. Each peak that valleys separate from the other peaks is a cluster. A
valley has at most half the height of its lower peak, and chance does not explain the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from knee.data.hdr import Histogram
from knee.verdict.distributions import bin_start_ms, logarithmic_bins

VALLEY_MAX = 0.5
"""Largest height of a valley, as a share of the lower adjacent peak."""

SHARE_MIN = 0.005
"""Smallest cluster, as a share of all requests; smaller ones are tails."""

_DEVIATIONS = 3.0
"""A valley lies at least this many standard deviations of the difference below its peaks (Poisson counts)."""

_KERNEL = (1, 2, 3, 2, 1)
"""Weights of neighbouring bins in the smoothed distribution: peaks less than half an octave apart become one."""

_Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Cluster:
    """Requests with similar response times.

    share     share of all requests
    requests  number of requests of each type, over all clusters
    holds     by type, the share of the type's requests that lie in this cluster
    made      by type, the share of this cluster's requests that have the type
    """

    low_ms: float
    high_ms: float
    median_ms: float
    share: float
    requests: dict[str, int]
    holds: dict[str, float]
    made: dict[str, float]


@dataclass(frozen=True)
class Clusters:
    """Clusters of all repetitions together, the fastest first, and the number of clusters in each repetition."""

    together: tuple[Cluster, ...]
    alone: tuple[int, ...]

    @property
    def agree(self) -> bool:
        """Whether every repetition has as many clusters as all together. A repetition that was slower overall is not a
        cluster."""
        return set(self.alone) == {len(self.together)}


def find_clusters(repetitions: Sequence[Mapping[str, Histogram]]) -> Clusters:
    """The clusters of all types of requests together; one mapping per repetition, from types to response times."""
    wholes = [whole for one in repetitions if (whole := Histogram.merge(one.values())).total]
    if not wholes:
        return Clusters((), ())
    first, counts = logarithmic_bins(Histogram.merge(wholes))
    types = {
        name: Histogram.merge(one[name] for one in repetitions if name in one)
        for name in dict.fromkeys(name for one in repetitions for name in one)
    }
    placed = {name: _placed(histogram, first, counts.size) for name, histogram in types.items() if histogram.total}
    ends = _ends(counts)
    together = tuple(_cluster(first, counts, placed, start, end) for start, end in pairwise([0, *ends]))
    return Clusters(together, tuple(len(_ends(logarithmic_bins(whole)[1])) for whole in wholes))


def _placed(histogram: Histogram, first: int, size: int) -> _Counts:
    """A type's counts in the bins of all types."""
    own_first, own = logarithmic_bins(histogram)
    counts = np.zeros(size, dtype=np.int64)
    counts[own_first - first : own_first - first + own.size] = own
    return counts


def _cluster(first: int, counts: _Counts, placed: Mapping[str, _Counts], start: int, end: int) -> Cluster:
    own = counts[start:end]
    middle = start + int(np.searchsorted(np.cumsum(own), own.sum() / 2))
    return Cluster(
        low_ms=bin_start_ms(first + start),
        high_ms=bin_start_ms(first + end),
        median_ms=math.sqrt(bin_start_ms(first + middle) * bin_start_ms(first + middle + 1)),
        share=float(own.sum() / counts.sum()),
        requests={name: int(each.sum()) for name, each in placed.items()},
        holds={name: float(each[start:end].sum() / each.sum()) for name, each in placed.items()},
        made={name: float(each[start:end].sum() / own.sum()) for name, each in placed.items()},
    )


def _ends(counts: _Counts) -> list[int]:
    """The index after the last bin of every cluster. Neighbours without a valley between them are merged, the
    shallowest valley first."""
    smooth = np.convolve(counts, _KERNEL, mode="same") / sum(_KERNEL)
    valleys = _valleys(smooth)
    while valleys:
        pieces = list(pairwise([0, *valleys, counts.size]))
        peaks = [smooth[start:end].max() for start, end in pieces]
        depths = [_depth(smooth[end], min(beside)) for (_, end), beside in zip(pieces, pairwise(peaks), strict=False)]
        shallowest = int(np.argmax(depths))
        if depths[shallowest] > VALLEY_MAX:
            del valleys[shallowest]
            continue
        sizes = [counts[start:end].sum() for start, end in pieces]
        smallest = int(np.argmin(sizes))
        if sizes[smallest] >= SHARE_MIN * counts.sum():
            break
        # Merge across the shallower of the two adjacent valleys.
        beside = [valley for valley in (smallest - 1, smallest) if 0 <= valley < len(valleys)]
        del valleys[max(beside, key=lambda valley: depths[valley])]
    return [*valleys, counts.size]


def _valleys(smooth: NDArray[np.float64]) -> list[int]:
    """The bins of the local minima; of a flat minimum, the middle bin."""
    steps = np.flatnonzero(np.diff(smooth)) + 1
    starts = np.concatenate(([0], steps))
    ends = np.concatenate((steps, [smooth.size]))
    levels = smooth[starts]
    inner = range(1, levels.size - 1)
    return [int(starts[i] + ends[i]) // 2 for i in inner if levels[i - 1] > levels[i] < levels[i + 1]]


def _depth(valley: float, peak: float) -> float:
    """Height of a valley as a share of its lower peak; 1 if chance may explain the valley."""
    return valley / peak if peak - valley > _DEVIATIONS * math.sqrt(peak + valley) else 1.0
