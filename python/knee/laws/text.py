"""The sentences on the laws. A law is violated, cannot be judged, or holds; all laws share one form for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from knee.laws.demands import Demand, DemandReport
from knee.laws.findings import LawReport
from knee.laws.flow import CONSERVATION_TOLERANCE, ConservationCheck
from knee.laws.interactive import InteractiveCheck
from knee.laws.pooled import STAGES, PooledCheck
from knee.laws.residual import VISIBLE_MAX
from knee.laws.stations import StationCheck
from knee.stats.intervals import capital, clients_about, counted, listed, number, quantity

_PLACES_MAX = 4
"""The most points that a sentence names."""

_Check = TypeVar("_Check", InteractiveCheck, StationCheck)


def sentences(report: LawReport) -> list[str]:
    """A sentence for each finding and likely cause; the interactive law of all requests comes first."""
    checks = [check for check in report.interactive if check.verdict != "does not apply"]
    return [
        *([_in_open_loop(report)] if report.open_loop else _interactive(report, checks)),
        *outliers(report),
        *_left_out(report, checks),
        *_types(report, checks),
        *_of_middlewares(report),
        *_stations(report),
        *_conservation(report),
        *_demands(report.demands),
    ]


def _finding(
    report: LawReport, law: str, checks: Sequence[_Check], at: Callable[[Sequence[_Check]], str], worst: str, holds: str
) -> str:
    """The sentences of a law: `at` names the places of some checks, `holds` names all places. `worst` is a sentence on
    the largest error."""
    allowed = f"{report.tolerance:.0%}"
    pooled = [check for check in report.pooled if check.law == checks[0].law]
    visible = _visible(pooled)
    if broken := [check for check in checks if check.verdict == "violated"]:
        return f"{capital(law)} is violated {at(broken)} (allowed deviation {allowed}). {worst}{visible}"
    if of_all := [check for check in pooled if check.verdict == "violated"]:
        errors = [
            f"{check.quantity} of {check.subject} {abs(check.residual.estimate):.1%} ± "
            f"{check.residual.half_width or 0.0:.1%} {'higher' if check.residual.estimate > 0 else 'lower'}"
            for check in of_all
        ]
        return (
            f"{capital(law)} is violated over all {of_all[0].points} points together: it makes "
            f"{listed(errors, ', or ')} than measured (allowed {allowed}).{visible}"
        )
    if unsure := [check for check in checks if check.verdict == "cannot tell"]:
        together = " Averaged over all points, it holds." * all(check.verdict == "holds" for check in pooled)
        cause, remedy = _why_unsure(unsure)
        return (
            f"Cannot tell whether {law} holds within {allowed} {at(unsure)}: {cause}."
            f"{f' {worst}' if worst else ''}{remedy}"
            f"{together if {check.point for check in unsure} < {check.point for check in checks} else ''}{visible}"
        )
    if any(check.verdict == "cannot tell" for check in pooled):
        return (
            f"Cannot tell whether {law} holds within {allowed}: the data could hide a violation of {VISIBLE_MAX:.0%}. "
            f"Repeat more often, or measure longer.{visible}"
        )
    return f"{capital(law)} holds within {allowed} {holds}. {worst}{visible}"


def _visible(pooled: Sequence[PooledCheck]) -> str:
    """The smallest violation of all points that the data could have shown, for each quantity that may be wrong."""
    largest: dict[str, float] = {}
    for check in pooled:
        largest[check.quantity] = max(check.visible, largest.get(check.quantity, 0.0))
    parts = [f"{share:.1%}" + f" of {name}" * (len(largest) > 1) for name, share in largest.items()]
    if not parts:
        return ""
    if any(check.residual.low is None for check in pooled):
        below = f"Even without noise, these data may hide violations below {listed(parts)}."
        return f" {below} Only repetitions show the noise."
    return f" These data may hide violations below {listed(parts)}."


def _why_unsure(checks: Sequence[InteractiveCheck | StationCheck]) -> tuple[str, str]:
    """The largest of three causes (too little to count, scatter of repetitions, or rounding), and a remedy."""
    if all(isinstance(check, StationCheck) and check.is_below_resolution for check in checks):
        return (
            f"the counts there are so small that rounding could hide a violation of {VISIBLE_MAX:.0%}",
            " Measure with more load.",
        )
    comparisons = [
        one for check in checks for one in ((check.comparison,) if isinstance(check, StationCheck) else check.judged)
    ]
    known = [one for one in comparisons if math.isfinite(one.residual.estimate)]
    if not known:
        return "the measured value is zero there, and may have been rounded to zero", ""
    rounded = max(comparison.rounding for comparison in known)
    if rounded > max(comparison.residual.half_width or 0.0 for comparison in known):
        remedy = " Record more digits, or measure longer."
        return f"rounding, or the short counting time, causes an error of ±{rounded:.1%}", remedy
    return "the repetitions scatter too much", " Measure longer, on a quieter machine."


def outliers(report: LawReport) -> list[str]:
    """The repetitions that contradict a law unlike the others of their point; empty without one."""
    places = [
        f"repetition {repetition} at {_points(report, [point])} ({apart:+.1%} in {law})"
        for (point, repetition), (law, apart) in report.outliers.items()
    ]
    return [f"Single repetitions depart from the others of their point: {listed(places, '; ')}."] if places else []


def _in_open_loop(report: LawReport) -> str:
    queues = list(dict.fromkeys(check.station for check in report.stations if check.law == "Little's law"))
    instead = f" Knee checks Little's law at {', '.join(queues)} instead." if queues else ""
    return (
        "The interactive law does not apply: in an open loop, clients neither wait for answers nor think, so there is "
        f"neither N nor Z.{instead}"
    )


def _interactive(report: LawReport, checks: Sequence[InteractiveCheck]) -> list[str]:
    checks = [check for check in checks if check.request_type is None]
    if report.derived:
        return [
            "The interactive law was not checked: every response time is N / X - Z to the last digit, so it was "
            "computed from the throughput."
        ]
    if not checks:
        return [
            "The interactive law was not checked: the check needs rows in which clients, throughput and response_ms "
            "are all above zero."
        ]
    broken = [check for check in checks if check.verdict == "violated"]
    worst = _worst(broken or checks)
    points = len({check.point for check in checks})
    opened = [check for check in report.interactive if check.verdict == "does not apply"]
    # The middlewares' response times cancel in their view.
    used = (
        "the throughputs of clients and middlewares, and the clients' response times"
        if len({check.view for check in checks}) > 1
        else "the throughputs and response times of the clients"
    )
    finding = _finding(
        report,
        "the interactive law",
        checks,
        lambda some: f"at {_places(report, some)}",
        _deviates(worst, f"at {_places(report, [worst])}, in the {worst.view}s' values"),
        f"at {'the one point' if points == 1 else counted(points, 'point') if opened else f'all {points} points'}. "
        f"The check used {used}",
    )
    apart = f" The law does not apply to the open loop at {_places(report, opened)}." if opened else ""
    return [finding + apart, *_causes(report, broken)]


def _of_middlewares(report: LawReport) -> list[str]:
    """How far the middlewares' response times could be wrong without contradicting their stages and the clients."""
    return [
        "Errors of any size in the middlewares' response times would stay hidden: no stage was measured."
        if math.isinf(check.visible)
        else f"No check would notice errors up to {check.visible:.1%} in the middlewares' response times."
        for check in report.pooled
        if check.law == STAGES
    ]


def _worst(checks: Iterable[InteractiveCheck]) -> InteractiveCheck:
    """The check with the largest residual; a check without a residual only if no check has one."""
    return max(checks, key=lambda check: check.residual if math.isfinite(check.residual) else -1.0)


def _deviates(check: InteractiveCheck, where: str) -> str:
    if math.isnan(check.residual):
        return "The deviation is unknown."
    return f"The largest deviation is {check.residual:.2%}, {where}."


def _causes(report: LawReport, broken: Sequence[InteractiveCheck]) -> list[str]:
    """The likely causes at the worst point with too few requests, and at the worst point with too many."""
    few = [check for check in broken if check.throughput.residual.estimate > 0]
    many = [check for check in broken if not check.throughput.residual.estimate > 0]
    groups = [group for group in (few, many) if group]
    return [
        f"Likely cause{f' at {_places(report, group)}' if len(groups) > 1 else ''}: {cause}."
        for group in groups
        for cause in _worst(group).causes
    ]


def _left_out(report: LawReport, checks: Sequence[InteractiveCheck]) -> list[str]:
    """Runs without a throughput or response time, and declared request types that never occurred."""
    found = []
    if report.unusable and checks and not report.open_loop:
        runs = counted(sum(report.unusable.values()), "run")
        where = _points(report, report.unusable)
        found.append(f"The check leaves out {runs}, at {where}: throughput or response time is missing or zero there.")
    if report.absent:
        types = ", ".join(dict.fromkeys(name for names in report.absent.values() for name in names))
        found.append(
            f"Every round of a client should have {types}, but some runs at {_points(report, report.absent)} have no "
            "such answer. A short run may lack one by chance."
        )
    return found


def _types(report: LawReport, checks: Sequence[InteractiveCheck]) -> list[str]:
    typed = [check for check in checks if check.request_type is not None]
    if not typed:
        return []
    broken = [check for check in typed if check.verdict == "violated"]
    worst = _worst(broken or typed)
    finding = _finding(
        report,
        "the interactive law of single request types",
        typed,
        lambda some: f"for {_named(some)} at {_places(report, some)}",
        _deviates(worst, f"at {_places(report, [worst])}, in the values of {worst.request_type}"),
        f"for {_named(typed)}",
    )
    finding += " For each type, the response times of all other types count as think time."
    if not all(check.visits_declared for check in typed):
        finding += (
            " The frequency of each type was computed from the throughputs, so this check repeats the check of "
            "all requests. A column visits, with declared frequencies, makes it an independent check."
        )
    points = {check.point for check in typed}
    if untyped := [check for check in checks if check.point not in points]:
        finding += (
            f" Single types were not checked at {_places(report, untyped)}: a type lacks a throughput or response time."
        )
    return [finding, *(f"Likely cause: {cause}." for cause in (_worst(broken).causes if broken else ()))]


def _named(checks: Iterable[InteractiveCheck]) -> str:
    return ", ".join(dict.fromkeys(str(check.request_type) for check in checks))


def _stations(report: LawReport) -> list[str]:
    found = []
    for law in dict.fromkeys(check.law for check in report.stations):
        checks = [check for check in report.stations if check.law == law]
        doubtful = [check for check in checks if check.verdict == "violated"]
        doubtful = doubtful or [check for check in checks if check.verdict == "cannot tell"] or checks
        names, points = dict.fromkeys(check.station for check in checks), len({check.point for check in checks})
        where = next(iter(names)) if len(names) == 1 else f"all {len(names)} stations with enough measurements"
        found.append(
            _finding(
                report,
                law,
                checks,
                lambda some: f"at {_several(c.station for c in some)}, at {_places(report, some)}",
                _largest(doubtful),
                f"at {where}, at {counted(points, 'point')}",
            )
        )
    return found


def _largest(checks: Sequence[StationCheck]) -> str:
    """The largest residual, or the predicted value if zero was measured; empty if rounding hides the residuals."""
    known = [check.comparison for check in checks]
    if zero := [comparison for comparison in known if not math.isfinite(comparison.residual.estimate)]:
        return f"The measured value is 0, but the law predicts {number(max(one.predicted.estimate for one in zero))}."
    if all(check.is_below_resolution and check.verdict == "cannot tell" for check in checks):
        return ""
    return f"The largest deviation is {max(abs(comparison.residual.estimate) for comparison in known):.1%}."


def _conservation(report: LawReport) -> list[str]:
    tiers = dict.fromkeys(check.tier for check in report.conservation)
    return [_conserved(report, [check for check in report.conservation if check.tier == tier]) for tier in tiers]


def _conserved(report: LawReport, checks: Sequence[ConservationCheck]) -> str:
    worst = max(checks, key=lambda check: check.apart)
    tier = worst.tier
    if all(check.verdict == "holds" for check in checks):
        return f"Clients and {tier} counted the same number of requests, within {max(worst.apart, 5e-5):.2%}."
    return (
        f"Clients and {tier} counted different numbers of requests: they differ by {worst.apart:.2%} at "
        f"{_points(report, [worst.point])} (allowed {CONSERVATION_TOLERANCE:.1%}). Requests bypassed the {tier} or "
        "were lost, or one-second records are missing."
    )


def _demands(reports: Sequence[DemandReport]) -> list[str]:
    found: list[str] = []
    if len(reports) == 1:
        found.append(bottleneck_sentence(reports[0]))
    elif reports:
        named = Counter(report.bottleneck.station for report in reports if report.bottleneck)
        of_all = f"of {len(reports)} configurations"
        parts = [f"{station} in {count} {of_all}" for station, count in named.most_common()]
        if open_ := len(reports) - named.total():
            parts.append(f"unknown in {open_} {of_all}")
        found.append(f"By service demand, the first station to saturate is {'; '.join(parts)}.")
    found += _without_demand(reports)
    broken = [(report, check) for report in reports for check in report.bounds if check.verdict == "violated"]
    if broken:
        report, check = max(broken, key=lambda pair: pair[1].excess.estimate)
        found.append(
            f"Throughput exceeds the bound of constant service demands at {counted(len(broken), 'point')}, by up to "
            f"{check.excess.estimate:.1%} at {_place(check.clients, report.label, 0)}. A request needs less under load "
            "than alone (batching, warm caches), so the bounds are too low, and N* is too high."
        )
    return found


def _without_demand(reports: Sequence[DemandReport]) -> list[str]:
    """The stations without a service demand, and the reasons."""
    found = []
    for why in dict.fromkeys(why for report in reports for why in report.untold.values()):
        stations = dict.fromkeys(name for report in reports for name, reason in report.untold.items() if reason == why)
        count = sum(why in report.untold.values() for report in reports)
        where = f" in {count} of {len(reports)} configurations" if len(reports) > 1 else ""
        found.append(f"The service demand of {listed(list(stations))} is unknown{where}: {why}.")
    return found


def bottleneck_sentence(report: DemandReport) -> str:
    """The bottleneck of one configuration by service demand, and N*."""
    if report.bottleneck is None:
        text = f"By service demand, the first station to saturate is unknown: {report.doubt}."
    else:
        station, doubt = report.bottleneck, f" ({report.doubt})" if report.doubt else ""
        aside = ", apart from software such as worker slots," if report.skips_software else ""
        text = (
            f"By service demand, the first station to saturate{aside} is {station.station}{doubt}. A request needs "
            f"{number(station.demand_ms.estimate)} ms there, so {_servers(station)} at most "
            f"{capacity(station)}."
        )
    if report.saturation is not None:
        at = "at or below" if report.light_waits else "at"
        text += f" Saturation begins {at} N* = {clients_about(report.saturation)}."
        text += f" Knee computes N* from {report.light_source}."
    return text


def capacity(station: Demand) -> str:
    """The station's capacity, or why it has no interval."""
    rate = quantity(station.shown_capacity, "requests/s")
    if station.shown_capacity is station.capacity:
        return rate
    return f"about {rate} (the runs differ too much for an interval)"


def _servers(demand: Demand) -> str:
    count = round(demand.servers)
    if abs(demand.servers - count) >= 0.005:
        if demand.station.endswith("'s CPU"):
            return f"the {demand.servers:.2f} processors that other programs left allow"
        return f"the station's {demand.servers:.2f} servers allow"
    return "the station's single server allows" if count == 1 else f"the station's {count} servers allow"


def _places(report: LawReport, checks: Iterable[InteractiveCheck | StationCheck]) -> str:
    """The places of checks: client counts, with the configuration if there are several."""
    chosen = list(checks)
    counts = sorted({check.clients for check in chosen if check.clients is not None})
    if counts and not any(report.labels.values()):
        return _several(map(str, counts)) + (" client" if counts == [1] else " clients")
    return _points(report, [check.point for check in chosen])


def _several(names: Iterable[str]) -> str:
    """“a, b and c”: each name once."""
    *others, last = dict.fromkeys(names)
    return f"{', '.join(others)} and {last}" if others else last


def _points(report: LawReport, points: Iterable[int]) -> str:
    """The first few points, each by its clients and configuration."""
    places = dict.fromkeys(_place(report.clients.get(point), report.labels.get(point, ""), point) for point in points)
    more = f" and {len(places) - _PLACES_MAX} more" if len(places) > _PLACES_MAX else ""
    return "; ".join(list(places)[:_PLACES_MAX]) + more


def _place(clients: int | None, label: str, point: int) -> str:
    parts = [] if clients is None else [counted(clients, "client")]
    if label:
        parts.append(f"({label})" if parts else label)
    return " ".join(parts) or f"point {point}"
