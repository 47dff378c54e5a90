"""The data for a fit: throughput and response time over client counts, with worker slots and think times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl
from scipy import special

from knee.errors import FitError
from knee.queueing import POPULATION_MAX
from knee.stats.intervals import Floats

CLIENTS_MIN = 3
"""Fewest client counts for cross-validation: one count lies between two others, which predict it."""

THINK_SCATTER = 0.05
"""Measured mean think times within this relative range count as one think time, because random think times scatter.
If the column DECLARED exists, it decides instead.
"""

DECLARED = "declared_think_ms"
"""The column with the think time in the experiment file."""

LAW_FACTOR = 1.5
"""Largest median factor between the two sides of the interactive law for rows of one closed loop. Test data are within
1 %."""

OPEN_LOOP = "the load is an open loop, and the models are of closed ones: measure with a think time instead"

SLOTS, CONNECTED = "worker slots", "connections"
"""Names of the servers that `slots` counts."""

FALL = 0.05
"""Logarithm of the least fall of throughput that counts without repetitions."""

FALL_ERROR = 0.025
"""Probability of a fall by chance."""

ROUNDING = 1e-6
"""Logarithm of the largest fall that rounding explains."""

View = Literal["client", "middleware"]

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Curve:
    """Rows of one configuration that differ in clients, worker slots, think time and repetition; every array is (n).

    customers    N, clients times the requests that each client keeps in flight
    think_ms     Z. In the middleware's view, Z excludes the delay between client and middleware, which is a parameter
                 of the model
    slots        worker slots of all middlewares together, or their connections to a database if there are fewer
                 connections than slots. NaN if unknown
    throughput   X, requests/s
    response_ms  R: the client's response time, or in the middleware's view the sum of queueing and service time
    point        number of the point; rows with the same number are repetitions of each other
    view         the view in which the response time was measured. Only the client's response time includes the delay
                 between client and middleware
    servers      the servers that `slots` counts: worker slots, connections or both
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
        """Independent measurements at each point. In a closed loop the client's response time follows from the
        throughput (X = N / (R + Z)). The middleware's response time does not, because it excludes the network delay."""
        return 1 if self.view == "client" else 2

    @property
    def points_left(self) -> int:
        """The fewest points that remain when cross-validation leaves out one client count other than the smallest."""
        return min(np.unique(self.point[self.customers != count]).size for count in self.counts[1:])

    @cached_property
    def alike(self) -> list[tuple[float, float, Mask]]:
        """Think time in ms, slots (NaN if unknown) and the mask of rows with both. One solution covers each such
        group."""
        keys = np.stack([self.think_ms, np.nan_to_num(self.slots, nan=-1.0)], axis=1)
        return [
            (float(think_ms), float(slots) if slots >= 0 else float("nan"), (keys == (think_ms, slots)).all(axis=1))
            for think_ms, slots in np.unique(keys, axis=0)
        ]

    @cached_property
    def falls(self) -> bool:
        """Whether throughput at the largest client count surely lies below an earlier count's, at some slots and think
        time: by one-sided t tests of all earlier counts (Bonferroni), or without repetitions by more than FALL."""
        return any(_falls(self.where(rows)) for _, _, rows in self.alike)

    @property
    def knows_slots(self) -> bool:
        """Whether the number of worker slots is known in every row."""
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
        """A copy with other throughputs (requests/s) and response times (ms)."""
        return replace(self, throughput=throughput, response_ms=response_ms)


def curve_of(rows: pl.DataFrame) -> Curve:
    """The rows of one configuration (:mod:`knee.data.observations`, or a foreign CSV) as a curve.

    Raises FitError if the load is not a closed loop, a column is missing, there are fewer than CLIENTS_MIN client
    counts or too many clients, the number of slots is missing in some rows, or the interactive law does not hold.
    """
    for name in ("clients", "throughput"):
        if name not in rows.columns:
            raise FitError(f"a model needs the column {name}: measure it, or name it with --map")
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
            "a model needs response_ms, or queueing_ms and service_ms: measure them, or name them with --map"
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
            f"a model needs {CLIENTS_MIN} client counts or more, to hide some and predict them from the others; there "
            f"{'is' if len(curve.counts) == 1 else 'are'} {len(curve.counts)}: measure more"
        )
    if curve.counts[-1] > POPULATION_MAX:
        raise FitError(f"clients: models are solved for at most {POPULATION_MAX:,}, not {curve.counts[-1]:,.0f}")
    workers = _first(known, WORKERS)
    if workers is not None and known[workers].n_unique() > 1 and not curve.knows_slots:
        raise FitError(f"{workers}: the number differs between rows, so every row needs one, at least 1")
    _check_loop(curve)
    return curve


def _falls(curve: Curve) -> bool:
    logs = [np.log(curve.throughput[curve.customers == count]) for count in curve.counts]
    means, runs = np.array([each.mean() for each in logs]), np.array([each.size for each in logs])
    freedom, most = int((runs - 1).sum()), int(means.argmax())
    drop = float(means[most] - means[-1])
    if freedom == 0:
        return drop > FALL
    variance = sum(float(np.square(each - each.mean()).sum()) for each in logs) / freedom
    surely = float(special.stdtrit(freedom, 1 - FALL_ERROR / max(1, len(logs) - 1)))
    return drop > surely * math.sqrt(variance * (1 / runs[most] + 1 / runs[-1])) + ROUNDING


def _check_loop(curve: Curve) -> None:
    """Check the interactive law, N = X (R + Z). The middleware's R may be shorter than the client's, but not longer."""
    loop_ms = 1000 * curve.customers / curve.throughput
    logs = np.log((curve.response_ms + curve.think_ms) / loop_ms)
    off = float(np.median(logs))
    if off > np.log(LAW_FACTOR) or (curve.view == "client" and off < -np.log(LAW_FACTOR)):
        raise FitError(
            f"clients, throughput and response time do not fit one closed loop: response time plus think time is "
            f"{np.exp(off):.2g} times clients / throughput (median): check the units, think_ms, and the view of times"
        )


def same_think(asked_ms: float, measured_ms: Floats) -> bool:
    """Whether a think time equals the mean of the measured ones, within THINK_SCATTER."""
    return bool(abs(asked_ms - measured_ms.mean()) <= THINK_SCATTER * measured_ms.mean())


def taken_ms(asked_ms: float, rows: pl.DataFrame, curve: Curve) -> float:
    """The curve's think time for a declared one in the experiment file; any other think time is returned unchanged."""
    if DECLARED in rows.columns:
        taken = rows.filter(pl.col(DECLARED) == asked_ms)["think_ms"].mean()
        if isinstance(taken, float):
            return float(curve.think_ms[np.argmin(np.abs(curve.think_ms - taken))])
    return asked_ms


def _think_ms(rows: pl.DataFrame) -> Floats:
    """Z of every row in ms: the mean over rows with the same declared think time. Without that column, the mean over
    all rows if they lie within THINK_SCATTER."""
    if DECLARED in rows.columns and not rows[DECLARED].is_null().any():
        return rows.select(pl.col("think_ms").cast(pl.Float64).mean().over(DECLARED))["think_ms"].to_numpy()
    each = rows["think_ms"].cast(pl.Float64).to_numpy()
    if each.size and np.ptp(each) <= THINK_SCATTER * each.mean():
        return np.full(each.size, each.mean())
    return np.asarray(each, dtype=np.float64)


def servers_of(rows: pl.DataFrame) -> Floats:
    """Number of requests served at a time in each row: worker slots, or connections if these are fewer."""
    return np.fmin(worker_slots_of(rows), connections_of(rows))


def servers_in_words(slots: Floats, connections: Floats) -> str:
    """Whether worker slots, connections or both limit how many requests are served at a time."""
    fewer = connections < slots
    return CONNECTED if fewer.size and fewer.all() else f"{SLOTS} or {CONNECTED}" if fewer.any() else SLOTS


def connections_of(rows: pl.DataFrame) -> Floats:
    """Connections to a database over all middlewares; NaN if unknown. NaN also without a number of worker slots,
    because the column may then mean other connections.
    """
    name = _first(rows, CONNECTIONS)
    if name is None:
        return np.full(rows.height, np.nan)
    each = rows[name].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
    return np.where((each >= 1) & np.isfinite(worker_slots_of(rows)), each, np.nan)


def knows_connections(rows: pl.DataFrame) -> bool:
    """Whether every row has a number of connections, so that models can predict other numbers."""
    return bool(rows.height) and bool(np.isfinite(connections_of(rows)).all())


def connections_follow(rows: pl.DataFrame) -> bool:
    """Whether there is one connection for each worker slot: if the experiment gives no number of connections.

    A CSV with connections always gives a number.
    """
    return "connections_follow" in rows.columns and rows["connections_follow"].fill_null(value=False).all()


def worker_slots_of(rows: pl.DataFrame) -> Floats:
    """Worker slots over all middlewares: workers times middlewares. NaN if unknown, and if there is no middleware."""
    workers = _first(rows, WORKERS)
    if workers is None:
        return np.full(rows.height, np.nan)
    each = rows[workers].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
    slots = np.asarray(each * middlewares_of(rows), dtype=np.float64)
    return np.where(slots >= 1, slots, np.nan)


def middlewares_of(rows: pl.DataFrame) -> Floats:
    """Number of middlewares in each row; one if unknown. Raises FitError for a value that is not a number."""
    name = _first(rows, MIDDLEWARES)
    if name is None:
        return np.ones(rows.height)
    try:
        return rows[name].cast(pl.Float64).fill_null(1.0).to_numpy()
    except pl.exceptions.InvalidOperationError:
        raise FitError(
            f"{name}: expected a number in every row, because worker slots are workers × middlewares"
        ) from None


WORKERS = ("workers", "middleware.workers")
CONNECTIONS = ("connections", "middleware.connections")
MIDDLEWARES = ("middlewares", "middleware.hosts")


def _first(rows: pl.DataFrame, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in rows.columns), None)
