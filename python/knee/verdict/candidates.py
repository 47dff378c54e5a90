"""The candidates for the bottleneck: each resource of each tier, with its utilisation. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from knee.data.measurements import StationKind
from knee.data.utilization import SATURATED, cpu_of
from knee.stats.intervals import LEVEL, Interval, difference_interval, mean_interval

CLOSE = 0.05
"""If the utilisations of two saturated resources differ by less than this, both are bottlenecks."""

FULL = 0.97
"""A table's station limits throughput only if it is at least this busy beyond the knee: throughput can then grow by
at most 3 %. With less, an unmeasured resource limits throughput."""

BEYOND = 2.0
"""From this multiple of the knee on, the station that limits throughput is full."""

FOLLOWS = 0.8
"""While a station with a constant demand fills, throughput grows as its utilisation does (utilisation law):
d ln X / d ln U is 1. Below this value, requests also wait there for another resource."""

_FILLING_MAX = 0.80
"""The largest utilisation at which a station still fills."""

_POLLING_MAX = 0.5
"""A station that is as busy at a load with less than this share of the plateau's throughput polls."""

Resource = (
    Literal[
        "worker slots", "connections", "commits", "thread", "CPU share", "sending link", "receiving link", "host CPU"
    ]
    | StationKind
)
"""A :data:`StationKind` comes from a table; "station" and "generator" count as physical resources."""

SLOTS = ("worker slots", "connections", "software")
"""From the client inwards: a request holds one of these while it waits for the next resource."""

SOFT = (*SLOTS, "commits")
"""Resources that are busy whenever the resource behind them is: slots wait for a store, and a commit takes all waiting
writes."""

_ROLE_NAMES = {"load": "load generator", "middleware": "middleware", "store": "store"}
_STATION_KINDS = ("station", "generator", "software")


@dataclass(frozen=True)
class Plateau:
    """How well a table's station explains that throughput stops to grow.

    share    utilisation over the runs of `clients` and more clients: of at least BEYOND times the knee and half of the
             most clients, or else of the most clients
    beyond   whether they have at least BEYOND times the clients of the knee
    follows  d ln X / d ln U from the last load with a utilisation of at most 80 % to these runs; None without one
    polls    whether it was as busy at a lighter load, for far fewer requests: it is busy while it waits
    """

    share: Interval
    clients: int
    beyond: bool
    follows: Interval | None
    polls: bool = False


@dataclass(frozen=True)
class Candidate:
    """A resource with the utilisation of its busiest process.

    `first_saturated` is the smallest client count at which it was saturated; None if never. `plateau` is None except
    for a table's stations.
    """

    name: str
    resource: Resource
    role: str
    process: str
    at_knee: Interval
    at_most: Interval
    first_saturated: int | None
    plateau: Plateau | None = None

    @property
    def generates(self) -> bool:
        """Whether this is a resource of the load generator."""
        return self.resource == "generator" or (self.role == "load" and self.resource not in _STATION_KINDS)

    @property
    def is_soft(self) -> bool:
        """Whether this resource is also busy if the resource behind it is."""
        return self.resource in SOFT

    @property
    def is_full(self) -> bool:
        """Whether a table's station is as busy beyond the knee as a limit is."""
        return self.plateau is not None and self.plateau.share.estimate >= FULL

    @property
    def polls(self) -> bool:
        """Whether a table's station is busy while it waits."""
        return self.plateau is not None and self.plateau.polls

    @property
    def follows(self) -> bool:
        """Whether throughput grew while a table's station filled."""
        return self._follows is not None and self._follows.estimate >= FOLLOWS

    @property
    def waits(self) -> bool:
        """Whether throughput hardly grew while a table's station filled: requests wait there for another resource."""
        return self._follows is not None and not self.follows

    @property
    def may_wait(self) -> bool:
        """Whether a table's station waits, or is a pool that may wait within the noise."""
        low = None if self._follows is None else self._follows.low
        return self.waits or (self.is_soft and (low is None or low < FOLLOWS))

    @property
    def _follows(self) -> Interval | None:
        return None if self.plateau is None else self.plateau.follows


def candidates_of(
    utilization: pl.DataFrame, at_knee: int, most: int, level: float = LEVEL, *, knee: float | None = None
) -> tuple[Candidate, ...]:
    """One candidate per role and resource, busiest first: the process that is busiest at the most clients. The
    processors of each machine are a candidate.

    Parameters
    ----------
    utilization
        `clients, throughput, role, process, resource, utilization` by run.
    at_knee, most
        Client counts at the knee and at the most clients.
    knee
        The knee in clients; None if throughput still rises at `most`, or without clients.
    """
    found: list[Candidate] = []
    machine = pl.when(pl.col("resource") == "host CPU").then("process").alias("machine")
    for (role, resource, _), rows in utilization.sort("role", "resource", "process").group_by(
        "role", "resource", machine, maintain_order=True
    ):
        means = rows.group_by("clients", "process").agg(pl.col("utilization").mean())
        last = means.filter(pl.col("clients") == most).sort("utilization", "process")
        if last.is_empty():
            continue
        process = str(last["process"][-1])
        own = rows.filter(pl.col("process") == process)
        saturated = means.filter((pl.col("process") == process) & (pl.col("utilization") >= SATURATED))[
            "clients"
        ].to_list()

        def at(count: int, own: pl.DataFrame = own) -> Interval:
            values = own.filter(pl.col("clients") == count)["utilization"].to_numpy()
            return mean_interval(values, level)

        candidate = Candidate(
            name=_name(str(role), str(resource), process),
            resource=str(resource),  # type: ignore[arg-type]
            role=str(role),
            process=process,
            at_knee=at(at_knee),
            at_most=at(most),
            first_saturated=min(saturated, default=None),
        )
        if resource in _STATION_KINDS:
            candidate = replace(candidate, plateau=_plateau(own, most, knee, level))
        found.append(candidate)
    return tuple(sorted(found, key=lambda candidate: -candidate.at_most.estimate))


def limits_among(stations: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The stations of a table that explain the plateau, the busiest first; none if no station does.

    A full station limits throughput, unless it polls, or is a pool that waits for another resource. Of several full
    stations, physical ones rank before pools, and stations that throughput followed before the others. Of equal rank,
    the busiest count, at the knee and beyond.
    """
    full = [c for c in stations if c.is_full and not c.polls]
    # A pool limits throughput only if no resource behind it is nearly full, and throughput follows the pool's use.
    alone = not any(not c.is_soft and c.at_most.estimate >= SATURATED for c in stations)
    ranks = (
        [c for c in full if not (c.is_soft or c.waits)],
        [c for c in full if alone and c.follows],
        [c for c in full if not c.is_soft],
    )
    ranked = next((rank for rank in ranks if rank), [])

    def least(candidate: Candidate) -> float:
        assert candidate.plateau is not None
        # A run at the knee may lack the station.
        return float(np.nanmin([candidate.at_knee.estimate, candidate.plateau.share.estimate]))

    top = max(map(least, ranked), default=0.0)
    return tuple(sorted((c for c in ranked if least(c) >= top - CLOSE), key=least, reverse=True))


def _plateau(own: pl.DataFrame, most: int, knee: float | None, level: float) -> Plateau:
    beyond = knee is not None and most >= BEYOND * knee
    least = max(BEYOND * knee, most / 2) if knee is not None and beyond else most
    rows = own.filter(pl.col("clients") >= least)
    share = mean_interval(rows["utilization"].to_numpy(), level)
    lighter = own.filter((pl.col("clients") < least) & (pl.col("utilization") > 0))
    means = lighter.group_by("clients").agg(pl.col("utilization", "throughput").mean())
    filling = means.filter(pl.col("utilization") <= _FILLING_MAX)
    few = means.filter(pl.col("throughput") < _POLLING_MAX * float(rows["throughput"].to_numpy().mean()))
    polls = not few.filter(pl.col("utilization") >= (FULL if filling.height else _FILLING_MAX)).is_empty()
    first = int(rows["clients"].min())  # type: ignore[arg-type]
    after = rows.filter(pl.col("utilization") > 0)
    follows = None
    if filling.height and after.height:
        before = lighter.filter(pl.col("clients") == filling["clients"].max())
        follows = _elasticity(before, after, level)
    return Plateau(share, first, beyond, follows, polls)


def _elasticity(before: pl.DataFrame, after: pl.DataFrame, level: float) -> Interval | None:
    """d ln X / d ln U between the runs of two loads, with the propagated uncertainty; None if U does not rise."""
    more, busier = (
        difference_interval(after[name].log().to_numpy(), before[name].log().to_numpy(), level)
        for name in ("throughput", "utilization")
    )
    if busier.estimate <= 0:
        return None
    found = more.estimate / busier.estimate
    if more.half_width is None or busier.half_width is None:
        return replace(more, estimate=found, low=None, high=None)
    half_width = math.hypot(more.half_width, found * busier.half_width) / busier.estimate
    return replace(more, estimate=found, low=found - half_width, high=found + half_width)


def _name(role: str, resource: str, process: str) -> str:
    if resource in _STATION_KINDS:
        return f"station {role}"
    if resource == "host CPU":
        return cpu_of(process)
    what = {"commits": "commits to disk", "thread": "busiest thread"}.get(resource, resource)
    return f"the {_ROLE_NAMES[role]}'s {what}"
