"""Predictions for more clients: measurement, model and prediction, and a diagram of the model's network."""

from __future__ import annotations

from html import escape

from knee.fit import FittedSystem, Outlook, parameter_sentence, selection_sentence
from knee.report.charts.model import model_band
from knee.report.charts.vega import Rows, ends
from knee.report.sheet import Place, Sheet
from knee.report.tables import Cell, columns, estimate_and_ends, folded, grid, heading, paragraphs, table
from knee.stats.intervals import number
from knee.verdict import words
from knee.verdict.beside import MEASURED

_BOX, _GAP, _HEIGHT = 148, 30, 118
"""Pixels of the diagram's boxes and of the arrows between them."""


def section(sheet: Sheet) -> str:
    """Curves, diagram and sentences of every fitted system, or the reason why there is none.

    Empty if the number of clients was not varied.
    """
    if len(sheet.naming.counts) < 2:
        return ""
    found = sheet.findings.outlooks
    if not found.shown:
        return paragraphs(found.unfitted)
    missing = dict.fromkeys(system.stages.missing for system in found.systems if not system.stages.found)
    return (
        "".join(map(_words, found.systems))
        + grid(*_figures(sheet, found.shown))
        + "".join(map(_network, found.systems))
        + paragraphs(found.unfitted)
        + _beside(sheet)
        + _predictions(found.shown)
        + "".join(map(_trials, found.systems))
        + paragraphs(missing, "facts")
    )


def _words(system: FittedSystem) -> str:
    return heading(system.label) + paragraphs([selection_sentence(system.selection), parameter_sentence(system)])


def _figures(sheet: Sheet, shown: tuple[Outlook, ...]) -> list[str]:
    measured_at = {int(one.customers) for outlook in shown for one in outlook.measured}
    counts = sorted(measured_at | {int(outlook.forecasts[-1].scenario.customers) for outlook in shown})
    said = (
        f"Dots are measurements, the line is the model, and the band should contain {sheet.findings.level:.0%} of "
        "further runs. The dashed part extrapolates. Its band allows for flat throughput and errors of the model, "
        "but for a fall only if measurements prove it."
    )
    inside = shown[0].system.selection.curve.view == "middleware"
    figures = []
    for quantity, title, whose in (
        ("throughput", "Throughput (requests/s)", ""),
        (
            "response_ms",
            "Response time (ms)",
            " The middleware measured it: queueing and service time." if inside else "",
        ),
    ):
        curve: Rows = [
            {"clients": int(forecast.scenario.customers), "series": outlook.label, **ends(getattr(forecast, quantity))}
            | {"beyond": forecast.scenario.customers > outlook.measured[-1].customers}
            for outlook in shown
            for forecast in outlook.forecasts
        ]
        measured: Rows = [
            {"clients": int(one.customers), "series": outlook.label, **ends(getattr(one, quantity))}
            for outlook in shown
            for one in outlook.measured
        ]
        spec, is_cut = model_band(curve, measured, title, counts)
        place: Place = "open" if quantity == "throughput" or sheet.is_single else "more"
        cut = " The axis cuts off the widest bands and bars." if is_cut else ""
        figures.append(sheet.figure(f"model-{quantity}", spec, said + whose + cut, place=place))
    return figures


def _network(system: FittedSystem) -> str:
    stages = system.stages
    if not stages.found:
        return ""
    name = f", {system.label}" if system.label else ""
    caption = (
        f"The stages of a request{name}. Dashed boxes are delays without a queue; bars are the share of busy servers "
        "at the largest client count. Times are service demands: the time that a request needs over all visits, as a "
        "mean over all client counts."
    )
    numbers = columns(
        [
            {
                "stage": stage.name,
                "visits": stage.visits,
                "servers": stage.servers,
                "ms at the smallest client count": stage.light_ms,
                "ms over all counts": stage.demand_ms,
                "busy at the largest client count": None if stage.utilization is None else f"{stage.utilization:.1%}",
            }
            for stage in stages.found
        ]
    )
    diagram = (
        f'<figure class="wide"><div class="scroll">{_diagram(system)}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
    content = diagram + table(*numbers) + paragraphs([stages.missing], "facts")
    return folded(f"The model's stages and their service demands{name}", content)


def _diagram(system: FittedSystem) -> str:
    """A drawing of the stages as boxes, clients first."""
    stages, curve = system.stages, system.selection.curve
    thinking = f"think time {number(float(curve.think_ms.mean()))} ms" if curve.think_ms.any() else "no think time"
    width = (len(stages.found) + 1) * (_BOX + _GAP) - _GAP
    parts = [_box(0, "clients", [f"up to {curve.counts[-1]:g}", thinking], None, delay=True)]
    for place, stage in enumerate(stages.found, start=1):
        left = place * (_BOX + _GAP)
        facts = [f"{number(stage.demand_ms.estimate)} ms"]
        if stage.servers is not None:
            facts.append("1 server" if stage.servers == 1 else f"{stage.servers:g} servers")
        parts.append(
            f'<path d="M{left - _GAP + 4} {_HEIGHT / 2}h{_GAP - 10}m-6 -5l6 5l-6 5" fill="none" stroke="var(--muted)"/>'
        )
        parts.append(_box(left, stage.name, facts, stage.utilization, delay=stage.servers is None))
    return (
        f'<svg viewBox="-2 -2 {width + 4} {_HEIGHT + 4}" width="{width + 4}" height="{_HEIGHT + 4}" role="img" '
        f'aria-label="The stages from the clients inwards" font-size="13" fill="var(--ink)">{"".join(parts)}</svg>'
    )


def _box(left: int, name: str, facts: list[str], busy: float | None, *, delay: bool) -> str:
    centre = left + _BOX / 2
    dashed = ' stroke-dasharray="5 4"' if delay else ""
    # A network's name is too long for one line.
    lines = [(line, "600") for line in (name.rsplit(" ", 1) if delay else [name])] + [(fact, "400") for fact in facts]
    text = "".join(
        f'<text x="{centre}" y="{22 + 19 * i}" text-anchor="middle" font-weight="{weight}">{escape(line)}</text>'
        for i, (line, weight) in enumerate(lines)
    )
    bar = ""
    if busy is not None:
        full = _BOX - 24
        place = f'x="{left + 12}" y="{_HEIGHT - 14}" height="6"'
        bar = (
            f'<rect {place} width="{full}" fill="var(--line)"/>'
            f'<rect {place} width="{full * min(1.0, max(0.0, busy)):.1f}" fill="var(--accent)"/>'
            f'<text x="{centre}" y="{_HEIGHT - 20}" text-anchor="middle" fill="var(--muted)">{busy:.0%} busy</text>'
        )
    return (
        f'<rect x="{left}" y="0" width="{_BOX}" height="{_HEIGHT}" rx="6" fill="var(--panel)" stroke="var(--muted)"'
        f"{dashed}/>{text}{bar}"
    )


def _beside(sheet: Sheet) -> str:
    found = sheet.findings.beside
    if not found:
        return ""
    symbols = dict(zip(MEASURED, ("requests/s", "ρ", "E[n]", "E[nq]", "E[r] ms", "E[w] ms"), strict=True))
    several = any(row.label for row in found)
    numbers = columns(
        [
            ({"configuration": row.label} if several else {})
            | {"clients": row.clients}
            | {f"model: {symbol}": row.model[name] for name, symbol in symbols.items()}
            | {f"measured: {symbol}": row.measured.get(name) for name, symbol in symbols.items()}
            for row in found
        ]
    )
    note = (
        "ρ is the utilisation of the worker slots. n counts all requests in the middlewares, and nq the requests that "
        "wait for a slot. r is a request's mean time in the middlewares, and w its mean time in the queue. The model's "
        "ρ belongs to its busiest station. The model's other values are sums over its stations, without the delay "
        "between client and middleware."
    )
    said = paragraphs(words.beside_lines(sheet.findings))
    return said + folded("Model beside measurement", table(*numbers) + paragraphs([note], "doubt"))


def _predictions(shown: tuple[Outlook, ...]) -> str:
    rows: list[tuple[Cell, ...]] = [
        (
            outlook.label,
            int(forecast.scenario.customers),
            *estimate_and_ends(forecast.throughput),
            *estimate_and_ends(forecast.response_ms),
            "; ".join(forecast.outside),
        )
        for outlook in shown
        for forecast in outlook.forecasts
    ]
    header = (
        *("configuration", "clients", "requests/s", "from", "to", "response ms", "from", "to"),
        "outside the measured range",
    )
    kept = [i for i in range(len(header)) if any(row[i] != "" for row in rows)]
    return folded("Predictions", table([header[i] for i in kept], [[row[i] for i in kept] for row in rows]))


def _trials(system: FittedSystem) -> str:
    chosen = system.selection.chosen
    numbers = columns(
        [
            {
                "model": trial.model.name,
                "parameters": len(trial.model.parameters),
                "error of the fit": f"{trial.fit.error:.1%}",
                "error at hidden client counts": f"{trial.score:.1%}",
                "error at the largest count": f"{trial.edge_error:.1%}",
                "chosen": "yes" if trial is chosen else "",
            }
            for trial in sorted(system.selection.trials, key=lambda trial: trial.score)
        ]
    )
    name = f", {system.label}" if system.label else ""
    return folded(f"The models that were tried{name}", table(*numbers))
