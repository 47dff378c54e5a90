"""Predictions from one client to twice the largest measured count, with the measurements: the data of a report's
chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.errors import FitError
from knee.fit.configurations import configurations
from knee.fit.forecast import FittedSystem, Forecast
from knee.fit.scenario import Scenario
from knee.fit.systems import fit_systems
from knee.queueing import POPULATION_MAX
from knee.stats.intervals import LEVEL, Interval, counted, mean_interval, number

BEYOND = 2
"""Predictions extend to this multiple of the largest measured client count."""

_STEPS = 40

_DIGITS = 4
"""Significant digits of a mean think time in a label."""


@dataclass(frozen=True)
class Measured:
    """Means of the runs of one client count, with their intervals. `customers` are clients times pipeline."""

    customers: float
    throughput: Interval
    response_ms: Interval


@dataclass(frozen=True, eq=False)
class Outlook:
    """One fitted system at one number of worker slots and one think time.

    label      distinguishes this outlook from others; empty if there is only one
    forecasts  by customers, ascending; forecasts beyond the measured counts have `outside`
    """

    label: str
    system: FittedSystem
    measured: tuple[Measured, ...]
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, eq=False)
class Outlooks:
    """The outlooks of all configurations with a model, and a sentence for each configuration without one."""

    systems: tuple[FittedSystem, ...]
    shown: tuple[Outlook, ...]
    unfitted: tuple[str, ...]


def outlooks(
    table: pl.DataFrame,
    others: Sequence[str],
    stations: pl.DataFrame | None = None,
    *,
    configurations_max: int,
    level: float = LEVEL,
    seed: int = 0,
) -> Outlooks:
    """Fit at most `configurations_max` configurations (see :func:`fit_systems`); a sentence names the reason if one
    fails."""
    systems: list[FittedSystem] = []
    reasons: dict[str, str] = {}
    try:
        groups = configurations(table, others)
    except FitError as error:
        return Outlooks((), (), (f"No model: {error}.",))
    named = [name for name in others if name in table.columns]
    for label, rows in groups[:configurations_max]:
        try:
            ((system, _),) = fit_systems(rows, named, stations=stations, level=level, seed=seed)
            systems.append(system)
        except FitError as error:
            reasons[label] = str(error).removeprefix(f"{label}: ")
    if len(set(reasons.values())) == 1 and not systems:
        unfitted = [f"No model: {next(iter(reasons.values()))}."]
    else:
        unfitted = [f"No model of {label}: {reason}." for label, reason in reasons.items()]
    if len(groups) > configurations_max:
        unfitted.append(
            f"The first {configurations_max} of {counted(len(groups), 'configuration')} have a model here; "
            "`knee predict` fits all of them."
        )
    shown = tuple(outlook for system in systems for outlook in _outlooks(system, level, seed))
    return Outlooks(tuple(systems), shown, tuple(unfitted))


def _outlooks(system: FittedSystem, level: float, seed: int) -> list[Outlook]:
    curve, found = system.selection.curve, []
    for think_ms, slots, rows in curve.alike:
        own = curve.where(rows)
        facts = [
            f"{name} = {value}"
            for name, value, values in (
                (curve.servers, f"{slots:,.10g}", {slots for _, slots, _ in curve.alike if not math.isnan(slots)}),
                ("think_ms", number(think_ms, _DIGITS), {think_ms for think_ms, _, _ in curve.alike}),
            )
            if len(values) > 1
        ]
        measured = [
            Measured(
                count,
                mean_interval(own.throughput[own.customers == count], level),
                mean_interval(own.response_ms[own.customers == count], level),
            )
            for count in own.counts
        ]
        last = min(POPULATION_MAX, BEYOND * own.counts[-1])
        asked = {round(step) for step in np.geomspace(own.counts[0], last, _STEPS)} | {int(n) for n in own.counts}
        each = system.pipelines[-1]
        scenarios = [Scenario(customers / each, each, think_ms, slots, curve.servers) for customers in sorted(asked)]
        forecasts = tuple(system.forecasts(scenarios, seed=seed))
        found.append(Outlook(", ".join(filter(None, (system.label, *facts))), system, tuple(measured), forecasts))
    return found
