"""The findings of a factorial analysis as sentences and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable

from knee.factorial.analysis import Analysis, Term
from knee.factorial.findings import Findings
from knee.factorial.fraction import defining_relation, roman
from knee.factorial.noise import confidence
from knee.factorial.prediction import Change, change
from knee.factorial.residuals import Question, p_value
from knee.stats.intervals import Interval, counted, number, quantity
from knee.stats.tables import columns

SHARE_MIN = 0.01
"""A significant effect is small if it surely explains less of the variation."""

_LISTED_MAX = 6

_ALIASES_MAX = 3

_ASSUMED: dict[Question, str] = {
    "normality": "normal errors",
    "spread": "errors of one size",
    "run order": "no drift over time",
}

_ROWS_MAX = 64
"""The most rows of the printed table; the table leaves out the smallest effects."""

_ALONE = "This effect is significant if tested alone, but not among all"

_UNITS = {"throughput": "requests/s"}


def unit_of(response: str) -> str:
    """The unit of a response by its name; empty if the name shows none."""
    return _UNITS.get(response, "ms" if response.endswith("_ms") else "")


def sentences(findings: Findings) -> list[str]:
    """The effects by size, then the evidence on errors and the model."""
    analysis = findings.analysis
    found = [*_of_effects(analysis)] if analysis.total else []
    found += _of_error(analysis)
    found.append(_of_model(findings))
    found += _of_fraction(analysis)
    if analysis.residuals is not None:
        found += [check.sentence for check in analysis.residuals.checks]
    return [*found, *analysis.notes]


def _of_effects(analysis: Analysis) -> list[str]:
    ranked = analysis.ranked
    response, first = analysis.design.response, ranked[0]
    most = (
        f"No factor surely changed {response}. Largest effect:"
        if first.significant is False
        else f"Largest effect on {response}:"
    )
    found = [" ".join([most, _moved(analysis, first), _certainty(analysis, first), *_lead(analysis)])]
    active = [term for term in ranked[1:] if term.significant is not False and not is_small(term)]
    for term in [term for term in active if len(term.factors) == 1]:
        found.append(
            f"{'Next effect' if term.significant else 'Possible effect'}: {_moved(analysis, term)} "
            f"{_certainty(analysis, term)}"
        )
    interactions = [term for term in active if len(term.factors) > 1]
    large = any(term.share >= SHARE_MIN for term in interactions)
    if not large and len(first.factors) == 1 and any(len(term.factors) > 1 for term in ranked):
        found.append(f"No significant interaction explains {SHARE_MIN:.0%} or more of the variation.")
    if interactions:
        doubt = "" if interactions[0].significant else " (they may be noise)"
        found.append(
            f"Interactions that {'matter' if large else 'may explain as much'}{doubt}: "
            + "; ".join(_interaction(analysis, term) for term in interactions[:_LISTED_MAX])
            + "."
        )
    small = [term for term in ranked[1:] if term.significant and is_small(term)]
    if small:
        found.append(f"Significant but small, each surely below {SHARE_MIN:.0%} of the variation: {_named(small)}.")
    quiet = [term for term in ranked if term.significant is False]
    if quiet:
        ends = [term.share_ends[1] for term in quiet if term.share_ends is not None]
        most = f" (each explains at most {_percent(max(ends))} of the variation)" if ends else ""
        found.append(f"Not significant at {confidence(analysis.level)}: {_named(quiet)}{most}.")
    if analysis.lenth is not None:
        margins = analysis.lenth
        found.append(
            "Lenth's method finds no noise, because most effects are zero: the response is coarse or noise-free."
            if margins.pseudo_error == 0
            else f"Lenth's method: the noise of an effect q is about {number(margins.pseudo_error)}. An effect above "
            f"{number(margins.margin)} is significant if tested alone. An effect above {number(margins.simultaneous)} "
            "is significant among all."
        )
    lenth = analysis.lenth is not None and analysis.lenth.pseudo_error > 0
    if len(ranked) > 1 and (lenth or analysis.error.standard_deviation):
        found.append(
            f"Significance holds for all {len(ranked)} effects together ({'Lenth' if lenth else 'Holm'}): noise alone "
            f"gives a significant effect in at most {confidence(1 - analysis.level)} of designs."
        )
    return found


def _named(terms: Iterable[Term]) -> str:
    listed = [term_label(term) for term in terms]
    more = len(listed) - _LISTED_MAX
    return ", ".join(listed[:_LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def is_small(term: Term) -> bool:
    """Whether a term surely explains little; without an interval of its share, by the share itself."""
    return (term.share if term.share_ends is None else term.share_ends[1]) < SHARE_MIN


def _share(term: Term) -> str:
    """The share with its interval: 19.6% (18.9% to 20.3%)."""
    ends = "" if term.share_ends is None else f" ({_percent(term.share_ends[0])} to {_percent(term.share_ends[1])})"
    return _percent(term.share) + ends


def term_label(term: Term) -> str:
    """The name of a term: servers × workers."""
    return " × ".join(term.factors)


def _aliased(analysis: Analysis, term: Term) -> str:
    """The plausible aliases: main effects and interactions of two factors."""
    names = {factor.letter: factor.name for factor in analysis.design.factors}
    letters = [alias.removeprefix("−") for alias in term.aliases]
    short = [" × ".join(names[letter] for letter in alias) for alias in letters if len(alias) <= 2]
    if not short:
        return ""
    more = " or others" if len(short) > _ALIASES_MAX else ""
    return f" (or {' or '.join(short[:_ALIASES_MAX])}{more}: this fraction cannot distinguish them)"


def _moved(analysis: Analysis, term: Term) -> str:
    if len(term.factors) > 1:
        return f"an interaction, {_interaction(analysis, term)}."
    step = change(analysis, term.factors[0])
    levels = f"from {step.before} to {step.after}"
    return (
        f"{term.factors[0]}{_aliased(analysis, term)}. Going {levels} {_by(analysis, step)} and explains "
        f"{_share(term)} of the variation."
    )


def _lead(analysis: Analysis) -> list[str]:
    """Whether the largest effect is significantly larger than the next."""
    if analysis.leads is None or analysis.ranked[0].significant is False:
        return []
    following = term_label(analysis.ranked[1])
    if analysis.leads:
        return [f"This effect is larger than the next ({following}) by more than the noise."]
    return [f"Cannot tell whether this effect is larger than the next ({following})."]


def _by(analysis: Analysis, step: Change) -> str:
    """raises response_ms by 20 ± 3 ms; multiplies response_ms by 1.20 (1.17 to 1.23)."""
    if analysis.model == "multiplicative":
        ends = (
            "" if step.by.low is None or step.by.high is None else f" ({_ratio(step.by.low)} to {_ratio(step.by.high)})"
        )
        return f"multiplies {analysis.design.response} by {_ratio(step.by.estimate)}{ends}"
    verb = "raises" if step.by.estimate >= 0 else "lowers"
    response = analysis.design.response
    return f"{verb} {response} by {quantity(_size(step.by), unit_of(response))}"


def _size(interval: Interval) -> Interval:
    """The interval of a change's size: a decrease loses its sign."""
    if interval.estimate >= 0 or interval.low is None or interval.high is None:
        return interval if interval.estimate >= 0 else Interval(-interval.estimate, None, None, interval.level, 1)
    return Interval(-interval.estimate, -interval.high, -interval.low, interval.level, interval.repetitions)


def _certainty(analysis: Analysis, term: Term) -> str:
    if analysis.error.standard_deviation == 0:
        return "The significance is unknown: all repetitions are equal."
    if term.probability is not None:
        doubts = _doubts(analysis) if term is analysis.ranked[0] else ""
        said = f"p {p_value(term.probability)}; intervals at {confidence(analysis.level)}{doubts}"
        if term.significant:
            return f"Chance hardly explains this effect ({said})."
        if term.probability < 1 - analysis.level:
            return f"{_ALONE} {len(analysis.terms)}: it may be noise ({said})."
        return f"This effect may be noise ({said})."
    margins = analysis.lenth
    if margins is None:
        return "Without repetitions the significance is unknown."
    size = abs(term.q.estimate)
    if size > margins.simultaneous:
        return f"This effect stands out from all others (Lenth's simultaneous margin at {confidence(analysis.level)})."
    if size > margins.margin:
        return f"{_ALONE} {len(analysis.terms)}: it may be noise (Lenth's margin)."
    return "This effect does not stand out from the others and may be noise (Lenth's margin)."


def _doubts(analysis: Analysis) -> str:
    """A note on the assumptions of the probability that the residuals make doubtful; empty without one."""
    checks = () if analysis.residuals is None else analysis.residuals.checks
    own = analysis.noise.variances.freedoms is not None
    doubtful = [
        _ASSUMED[check.question]
        for check in checks
        if check.verdict == "doubtful" and not (own and check.question == "spread")
    ]
    return f"; p and intervals assume {' and '.join(doubtful)}, which is doubtful" if doubtful else ""


def _interaction(analysis: Analysis, term: Term) -> str:
    aliased = _aliased(analysis, term)
    ends = "" if term.share_ends is None else f", {_percent(term.share_ends[0])} to {_percent(term.share_ends[1])}"
    said = f"{term_label(term)}{aliased} ({_percent(term.share)}{ends})"
    if len(term.factors) != 2 or len(term.effects) != 1 or aliased:
        return said
    squares = {one.factors: one.sum_of_squares for one in analysis.terms}
    first, second = sorted(term.factors, key=lambda name: -squares.get((name,), 0.0))
    levels = next(factor.levels for factor in analysis.design.factors if factor.name == second)
    steps = [change(analysis, first, {second: level}) for level in levels]
    parts = " and ".join(
        f"{_by(analysis, step)} at {second} = {level}" for step, level in zip(steps, levels, strict=True)
    )
    return f"{said}: going from {steps[0].before} to {steps[0].after}, {first} {parts}"


def _of_error(analysis: Analysis) -> list[str]:
    error = analysis.error
    if error.standard_deviation is None or not analysis.total:
        return []
    kind = {
        "repetitions": "Differences between repetitions",
        "highest interaction": "The interaction of all factors, which serves as the error estimate,",
        "none": "Errors",
    }[error.source]
    if analysis.model == "multiplicative":
        spread = f"a run deviates by {number(100 * math.expm1(error.standard_deviation), 2)}%"
    else:
        unit = unit_of(analysis.design.response)
        spread = f"a run deviates by {number(error.standard_deviation)}{' ' + unit if unit else ''}"
    verb = "explain" if error.source == "repetitions" else "explains"
    return [
        f"{kind} {verb} {_percent(error.share)} of the variation: {spread} (standard deviation, "
        f"{counted(error.degrees, 'degree')} of freedom)."
    ]


def _of_model(findings: Findings) -> str:
    analysis, other = findings.analysis, findings.other
    found = f"Model: {analysis.model}, {findings.reason}. {findings.box_cox.sentence}"
    if findings.alike is not None:
        found += (
            f" The largest response is {findings.alike:.2f} times the smallest, so both models give similar results."
        )
    if other is not None and analysis.total:
        first, of_other = analysis.ranked[0], other.ranked[0]
        said = "also has the largest effect" if of_other.factors == first.factors else "has the largest effect instead"
        found += f" Under the {other.model} model, {term_label(of_other)} {said} ({_percent(of_other.share)})."
    return found


def _of_fraction(analysis: Analysis) -> list[str]:
    fraction = analysis.design.fraction
    if fraction is None or fraction.resolution is None:
        return []
    return [
        f"A fraction of resolution {roman(fraction.resolution)}, {defining_relation(fraction)}: each estimate is the "
        "sum of the effects of its aliases, and has the name of the alias with the fewest factors."
    ]


def render_text(findings: Findings) -> str:
    """The findings, one per line, then a table of effects, intervals and the allocation of variation."""
    analysis = findings.analysis
    letters = ", ".join(
        f"{factor.letter} = {factor.name} ({', '.join(map(str, factor.levels))})" for factor in analysis.design.factors
    )
    heading = f"{findings.response}: {analysis.design.label}, {analysis.model} model; {letters}"
    return "\n".join([heading, *(f"- {sentence}" for sentence in sentences(findings)), "", *_table(analysis)])


def _table(analysis: Analysis) -> list[str]:
    two_level = analysis.design.fraction is not None
    judged = analysis.error.degrees > 0
    aliased = any(term.aliases for term in analysis.terms)
    header = ["effect"]
    header += ["q"] if two_level else []
    header += [f"{confidence(analysis.level)} interval"] if two_level and judged else []
    header += ["sum of squares", "df", "variation"]
    header += ["F", "p"] if judged else []
    header += ["", "aliases"] if aliased else [""]
    rows = [header]
    if two_level:
        rows.append(["mean", *_estimates(analysis.mean, judged)])
    for term in analysis.ranked[:_ROWS_MAX]:
        row = [f"{term.name} {term_label(term)}", *(_estimates(term.q, judged) if two_level else [])]
        row += [number(term.sum_of_squares), str(term.degrees), _percent(term.share)]
        if judged:
            row += ["–" if term.f_ratio is None else number(term.f_ratio) if math.isfinite(term.f_ratio) else "∞"]
            row += ["–" if term.probability is None else p_value(term.probability).removeprefix("= ")]
        row += [
            {True: "significant", False: "", None: "?"}[term.significant],
            ", ".join(term.aliases[:_ALIASES_MAX]) + (", …" if len(term.aliases) > _ALIASES_MAX else ""),
        ]
        rows.append(row[: len(header)])
    if (more := len(analysis.terms) - _ROWS_MAX) > 0:
        rows.append([f"… {more} smaller effects"])
    if judged:
        error = analysis.error
        row = ["error", *(["", ""] if two_level else [])]
        rows.append([*row, number(error.sum_of_squares), str(error.degrees), _percent(error.share)])
    padded = [row + [""] * (len(header) - len(row)) for row in rows]
    return columns(padded, {0, len(header) - 1})


def _estimates(interval: Interval, judged: bool) -> list[str]:
    estimate = number(interval.estimate, 5)
    if not judged:
        return [estimate]
    if interval.low is None or interval.high is None:
        return [estimate, "–"]
    return [estimate, f"{number(interval.low, 5)} to {number(interval.high, 5)}"]


def _percent(share: float) -> str:
    if math.isnan(share):
        return "–"
    if 0 < share < 5e-5:
        return "< 0.01%"
    return f"{share:.1%}" if share >= SHARE_MIN else f"{share:.2%}"


def _ratio(value: float) -> str:
    return number(value, 3 if abs(value - 1) >= 0.1 else 4)
