"""Do the numbers hold together?"""

from __future__ import annotations

from html import escape

from knee.report.charts.laws import law_residuals, law_scatter
from knee.report.sheet import Sheet
from knee.report.tables import folded, table


def section(sheet: Sheet) -> str:
    """The laws in words, and the interactive one drawn both ways."""
    laws = sheet.diagnosis.laws
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in laws.sentences)
    closed = [check for check in laws.interactive if check.verdict != "does not apply"]
    if not closed:
        return sentences
    figures = []
    residuals = []
    for quantity_name, unit, caption in (
        ("throughput", "requests/s", "X = N / (R + Z): every point on the diagonal obeys the law."),
        ("response_ms", "ms", "R = N / X − Z, the same law the other way round."),
    ):
        values = [
            {
                "clients": check.clients,
                "view": check.view,
                "measured": getattr(check, quantity_name).measured.estimate,
                "predicted": getattr(check, quantity_name).predicted.estimate,
            }
            for check in closed
        ]
        figures.append(sheet.figure(f"law-{quantity_name}", law_scatter(values, unit), caption))
        short = "X" if quantity_name == "throughput" else "R"
        residuals += [
            {
                "clients": check.clients,
                "check": f"{short}, {check.view}",
                "residual": getattr(check, quantity_name).residual.estimate,
                "low": getattr(check, quantity_name).residual.low,
                "high": getattr(check, quantity_name).residual.high,
            }
            for check in closed
        ]
    figures.append(
        sheet.figure(
            "law-residuals",
            law_residuals(residuals, laws.tolerance, sheet.counts),
            f"How far the law's prediction lies from the measurement, both ways and from each view. "
            f"The band is the tolerance of ±{laws.tolerance:.0%}.",
            wide=True,
        )
    )
    rows = [
        (
            sheet.series.get(check.point, ""),
            check.clients,
            check.view,
            check.think_ms,
            check.throughput.measured,
            check.throughput.predicted,
            f"{check.throughput.residual.estimate:+.2%}",
            check.response_ms.measured,
            check.response_ms.predicted,
            f"{check.response_ms.residual.estimate:+.2%}",
            check.verdict,
        )
        for check in closed
    ]
    header = (
        *("configuration", "clients", "view", "think ms", "X", "X by law", "apart"),
        *("R ms", "R by law", "apart", "verdict"),
    )
    caption = (
        '<p class="facts">From the middleware\'s view a client thinks for its own think time and the round trip '
        "between client and middleware, which is the difference of their response times.</p>"
    )
    return (
        sentences + f'<div class="grid">{"".join(figures)}</div>{caption}' + folded("The numbers", table(header, rows))
    )
