"""A scenario: the load and the worker slots for which a model predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.errors import FitError
from knee.fit.curve import (
    CONNECTIONS,
    SLOTS,
    THINK_SCATTER,
    WORKERS,
    Curve,
    connections_follow,
    connections_of,
    knows_connections,
    middlewares_of,
    servers_in_words,
    taken_ms,
    worker_slots_of,
)
from knee.queueing import POPULATION_MAX
from knee.stats.intervals import number

CLIENTS = ("clients", "load.clients")

THINK = ("think_ms", "workload.think_ms")

PIPELINE = ("pipeline", "workload.pipeline")

THINK_MAX_MS = 10**9
"""Eleven days: with far longer think times, rounding errors exceed the response time."""

Setting = int | float | str | bool


@dataclass(frozen=True)
class Scenario:
    """A load, and the number of worker slots, or of connections if these are fewer. `slots` is NaN if unknown;
    `servers` names the counted servers.
    """

    clients: float
    pipeline: float
    think_ms: float
    slots: float
    servers: str = SLOTS

    @property
    def customers(self) -> float:
        """N: the number of requests in flight, clients times pipeline."""
        return float(round(self.clients * self.pipeline))


def scenario_of(rows: pl.DataFrame, curve: Curve, asked: Mapping[str, Setting]) -> Scenario:
    """The scenario of the given settings. Other settings are as measured, with the most clients and requests in flight.
    Raises FitError for an invalid setting, and if a setting that varied in the measurements has no value.
    """
    clients, pipeline = setting(asked, CLIENTS), setting(asked, PIPELINE)
    workers, think_ms = setting(asked, WORKERS), setting(asked, THINK)
    every, pools = worker_slots_of(rows), connections_of(rows)
    slots, pool = float(every[-1]), float(pools[-1])
    if workers is not None:
        slots = workers * float(middlewares_of(rows)[-1])
        if slots > POPULATION_MAX:
            raise FitError(f"workers × middlewares: expected at most {POPULATION_MAX:,}, not {slots:,.0f}")
    elif curve.knows_slots and np.ptp(every):
        raise FitError("the number of workers was a factor: choose one with --set workers=…")
    if knows_connections(rows):
        connections = setting(asked, CONNECTIONS)
        if connections is not None:
            pool = connections
        elif connections_follow(rows):
            pool = slots
        elif np.ptp(pools):
            raise FitError("the number of connections was a factor: choose one with --set connections=…")
    if think_ms is not None:
        think_ms = taken_ms(think_ms, rows, curve)
    elif np.ptp(curve.think_ms):
        raise FitError("the think time was a factor: choose one with --set think_ms=…")
    scenario = Scenario(
        clients=float(rows.filter(pl.col("throughput") > 0)["clients"].max()) if clients is None else clients,  # type: ignore[arg-type]
        pipeline=pipelines_of(rows)[-1] if pipeline is None else pipeline,
        think_ms=float(curve.think_ms.mean()) if think_ms is None else think_ms,
        slots=float(np.fmin(slots, pool)),
        servers=servers_in_words(np.array([slots]), np.array([pool])),
    )
    if scenario.customers > POPULATION_MAX:
        raise FitError(f"clients × pipeline: expected at most {POPULATION_MAX:,}, not {scenario.customers:,.0f}")
    return scenario


def setting(asked: Mapping[str, Setting], names: Sequence[str]) -> float | None:
    """The value of a setting under one of its names; None if it is not asked. Raises FitError for a wrong value."""
    given = [name for name in names if name in asked]
    if not given:
        return None
    if len(given) > 1:
        raise FitError(f"{' and '.join(given)} are the same setting: give one")
    name, value = given[0], asked[given[0]]
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if names is THINK:
        if not known or not 0 <= value <= THINK_MAX_MS:  # type: ignore[operator]
            raise FitError(f"{name}: expected a number from 0 to {THINK_MAX_MS:,}, not {value!r}")
    elif not known or not 1 <= value <= POPULATION_MAX or value % 1:  # type: ignore[operator]
        raise FitError(f"{name}: expected a whole number from 1 to {POPULATION_MAX:,}, not {value!r}")
    return float(value)


def pipelines_of(rows: pl.DataFrame) -> tuple[float, ...]:
    """The measured numbers of requests in flight per client, ascending; (1,) without such a column."""
    if "pipeline" not in rows.columns:
        return (1.0,)
    return tuple(rows["pipeline"].fill_null(1).cast(pl.Float64).unique().sort().to_list())


def as_curve(curve: Curve, scenarios: Sequence[Scenario]) -> Curve:
    """Scenarios as rows of a curve."""
    nothing = np.full(len(scenarios), np.nan)
    return Curve(
        np.array([scenario.customers for scenario in scenarios]),
        np.array([scenario.think_ms for scenario in scenarios]),
        np.array([scenario.slots for scenario in scenarios]),
        nothing,
        nothing,
        np.arange(len(scenarios)),
        curve.view,
        curve.servers,
    )


def outside_of(curve: Curve, pipelines: Sequence[float], scenario: Scenario) -> list[str]:
    """A clause for each quantity in which a scenario extrapolates."""
    found = []
    # Compare client counts only with rows that have these slots and this think time.
    alike = curve.slots == scenario.slots if curve.knows_slots else np.ones(len(curve), dtype=bool)
    alike &= np.isclose(curve.think_ms, scenario.think_ms, rtol=THINK_SCATTER)
    customers = curve.customers[alike] if alike.any() else curve.customers
    for name, value, measured in (
        ("clients × pipeline" if scenario.pipeline > 1 else "clients", scenario.customers, customers),
        (_served_in_words(curve, scenario), scenario.slots, curve.slots),
        ("think time", scenario.think_ms, curve.think_ms),
    ):
        low, high = float(np.min(measured)), float(np.max(measured))
        if value > high * 1.001:
            found.append(
                f"{_amount(name, value)} is {number(value / high, 2)} times the largest value measured"
                if high
                else f"{_amount(name, value)}, but only 0 was measured"
            )
        elif value < low * 0.999:
            found.append(f"{_amount(name, value)} is {number(value / low, 2)} times the smallest value measured")
    if scenario.pipeline not in pipelines:
        had = " or ".join(_plain(pipeline) for pipeline in pipelines)
        found.append(
            f"requests in flight per client = {_plain(scenario.pipeline)}, but only {had} was measured; the models "
            "treat each request in flight as a client"
        )
    return found


def _served_in_words(curve: Curve, scenario: Scenario) -> str:
    """Name of the quantity that counts the slots of the scenario and of the measurements."""
    if scenario.servers == curve.servers:
        return scenario.servers
    # The same resource limited some of the measured rows.
    instead = "" if scenario.servers in curve.servers else f" instead of {curve.servers}"
    return f"requests served at a time (limited by {scenario.servers}{instead})"


def _amount(name: str, value: float) -> str:
    return f"{name} = {_plain(value)}"


def _plain(value: float) -> str:
    return f"{value:,.10g}"
