"""What each operation took, beside whichever others. Pure.

Whether one operation slows another down shows in the response times of that other one, where the first is asked for and
where it is not: in the mean of all of them what is asked for more often hides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.distributions import Merged
from knee.hdr import Histogram
from knee.intervals import LEVEL, Interval, between, mean_interval, number, quantity, ratio_interval
from knee.outcomes import OUTCOMES
from knee.spec import Workload
from knee.trim import RUN

if TYPE_CHECKING:
    from knee.dataset import Dataset

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Operation:
    """One operation at a point: requests per second, response times, and how many keys a request is about."""

    name: str
    keys: int
    per_s: Interval
    mean_ms: Interval
    p50_ms: float
    p99_ms: float


def operations(
    histograms: Merged, observations: pl.DataFrame, dataset: Dataset, level: float = LEVEL
) -> dict[int, dict[str, Operation]]:
    """By point and name; reads are one operation, whatever came of them. What a repetition had none of it had 0/s of.

    Parameters
    ----------
    histograms, observations
        Of the same run folder: :func:`knee.distributions.merged`, :func:`knee.observations.observations`.
    """
    seconds: dict[int, dict[int, float]] = {}
    for point, repetition, s in observations.select(*RUN, "observed_s").iter_rows():
        seconds.setdefault(point, {})[repetition] = s
    by_name: dict[tuple[int, str], dict[int, list[Histogram]]] = {}
    for (point, repetition, role, op), one in histograms.items():
        if role == "load" and one.total and repetition in seconds.get(point, {}):
            name = "read" if op in OUTCOMES else op
            by_name.setdefault((point, name), {}).setdefault(repetition, []).append(one)
    keys = {point: _keys(workload) for point, workload in _workloads(dataset).items()}
    found: dict[int, dict[str, Operation]] = {}
    for (point, name), repetitions in sorted(by_name.items()):
        each = {repetition: Histogram.merge(parts) for repetition, parts in repetitions.items()}
        whole = Histogram.merge(each.values())
        found.setdefault(point, {})[name] = Operation(
            name=name,
            keys=keys.get(point, {}).get(name, 1),
            per_s=mean_interval(
                [(each[number].total if number in each else 0) / s for number, s in seconds[point].items()], level
            ),
            mean_ms=mean_interval([one.mean / _NS_PER_MS for one in each.values()], level),
            p50_ms=whole.percentile(50) / _NS_PER_MS,
            p99_ms=whole.percentile(99) / _NS_PER_MS,
        )
    return found


def _workloads(dataset: Dataset) -> dict[int, Workload]:
    points = dataset.points.select("point", *dataset.factors).unique("point")
    return {
        row.pop("point"): dataset.spec.at({name: level for name, level in row.items() if level is not None}).workload
        for row in points.iter_rows(named=True)
    }


def _keys(workload: Workload) -> dict[str, int]:
    if workload.protocol != "kv":
        return {"get": workload.multiget}
    return {"bulk_put": workload.bulk_keys, "scan": workload.scan_keys, "atomic_scan": workload.scan_keys}


def beside_others(name: str, configurations: Sequence[tuple[str, Operation]], load: str) -> str:
    """How long an operation took in each configuration, against the first; at least two, each with its name.

    `load` is under how much of it, such as “8 clients”.
    """
    (first_label, first), *others = configurations
    parts = [f"{label}: {_against(one.mean_ms, first.mean_ms)}" for label, one in others]
    return f"At {load} {name} took {quantity(first.mean_ms, 'ms')} with {first_label}; {'; '.join(parts)}."


def together_or_alone(found: Mapping[str, Operation], elsewhere: Operation, load: str) -> str:
    """What writing many keys in one request saves, if that was asked for, against the puts of one key beside it.

    Where there were none, against those of `elsewhere`. `load` as in :func:`beside_others`.
    """
    bulk, alone = found.get("bulk_put"), found.get("put", elsewhere)
    if bulk is None:
        return ""
    each = Interval(
        bulk.mean_ms.estimate / bulk.keys,
        None if bulk.mean_ms.low is None else bulk.mean_ms.low / bulk.keys,
        None if bulk.mean_ms.high is None else bulk.mean_ms.high / bulk.keys,
        bulk.mean_ms.level,
        bulk.mean_ms.repetitions,
    )
    return (
        f"At {load} one bulk_put of {bulk.keys} keys took {quantity(bulk.mean_ms, 'ms')}, "
        f"{quantity(each, 'ms')} a key; one put {quantity(alone.mean_ms, 'ms')}: as many keys in puts, one after "
        f"the other, take {_against(alone.mean_ms, each)}."
    )


def _against(one: Interval, first: Interval) -> str:
    """How many times as long, as surely as the repetitions allow."""
    ratio = ratio_interval(one, first)
    times = f"{number(ratio.estimate, 2)} times as long"
    if ratio.low is None or ratio.high is None:
        return f"{times} (how surely cannot be told without repetitions)"
    return f"{times} ({between(ratio)}" + (", so it may be as long)" if ratio.low <= 1 <= ratio.high else ")")
