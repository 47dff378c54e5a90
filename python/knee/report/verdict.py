"""The verdict in sentences and numbers, and the charts of the knee."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import polars as pl

from knee import factorial
from knee.report.charts.knee import band, has_knee, knee_response, knee_throughput
from knee.report.sheet import Place, Sheet
from knee.report.strip import strip
from knee.report.tables import Cell, estimate_and_ends, folded, heading, paragraphs, table
from knee.stats.intervals import Interval, client_count, clients_between, counted, mean_interval, number, quantity
from knee.verdict import words
from knee.verdict.configuration import Verdict
from knee.verdict.knee import Knee

_LEAD_CHARACTERS_MAX = 300
"""Length of a sentence in large type; a longer one is a paragraph."""


def section(sheet: Sheet) -> str:
    """A single configuration in full. Several configurations have a table; the first is shown in full, the others
    folded."""
    findings = sheet.findings
    if not findings.verdicts:
        return '<p class="lead">No run is complete: there is nothing to diagnose.</p>' + _warnings(sheet)
    if findings.has_common_obstacle:
        return _without_knee(sheet) + _warnings(sheet)
    first, *others = findings.verdicts
    if not others:
        return _verdict(sheet, 0, first, _common(sheet, found=bool(first.knee.levels))) + _warnings(sheet)
    summary = table(
        (
            *("configuration", "knee (clients)", "verdict", "requests/s there", "response ms there"),
            *("bottleneck", "confidence"),
        ),
        [_summary_row(sheet, verdict) for verdict in findings.verdicts],
    )
    rest = "".join(
        folded(f"{verdict.label}: {words.knee(verdict.knee)}", _verdict(sheet, i + 1, verdict, place="folded"))
        for i, verdict in enumerate(others)
    )
    before, after = _common(sheet, found=False)
    return (
        f'<div class="panel" style="margin-top:22px">{summary}</div>'
        f'<div class="verdict alone"><div>{before}{after}</div></div>'
        + _verdict(sheet, 0, first)
        + rest
        + _warnings(sheet)
    )


def _common(sheet: Sheet, *, found: bool) -> tuple[str, str]:
    """The findings that hold for all configurations, to print before and after those of one configuration.

    If a knee is `found`, it precedes the laws.
    """
    first, laws, factors = _loads(sheet) + _peak(sheet), _laws(sheet), _factors(sheet)
    return (first, laws + factors) if found else (first + factors + laws, "")


def _without_knee(sheet: Sheet) -> str:
    """The findings, and the common reason why there is no knee. Bottlenecks that differ are a table."""
    findings, common = sheet.findings, sheet.findings.common_bottleneck
    said = _loads(sheet) + _peak(sheet) + _factors(sheet) + _laws(sheet)
    said += _finding("Knee", [words.knee(findings.verdicts[0].knee)])
    if common is not None:
        said += _finding("Bottleneck", [words.bottleneck(common), *words.evidence(common)])
    text = f'<div class="verdict alone"><div>{said}</div></div>'
    measured = [_measured(sheet, verdict) for verdict in findings.verdicts]
    has_figures = all(measured)
    if common is not None and not has_figures:
        return text
    bottlenecks = [
        (" and ".join(verdict.bottleneck.names) or verdict.bottleneck.status, verdict.bottleneck.confidence)
        for verdict in findings.verdicts
    ]
    rows = [
        (verdict.label, *(figures if has_figures else ()), *(bottleneck if common is None else ()))
        for verdict, figures, bottleneck in zip(findings.verdicts, measured, bottlenecks, strict=True)
    ]
    header = (
        "configuration",
        *(("requests/s", "response ms") if has_figures else ()),
        *(("bottleneck", "confidence") if common is None else ()),
    )
    details = "".join(
        f"<h3>{escape(verdict.label)}</h3>" + paragraphs(words.bottleneck_lines(verdict.bottleneck, verdict.limits))
        for verdict in findings.verdicts
    )
    evidence = folded("The evidence for every bottleneck", details) if common is None else ""
    return f'{text}<div class="panel">{sheet.of_configurations(header, rows)}{evidence}</div>'


def _measured(sheet: Sheet, verdict: Verdict) -> tuple[Interval, Interval] | tuple[()]:
    """Throughput and response time of a configuration that is a single point; otherwise empty."""
    observations = sheet.findings.observations
    if len(verdict.points) != 1 or not {"throughput", "response_ms"} <= set(observations.columns):
        return ()
    rows = observations.filter(pl.col("point") == verdict.points[0])
    samples = (rows[name].drop_nulls().to_list() for name in ("throughput", "response_ms"))
    throughput, response_ms = (mean_interval(sample, sheet.findings.level) for sample in samples)
    return throughput, response_ms


def _summary_row(sheet: Sheet, verdict: Verdict) -> Sequence[str | Interval | None]:
    knee, bottleneck = verdict.knee, verdict.bottleneck
    at_knee = (knee.level.throughput, knee.level.response_ms) if knee.level else (None, None)
    if verdict.open_loop:
        at_knee = _measured(sheet, verdict) or at_knee
    names = " and ".join(bottleneck.names) or bottleneck.status
    return (
        verdict.label or "closed loop",
        _knee_figure(verdict)[0],
        "open loop" if verdict.open_loop else knee.status,
        *at_knee,
        names,
        bottleneck.confidence if verdict.open_loop else f"{knee.confidence} / {bottleneck.confidence}",
    )


def _verdict(
    sheet: Sheet, index: int, verdict: Verdict, common: tuple[str, str] = ("", ""), place: Place = "open"
) -> str:
    """A configuration's knee and bottleneck, between the findings that are `common` to all."""
    knee, bottleneck = verdict.knee, verdict.bottleneck
    of_knee = _finding("Knee", words.knee_lines(verdict), words.confidence(knee))
    *lines, confidence = words.bottleneck_lines(bottleneck, verdict.limits)
    of_bottleneck = _finding("Bottleneck", lines, confidence)
    said = common[0] + of_knee + of_bottleneck + common[1]
    figures = _figures(verdict) if knee.clients else ""
    stations = heading(verdict.label) + strip(verdict)
    if len(knee.levels) < 2:
        return f'{stations}<div class="verdict alone"><div>{figures}{said}</div></div>'
    drawing = sheet.figure(
        f"knee-{index}", knee_throughput(knee), _throughput_caption(knee), place=place
    ) + sheet.figure(
        f"knee-response-{index}",
        knee_response(knee),
        _response_caption(knee),
        place=place if sheet.is_single or place == "folded" else "more",
    )
    return f'{stations}<div class="verdict"><div>{figures}{said}</div><div class="panel">{drawing}</div></div>'


def _throughput_caption(knee: Knee) -> str:
    """Names the parts of the chart. Some curves have no asymptotes, and some of the others have no knee."""
    first = counted(knee.levels[0].clients, "client")
    bars = any(level.throughput.half_width is not None for level in knee.levels)
    said = f"Measured throughput (dots{', with error bars' if bars else ''})"
    if knee.bounds(1) is None:
        return f"{said}."
    # Without a plateau, the largest mean is not the capacity.
    stays = knee.status in ("found", "saturated from the start")
    most = "the largest throughput of the system" if stays else "the mean of the largest measurements"
    said += f" and two asymptotes: a rising line, with the response time of {first}, and a level line, {most}."
    if not has_knee(knee):
        return said
    said += " They meet at the knee"
    drawn = band(knee)
    if drawn is None or knee.clients is None:
        return f"{said}."
    whole = drawn == (knee.clients.low, knee.clients.high)
    return f"{said}; the band is its interval{'' if whole else ', within the measured clients'}."


def _response_caption(knee: Knee) -> str:
    first, last = knee.levels[0], knee.levels[-1]
    return (
        f"Response time at the same client counts: {number(first.response_ms.estimate)} ms at "
        f"{counted(first.clients, 'client')}, {number(last.response_ms.estimate)} ms at {last.clients}."
    )


def _loads(sheet: Sheet) -> str:
    """The points that miss a limit, and the largest arrival rate that throughput follows; empty without either."""
    limits = words.thresholds(sheet.findings.thresholds, dict(sheet.naming.points))
    return _finding("Thresholds", limits) + _finding("Arrivals", words.arrival_lines(sheet.findings))


def _peak(sheet: Sheet) -> str:
    """The configuration with the largest throughput; empty if the knee or the factors' levels show it."""
    largest = sheet.findings.peak
    if largest is None:
        return ""
    said = _finding("Largest throughput", words.peak(largest))
    if words.names_all(largest):
        return said
    rows: list[tuple[Cell, ...]] = [
        (*map(str, factors.values()), *estimate_and_ends(found))
        for factors, found in ((largest.factors, largest.throughput), *largest.as_large)
    ]
    title = f"The {len(rows)} configurations whose throughput may be the largest"
    numbers = table((*largest.factors, largest.unit, "from", "to"), rows)
    return f'{said}<div class="finding">{folded(title, numbers)}</div>'


def _laws(sheet: Sheet) -> str:
    return _finding("Laws", words.law_lines(sheet.findings.laws))


def _factors(sheet: Sheet) -> str:
    """The largest effect on each response, or why it is unknown; for a single factor, its best level."""
    findings = sheet.findings
    if findings.levels is not None:
        return _finding("Factor", [words.levels(findings.levels)])
    lines = [
        *(factorial.sentences(effects)[0] for effects in findings.effects),
        *map(words.unexplained, findings.unexplained),
    ]
    return _finding("Factors", lines)


def _warnings(sheet: Sheet) -> str:
    if not sheet.findings.warnings:
        return ""
    items = "".join(f"<li>{escape(words.warning(found))}</li>" for found in sheet.findings.warnings)
    return f'<div class="warnings" role="note"><strong>Before you trust these numbers</strong><ul>{items}</ul></div>'


def _finding(kind: str, lines: Sequence[str], confidence: str = "") -> str:
    said = [line for line in lines if line]
    if not said:
        return ""
    lead = paragraphs(said[:1], "lead" if len(said[0]) <= _LEAD_CHARACTERS_MAX else "")
    more = paragraphs(said[1:]) + paragraphs([confidence], "doubt")
    return f'<div class="finding"><div class="kind">{kind}</div>{lead}{more}</div>'


def _knee_figure(verdict: Verdict) -> tuple[str, str]:
    """The knee as a figure, with its interval or its kind of bound."""
    knee = verdict.knee
    if knee.clients is None:
        return "–", "cannot tell"
    estimate = client_count(knee.clients.estimate)
    if knee.status == "not reached":
        return f"> {estimate}", "not reached"
    if knee.status == "saturated from the start":
        return f"≤ {knee.levels[0].clients}", "saturated from the start"
    if knee.status == "cannot tell":
        return f"{estimate}?", "cannot tell"
    return estimate, clients_between(knee.clients)


def _figures(verdict: Verdict) -> str:
    estimate, note = _knee_figure(verdict)
    cells = [("Knee (clients)", estimate, note)]
    if (level := verdict.knee.level) is not None:
        for name, interval, unit in (("Requests/s", level.throughput, ""), ("Response time", level.response_ms, "ms")):
            # The digits of the sentence below.
            estimate, _, width = quantity(interval).partition(" ± ")
            spread = f"± {width} {unit}".strip() if width else "one repetition"
            cells.append((name, f"{estimate} {unit}".strip(), f"{spread} at {counted(level.clients, 'client')}"))
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(small)}</small></dd></div>"
        for name, value, small in cells
    )
    return f'<dl class="figures">{inner}</dl>'
