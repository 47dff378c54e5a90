"""The laws' findings in words, and as plain-text tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from knee.laws.demands import Demand, DemandReport
from knee.laws.flow import CONSERVATION_TOLERANCE, ConservationCheck
from knee.laws.interactive import InteractiveCheck
from knee.laws.residual import Comparison
from knee.laws.stations import StationCheck
from knee.stats.intervals import Interval, clients_about, counted, listed, number, quantity

if TYPE_CHECKING:
    from knee.laws.findings import LawReport

_PLACES_MAX = 4
"""More than so many places in one sentence nobody reads."""

_ROWS_MAX = 100
"""Of the interactive law's checks, and of configurations, where no details were asked for."""

Labels = Mapping[int, str]


def sentences(
    interactive: Sequence[InteractiveCheck],
    stations: Sequence[StationCheck],
    conservation: Sequence[ConservationCheck],
    demands: Sequence[DemandReport],
    labels: Labels,
    absent: Sequence[tuple[int, int | None, Sequence[str]]],
    unusable: Sequence[tuple[int, int, int]],
    tolerance: float,
    *,
    open_loop: bool,
) -> list[str]:
    """One finding or likely cause each, the interactive law of all requests first.

    `absent` are points, with their clients and the request types that should have occurred there, and `unusable` are
    points, with their clients and how many of their runs lack what that law takes; in an `open_loop` none could.
    """
    return [
        *([_in_open_loop(stations)] if open_loop else _interactive(interactive, labels, tolerance)),
        *(_unusable(unusable, labels) if interactive and not open_loop else ()),
        *_absent(absent, labels),
        *_types(interactive, labels, tolerance),
        *_stations(stations, labels, tolerance),
        *_conservation(conservation, labels),
        *_demands(demands),
    ]


def _places(checks: Iterable[InteractiveCheck | StationCheck], labels: Labels) -> str:
    """Where: client counts, and the configuration where there are several."""
    if not any(labels.values()) and (counts := {check.clients for check in checks if check.clients is not None}):
        return _counts(counts)
    return _listed([_place(check.clients, labels.get(check.point, ""), check.point) for check in checks])


def _counts(counts: Iterable[int]) -> str:
    known = sorted(set(counts))
    return ", ".join(map(str, known)) + (" client" if known == [1] else " clients")


def _listed(places: Iterable[str]) -> str:
    named = list(dict.fromkeys(places))
    more = f" and {len(named) - _PLACES_MAX} more" if len(named) > _PLACES_MAX else ""
    return "; ".join(named[:_PLACES_MAX]) + more


def _place(clients: int | None, label: str, point: int) -> str:
    parts = [] if clients is None else [counted(clients, "client")]
    if label:
        parts.append(f"({label})" if parts else label)
    return " ".join(parts) or f"point {point}"


def _in_open_loop(stations: Sequence[StationCheck]) -> str:
    queues = list(dict.fromkeys(check.station for check in stations if check.law == "Little's law"))
    instead = f" Little's law takes its place, at {', '.join(queues)}." if queues else ""
    return (
        "The interactive law does not apply: the load is an open loop, in which no client waits for its answer and "
        f"thinks before the next request, so there is neither N nor Z.{instead}"
    )


def _interactive(checks: Sequence[InteractiveCheck], labels: Labels, tolerance: float) -> list[str]:
    checks = [check for check in checks if check.request_type is None]
    if all(check.verdict == "does not apply" for check in checks):
        return [
            "The interactive law was not checked: that takes clients, throughput and response_ms in the same rows, "
            "and none of them zero."
        ]
    closed = [check for check in checks if check.verdict != "does not apply"]
    broken = [check for check in closed if check.verdict == "violated"]
    unsure = [check for check in closed if check.verdict == "cannot tell"]
    worst = _worst(broken or closed)
    where = f"worst {_share(worst.residual)}, at {_places([worst], labels)} in the {worst.view}'s view"
    opened = [check for check in checks if check.verdict == "does not apply"]
    apart = f" It does not apply at {_places(opened, labels)}, an open loop." if opened else ""
    if broken:
        return [
            f"The interactive law is violated at {_places(broken, labels)} ({where}; allowed {tolerance:.0%}).{apart}",
            *_causes(broken, labels),
        ]
    if unsure:
        return [
            f"Cannot tell whether the interactive law holds within {tolerance:.0%} at {_places(unsure, labels)}: "
            f"{_why_unsure(check.throughput for check in unsure)} ({where}).{apart}"
        ]
    points = len({check.point for check in closed})
    views = "from the clients' and the middlewares' view" if len({c.view for c in closed}) > 1 else "as clients saw it"
    at = "the one point" if points == 1 else f"{points} points" if opened else f"all {points} points"
    return [f"The interactive law holds within {tolerance:.0%} at {at}, both ways and {views} ({where}).{apart}"]


def _unusable(unusable: Sequence[tuple[int, int, int]], labels: Labels) -> list[str]:
    if not unusable:
        return []
    runs = sum(missing for _, _, missing in unusable)
    where = _listed(_place(clients, labels.get(point, ""), point) for point, clients, _ in unusable)
    return [f"It leaves out {counted(runs, 'run')}, at {where}: throughput or response time is missing or zero there."]


def _absent(absent: Sequence[tuple[int, int | None, Sequence[str]]], labels: Labels) -> list[str]:
    if not absent:
        return []
    types = ", ".join(dict.fromkeys(name for _, _, names in absent for name in names))
    where = _listed(_place(clients, labels.get(point, ""), point) for point, clients, _ in absent)
    return [
        f"By declaration every round of a client has {types}, and in some run none was answered, at {where}. A short "
        "run may lack one by chance."
    ]


def _worst(checks: Iterable[InteractiveCheck]) -> InteractiveCheck:
    """The one with the largest residual; one without any only where none has one."""
    return max(checks, key=lambda check: check.residual if math.isfinite(check.residual) else -1.0)


def _share(residual: float) -> str:
    return f"{residual:.2%}" if math.isfinite(residual) else "unknown"


def _why_unsure(comparisons: Iterable[Comparison]) -> str:
    """Repetitions or rounding, whichever leaves more open."""
    known = [comparison for comparison in comparisons if math.isfinite(comparison.residual.estimate)]
    if not known:
        return "what was measured is zero there, and may have been rounded to it"
    rounded = max(comparison.rounding for comparison in known)
    scattered = max(comparison.residual.half_width or 0.0 for comparison in known)
    if rounded > scattered:
        return (
            f"the numbers are rounded, or counted over so short a time, that it is open by ±{rounded:.1%}. Take more "
            "digits, or measure longer"
        )
    return "the repetitions scatter too far. Measure longer, on a quieter machine"


def _causes(broken: Sequence[InteractiveCheck], labels: Labels) -> list[str]:
    """Likely causes, a line each; those of too few requests and of too many apart, each as the worst point has them."""
    few = [check for check in broken if check.throughput.residual.estimate > 0]
    many = [check for check in broken if not check.throughput.residual.estimate > 0]
    groups = [group for group in (few, many) if group]
    told = []
    for group in groups:
        causes = _worst(group).causes
        at = f" at {_places(group, labels)}" if len(groups) > 1 else ""
        told += [f"Likely cause{at}: {cause}." for cause in causes]
    return told


def _types(checks: Sequence[InteractiveCheck], labels: Labels, tolerance: float) -> list[str]:
    typed = [check for check in checks if check.request_type is not None]
    if not typed:
        return []
    names = list(dict.fromkeys(str(check.request_type) for check in typed))
    of = f"each of the {len(names)} request types ({', '.join(names)})" if len(names) > 2 else " and ".join(names)
    broken = [check for check in typed if check.verdict == "violated"]
    worst = _worst(broken or typed)
    where = f"worst {_share(worst.residual)}, for {worst.request_type} at {_places([worst], labels)}"
    same = (
        ""
        if all(check.visits_declared for check in typed)
        else " How often each type occurs was taken from the throughputs, so this is the law of all requests in other "
        "words; only where that is declared (a column visits) is it a test of its own."
    )
    points = {check.point for check in typed}
    untyped = [check for check in checks if check.verdict != "does not apply" and check.point not in points]
    lacking = (
        f" Not checked by type at {_places(untyped, labels)}: a type lacks its throughput or response time there."
        if untyped
        else ""
    )
    if broken:
        types = ", ".join(dict.fromkeys(str(check.request_type) for check in broken))
        return [
            f"With the other types' response times as think time, the interactive law is violated for {types} at "
            f"{_places(broken, labels)} ({where}; allowed {tolerance:.0%}).{same}{lacking}",
            *(f"Likely cause: {cause}." for cause in _worst(broken).causes),
        ]
    unsure = [check for check in typed if check.verdict == "cannot tell"]
    if unsure:
        types = ", ".join(dict.fromkeys(str(check.request_type) for check in unsure))
        return [
            f"With the other types' response times as think time, cannot tell whether the law holds for {types} at "
            f"{_places(unsure, labels)}: {_why_unsure(check.throughput for check in unsure)} ({where}).{same}{lacking}"
        ]
    return [
        f"The interactive law holds for {of} alone, with the other types' response times as think time ({where})."
        f"{same}{lacking}"
    ]


def _stations(checks: Sequence[StationCheck], labels: Labels, tolerance: float) -> list[str]:
    found: list[str] = []
    for law in dict.fromkeys(check.law for check in checks):
        chosen = [check for check in checks if check.law == law]
        broken = [check for check in chosen if check.verdict == "violated"]
        unsure = [check for check in chosen if check.verdict == "cannot tell"]
        doubtful = broken or unsure
        if doubtful:
            stations = ", ".join(dict.fromkeys(check.station for check in doubtful))
            largest = _largest(check.comparison for check in doubtful)
            found.append(
                f"{_capital(law)} is violated at {stations}, at {_places(broken, labels)} ({largest}; allowed "
                f"{tolerance:.0%})."
                if broken
                else f"Cannot tell whether {law} holds within {tolerance:.0%} at {stations}, at "
                f"{_places(unsure, labels)}: {_why_unsure(check.comparison for check in unsure)} ({largest})."
            )
        else:
            stations_ = list(dict.fromkeys(check.station for check in chosen))
            all_of = "both" if len(stations_) == 2 else f"all {len(stations_)}"
            at = stations_[0] if len(stations_) == 1 else f"{all_of} stations that it can be checked at"
            found.append(f"{_capital(law)} holds at {at}, at {counted(len({c.point for c in chosen}), 'point')}.")
    return found


def _largest(comparisons: Iterable[Comparison]) -> str:
    """The largest residual; where what was measured is zero, what the law makes of it instead."""
    known = list(comparisons)
    if zero := [comparison for comparison in known if not math.isfinite(comparison.residual.estimate)]:
        return f"0 was measured where the law says {number(max(one.predicted.estimate for one in zero))}"
    return f"on average up to {max(abs(comparison.residual.estimate) for comparison in known):.1%} apart"


def _conservation(checks: Sequence[ConservationCheck], labels: Labels) -> list[str]:
    tiers = dict.fromkeys(check.tier for check in checks)
    return [_conserved([check for check in checks if check.tier == tier], labels) for tier in tiers]


def _conserved(checks: Sequence[ConservationCheck], labels: Labels) -> str:
    worst = max(checks, key=lambda check: check.apart)
    tier = worst.tier
    if all(check.verdict == "holds" for check in checks):
        return f"Clients and {tier} counted the same requests, within {max(worst.apart, 5e-5):.2%}."
    where = _place(worst.clients, labels.get(worst.point, ""), worst.point)
    return (
        f"Clients and {tier} disagree on how many requests there were, by {worst.apart:.2%} at {where} "
        f"(allowed {CONSERVATION_TOLERANCE:.1%}): requests bypassed the {tier}, were lost, or windows are missing."
    )


def _demands(reports: Sequence[DemandReport]) -> list[str]:
    found: list[str] = []
    if len(reports) == 1:
        found.append(_bottleneck(reports[0]))
    elif reports:
        named = Counter(report.bottleneck.station for report in reports if report.bottleneck)
        parts = [f"{station} in {count}" for station, count in named.most_common()]
        told = f"the bottleneck is {', '.join(parts)} of {len(reports)} configurations" if parts else ""
        open_ = len(reports) - named.total()
        doubt = f"nobody can tell the bottleneck in {open_} of {len(reports)}" if open_ else ""
        found.append(f"By service demand {'; '.join(part for part in (told, doubt) if part)}.")
    found += _untold(reports)
    broken = [(report, check) for report in reports for check in report.bounds if check.verdict == "violated"]
    if broken:
        report, check = max(broken, key=lambda pair: pair[1].excess.estimate)
        where = _place(check.clients, f"{report.label}" if report.label else "", 0)
        found.append(
            f"Throughput exceeds what constant demands allow at {counted(len(broken), 'point')}, most by "
            f"{check.excess.estimate:.1%} at {where}: a request needs less under load than alone (batching, warm "
            "caches). The bounds are then too low, and N* is too high."
        )
    return found


def _untold(reports: Sequence[DemandReport]) -> list[str]:
    """The stations that a reader will look for among the demands, and why there is none."""
    found = []
    for why in dict.fromkeys(why for report in reports for why in report.untold.values()):
        stations = dict.fromkeys(name for report in reports for name, reason in report.untold.items() if reason == why)
        count = sum(why in report.untold.values() for report in reports)
        where = f" in {count} of {len(reports)} configurations" if len(reports) > 1 else ""
        found.append(f"No service demand is told of {listed(list(stations))}{where}: {why}.")
    return found


def _bottleneck(report: DemandReport) -> str:
    if report.bottleneck is None:
        text = f"By service demand nobody can tell the bottleneck: {report.doubt}."
    else:
        station = report.bottleneck
        doubt = f" ({report.doubt})" if report.doubt else ""
        demand_ms = number(station.demand_ms.estimate)
        text = (
            f"By service demand the bottleneck is {station.station}{doubt}: {demand_ms} ms a request on "
            f"{_servers(station)} allow at most {quantity(station.capacity, 'requests/s')}."
        )
    if report.saturation is not None:
        equals = "is at most" if report.light_waits else "="
        count = f"{clients_about(report.saturation)}, with {report.light_source} as R without waiting."
        text += f" N* {equals} {count}"
    return text


def _servers(demand: Demand) -> str:
    if abs(demand.servers - round(demand.servers)) < 0.005:
        return counted(round(demand.servers), "server")
    return f"{demand.servers:.2f} servers"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def render_text(report: LawReport, *, details: bool = False) -> str:
    """The findings, and below them the numbers behind them as plain-text tables.

    Without `details` those of the interactive law, and the demands where there is one configuration or else a line for
    each; with them also the stations' laws, every configuration's demands, and the bounds.
    """
    parts = ["\n".join(report.sentences)]
    if report.interactive:
        parts.append(_interactive_table(report, None if details else _ROWS_MAX))
    if details and report.stations:
        parts.append(_station_table(report))
    if details or len(report.demands) == 1:
        parts += [_demand_table(demands) for demands in report.demands]
    elif report.demands:
        lines = [f"{demands.label}: {_bottleneck(demands)}" for demands in report.demands[:_ROWS_MAX]]
        parts.append("\n".join([*lines, *_more(len(report.demands) - len(lines), "configuration")]))
    if details:
        parts += [_bound_table(demands) for demands in report.demands if demands.bounds]
    return "\n\n".join(parts)


def _more(count: int, noun: str) -> list[str]:
    return [f"… and {counted(count, f'more {noun}')}: --details shows them all"] if count > 0 else []


def _interactive_table(report: LawReport, rows_max: int | None) -> str:
    checks = report.interactive
    if rows_max is not None and len(checks) > rows_max:
        # The worst ones, in the order of the points.
        doubtful = sorted(checks, key=lambda check: (check.verdict == "holds", -check.residual))[:rows_max]
        chosen = {id(check) for check in doubtful}
        checks = tuple(check for check in checks if id(check) in chosen)
    header = (
        "point",
        "clients",
        "view",
        "type",
        "Z ms",
        "X /s",
        "by law",
        "apart",
        "R ms",
        "by law",
        "apart",
        "verdict",
    )
    rows = [
        (
            str(check.point),
            "–" if check.clients is None else str(check.clients),
            check.view,
            check.request_type or "all",
            number(check.think_ms.estimate),
            number(check.throughput.measured.estimate),
            number(check.throughput.predicted.estimate),
            _percent(check.throughput),
            number(check.response_ms.measured.estimate),
            number(check.response_ms.predicted.estimate),
            _percent(check.response_ms) if check.judges_response else "–",
            check.verdict,
        )
        for check in checks
    ]
    text = "\n".join([_table(header, rows), *_more(len(report.interactive) - len(checks), "check")])
    if any(report.labels.values()):
        points = dict.fromkeys(check.point for check in checks)
        text += "\n" + "\n".join(f"point {point}: {report.labels[point]}" for point in points)
    return text


def _station_table(report: LawReport) -> str:
    header = ("point", "station", "law", "measured", "by law", "apart", "verdict")
    rows = [
        (
            str(check.point),
            check.station,
            check.law.removeprefix("the "),
            number(check.comparison.measured.estimate),
            number(check.comparison.predicted.estimate),
            _percent(check.comparison),
            check.verdict,
        )
        for check in report.stations
    ]
    return _table(header, rows)


def _demand_table(report: DemandReport) -> str:
    header = ("station", "visits", "service ms", "demand ms", "servers", "utilisation", "capacity /s")
    rows = [
        (
            demand.station,
            "–" if demand.visits is None else number(demand.visits.estimate),
            "–" if demand.service_ms is None else number(demand.service_ms.estimate),
            quantity(demand.demand_ms),
            number(demand.servers),
            "–" if demand.utilization is None else f"{demand.utilization.estimate:.1%}",
            quantity(demand.capacity),
        )
        for demand in report.demands
    ]
    at = [] if report.clients is None else [f"at {report.clients} clients"]
    title = ", ".join(["Demands", *([report.label] if report.label else []), *at])
    return f"{title}\n{_table(header, rows, left=1)}"


def _bound_table(report: DemandReport) -> str:
    header = ("clients", "at least", "balanced", "X /s", "balanced", "at most", "verdict")
    rows = [
        (
            "–" if check.clients is None else str(check.clients),
            number(check.bounds.asymptotic[0]),
            number(check.bounds.balanced[0]),
            quantity(check.throughput),
            number(check.bounds.balanced[1]),
            number(check.bounds.asymptotic[1]),
            check.verdict,
        )
        for check in report.bounds
    ]
    label = f"{report.label}: throughput" if report.label else "Throughput"
    return f"{label} between its bounds, with {report.light_source} as R without waiting\n{_table(header, rows)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Columns to the right, but for the first `left` ones."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    )


def _percent(comparison: Comparison) -> str:
    residual: Interval = comparison.residual
    if not math.isfinite(residual.estimate):
        return "–"
    uncertainty = comparison.uncertainty
    return f"{residual.estimate:+.2%}" + ("" if uncertainty is None else f" ± {uncertainty:.2%}")
