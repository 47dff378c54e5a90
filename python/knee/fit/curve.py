"""What a model is fitted to: throughput and response time over client counts, with what is known of the system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from knee.errors import FitError
from knee.queueing import POPULATION_MAX
from knee.stats.intervals import Floats

CLIENTS_MIN = 3
"""Client counts below which none lies between two others, to be left out and predicted from them."""

THINK_SCATTER = 0.05
"""Measured mean think times within this relative range are one think time, unless DECLARED says otherwise: random ones
scatter.
"""

DECLARED = "declared_think_ms"
"""The column that says what was asked for."""

LAW_FACTOR = 1.5
"""How far the interactive law may be off in the median before measurements are not of one loop. Seeds: within 1 %."""

OPEN_LOOP = "the load is an open loop, and the models are of closed ones: measure with a think time instead"

SLOTS, CONNECTED = "worker slots", "connections"
"""What serves requests, in words."""

View = Literal["client", "middleware"]

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Curve:
    """Rows of one configuration that differ in clients, worker slots, think time and repetition; every array is (n).

    Attributes
    ----------
    customers
        N, clients times the requests that each keeps in flight.
    think_ms
        Z. From the middleware's view the way to it is not in here: it is fitted.
    slots
        Worker slots of all middlewares together, or their connections to a database where those are fewer: a request
        that has a slot and waits for a connection does as little as one that waits for a slot. NaN where not known.
    throughput
        X, requests/s.
    response_ms
        R: the client's, or from the middleware's view queueing and service together.
    point
        Which rows are repetitions of each other.
    view
        Whose response time it is. A model adds a delay outside of the middleware to the client's one, and leaves it
        out of the middleware's.
    servers
        What `slots` counts, in words.
    """

    customers: Floats
    think_ms: Floats
    slots: Floats
    throughput: Floats
    response_ms: Floats
    point: np.ndarray[tuple[int], np.dtype[np.int64]]
    view: View
    servers: str = SLOTS

    def __len__(self) -> int:
        return int(self.customers.size)

    @cached_property
    def counts(self) -> list[float]:
        """The distinct client counts, ascending."""
        return sorted(set(self.customers.tolist()))

    @property
    def facts_a_point(self) -> int:
        """Independent facts at each point. In a closed loop the client's response time follows from the throughput
        (X = N / (R + Z)); the middleware's lacks the way to it, and is a fact of its own."""
        return 1 if self.view == "client" else 2

    @property
    def points_left(self) -> int:
        """The fewest points that remain when cross-validation leaves out a client count, any but the smallest."""
        return min(np.unique(self.point[self.customers != count]).size for count in self.counts[1:])

    @cached_property
    def alike(self) -> list[tuple[float, float, Mask]]:
        """Think time, slots (NaN where not known) and the rows that have them: what one solution serves."""
        keys = np.stack([self.think_ms, np.nan_to_num(self.slots, nan=-1.0)], axis=1)
        return [
            (float(think_ms), float(slots) if slots >= 0 else float("nan"), (keys == (think_ms, slots)).all(axis=1))
            for think_ms, slots in np.unique(keys, axis=0)
        ]

    @property
    def knows_slots(self) -> bool:
        """Whether the number of worker slots is known everywhere."""
        return bool(np.isfinite(self.slots).all())

    def where(self, rows: Mask) -> Curve:
        """The chosen rows."""
        return Curve(
            self.customers[rows],
            self.think_ms[rows],
            self.slots[rows],
            self.throughput[rows],
            self.response_ms[rows],
            self.point[rows],
            self.view,
            self.servers,
        )

    def measured(self, throughput: Floats, response_ms: Floats) -> Curve:
        """The same rows with other measurements."""
        return replace(self, throughput=throughput, response_ms=response_ms)


def curve_of(rows: pl.DataFrame) -> Curve:
    """The rows of one configuration (:mod:`knee.data.observations`, or a foreign CSV) as a curve.

    Raises
    ------
    FitError
        Where there is no closed loop, no response time, or fewer than CLIENTS_MIN client counts, naming what lacks;
        where there are too many clients, slots without a number, or times and throughputs of different loops.
    """
    for name in ("clients", "throughput"):
        if name not in rows.columns:
            raise FitError(f"a model takes the column {name}: measure it, or name it with --map")
    known = rows.filter(pl.col("throughput").is_finite() & (pl.col("throughput") > 0))
    if known.height and known["think_ms"].null_count() == known.height:
        raise FitError(OPEN_LOOP)
    known = known.filter(pl.col("think_ms").is_not_null() & pl.col("clients").is_not_null())
    view: View = "client"
    if "response_ms" in rows.columns and rows["response_ms"].is_not_null().any():
        known = known.filter(pl.col("response_ms").is_finite() & (pl.col("response_ms") > 0))
    elif {"queueing_ms", "service_ms"} <= set(known.columns):
        known = known.with_columns((pl.col("queueing_ms") + pl.col("service_ms")).alias("response_ms"))
        known = known.filter(pl.col("response_ms").is_finite() & (pl.col("response_ms") > 0))
        view = "middleware"
    else:
        raise FitError(
            "a model takes response_ms, or queueing_ms and service_ms: measure them, or name them with --map"
        )
    pipeline = pl.col("pipeline").fill_null(1).cast(pl.Float64) if "pipeline" in known.columns else pl.lit(1.0)
    curve = Curve(
        customers=known.select((pl.col("clients").cast(pl.Float64) * pipeline).alias("n"))["n"].to_numpy(),
        think_ms=_think_ms(known),
        slots=servers_of(known),
        throughput=known["throughput"].cast(pl.Float64).to_numpy(),
        response_ms=known["response_ms"].cast(pl.Float64).to_numpy(),
        point=known["point"].to_numpy(),
        view=view,
        servers=servers_in_words(worker_slots_of(known), connections_of(known)),
    )
    if len(curve.counts) < CLIENTS_MIN:
        raise FitError(
            f"a model takes {CLIENTS_MIN} client counts or more, so that some can be left out and predicted from the "
            f"others; there {'is' if len(curve.counts) == 1 else 'are'} {len(curve.counts)}: measure more"
        )
    if curve.counts[-1] > POPULATION_MAX:
        raise FitError(f"clients: models are solved for at most {POPULATION_MAX:,}, not {curve.counts[-1]:,.0f}")
    workers = _first(known, WORKERS)
    if workers is not None and known[workers].n_unique() > 1 and not curve.knows_slots:
        raise FitError(f"{workers}: they differ, so every row needs their number, from 1")
    _check_loop(curve)
    return curve


def _check_loop(curve: Curve) -> None:
    """The interactive law, N = X (R + Z): the middleware's R may be shorter than the client's, and never longer."""
    loop_ms = 1000 * curve.customers / curve.throughput
    logs = np.log((curve.response_ms + curve.think_ms) / loop_ms)
    off = float(np.median(logs))
    if off > np.log(LAW_FACTOR) or (curve.view == "client" and off < -np.log(LAW_FACTOR)):
        raise FitError(
            f"clients, throughput and response time are not of one closed loop: response and think time together are "
            f"{np.exp(off):.2g} times clients / throughput (median): check their units, think_ms, and whose they are"
        )


def same_think(asked_ms: float, measured_ms: Floats) -> bool:
    """Whether a think time is the measured ones' mean, as far as those may scatter."""
    return bool(abs(asked_ms - measured_ms.mean()) <= THINK_SCATTER * measured_ms.mean())


def taken_ms(asked_ms: float, rows: pl.DataFrame, curve: Curve) -> float:
    """The think time of a curve that is meant by one that its experiment asked for; any other means itself."""
    if DECLARED in rows.columns:
        taken = rows.filter(pl.col(DECLARED) == asked_ms)["think_ms"].mean()
        if isinstance(taken, float):
            return float(curve.think_ms[np.argmin(np.abs(curve.think_ms - taken))])
    return asked_ms


def _think_ms(rows: pl.DataFrame) -> Floats:
    """Z of every row: the mean of all with the same declared think time, or else of all that scatter about one."""
    if DECLARED in rows.columns and not rows[DECLARED].is_null().any():
        return rows.select(pl.col("think_ms").cast(pl.Float64).mean().over(DECLARED))["think_ms"].to_numpy()
    each = rows["think_ms"].cast(pl.Float64).to_numpy()
    if each.size and np.ptp(each) <= THINK_SCATTER * each.mean():
        return np.full(each.size, each.mean())
    return np.asarray(each, dtype=np.float64)


def servers_of(rows: pl.DataFrame) -> Floats:
    """How many requests of a row can be served at a time: worker slots, or connections where those are fewer."""
    return np.fmin(worker_slots_of(rows), connections_of(rows))


def servers_in_words(slots: Floats, connections: Floats) -> str:
    """What limits how many requests are served at a time."""
    fewer = connections < slots
    return CONNECTED if fewer.size and fewer.all() else f"{SLOTS} or {CONNECTED}" if fewer.any() else SLOTS


def connections_of(rows: pl.DataFrame) -> Floats:
    """Connections to a database over all middlewares; NaN where not known.

    NaN also without a number of worker slots: the connections may then be those of anything.
    """
    name = _first(rows, CONNECTIONS)
    if name is None:
        return np.full(rows.height, np.nan)
    each = rows[name].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
    return np.where((each >= 1) & np.isfinite(worker_slots_of(rows)), each, np.nan)


def knows_connections(rows: pl.DataFrame) -> bool:
    """Whether the number of connections is known everywhere, so that models know what another one does."""
    return bool(rows.height) and bool(np.isfinite(connections_of(rows)).all())


def connections_follow(rows: pl.DataFrame) -> bool:
    """Whether there is one connection for each worker slot, however many: where the experiment gives no number.

    A CSV always gives one.
    """
    return "connections_follow" in rows.columns and rows["connections_follow"].fill_null(value=False).all()


def worker_slots_of(rows: pl.DataFrame) -> Floats:
    """Worker slots over all middlewares: workers times middlewares, under any of the names that they have.

    NaN where not known, and where there is no middleware.
    """
    workers = _first(rows, WORKERS)
    if workers is None:
        return np.full(rows.height, np.nan)
    each = rows[workers].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
    slots = np.asarray(each * middlewares_of(rows), dtype=np.float64)
    return np.where(slots >= 1, slots, np.nan)


def middlewares_of(rows: pl.DataFrame) -> Floats:
    """How many middlewares every row has; one where not known. Raises FitError for words."""
    name = _first(rows, MIDDLEWARES)
    if name is None:
        return np.ones(rows.height)
    try:
        return rows[name].cast(pl.Float64).fill_null(1.0).to_numpy()
    except pl.exceptions.InvalidOperationError:
        raise FitError(
            f"{name}: expected their number in every row, as worker slots are workers × middlewares"
        ) from None


WORKERS = ("workers", "middleware.workers")
CONNECTIONS = ("connections", "middleware.connections")
MIDDLEWARES = ("middlewares", "middleware.hosts")


def _first(rows: pl.DataFrame, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in rows.columns), None)
