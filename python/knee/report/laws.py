"""The operational laws: sentences, charts of the interactive law, and the bounds from service demands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from knee.laws import Comparison, InteractiveCheck, LawReport, sentences
from knee.report.charts.laws import law_residuals, law_scatter, throughput_between_bounds
from knee.report.charts.vega import Rows, ends
from knee.report.sheet import Sheet
from knee.report.tables import Cell, columns, folded, grid, paragraphs, table

CHECKS_MAX = 1000
"""Largest number of checks of a kind in a chart or a table, to keep the page small."""


def section(sheet: Sheet) -> str:
    """All checks of the laws; the interactive law has figures only for a closed loop."""
    laws = sheet.findings.laws
    closed = [check for check in laws.interactive if check.verdict != "does not apply"]
    figures = [*_interactive_figures(sheet, laws, closed), *_bounds_figure(sheet, laws)]
    return (
        paragraphs(sentences(laws))
        + grid(*figures)
        + _interactive_table(laws, closed)
        + _station_table(laws)
        + _demand_table(laws)
        + _bound_table(laws)
    )


def _interactive_figures(sheet: Sheet, laws: LawReport, closed: Sequence[InteractiveCheck]) -> Iterable[str]:
    of_all = [check for check in closed if check.request_type is None][:CHECKS_MAX]
    if not of_all:
        return
    for quantity, unit, caption in (
        ("throughput", "requests/s", "X = N / (R + Z): every point on the diagonal obeys the law."),
        ("response_ms", "ms", "R = N / X − Z, the same law solved for the response time."),
    ):
        values = [
            {"clients": check.clients, "view": check.view, "measured": measured, "predicted": predicted}
            for check in of_all
            if _on_log_axes(
                measured := getattr(check, quantity).measured.estimate,
                predicted := getattr(check, quantity).predicted.estimate,
            )
        ]
        if lacking := len(of_all) - len(values):
            caption += (
                f" Only the table shows {lacking} of {len(of_all)} checks: logarithmic axes cannot show zero or less."
            )
        if values:
            yield sheet.figure(f"law-{quantity}", law_scatter(values, unit), caption)

    # With one client count, all residuals would stand above it.
    apart = len({check.clients for check in of_all}) == 1 and len(set(laws.labels.values())) > 1
    places = {point: sheet.naming.short(label) for point, label in laws.labels.items()} if apart else {}
    across = sheet.naming.configurations_title if apart else "Clients"
    band = f"The band is the tolerance of ±{laws.tolerance:.0%}."
    both = [
        *((f"X, {check.view}", check, check.throughput) for check in of_all),
        *((f"R, {check.view}", check, check.response_ms) for check in of_all),
    ]
    if of_both := _residuals(both, places):
        yield sheet.figure(
            "law-residuals",
            law_residuals(of_both, across, laws.tolerance),
            f"Difference between the law's prediction and the measurement, for throughput and response time. {band}",
            wide=True,
            place="open",
        )
    typed = [check for check in closed if check.request_type is not None][:CHECKS_MAX]
    views = {check.view for check in typed}
    each = [(f"{check.request_type}{f', {check.view}' * (len(views) > 1)}", check, check.throughput) for check in typed]
    if of_types := _residuals(each, places):
        yield sheet.figure(
            "law-types",
            law_residuals(of_types, across, laws.tolerance),
            "The same difference for the throughput of each request type. The other types' response times count as "
            f"think time. {band}",
            wide=True,
        )


def _on_log_axes(*numbers: float) -> bool:
    return all(math.isfinite(number) and number > 0 for number in numbers)


def _residuals(named: Iterable[tuple[str, InteractiveCheck, Comparison]], places: Mapping[int, str]) -> Rows:
    """The rows of all residuals. A measured zero has no residual. `places` are the horizontal places of points, by
    default their client counts."""
    rows: Rows = []
    for name, check, comparison in named:
        estimate, uncertainty = comparison.residual.estimate, comparison.uncertainty
        if math.isfinite(estimate):
            low, high = (None, None) if uncertainty is None else (estimate - uncertainty, estimate + uncertainty)
            at = places.get(check.point, check.clients)
            rows.append({"at": at, "check": name, "residual": estimate, "low": low, "high": high})
    return rows


def _bounds_figure(sheet: Sheet, laws: LawReport) -> Iterable[str]:
    values: Rows = [
        {
            "clients": check.clients,
            "series": report.label,
            **ends(check.throughput),
            "at_least": check.bounds.balanced[0],
            "at_most": check.bounds.balanced[1],
            "asymptote": check.bounds.asymptotic[1],
        }
        for report in laws.demands
        for check in report.bounds
    ][:CHECKS_MAX]
    if len({row["clients"] for row in values}) < 2:
        return
    yield sheet.figure(
        "bounds",
        throughput_between_bounds(values),
        "Measured throughput (dots) and its bounds, if service demands do not change with the load. The band lies "
        "between the balanced-job bounds; the dashed line is the asymptotic upper bound. A dot above the line: "
        "requests need less under load than alone. A dot below the band: requests wait for a resource without a "
        "known demand.",
        wide=True,
    )


def _interactive_table(laws: LawReport, closed: Sequence[InteractiveCheck]) -> str:
    typed = any(check.request_type is not None for check in closed)
    rows: list[tuple[Cell, ...]] = [
        (
            laws.labels.get(check.point, ""),
            check.clients,
            check.view,
            check.request_type or "all",
            check.think_ms,
            check.throughput.measured,
            check.throughput.predicted,
            check.throughput.apart,
            check.response_ms.measured,
            *((check.response_ms.predicted, check.response_ms.apart) if check.judges_response else ("–", "–")),
            check.verdict,
        )
        for check in closed
    ]
    header = (
        *("configuration", "clients", "view", "requests", "think ms", "X", "X by law", "apart"),
        *("R ms", "R by law", "apart", "verdict"),
    )
    notes = []
    if any(check.view == "middleware" for check in closed):
        notes.append("In the middleware's view, think time includes the time between client and middleware.")
    if not all(check.judges_response for check in closed):
        notes.append(
            "Knee does not test the response times of request types, nor a middleware's below a tenth of R + Z. "
            "Each is a small difference of two long times."
        )
    return _numbers("The interactive law in numbers", header, rows, [] if typed else ["requests"], " ".join(notes))


def _station_table(laws: LawReport) -> str:
    numbers = columns(
        [
            {
                "configuration": laws.labels.get(check.point, ""),
                "clients": check.clients,
                "station": check.station,
                "law": check.law.removeprefix("the "),
                "measured": check.comparison.measured,
                "by law": check.comparison.predicted,
                "apart": check.comparison.apart,
                "verdict": check.verdict,
            }
            for check in laws.stations
        ]
    )
    return _numbers("The laws at every station", *numbers)


def _demand_table(laws: LawReport) -> str:
    numbers = columns(
        [
            {
                "configuration": report.label,
                "at clients": report.clients,
                "station": demand.station,
                "visits": demand.visits,
                "service ms": demand.service_ms,
                "demand ms": demand.demand_ms,
                "servers": demand.servers,
                "utilisation": None if demand.utilization is None else f"{demand.utilization.estimate:.1%}",
                "capacity (requests/s)": demand.shown_capacity,
                "saturates": f"first station{', apart from software' * report.skips_software}"
                if demand == report.bottleneck
                else "",
            }
            for report in laws.demands
            for demand in report.demands
        ]
    )
    note = "D = V · S is the time that a request needs at a station over all visits. Capacity is servers / D."
    return _numbers("Service demands of every station", *numbers, note=note)


def _bound_table(laws: LawReport) -> str:
    numbers = columns(
        [
            {
                "configuration": report.label,
                "clients": check.clients,
                "at least": check.bounds.asymptotic[0],
                "balanced, at least": check.bounds.balanced[0],
                "measured (requests/s)": check.throughput,
                "balanced, at most": check.bounds.balanced[1],
                "at most": check.bounds.asymptotic[1],
                "verdict": check.verdict,
            }
            for report in laws.demands
            for check in report.bounds
        ]
    )
    sources = ", ".join(dict.fromkeys(report.light_source for report in laws.demands if report.bounds))
    note = f"The bounds take R without waiting from {sources}."
    return _numbers("Throughput between its bounds", *numbers, note=note)


def _numbers(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], leave_out: Sequence[str] = (), note: str = ""
) -> str:
    """A folded table without empty columns; empty without rows."""
    if not rows:
        return ""
    said = [
        number
        for number, name in enumerate(header)
        if name not in leave_out and any(row[number] not in ("", None) for row in rows)
    ]
    if len(rows) > CHECKS_MAX:
        note = f"The first {CHECKS_MAX:,} of {len(rows):,} rows. {note}"
    shown = [tuple(row[number] for number in said) for row in rows[:CHECKS_MAX]]
    return folded(title, table([header[number] for number in said], shown) + paragraphs([note], "facts"))
