"""Measured throughput against the capacity of the busiest station, and N*, the clients that reach it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knee.laws.configuration import Part, Run, pipeline_of, runs_of
from knee.laws.residual import Verdict, half_width
from knee.queueing import Bounds, throughput_bounds
from knee.stats.intervals import Floats, Interval, above_zero, counted, mean_interval, product_interval


@dataclass(frozen=True)
class BoundCheck:
    """Measured throughput against the balanced-job bounds at one client count.

    excess  measured / upper bound − 1, with the uncertainty of both: the bound holds unless this is significantly
            positive
    """

    clients: int
    bounds: Bounds
    throughput: Interval
    excess: Interval
    verdict: Verdict


@dataclass(frozen=True, eq=False)
class Light:
    """R without waiting.

    runs    R in each run with a measurement, ms
    mean    mean over these runs, ms
    source  a phrase that names the source of R
    waits   whether R may include waiting
    """

    runs: Mapping[Run, float]
    mean: Interval
    source: str
    waits: bool


def light_of(at: Part, level: float) -> Light | None:
    """The response time at the lightest load; without it, the sum of the demands if they make up all of R."""
    rows = at.rows
    if "response_ms" in rows and "clients" in rows:
        least = int(rows["clients"].min())
        waits = least * pipeline_of(rows) > 1
        lightest = (rows["clients"] == least) & (rows["response_ms"] > 0)
        runs = dict(zip(runs_of(rows, lightest), rows["response_ms"][lightest].tolist(), strict=True))
        if runs and (not waits or np.unique(rows["clients"]).size > 1):
            source = f"the response time at {counted(least, 'client')}" + ", which may include waiting" * waits
            return Light(runs, mean_interval(list(runs.values()), level), source, waits)
    if not np.isnan(at.own["service_ms"]).any() and not any(at.software):
        runs = {}
        for run, demand_ms in zip(runs_of(at.own, slice(None)), at.own["demand_ms"].tolist(), strict=True):
            runs[run] = runs.get(run, 0.0) + demand_ms
        return Light(runs, mean_interval(list(runs.values()), level), "the sum of all demands", waits=False)
    return None


def saturation_of(
    light: Light, capacity: Interval, most: Mapping[Run, float], think_ms: float, pipeline: float, level: float
) -> Interval:
    """N* in clients, above zero. Errors of R and of the capacity are independent unless both come from the same
    runs."""
    same = [run for run in light.runs if run in most]
    if same:
        found = mean_interval([(light.runs[run] + think_ms) * most[run] / 1000 / pipeline for run in same], level)
    else:
        found = product_interval(light.mean, capacity.scaled(1 / 1000 / pipeline), offset=think_ms)
    return above_zero(found)


def bound_checks(
    rows: Mapping[str, Floats],
    capacity: Interval,
    servers: float,
    most: Mapping[Run, float],
    light: Light,
    think_ms: float,
    tolerance: float,
    level: float,
) -> list[BoundCheck]:
    """Whether throughput stays within the bounds from the busiest station and the response time without waiting. The
    bounds are estimates. A run that contributed to the estimate is compared with its own bound. In other runs the
    squared uncertainties of capacity, light response time and throughput add up. A client count without a measured
    throughput has no check.
    """
    servers = max(1.0, servers)

    def bounds(clients: float, capacity: float, light_ms: float) -> Bounds:
        demand_ms = min(1000 * servers / capacity, light_ms)
        return throughput_bounds(clients, [(demand_ms, servers)], think_ms, elsewhere_ms=light_ms - demand_ms)

    checks = []
    pipeline = pipeline_of(rows)
    given = {"capacity": capacity, "light_ms": light.mean}
    means = {name: interval.estimate for name, interval in given.items()}
    for clients in np.unique(rows["clients"]).tolist():
        customers = int(clients) * pipeline
        at = (rows["clients"] == clients) & np.isfinite(rows["throughput"])
        if not at.any():
            continue
        throughput = rows["throughput"][at]
        own = [(most.get(run), light.runs.get(run)) for run in runs_of(rows, at)]
        limits = [
            bounds(customers, capacity or means["capacity"], light_ms or means["light_ms"]).balanced[1]
            for capacity, light_ms in own
        ]
        on_average = bounds(customers, **means)
        errors = [
            max(
                abs(bounds(customers, **{**means, name: end}).balanced[1] / on_average.balanced[1] - 1)
                for end in (interval.low, interval.high)
                if end is not None and end > 0
            )
            for (name, interval), measured in zip(given.items(), zip(*own, strict=True), strict=True)
            if None in measured and interval.high is not None
        ]
        excess = _widened(mean_interval(throughput / np.array(limits) - 1, level), errors)
        verdict = _within(excess, tolerance)
        checks.append(
            BoundCheck(
                clients=int(clients),
                bounds=on_average,
                throughput=mean_interval(throughput, level),
                excess=excess,
                # R includes waiting, so the bound is too low.
                verdict="cannot tell" if verdict == "violated" and light.waits else verdict,
            )
        )
    return checks


def _widened(interval: Interval, errors: Sequence[float]) -> Interval:
    """The interval widened by further, independent half widths; unchanged if it has no half width."""
    if interval.half_width is None:
        return interval
    half_width = math.hypot(interval.half_width, *errors)
    return replace(interval, low=interval.estimate - half_width, high=interval.estimate + half_width)


def _within(excess: Interval, tolerance: float) -> Verdict:
    """The verdict, one-sided: only a throughput above the upper bound contradicts it."""
    if not math.isfinite(excess.estimate):
        return "cannot tell"
    if excess.half_width is None:
        return "holds" if excess.estimate <= tolerance else "violated"
    one_sided = half_width(excess, excess.level, excess.repetitions - 1)
    if excess.estimate + one_sided <= tolerance:
        return "holds"
    return "violated" if excess.estimate - one_sided > tolerance else "cannot tell"
