"""The answer of `knee laws`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from knee import laws as analysis
from knee.answers.diagnose import Level
from knee.laws import Comparison, InteractiveCheck, LawReport
from knee.laws.stations import StationCheck
from knee.stats.intervals import Interval


@dataclass(frozen=True)
class Check:
    """A law at a point, for the requests of a `subject`: "client", "middleware" or a station. `residual` is
    predicted / measured − 1."""

    law: str
    point: int
    clients: int | None
    subject: str
    request_type: str | None
    verdict: str
    measured: Interval
    predicted: Interval
    residual: Interval


@dataclass(frozen=True)
class Balance:
    """The requests that a tier counted over those that the clients counted, at a point."""

    tier: str
    point: int
    clients: int
    verdict: str
    ratio: Interval


@dataclass(frozen=True)
class Demand:
    """The service demand of a request at a station, and the throughput in requests/s that it allows at most."""

    station: str
    demand_ms: Interval
    utilization: Interval | None
    capacity: Interval


@dataclass(frozen=True)
class Demands:
    """The demands of a configuration at the number of clients with the largest throughput. `saturation` is N* in
    clients."""

    factors: Mapping[str, Level]
    clients: int | None
    bottleneck: str | None
    saturation: Interval | None
    stations: tuple[Demand, ...]


@dataclass(frozen=True)
class Laws:
    """Whether the operational laws hold within `tolerance`."""

    violated: bool
    tolerance: float
    checks: tuple[Check, ...]
    balances: tuple[Balance, ...]
    demands: tuple[Demands, ...]
    text: tuple[str, ...]


def of(found: LawReport) -> Laws:
    """The answer of this report."""

    def check(each: InteractiveCheck | StationCheck, subject: str, request_type: str | None, of: Comparison) -> Check:
        numbers = of.measured, of.predicted, of.residual
        return Check(each.law, each.point, each.clients, subject, request_type, each.verdict, *numbers)

    checks = [check(each, each.view, each.request_type, each.throughput) for each in found.interactive]
    checks += [check(each, each.station, None, each.comparison) for each in found.stations]
    balances = tuple(
        Balance(each.tier, each.point, each.clients, each.verdict, each.ratio) for each in found.conservation
    )
    verdicts = {each.verdict for of in (checks, balances, found.pooled) for each in of}
    return Laws(
        violated="violated" in verdicts,
        tolerance=found.tolerance,
        checks=tuple(checks),
        balances=balances,
        demands=tuple(
            Demands(
                each.factors,
                each.clients,
                each.bottleneck.station if each.bottleneck else None,
                each.saturation,
                tuple(Demand(one.station, one.demand_ms, one.utilization, one.capacity) for one in each.demands),
            )
            for each in found.demands
        ),
        text=tuple(analysis.sentences(found)),
    )
