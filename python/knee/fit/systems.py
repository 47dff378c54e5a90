"""Fits every configuration of a table, and adds the requested scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from knee.data.measurements import is_open_loop
from knee.errors import FitError
from knee.fit.configurations import (
    configurations,
    curve_of_configuration,
    own_names,
    rows_at,
    rows_of_most_slots,
)
from knee.fit.curve import CONNECTIONS, OPEN_LOOP, WORKERS, Curve, same_think
from knee.fit.forecast import FittedSystem, fitted
from knee.fit.models import candidates
from knee.fit.scenario import Scenario, Setting, pipelines_of, scenario_of
from knee.fit.selection import select
from knee.fit.stages import stage_demands
from knee.stats.intervals import LEVEL

RESAMPLES = 100


def fit_systems(
    table: pl.DataFrame,
    others: Sequence[str],
    settings: Mapping[str, Setting] | None = None,
    *,
    constant: Mapping[str, object] | None = None,
    stations: pl.DataFrame | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[tuple[FittedSystem, Scenario | None]]:
    """Fit every configuration of a table, with the scenario that `settings` describe for each.

    Client counts, worker slots, connections and think times are inputs of the models: rows that differ only in these
    are fitted together.

    Parameters
    ----------
    table
        A row per observation (:mod:`knee.data.measurements`).
    others
        Factors besides the clients.
    settings
        `clients`, `workers`, `connections`, `think_ms` or `pipeline` (under these or the experiment file's names) to
        any value, and other factors to one of their measured levels. Without settings there are only fits, no scenario.
    constant
        Settings that are equal in every row, with their values; `settings` may name them too.
    stations
        :mod:`knee.laws.stations` of a run folder, for the CPU times of the stages.

    Raises FitError for an unknown setting, a level that was not measured, or too little data.
    """
    asked = dict(settings or {})
    if "think_ms" in table.columns and is_open_loop(table):
        raise FitError(OPEN_LOOP)
    own = own_names(table)
    named = [name for name in others if name not in own]
    for name in set(asked) - own:
        table = rows_at(table, name, asked[name], named, constant or {})
    slots_matter = any(name in WORKERS or (name in CONNECTIONS and name in own) for name in asked)
    found = []
    groups = configurations(table, others)
    for label, rows in groups:
        try:
            curve = curve_of_configuration(rows, named, groups)
            if slots_matter and not curve.knows_slots:
                raise FitError(
                    "the number of worker slots is not known for every row, so no model predicts other numbers"
                )
            scenario = scenario_of(rows, curve, asked) if asked else None
            if scenario is not None:
                _check_slots(curve, scenario)
            think_matters = scenario is not None and not same_think(scenario.think_ms, curve.think_ms)
            selection = select(curve, candidates(curve, slots_matter=slots_matter, think_matters=think_matters))
        except FitError as error:
            raise FitError(f"{label}: {error}" if label else str(error)) from None
        stages = stage_demands(rows_of_most_slots(rows), stations, level=level, seed=seed)
        found.append((fitted(label, selection, stages, pipelines_of(rows), level, resamples, seed), scenario))
    return found


def _check_slots(curve: Curve, scenario: Scenario) -> None:
    """Refuse other slots than the only number measured: the slots' own limit looks like the limit of a server behind
    them."""
    measured = float(curve.slots[0])
    if np.isfinite(measured) and not np.ptp(curve.slots) and scenario.slots != measured:
        raise FitError(
            f"{curve.servers}: only {measured:,.10g} were measured, so no model can tell their limit from that of the "
            f"servers behind them: measure a second number, such as {scenario.slots:,.10g} {scenario.servers}"
        )
