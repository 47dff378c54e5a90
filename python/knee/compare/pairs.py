"""Compares two systems, point by point and over all points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import polars as pl

from knee.compare.findings import Compared, Difference, Obstacle, Pair, Point
from knee.compare.gates import Gate
from knee.compare.ratios import RUNS_APART, Ratio, holm, ratio_of
from knee.compare.sides import LOADS, QUANTITIES, Side
from knee.data.measurements import is_open_loop
from knee.data.trim import RUN
from knee.errors import MeasurementsError
from knee.stats.intervals import LEVEL, Floats
from knee.verdict.distributions import ALL
from knee.verdict.knee import Knee, find_knee

HEADLINE_SHARE, POINTS_SHARE = 0.6, 0.2
"""Shares of the verdict's errors for the ratio over all points, and for the points. The rest is a reserve: the plateau
is chosen from the same data."""

Block = tuple[int, int]
"""A run and a repetition; repetition 0 stands for all of them."""
Place = tuple[Point, str, str]
"""A point, an operation and a quantity."""
_Samples = dict[Place, dict[Block, float]]


def compare(a: Side, b: Side, *, gates: Sequence[Gate] = (), level: float = LEVEL, apart: float = RUNS_APART) -> Pair:
    """B against A.

    Parameters
    ----------
    level
        Confidence level of the verdict, and of every interval at a point.
    apart
        See :data:`RUNS_APART`; applies if each system has one run of its own.

    Raises
    ------
    MeasurementsError
        If a gate is about a quantity that was not measured.
    """
    keys = list(dict.fromkeys([*a.factors, *b.factors]))
    keys += _loads(a, b, keys)
    own_a, own_b = (list(dict.fromkeys(side.points(keys).values())) for side in (a, b))
    shared = [point for point in own_a if point in own_b]
    by_run = a.runs > 1 and b.runs > 1
    samples = [_samples(side, keys, by_run) for side in (a, b)]
    places = sorted(
        (place for place in samples[0] if place in samples[1]),
        key=lambda place: (shared.index(place[0]), place[1] != ALL, place[1], QUANTITIES.index(place[2])),
    )
    spans = [_spans(side, keys, set(shared), by_run) for side in (a, b)]
    together = a.shared and b.shared and _overlap(*spans)
    paired = (together or (a.timed and b.timed)) and _alternate(*spans)
    # Systems of one run share its conditions, and several runs show their differences.
    assumed = 0.0 if by_run or paired or together else apart
    opened = is_open_loop(a.table) or is_open_loop(b.table)
    measured = a.quantities & b.quantities
    headline = "throughput" if not opened and "throughput" in measured else "response_ms"
    silent = _silent(a, keys, shared), _silent(b, keys, shared)
    # An operation without answers leaves the ratio of all requests valid.
    whole = any(place[1] == ALL for place in places)
    dead_a, dead_b = (any(not whole or operation == ALL for _, operation in each) for each in silent)
    knees = {} if opened else _knees(a, b, keys, level)
    plateaus = [point for point in shared if _on_plateaus(point, knees)]
    saturated = {_configuration(point) for point in plateaus}
    unsaturated = dict.fromkeys(_configuration(point) for point in shared if _configuration(point) not in saturated)
    covered = [point for point in shared if point in plateaus or _configuration(point) in unsaturated]
    overall = {
        quantity: _overall(
            samples, [place for place in places if place[0] in covered and place[2] == quantity], assumed, paired
        )
        for quantity in QUANTITIES
        if any(place[2] == quantity for place in places)
    }
    allowed = 1 - HEADLINE_SHARE * (1 - level)
    pooled = {name: found(allowed if name == headline else level) for name, found in overall.items()}
    p = pooled[headline].p if headline in pooled else None
    differs = p is not None and p < 1 - allowed and not (dead_a or dead_b)
    compared = [_compared(samples, place, level, assumed, paired) for place in places]
    for quantity in pooled:
        chosen = [number for number, one in enumerate(compared) if one.quantity == quantity]
        alpha = (1 - level) * (POINTS_SHARE if quantity == headline and not differs else 1)
        for number, found in zip(chosen, holm([compared[n].ratio.p for n in chosen], alpha), strict=True):
            compared[number] = replace(compared[number], differs=found)
    if lacking := [gate for gate in gates if gate.quantity not in measured]:
        raise MeasurementsError(f"--fail-if {lacking[0].text!r}: {lacking[0].quantity} was not measured in both")
    if gates and not shared:
        raise MeasurementsError(f"--fail-if {gates[0].text!r}: {a.name} and {b.name} have no point in common")
    nothing = ratio_of(np.array([]), np.array([]), level, paired=False)
    strict = 1 - (1 - level) / max(1, len(gates))
    return Pair(
        names=(a.name, b.name),
        obstacle="no answer"
        if dead_a or dead_b
        else _obstacle(
            pooled.get(headline),
            [one for one in compared if one.quantity == headline],
            equal=all(samples[0][place] == samples[1][place] for place in places),
        ),
        headline=headline,
        at_knee=bool(plateaus) and not unsaturated,
        kneeless=tuple(unsaturated) if plateaus else (),
        points=len({place[0] for place in places if place[0] in covered and place[2] == headline}),
        overall=pooled,
        differs=differs,
        compared=tuple(compared),
        knees=tuple(
            (configuration, first.clients, second.clients)
            for configuration, (first, second) in knees.items()
            if first.clients and second.clients and first.status == second.status == "found"
        ),
        settings=_differences(a.constant, b.constant, keys),
        origin=_differences(a.origin, b.origin, ()) if a.origin and b.origin else None,
        only=(tuple(each for each in own_a if each not in own_b), tuple(each for each in own_b if each not in own_a)),
        silent=silent,
        unit="run" if by_run else "repetition",
        ordered=not together or all(spans),
        paired=paired,
        apart=assumed,
        failed=(a.failed, b.failed),
        gates=tuple(
            gate.judge(overall[gate.quantity](strict) if gate.quantity in overall else nothing, (dead_a, dead_b))
            for gate in gates
        ),
        level=level,
    )


def _loads(a: Side, b: Side, keys: Sequence[str]) -> list[str]:
    """The known columns of tables that describe the load, and differ between A and B at points of equal `keys`. The
    settings of run folders have other names.
    """
    columns = {name for side in (a, b) if not side.timed for name in side.table.columns}.difference(keys)
    return [name for name in LOADS if name in columns and _differs(a, b, keys, name)]


def _differs(a: Side, b: Side, keys: Sequence[str], name: str) -> bool:
    """False if repetitions of a point differ in it."""
    levels: tuple[dict[tuple[object, ...], set[object]], ...] = {}, {}
    for side, found in zip((a, b), levels, strict=True):
        kind = ["request_type"] if "request_type" in side.table.columns else []
        for *at, level in side.keyed([*keys, name]).select(*keys, *kind, name).iter_rows():
            found.setdefault(tuple(at), set()).add(level)
    settled = all(len(each) == 1 for found in levels for each in found.values())
    return settled and any(levels[0][at] != levels[1][at] for at in levels[0].keys() & levels[1].keys())


def _samples(side: Side, keys: Sequence[str], by_run: bool) -> _Samples:
    """The logarithm of every value; with `by_run`, the mean logarithm of each run."""
    points = side.points(keys)
    logs: dict[Place, dict[Block, list[float]]] = {}
    for run, point, repetition, operation, quantity, value in side.values.filter(pl.col("value") > 0).iter_rows():
        place = points[run, point, repetition], operation, quantity
        block = run, 0 if by_run else repetition
        logs.setdefault(place, {}).setdefault(block, []).append(math.log(value))
    return {place: {block: sum(each) / len(each) for block, each in found.items()} for place, found in logs.items()}


def _silent(side: Side, keys: Sequence[str], shared: Sequence[Point]) -> tuple[tuple[Point, str], ...]:
    """The common points, and operations there, without an answer in a repetition."""
    points = side.points(keys)
    silent = side.values.filter(pl.col("quantity") == "throughput", pl.col("value") <= 0)
    rows = silent.select("run", *RUN, "operation").iter_rows()
    found = dict.fromkeys((points[run, point, repetition], operation) for run, point, repetition, operation in rows)
    return tuple(each for each in found if each[0] in shared)


def _spans(side: Side, keys: Sequence[str], shared: set[Point], by_run: bool) -> dict[Block, tuple[float, float]]:
    """The first and the last time of each block at shared points; empty if times are unknown."""
    spans: dict[Block, tuple[float, float]] = {}
    if "run_order" not in side.table.columns or side.table["run_order"].null_count():
        return spans
    points = side.points(keys)
    for run, point, repetition, time in side.table.select("run", *RUN, "run_order").iter_rows():
        if points[run, point, repetition] in shared:
            block = run, 0 if by_run else repetition
            first, last = spans.get(block, (time, time))
            spans[block] = min(first, time), max(last, time)
    return spans


def _alternate(a: Mapping[Block, tuple[float, float]], b: Mapping[Block, tuple[float, float]]) -> bool:
    """Whether the n-th blocks of both end before the next blocks of either begin."""
    if len(a) < 2 or a.keys() != b.keys():
        return False
    pairs = [(min(a[block][0], b[block][0]), max(a[block][1], b[block][1])) for block in sorted(a)]
    return all(earlier[1] < later[0] for earlier, later in pairwise(pairs))


def _overlap(a: Mapping[Block, tuple[float, float]], b: Mapping[Block, tuple[float, float]]) -> bool:
    """Whether each was measured before the end of the other; True if times are unknown."""
    if not a or not b:
        return True
    (first_a, last_a), (first_b, last_b) = (
        (min(start for start, _ in each.values()), max(end for _, end in each.values())) for each in (a, b)
    )
    return first_a <= last_b and first_b <= last_a


def _arrays(a: Mapping[Block, float], b: Mapping[Block, float], paired: bool) -> tuple[Floats, Floats]:
    both = a.keys() & b.keys()
    first, second = (np.array([each[n] for n in sorted(each) if not paired or n in both]) for each in (a, b))
    return first, second


def _compared(samples: Sequence[_Samples], place: Place, level: float, apart: float, paired: bool) -> Compared:
    a, b = (each[place] for each in samples)
    left, right = _arrays(a, b, paired)
    mean_a, mean_b = (math.exp(sum(each.values()) / len(each)) for each in (a, b))
    between = _between(samples[0], [place], apart), _between(samples[1], [place], apart)
    return Compared(*place, mean_a, mean_b, ratio_of(left, right, level, paired=paired, between=between), differs=False)


def _overall(samples: Sequence[_Samples], places: Sequence[Place], apart: float, paired: bool) -> partial[Ratio]:
    """The ratio over these places, by level. A block counts if it has all places."""
    chosen = [place for place in places if place[1] == ALL] or places
    means: list[dict[Block, float]] = []
    for side in samples:
        complete = set.intersection(*(set(side[place]) for place in chosen)) if chosen else set()
        means.append({block: float(np.mean([side[place][block] for place in chosen])) for block in complete})
    between = _between(samples[0], chosen, apart), _between(samples[1], chosen, apart)
    left, right = _arrays(means[0], means[1], paired)
    return partial(ratio_of, left, right, paired=paired, between=between)


def _between(side: _Samples, places: Sequence[Place], apart: float) -> float:
    """The assumed variance between runs. It is common to all points, so it does not shrink with their number."""
    variances = [float(np.var(list(side[place].values()), ddof=1)) for place in places if len(side[place]) > 1]
    return apart**2 * float(np.mean(variances)) if variances else 0.0


def _knees(a: Side, b: Side, keys: Sequence[str], level: float) -> dict[Point, tuple[Knee, Knee]]:
    """The knees of A and B by configuration: a combination of the settings other than the clients."""
    others = [name for name in keys if name != "clients"]
    found: list[dict[Point, Knee]] = []
    for side in (a, b):
        table = side.keyed(keys)
        if not {"clients", "throughput", "response_ms", "think_ms"} <= set(table.columns) or "clients" not in keys:
            return {}
        if "request_type" in table.columns:
            return {}
        groups: Iterable[tuple[tuple[object, ...], pl.DataFrame]] = (
            table.partition_by(others, as_dict=True).items() if others else [((), table)]
        )
        found.append({tuple(zip(others, at, strict=True)): find_knee(rows, level=level) for at, rows in groups})
    return {at: (knee, found[1][at]) for at, knee in found[0].items() if at in found[1]}


def _on_plateaus(point: Point, knees: Mapping[Point, tuple[Knee, Knee]]) -> bool:
    """Whether throughput is at its most there, in both systems."""
    both = knees.get(_configuration(point))
    clients = dict(point).get("clients")
    saturated = ("found", "saturated from the start")
    return both is not None and all(knee.status in saturated and clients in knee.plateau for knee in both)


def _configuration(point: Point) -> Point:
    return tuple(each for each in point if each[0] != "clients")


def _differences(a: Mapping[str, object], b: Mapping[str, object], keys: Sequence[str]) -> tuple[Difference, ...]:
    names = [name for name in dict.fromkeys([*a, *b]) if name not in keys]
    return tuple(Difference(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name))


def _obstacle(headline: Ratio | None, compared: Sequence[Compared], *, equal: bool) -> Obstacle:
    if headline is None or not compared:
        return "no point in common"
    if all(one.ratio.interval.repetitions < 2 for one in compared):
        return "one repetition"
    if equal and headline.interval.repetitions > 1:
        return "equal measurements"
    if headline.interval.low is not None:
        return ""
    return "incomplete repetitions" if headline.interval.repetitions < 2 else "equal repetitions"
