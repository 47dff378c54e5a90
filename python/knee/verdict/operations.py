"""Throughput and response time of each operation in a mix. Pure.

If one operation slows another down, the other's response times differ with and without it. The mean over all operations
hides this, as the most frequent operation dominates it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from knee.data.hdr import Histogram
from knee.data.trim import NS_PER_MS, RUN
from knee.spec import Configuration
from knee.stats.comparisons import scattered_mean
from knee.stats.intervals import LEVEL, Interval, mean_interval
from knee.verdict.distributions import Merged
from knee.verdict.failures import requests
from knee.verdict.knee import PLATEAU
from knee.verdict.outcomes import OUTCOMES

if TYPE_CHECKING:
    from knee.data import Dataset


@dataclass(frozen=True)
class Operation:
    """One operation at a point.

    items    keys or messages in a request
    per_s    requests/s without failed ones
    failed   failed share of the requests
    mean_ms  mean response time of the timed requests, ms, as are the percentiles; NaN without timed requests; without
             an interval if there is no variance
    """

    name: str
    items: int
    per_s: Interval
    failed: float
    mean_ms: Interval
    p50_ms: float
    p99_ms: float

    @property
    def items_per_s(self) -> Interval:
        return self.per_s.scaled(self.items)

    @property
    def is_comparable(self) -> bool:
        """Whether its response times are comparable: failed requests may end fast."""
        return self.failed <= PLATEAU and math.isfinite(self.mean_ms.estimate)


def operations(
    histograms: Merged, observations: pl.DataFrame, dataset: Dataset, level: float = LEVEL
) -> dict[int, dict[str, Operation]]:
    """The operations by point and name; reads are one operation, whatever their outcome. A repetition without an
    operation counts as 0 requests/s.

    `histograms`, `observations`: of the same run folder: :func:`knee.verdict.distributions.merged`,
    :func:`knee.data.observations.observations`.
    """
    seconds: dict[int, dict[int, float]] = {}
    for point, repetition, s in observations.select(*RUN, "observed_s").iter_rows():
        seconds.setdefault(point, {})[repetition] = s
    asked: dict[tuple[int, str], dict[int, tuple[int, int]]] = {}
    for point, repetition, name, count, errors in requests(dataset).iter_rows():
        if repetition in seconds.get(point, {}):
            asked.setdefault((point, name), {})[repetition] = (count, errors)
    timed: dict[tuple[int, str], dict[int, list[Histogram]]] = {}
    for (point, repetition, role, op), one in histograms.items():
        if role == "load":
            name = "read" if op in OUTCOMES else op
            timed.setdefault((point, name), {}).setdefault(repetition, []).append(one)
    items = {point: _items(configuration) for point, configuration in _configurations(dataset).items()}
    found: dict[int, dict[str, Operation]] = {}
    for (point, name), counts in sorted(asked.items()):
        parts = timed.get((point, name), {})
        each = {repetition: Histogram.merge(parts[repetition]) for repetition in counts if repetition in parts}
        whole = Histogram.merge(each.values())
        good = {repetition: count - errors for repetition, (count, errors) in counts.items()}
        found.setdefault(point, {})[name] = Operation(
            name=name,
            items=items.get(point, {}).get(name, 1),
            per_s=mean_interval([good.get(number, 0) / s for number, s in seconds[point].items()], level),
            failed=sum(errors for _, errors in counts.values()) / sum(count for count, _ in counts.values()),
            mean_ms=scattered_mean(np.array([one.mean / NS_PER_MS for one in each.values()]), level),
            p50_ms=whole.percentile(50) / NS_PER_MS,
            p99_ms=whole.percentile(99) / NS_PER_MS,
        )
    return found


def _configurations(dataset: Dataset) -> dict[int, Configuration]:
    points = dataset.points.select("point", *dataset.factors).unique("point")
    # Numbers beside words, as of store.batch_max = [4, "all"], are words in the table.
    declared = {(name, str(level)): level for name, levels in dataset.spec.factors.items() for level in levels}
    return {
        row.pop("point"): dataset.spec.at(
            {name: declared.get((name, str(level)), level) for name, level in row.items() if level is not None}
        )
        for row in points.iter_rows(named=True)
    }


def _items(configuration: Configuration) -> dict[str, int]:
    """Items in a request of each operation, for operations that may have more than one."""
    workload = configuration.workload
    if configuration.system.load.kind == "pgbench":
        # Imported late: the deployments also load what starts processes.
        from knee.lab.deploy import pgbench

        return {script.operation: script.items for script in pgbench.scripts(workload)}
    if workload.protocol != "kv":
        return {"multiget": workload.multiget}
    return {"bulk_put": workload.bulk_keys, "scan": workload.scan_keys, "atomic_scan": workload.scan_keys}


def apart_from_mix(dataset: Dataset) -> dict[int, Configuration]:
    """By point, its configuration without the mix of operations: equal for points that differ only in the mix."""
    return {
        point: one.model_copy(update={"workload": one.workload.model_copy(update={"mix": None})})
        for point, one in _configurations(dataset).items()
    }
