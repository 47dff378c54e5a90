"""A fitted queueing model beside the measurement: what each says about the requests in the middlewares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.fit import Outlook, Outlooks, Scenario
from knee.queueing import Delay, Queue, solve_closed
from knee.stats.intervals import Interval, mean_interval

MEASURED = {
    "throughput": pl.col("throughput"),
    "utilisation": pl.col("busy_workers") / (pl.col("workers") * pl.col("middlewares")),
    "customers": pl.col("busy_workers") + pl.col("queue_length"),
    "waiting": pl.col("queue_length"),
    "response_ms": pl.col("middleware_response_ms"),
    "waiting_ms": pl.col("queueing_ms"),
}
"""How each quantity was measured: X, ρ of the worker slots, E[n], E[n_q], E[r] and E[w]."""


@dataclass(frozen=True)
class Beside:
    """A model and the measurement at one client count, by the names of MEASURED.

    label     the outlook's label; empty if there is only one outlook
    model     the model's X (requests/s), its largest ρ, and sums of the other quantities over all stations but delays
    measured  means over the repetitions; without an entry for what was not measured
    """

    label: str
    name: str
    clients: int
    model: Mapping[str, float]
    measured: Mapping[str, Interval]


def beside(found: Outlooks, observations: pl.DataFrame, level: float) -> tuple[Beside, ...]:
    """A row for each measured client count of the outlooks whose model has `outside_ms` and whose middlewares report
    queues."""
    if not {"busy_workers", "workers", "middlewares", "queue_length", "queueing_ms"} <= set(observations.columns):
        return ()
    return tuple(row for outlook in found.shown for row in _rows(outlook, observations, level))


def _rows(outlook: Outlook, observations: pl.DataFrame, level: float) -> list[Beside]:
    curve, fit = outlook.system.selection.curve, outlook.system.selection.chosen.fit
    if "outside_ms" not in fit.model.parameters:
        return []
    rows = []
    for scenario in (one.scenario for one in outlook.forecasts if one.scenario.customers in curve.counts):
        alike = next(
            mask
            for think_ms, slots, mask in curve.alike
            if think_ms == scenario.think_ms and (slots == scenario.slots or np.isnan(slots))
        )
        points = np.unique(curve.point[alike & (curve.customers == scenario.customers)]).tolist()
        own = observations.filter(pl.col("point").is_in(points), pl.col("queueing_ms").is_not_null()).select(**MEASURED)
        if own.is_empty():
            continue
        known = {name: own[name].drop_nulls().to_numpy() for name in MEASURED}
        measured = {name: mean_interval(values, level) for name, values in known.items() if values.size}
        rows.append(Beside(outlook.label, fit.model.name, round(scenario.clients), _model(outlook, scenario), measured))
    return rows


def _model(outlook: Outlook, scenario: Scenario) -> dict[str, float]:
    """The model's quantities. E[n] counts the customers that neither think nor are outside. Little's law gives E[n] and
    E[r]."""
    fit, slots = outlook.system.selection.chosen.fit, scenario.slots
    outside = dict(zip(fit.model.parameters, fit.values.tolist(), strict=True))["outside_ms"]
    network = outlook.system.network(scenario)
    each = next(one.throughput.estimate for one in outlook.forecasts if one.scenario is scenario) / 1000
    customers = scenario.customers - each * (scenario.think_ms + outside)
    if network is None:
        # M/M/1 or M/M/m: the last parameter is the service time.
        servers = slots if fit.model.needs_slots else 1.0
        busy = each * float(fit.values[-1])
        utilisation, waiting = busy / servers, customers - busy
    else:
        at = solve_closed(network, round(scenario.customers)).at(round(scenario.customers))
        utilisation = waiting = 0.0
        for station in network.stations:
            if isinstance(station, Delay):
                continue
            servers = station.servers if isinstance(station, Queue) else slots
            probabilities = at[station.name].queue_length_probabilities
            there = np.arange(probabilities.size)
            # With an unknown number of servers, the model has no waiting there, and no utilisation.
            waiting += float(probabilities @ np.maximum(0, there - servers)) if np.isfinite(servers) else 0.0
            busy = float(probabilities @ np.minimum(there, servers)) / servers if np.isfinite(servers) else np.nan
            utilisation = max(utilisation, busy)
    return {
        "throughput": 1000 * each,
        "utilisation": utilisation,
        "customers": customers,
        "waiting": waiting,
        "response_ms": customers / each,
        "waiting_ms": waiting / each,
    }
