"""The factorial analysis of each response: sentences, charts and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape

from knee.factorial import Cell, Findings, Term, marginal_means, sentences
from knee.factorial.residuals import p_value
from knee.factorial.text import SHARE_MIN, is_small, term_label, unit_of
from knee.report import tables
from knee.report.charts import factorial as charts
from knee.report.charts.vega import Rows, Spec, ends
from knee.report.sheet import Place, Sheet
from knee.verdict import words

TERMS_MAX = 20
"""Largest number of terms in a figure: a reader cannot compare more rows at a glance."""

FACTORS_MAX = 6
"""Largest number of factors with more than two levels in the charts of means."""

INTERACTIONS_MAX = 4

ROWS_MAX = 256
"""Largest number of rows of a table."""

OBSERVATIONS_MAX = 2000
"""Largest number of residuals in a figure, to keep the page small."""

_TITLES = {"throughput": "Throughput", "response_ms": "Response time"}


def section(sheet: Sheet) -> str:
    """A part for each response; empty if fewer than two factors vary."""
    parts = "".join(_Part(sheet, effects).html() for effects in sheet.findings.effects)
    return parts + tables.paragraphs(map(words.unexplained, sheet.findings.unexplained))


class _Part:
    """The figures and tables of one response."""

    def __init__(self, sheet: Sheet, findings: Findings) -> None:
        self._sheet = sheet
        self._findings = findings
        self._analysis = findings.analysis
        self._ratios = findings.analysis.model == "multiplicative"
        self._two_level = findings.analysis.design.fraction is not None
        unit = unit_of(findings.response)
        self._name = _TITLES.get(findings.response, findings.response)
        self._title = f"{self._name} ({unit})" if unit else self._name
        self._unit = f" ({unit})" if unit and not self._ratios else ""
        self._scale = f"ln {self._name.lower()}" if self._ratios else self._name.lower()

    def html(self) -> str:
        lead, *rest = sentences(self._findings)
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in rest)
        heading = f"{self._name}: {self._analysis.design.label}, {self._analysis.model} model"
        return (
            f'<div class="factors"><h3>{escape(heading)}</h3><p class="lead">{escape(lead)}</p>'
            f"<ul>{items}</ul>"
            f'<div class="grid">{"".join(self._figures())}</div>'
            f"{self._effects_table()}{self._cells_table()}</div>"
        )

    def _figures(self) -> Iterable[str]:
        if self._two_level:
            yield self._effects()
        yield self._variation()
        if not self._two_level:
            yield from self._level_means()
        yield from self._interactions()
        yield from self._residuals()

    def _figure(self, name: str, spec: Spec, caption: str) -> str:
        # On a page without other figures, those of a factor's levels and interactions are the results.
        main = (
            ("effects", "variation") if self._sheet.naming.load else ("effects", "variation", "interaction", "levels")
        )
        is_first = self._findings is self._sheet.findings.effects[0]
        place: Place = "open" if is_first and name.startswith(main) else "more"
        return self._sheet.figure(f"factorial-{self._findings.response}-{name}", spec, caption, place=place)

    def _effects(self) -> str:
        analysis = self._analysis
        values = [
            {
                "term": _label(term),
                "q": term.q.estimate,
                "low": term.q.low,
                "high": term.q.high,
                "certainty": charts.CERTAINTIES[term.significant],
            }
            for term in analysis.ranked[:TERMS_MAX]
        ]
        margins = []
        if analysis.lenth is not None:
            margins = [
                ("beyond it an effect is significant if tested alone", analysis.lenth.margin),
                ("beyond it an effect is significant among all", analysis.lenth.simultaneous),
            ]
            doubt = (
                "No run was repeated. An effect beyond the dashed lines is significant if tested alone. An effect "
                f"beyond the dotted lines is significant among all effects (Lenth's margins at {analysis.level:.0%})."
            )
        elif analysis.error.degrees:
            doubt = (
                f"Bars are {analysis.level:.0%} intervals of single effects. An effect whose bar crosses the middle "
                "line may be noise."
            )
        else:
            doubt = "Cannot tell which effects are noise: no run was repeated."
        what = (
            "The ratio of the response at a factor's high level to the geometric mean."
            if self._ratios
            else "Response at a factor's high level minus the mean: half of the change from low to high."
        )
        title = "Effect q (ratio to the mean)" if self._ratios else f"Effect q{self._unit}"
        return self._figure(
            "effects", charts.effects(values, title, margins, ratios=self._ratios), f"{what} {doubt}{self._of_all()}"
        )

    def _of_all(self) -> str:
        count = len(self._analysis.terms)
        return f" The chart shows the {TERMS_MAX} largest of {count} effects." if count > TERMS_MAX else ""

    def _variation(self) -> str:
        analysis = self._analysis
        values: Rows = [
            {
                "term": _label(term),
                "share": term.share,
                "said": _percent(term.share),
                "kind": "factor" if len(term.factors) == 1 else "interaction",
            }
            for term in analysis.ranked[:TERMS_MAX]
        ]
        if analysis.error.degrees:
            share = analysis.error.share
            values.append({"term": "error", "share": share, "said": _percent(share), "kind": "error"})
        unit = "the logarithm's" if self._ratios else "the response's"
        error = {
            "repetitions": " The error is the variation among repetitions of the same cell.",
            "highest interaction": " No run was repeated: the interaction of all factors serves as the error estimate.",
            "none": "",
        }[analysis.error.source]
        return self._figure(
            "variation",
            charts.variation(values),
            f"The share of {unit} variation that each factor and each interaction explains.{error}{self._of_all()}",
        )

    def _level_means(self) -> Iterable[str]:
        means = {
            term.factors[0]: marginal_means(self._analysis, term.factors)
            for term in self._analysis.ranked
            if len(term.factors) == 1
        }
        drawn = dict(list(means.items())[:FACTORS_MAX])
        more = f" The chart shows the {FACTORS_MAX} most important of {len(means)} factors." * (
            len(means) > FACTORS_MAX
        )
        for number, (factor, cells) in enumerate(drawn.items()):
            yield self._figure(
                f"levels-{number}",
                charts.level_means(
                    [{"level": str(cell.levels[factor]), **ends(cell.mean)} for cell in cells],
                    factor,
                    self._title,
                    self._ends,
                    log=self._ratios,
                ),
                f"Mean response at each level of {factor}, over all levels of the other factors.{self._bars(cells)}"
                f"{more}",
            )

    def _interactions(self) -> Iterable[str]:
        for number, (factors, said) in enumerate(self._pairs()):
            levels = {factor.name: factor.levels for factor in self._analysis.design.factors}
            first, second = sorted(factors, key=lambda name: -len(levels[name]))
            means = marginal_means(self._analysis, (first, second))
            cells = [cell for cell in means if math.isfinite(cell.mean.estimate)]
            levels_of = [{"level": str(cell.levels[first]), "line": str(cell.levels[second])} for cell in cells]
            values = [at | ends(cell.mean) for at, cell in zip(levels_of, cells, strict=True)]
            yield self._figure(
                f"interaction-{number}",
                charts.interaction(values, (first, second), self._title, self._ends, log=self._ratios),
                f"{said} Parallel lines{' (the axis is logarithmic)' if self._ratios else ''} mean that neither factor "
                f"changes the effect of the other.{self._bars(cells)}",
            )

    def _pairs(self) -> list[tuple[Sequence[str], str]]:
        """The two-factor interactions to draw, with captions: those that matter, or else the largest."""
        analysis = self._analysis
        if analysis.error.source == "highest interaction" and len(analysis.design.factors) == 2:
            names = [factor.name for factor in analysis.design.factors]
            said = f"{' × '.join(names)}. Whether this interaction is noise is unknown: no run was repeated."
            return [(names, said)]
        pairs = [term for term in analysis.ranked if len(term.factors) == 2]
        chosen = [term for term in pairs if term.significant and not is_small(term)] or pairs[:1]
        return [(term.factors, _pair_said(term)) for term in chosen[:INTERACTIONS_MAX]]

    def _residuals(self) -> Iterable[str]:
        found = self._analysis.residuals
        if found is None:
            return
        step = -(-found.values.size // OBSERVATIONS_MAX)
        more = f" The chart shows one in {step} of {found.values.size:,} residuals." if step > 1 else ""
        says = {check.question: check.sentence for check in found.checks}
        title = f"Residual of {self._scale}{self._unit}"

        def against(places: Iterable[float]) -> Rows:
            pairs = list(zip(places, found.values.tolist(), strict=True))
            return [{"at": at, "residual": residual} for at, residual in pairs[::step]]

        yield self._figure(
            "residuals-prediction",
            charts.residuals(against(found.predicted.tolist()), f"Predicted {self._scale}{self._unit}", title),
            f"Residuals against the model's prediction: the dots should scatter equally everywhere. "
            f"{says['spread']}{more}",
        )
        yield self._figure(
            "residuals-normal",
            charts.quantiles(against(found.normal_quantiles.tolist()), title),
            f"If the errors are normal, the dots lie on the line. {says['normality']}{more}",
        )
        if found.order is not None:
            yield self._figure(
                "residuals-order",
                charts.residuals(against(found.order.tolist()), "Order of the runs", title),
                f"Residuals in the order of the runs: a slope or a wave shows a drift. {says['run order']}{more}",
            )

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The ends of the axis of all charts of means. They come from the cells' means, so a small effect looks
        small."""
        means = [cell.mean for cell in self._analysis.cells]
        low, high = min(mean.estimate for mean in means), max(mean.estimate for mean in means)
        lowest = min(mean.estimate if mean.low is None else mean.low for mean in means)
        highest = max(mean.estimate if mean.high is None else mean.high for mean in means)
        # The axis shows whole intervals unless the means would then fill too little of the picture.
        if self._ratios:
            room = max((high / low) ** 0.3, 1.05)
            return max(lowest / 1.02, low / room), min(highest * 1.02, high * room)
        room = 0.3 * (high - low) or 0.05 * abs(high) or 1.0
        return max(lowest - room / 6, low - room), min(highest + room / 6, high + room)

    def _bars(self, cells: Sequence[Cell]) -> str:
        if all(cell.mean.low is None for cell in cells):
            return ""
        own = self._analysis.noise.variances.freedoms is not None
        source = "each cell's own error" if own else "the error of all cells together"
        return f" Bars are {self._analysis.level:.0%} intervals, from {source}."

    def _effects_table(self) -> str:
        analysis = self._analysis
        judged = analysis.error.degrees > 0
        rows = [_effect_row(term) for term in analysis.ranked[:ROWS_MAX]]
        if judged:
            error = analysis.error
            squares: dict[str, tables.Cell] = {"sum of squares": error.sum_of_squares, "df": error.degrees}
            rows.append(squares | {"effect": "error", "variation": _percent(error.share)})
        names = ["effect", *(["q"] if self._two_level else []), "sum of squares", "df", "variation"]
        names += [*(["F", "p"] if judged else []), "stands out"]
        names += ["aliases"] if any(term.aliases for term in analysis.terms) else []
        header = [f"q ± {analysis.level:.0%} interval" if name == "q" and judged else name for name in names]
        more = _more(len(analysis.terms), "effects")
        scale = f" Effects are of {self._scale}." if self._ratios else ""
        return tables.folded(
            "Effects and allocation of variation",
            tables.table(header, [[row.get(name) for name in names] for row in rows])
            + tables.paragraphs([(more + scale).strip()], "facts"),
        )

    def _cells_table(self) -> str:
        analysis = self._analysis
        names = [factor.name for factor in analysis.design.factors]
        rows: list[tuple[tables.Cell, ...]] = [
            (*(str(cell.levels[name]) for name in names), cell.mean) for cell in analysis.cells[:ROWS_MAX]
        ]
        mean = "geometric mean" if self._ratios else "mean"
        more = _more(len(analysis.cells), "cells")
        return tables.folded(
            "Mean response of every cell",
            tables.table((*names, f"{mean} {self._title.lower()}"), rows) + tables.paragraphs([more], "facts"),
        )


def _label(term: Term) -> str:
    """A term on an axis: its letters first, because long names are cut off."""
    return f"{term.name}  {term_label(term)}"


def _pair_said(term: Term) -> str:
    judged = {True: "Significant", False: "Perhaps noise", None: "Cannot tell whether this is noise"}
    aliases = f" It is confounded with {', '.join(term.aliases)}." if term.aliases else ""
    return f"{term_label(term)}: {_percent(term.share)} of the variation. {judged[term.significant]}.{aliases}"


def _effect_row(term: Term) -> dict[str, tables.Cell]:
    return {
        "effect": _label(term),
        "q": term.q if len(term.effects) == 1 else None,
        "sum of squares": term.sum_of_squares,
        "df": term.degrees,
        "variation": _percent(term.share),
        "F": "∞" if term.f_ratio is not None and math.isinf(term.f_ratio) else term.f_ratio,
        "p": None if term.probability is None else p_value(term.probability).removeprefix("= "),
        "stands out": {True: "yes", False: "no", None: "cannot tell"}[term.significant],
        "aliases": ", ".join(term.aliases),
    }


def _percent(share: float) -> str:
    if math.isnan(share):
        return "–"
    if 0 < share < 5e-5:
        return "< 0.01%"
    return f"{share:.1%}" if share >= SHARE_MIN or share == 0 else f"{share:.2%}"


def _more(count: int, noun: str) -> str:
    return f"The first {ROWS_MAX} of {count:,} {noun}. `knee factorial` prints more." if count > ROWS_MAX else ""
