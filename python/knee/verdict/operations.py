"""What each operation took, beside whichever others. Pure.

Whether one operation slows another down shows in the response times of that other one, where the first is asked for and
where it is not: in the mean of all of them what is asked for more often hides it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from knee.data.hdr import Histogram
from knee.data.trim import RUN
from knee.lab.deploy import pgbench
from knee.spec import Configuration
from knee.stats.comparisons import EQUAL, scattered_mean
from knee.stats.intervals import LEVEL, Interval, between, listed, mean_interval, number, quantity, ratio_interval
from knee.verdict.distributions import Merged
from knee.verdict.failures import percent, requests
from knee.verdict.knee import PLATEAU
from knee.verdict.outcomes import OUTCOMES

if TYPE_CHECKING:
    from knee.data import Dataset

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Operation:
    """One operation at a point.

    items    keys or messages that a request is about
    per_s    requests per second, but for those that failed
    failed   share of the requests
    mean_ms  and percentiles: see :func:`failures.whose_times`; NaN where none was timed, and the mean without an
             interval where it is always the same
    """

    name: str
    items: int
    per_s: Interval
    failed: float
    mean_ms: Interval
    p50_ms: float
    p99_ms: float

    @property
    def is_comparable(self) -> bool:
        """Whether its response times say how long it takes: requests that fail may fail fast."""
        return self.failed <= PLATEAU and math.isfinite(self.mean_ms.estimate)


def operations(
    histograms: Merged, observations: pl.DataFrame, dataset: Dataset, level: float = LEVEL
) -> dict[int, dict[str, Operation]]:
    """By point and name; reads are one operation, whatever came of them. What a repetition had none of it had 0/s of.

    Parameters
    ----------
    histograms, observations
        Of the same run folder: :func:`knee.verdict.distributions.merged`, :func:`knee.data.observations.observations`.
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
            mean_ms=scattered_mean(np.array([one.mean / _NS_PER_MS for one in each.values()]), level),
            p50_ms=whole.percentile(50) / _NS_PER_MS,
            p99_ms=whole.percentile(99) / _NS_PER_MS,
        )
    return found


def _configurations(dataset: Dataset) -> dict[int, Configuration]:
    points = dataset.points.select("point", *dataset.factors).unique("point")
    return {
        row.pop("point"): dataset.spec.at({name: level for name, level in row.items() if level is not None})
        for row in points.iter_rows(named=True)
    }


def _items(configuration: Configuration) -> dict[str, int]:
    """How many a request of each operation is about, where that need not be one."""
    workload = configuration.workload
    if configuration.system.load.kind == "pgbench":
        return {script.operation: script.items for script in pgbench.scripts(workload)}
    if workload.protocol != "kv":
        return {"multiget": workload.multiget}
    return {"bulk_put": workload.bulk_keys, "scan": workload.scan_keys, "atomic_scan": workload.scan_keys}


def beside_others(name: str, configurations: Sequence[tuple[str, Operation]], load: str) -> str:
    """How long an operation took in each configuration, against the first of those that can be compared, and where it
    failed; empty where there are no two and none did.

    `configurations` have names; `load` is under how much of it, such as “8 clients”.
    """
    said = []
    known = [(label, one) for label, one in configurations if one.is_comparable]
    if len(known) > 1:
        (first_label, first), *others = known
        parts = [f"{label}: {_against(one.mean_ms, first.mean_ms)}" for label, one in others]
        said.append(f"At {load} {name} took {quantity(first.mean_ms, 'ms')} with {first_label}; {'; '.join(parts)}.")
    failing = [f"{label} ({percent(one.failed)})" for label, one in configurations if one.failed > PLATEAU]
    if failing:
        said.append(f"At {load} {name} failed with {listed(failing, '; ')}: its response time says nothing there.")
    return " ".join(said)


def apart_from_mix(dataset: Dataset) -> dict[int, Configuration]:
    """By point, its configuration without the mix of operations: equal for points that differ in nothing else."""
    return {
        point: one.model_copy(update={"workload": one.workload.model_copy(update={"mix": None})})
        for point, one in _configurations(dataset).items()
    }


def together_or_alone(configurations: Sequence[tuple[str, object, Mapping[str, Operation]]], load: str) -> list[str]:
    """What writing many keys in one request saves in each configuration that asks for it, against the puts of one key
    beside it; where there are none, against those of every other that differs in the mix of operations alone.

    Where they cannot be compared because requests failed, or nobody put a single key there, that is said; nothing is
    where nobody timed any. Each configuration has what it is apart from its mix, which is equal for those that differ
    in that alone (:func:`apart_from_mix`), and its operations by name; names and `load` as in :func:`beside_others`.
    """
    puts = [(label, apart, found["put"]) for label, apart, found in configurations if "put" in found]
    where = " where the mix of operations alone is another" if puts else ""
    said = []
    for label, apart, found in configurations:
        if "bulk_put" in found:
            elsewhere = [(other, put) for other, of_other, put in puts if of_other == apart]
            beside = [(label, found["put"])] if "put" in found else elsewhere
            said.append(_together_or_alone((label, found["bulk_put"]), beside, where, load))
    return [sentence for sentence in said if sentence]


def _together_or_alone(
    together: tuple[str, Operation], puts: Sequence[tuple[str, Operation]], where: str, load: str
) -> str:
    """`where` nobody put a single key if there are no puts."""
    puts = [(label, put) for label, put in puts if put.is_comparable] or puts
    asked = [together, *puts]
    failing = [f"{percent(one.failed)} of {one.name}{_with(label)}" for label, one in asked if one.failed > PLATEAU]
    if failing:
        return f"At {load} {listed(failing)} failed: what writing many keys in one request saves cannot be told there."
    if not all(one.is_comparable for _, one in asked):
        return ""
    label, bulk = together
    each = Interval(
        bulk.mean_ms.estimate / bulk.items,
        None if bulk.mean_ms.low is None else bulk.mean_ms.low / bulk.items,
        None if bulk.mean_ms.high is None else bulk.mean_ms.high / bulk.items,
        bulk.mean_ms.level,
        bulk.mean_ms.repetitions,
    )
    took = (
        f"At {load} one bulk_put of {bulk.items} keys{_with(label)} took {quantity(bulk.mean_ms, 'ms')}, "
        f"{quantity(each, 'ms')} a key"
    )
    if not puts:
        return f"{took}; what that saves cannot be told, as nobody put a single key{where}."
    parts = [
        f"one put{'' if other == label else _with(other)} {quantity(alone.mean_ms, 'ms')}: as many keys in puts, one "
        f"after the other, take {_against(alone.mean_ms, each)}"
        for other, alone in puts
    ]
    return f"{took}; {'; '.join(parts)}."


def _with(label: str) -> str:
    """In which configuration, where that has a name: one that is alone needs none."""
    return f" with {label}" if label else ""


def _against(one: Interval, first: Interval) -> str:
    """How many times as long, as surely as the repetitions allow."""
    ratio = ratio_interval(one, first)
    times = f"{number(ratio.estimate, 2)} times as long"
    if ratio.low is None or ratio.high is None:
        why = "without repetitions" if ratio.repetitions < 2 else f"as {EQUAL}"
        return f"{times} (how surely cannot be told {why})"
    return f"{times} ({between(ratio)}" + (", so it may be as long)" if ratio.low <= 1 <= ratio.high else ")")
