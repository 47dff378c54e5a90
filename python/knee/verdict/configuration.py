"""The knee and the bottleneck of one configuration: one combination of the factors other than the clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from knee.data.measurements import is_open_loop, label_of
from knee.data.trim import RUN
from knee.fit.layered import LayeredSystem
from knee.laws import Demand, LawReport
from knee.laws.foreign import ALL
from knee.verdict.arrivals import Arrivals
from knee.verdict.bottleneck import Bottleneck, find_bottleneck, find_bottleneck_at_rate, without_knee
from knee.verdict.candidates import Candidate
from knee.verdict.evidence import Evidence
from knee.verdict.knee import OPEN_LOOP, Doubt, Knee, Obstacle, find_knee
from knee.verdict.levels import Level
from knee.verdict.limits import Limits, by_limits, limits_of

_KNEE_NEEDS = ("clients", "throughput", "response_ms")


@dataclass(frozen=True)
class Verdict:
    """The knee and the bottleneck at one combination of the factors other than the clients.

    In an open loop a verdict covers one combination of all factors, and so one arrival rate. `limits` are those of the
    layered model; None without a model that explains the measurements.
    """

    factors: dict[str, Level]
    points: tuple[int, ...]
    open_loop: bool
    knee: Knee
    bottleneck: Bottleneck
    limits: Limits | None = None

    @property
    def label(self) -> str:
        """The levels of the combination; empty if the clients are the only factor."""
        return label_of(self.factors)


def verdict_of(
    evidence: Evidence,
    factors: dict[str, Level],
    rows: pl.DataFrame,
    rates: Sequence[Arrivals],
    systems: Sequence[LayeredSystem],
    level: float,
    seed: int,
) -> Verdict:
    """The verdict on the rows of one configuration; `systems` are the layered models of the run."""
    points = tuple(sorted(set(rows["point"].to_list())))
    utilization = evidence.utilizations.join(rows.select(RUN), on=RUN, how="semi")
    shares = evidence.cpu_shares.join(rows.select(RUN), on=RUN, how="semi")
    if is_open_loop(rows):
        notes = evidence.limits.join(rows.select(RUN), on=RUN, how="semi")
        found = next((found for found in rates if points[0] in found.rates), None)
        there = None if found is None else found.at(points[0])
        at_rate = find_bottleneck_at_rate(
            rows,
            utilization,
            shares,
            notes["detail"].to_list(),
            keeps_up=None if found is None else found.keeps_up(points[0]),
            repetitions=None if there is None else there.throughput.repetitions,
            unmeasured=evidence.unmeasured,
            level=level,
        )
        return Verdict(factors, points, open_loop=True, knee=Knee("cannot tell", (), OPEN_LOOP), bottleneck=at_rate)
    if (obstacle := _no_knee(factors, rows)) is not None:
        knee = Knee("cannot tell", (), obstacle)
        return Verdict(factors, points, open_loop=False, knee=knee, bottleneck=without_knee(utilization))
    knee = find_knee(rows, level=level, seed=seed)
    saturated = rows.filter(pl.col("clients") >= (knee.level.clients if knee.level else 0))
    notes = evidence.limits.join(saturated.select(RUN), on=RUN, how="semi")
    bottleneck = find_bottleneck(
        knee,
        rows,
        utilization,
        shares,
        notes.filter(~pl.col("waited"))["detail"].to_list(),
        load_waited=bool(notes["waited"].any()),
        unmeasured=evidence.unmeasured,
        level=level,
    )
    bottleneck, limits = by_limits(bottleneck, limits_of(systems, points, knee))
    return Verdict(factors, points, open_loop=False, knee=knee, bottleneck=bottleneck, limits=limits)


def _no_knee(factors: Mapping[str, Level], rows: pl.DataFrame) -> Obstacle | None:
    """Why a search for a knee is impossible; None if it is possible."""
    missing = tuple(name for name in _KNEE_NEEDS if name not in rows.columns or rows[name].is_null().all())
    if missing:
        return Obstacle("missing columns", missing=missing)
    if not (rows["throughput"] > 0).any():
        return Obstacle("no answer")
    if str(factors.get("request_type", "all")).lower() not in ALL:
        return Obstacle("single request type")
    return None


def with_demands(verdict: Verdict, laws: LawReport) -> Verdict:
    """The verdict with the station of the largest service demand, if the bottleneck is unknown or another one. It is no
    other one if the layered model has it among the limits."""
    # A factor of the other kind of loop has no level.
    known = [({name: level for name, level in own.factors.items() if level is not None}, own) for own in laws.demands]
    first = next((own.bottleneck for factors, own in known if factors == verdict.factors), None)
    bottleneck = verdict.bottleneck
    also = filter(verdict.limits.has, bottleneck.candidates) if verdict.limits else ()
    named = (*bottleneck.chosen, *bottleneck.held, *also)
    if first is None or any(_is_station(candidate, first) for candidate in named):
        return verdict
    bottleneck = replace(bottleneck, by_demand=first)
    if bottleneck.chosen:
        bottleneck = replace(
            bottleneck,
            confidence="medium" if bottleneck.confidence == "high" else "low",
            doubts=(*bottleneck.doubts, Doubt("other demand", name=first.station)),
        )
    return replace(verdict, bottleneck=bottleneck)


def _is_station(candidate: Candidate, demand: Demand) -> bool:
    """Whether a resource, which represents all processes of its tier, is the station of a demand."""
    names = {"thread": "threads", "CPU share": "threads"}
    part = names.get(candidate.resource, candidate.resource)
    of_tier = re.sub(r"-\d+(?='s )", "", demand.station)
    return candidate.name == demand.station or of_tier in (f"{candidate.role}'s {part}", candidate.role, candidate.name)
