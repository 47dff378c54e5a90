"""Predictions of `knee predict` by layered models: settings in, a forecast for each configuration out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from knee.data.observations import observations
from knee.errors import FitError
from knee.fit.between import between, neighbours
from knee.fit.configurations import configurations, rows_at
from knee.fit.curve import CONNECTIONS, MIDDLEWARES, THINK_SCATTER, WORKERS
from knee.fit.demands import TIERS, Demands, demands_of, with_demands
from knee.fit.goals import Goal, Sought, seek
from knee.fit.layered import LayeredForecast, LayeredSystem, Setup, layered_system
from knee.fit.links import asked_links
from knee.fit.percentiles import Simulator, quantiles_of, with_quantiles
from knee.fit.scenario import CLIENTS, PIPELINE, THINK, Setting, setting
from knee.stats.intervals import Floats

if TYPE_CHECKING:
    from knee.data import Dataset

CORES = ("cores", "host.cores")

_PROCESSES = {"load": ("load.hosts",), "middleware": MIDDLEWARES, "store": ("stores", "store.hosts")}

_THREADS = {tier: (f"{tier}.threads",) for tier in TIERS}

_LINKS = {tier: (f"{tier}.link_mbit",) for tier in TIERS}

SETUPS_MAX = 1000

KNOWN = (
    *(CLIENTS, PIPELINE, THINK, WORKERS, CONNECTIONS, CORES),
    *(names for each in (_PROCESSES, _THREADS, _LINKS) for names in each.values()),
)
"""The settings for which a layered model predicts any value."""

_NAMES = {name for names in KNOWN for name in names}

_OF_CURVES = (*CLIENTS, *PIPELINE)
"""Settings that do not change the measured system: a fitted curve is more accurate for these."""


def needs_layers(asked: Mapping[str, Setting | Sequence[Setting]], dataset: Dataset | None = None) -> bool:
    """Whether the settings change the system, not only the number of clients, have lists of values, or lie between
    measured levels."""
    if dataset is not None and neighbours(dataset, asked) is not None:
        return True
    changes = any(name in _NAMES and name not in _OF_CURVES for name in asked)
    return changes or any(isinstance(value, list | tuple) for value in asked.values())


def layered_systems(
    dataset: Dataset,
    others: Sequence[str],
    asked: Mapping[str, Setting | Sequence[Setting]] = MappingProxyType({}),
    *,
    level: float,
    seed: int,
    systems_max: int | None = None,
    has_quantiles: bool = False,
) -> list[tuple[str, LayeredSystem]]:
    """The label and the model of every configuration of a run folder with the asked levels.

    Parameters
    ----------
    others
        Factors besides the clients. A model covers all levels of those in KNOWN.
    asked
        Settings of KNOWN to any values, sizes and mixes between two measured levels, and other factors to one of their
        measured levels.
    has_quantiles
        Whether to read the measured quantiles, which takes a second for each hundred runs.

    Raises FitError if the run is not a closed loop, was on several machines, lacks processor times, or has fewer than
    three client counts; for a level that was not measured; for more than `systems_max` configurations.
    """
    if (found_between := neighbours(dataset, asked)) is not None:
        name, low, high, place = found_between
        first, second = (
            layered_systems(
                dataset,
                others,
                {**asked, name: each},
                level=level,
                seed=seed,
                systems_max=systems_max,
                has_quantiles=has_quantiles,
            )
            for each in (low, high)
        )
        if [label for label, _ in first] != [label for label, _ in second]:
            raise FitError(f"{name}: {low} and {high} were measured in different configurations")
        return [(label, between(one, other, place)) for (label, one), (_, other) in zip(first, second, strict=True)]
    if dataset.has_machines:
        raise FitError(
            "the hosts were several machines, and the layered model has the processors of one; measure on one machine, "
            "or predict clients only"
        )
    table = with_demands(dataset, observations(dataset))
    if has_quantiles:
        table = with_quantiles(dataset, table)
    named = [name for name in others if name not in _NAMES]
    for name in set(asked) - _NAMES:
        if len(level_of := _several(asked[name])) > 1:
            raise FitError(f"{name}: expected one value, not a list: each level has its own model")
        table = rows_at(table, name, level_of[0], named, dataset.constant)
    found = []
    each = configurations(table, named)
    if systems_max is not None and len(each) > systems_max:
        raise FitError(f"{len(each)} configurations: expected {systems_max} at most")
    for label, rows in each:
        with _labelled(label):
            quantiles = quantiles_of(rows) if has_quantiles else None
            found.append((label, layered_system(demands_of(rows), level=level, seed=seed, quantiles=quantiles)))
    return found


def layered_forecasts(
    systems: Sequence[tuple[str, LayeredSystem]],
    asked: Mapping[str, Setting | Sequence[Setting]],
    simulator: Simulator | None = None,
) -> list[tuple[str, LayeredSystem, list[LayeredForecast]]]:
    """The forecasts of every system, one for each combination of the asked values. `simulator` adds quantiles.

    Raises FitError for a setting that the system lacks, a factor without a value, or more than SETUPS_MAX combinations.
    """
    each = [dict(zip(asked, values, strict=True)) for values in product(*map(_several, asked.values()))]
    if len(each) > SETUPS_MAX:
        raise FitError(f"{len(each):,} combinations: expected {SETUPS_MAX:,} at most; give fewer values")
    found = []
    for label, system in systems:
        with _labelled(label):
            setups = [_setup(system.data, one) for one in each]
            forecasts = [_forecast(system, setup, simulator) for setup in setups]
        found.append((label, system, forecasts))
    return found


def seek_settings(
    systems: Sequence[tuple[str, LayeredSystem]],
    asked: Mapping[str, Setting],
    name: str,
    goal: Goal,
    simulator: Simulator | None = None,
) -> list[tuple[str, LayeredSystem, Sought]]:
    """As :func:`layered_forecasts`, the value of the setting `name` with which every system meets the goal. `simulator`
    adds quantiles."""
    if name in (*PIPELINE, *THINK) or name not in _NAMES:
        raise FitError(
            f"--seek {name}: expected clients, workers, connections, middlewares, stores, threads, links or cores"
        )
    if name in asked:
        raise FitError(f"--seek {name}: has a value already; expected a setting without --set")
    found = []
    for label, system in systems:

        def forecast(value: int, system: LayeredSystem = system) -> LayeredForecast:
            return _forecast(system, _setup(system.data, {**asked, name: value}), simulator)

        with _labelled(label):
            found.append((label, system, seek(name, goal, forecast)))
    return found


def _forecast(system: LayeredSystem, setup: Setup, simulator: Simulator | None) -> LayeredForecast:
    if simulator is None:
        return system.forecast(setup)
    if setup.links:
        raise FitError("link_mbit: links have no simulation; ask for response_ms or the throughput")
    return simulator(system, system.forecast(setup))


@contextmanager
def _labelled(label: str) -> Iterator[None]:
    """Errors name the configuration."""
    try:
        yield
    except FitError as error:
        raise FitError(f"{label}: {error}" if label else str(error)) from None


def _several(value: Setting | Sequence[Setting]) -> list[Setting]:
    return list(value) if isinstance(value, list | tuple) else [value]  # type: ignore[list-item]


def _setup(data: Demands, asked: Mapping[str, Setting]) -> Setup:
    """What is asked, and what was measured otherwise, with the most clients."""
    clients, pipeline, think = (setting(asked, names) for names in (CLIENTS, PIPELINE, THINK))
    workers, connections, cores = (setting(asked, names) for names in (WORKERS, CONNECTIONS, CORES))

    def only(name: str, values: Floats) -> float:
        if np.ptp(values) > 0:
            raise FitError(f"{name} was a factor: choose a value with --set {name}=…")
        return float(values[0])

    def each(names: Mapping[str, tuple[str, ...]], measured: Floats) -> tuple[int, ...]:
        found = []
        for tier, own in names.items():
            value = setting(asked, own)
            if tier in data.tiers:
                found.append(int(only(own[0], measured[:, data.tiers.index(tier)]) if value is None else value))
            elif value is not None:
                raise FitError(f"{own[0]}: there is no {tier}")
        return tuple(found)

    if "middleware" not in data.tiers and (workers or connections):
        raise FitError("there is no middleware: it has no workers and no connections")
    if workers is not None and not np.isfinite(data.slots).all():
        raise FitError("the middlewares were pipelined and have no worker slots to set")
    if connections is not None and not data.pooled:
        raise FitError("connections: expected a run with fewer connections to a database than workers")
    if data.backends and any(setting(asked, names["store"]) is not None for names in (_PROCESSES, _THREADS)):
        raise FitError("store: PostgreSQL has a process for each connection; set connections or workers")
    processes = each(_PROCESSES, data.processes)
    if data.spread and "middleware" in data.tiers and processes[-1] not in data.processes[:, -1]:
        raise FitError(
            "stores: a write or a sharded multi-get goes to several stores, so their number changes its work; measure "
            f"it, with --set 'store.hosts=[{data.processes[0, -1]:g},{processes[-1]}]'"
        )
    rates = {tier: rate for tier, own in _LINKS.items() if (rate := setting(asked, own)) is not None}
    slots = float(data.slots[0])
    if np.isfinite(data.slots).all():
        slots = only("workers", data.workers) if workers is None else workers
    if data.pooled:
        total = only("connections", data.slots * data.middlewares) if connections is None else connections
        if total % processes[1]:
            raise FitError(f"connections: {total:g} do not divide evenly over {processes[1]} middlewares")
        slots = min(slots, total / processes[1])
    in_flight = only("pipeline", data.pipeline) if pipeline is None else pipeline
    return Setup(
        in_flight * (float((data.customers / data.pipeline).max()) if clients is None else clients),
        _think_ms(data.think) if think is None else think,
        max(1, int(slots)) if np.isfinite(slots) else None,
        processes,
        each(_THREADS, data.each),
        data.cores if cores is None else cores,
        in_flight,
        asked_links(rates, data),
    )


def _think_ms(measured: Floats) -> float:
    """The one think time of the runs: random ones scatter."""
    mean = float(measured.mean())
    if np.ptp(measured) > 2 * THINK_SCATTER * mean:
        raise FitError("the think time was a factor: choose one with --set think_ms=…")
    return mean
