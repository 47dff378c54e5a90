"""Fits and predictions in words."""

from __future__ import annotations

from knee.fit.what_if import FittedSystem, Forecast
from knee.intervals import Interval, number

UNDETERMINED = 1e4
"""Times its lower end from which the upper one says that a parameter does not matter: its logarithm wanders off."""


def render_text(system: FittedSystem, forecast: Forecast | None) -> str:
    """One configuration: the prediction, where there is one, the model and why it was chosen, its parameters."""
    lines = [system.label] if system.label else []
    if forecast is not None:
        lines += forecast_lines(system, forecast)
    lines.append(system.selection.sentence)
    lines.append(parameter_sentence(system))
    others = ", ".join(
        f"{trial.model.name} {trial.score:.1%}"
        for trial in sorted(system.selection.trials, key=lambda trial: trial.score)
        if trial is not system.selection.chosen
    )
    if others:
        lines.append(
            f"Error of {system.selection.chosen.model.name} on what was left out: "
            f"{system.selection.chosen.score:.1%}; of the others: {others}."
        )
    return "\n".join([*lines, *stage_lines(system)])


def parameter_sentence(system: FittedSystem) -> str:
    """The chosen model's parameters with their intervals."""
    parameters = "; ".join(_parameter(name, value) for name, value in system.parameters.items())
    return f"Its parameters, with {100 * system.level:g}% intervals: {parameters}."


def stage_lines(system: FittedSystem) -> list[str]:
    """What a request needs of every stage, as a table, and which stages cannot be told apart."""
    lines = []
    if system.stages.found:
        lines.append("What a request needs of every stage, over all client counts together (ms):")
        for stage in system.stages.found:
            servers = "" if stage.servers is None else f"{stage.servers:g} servers"
            busy = "" if stage.utilization is None else f"{stage.utilization:.0%} busy at the most clients"
            visits = "" if stage.visits == 1 else f"in {number(stage.visits)} visits"
            facts = ", ".join(filter(None, (visits, servers, busy)))
            at_first = f"{number(stage.light_ms.estimate)} at the fewest clients"
            needs = quantity_between(stage.demand_ms)
            lines.append(f"  {stage.name:<26} {needs:<28} {at_first}{', ' if facts else ''}{facts}")
    if system.stages.missing:
        lines.append(system.stages.missing)
    return lines


def forecast_lines(system: FittedSystem, forecast: Forecast) -> list[str]:
    """The prediction, and how far outside of what was measured it lies."""
    scenario = forecast.scenario
    load = f"At {scenario.clients:,.10g} clients"
    if scenario.pipeline > 1:
        load += f" with {scenario.pipeline:,.10g} requests in flight each"
    if scenario.slots == scenario.slots:
        load += f", {scenario.slots:,.10g} worker slots"
    if scenario.think_ms:
        load += f", {number(scenario.think_ms)} ms of thinking"
    where = " (seen by the middleware)" if system.selection.curve.view == "middleware" else ""
    throughput = quantity_between(forecast.throughput, "requests/s")
    response = quantity_between(forecast.response_ms, "ms")
    lines = [
        f"{load}: {throughput}, response time {response}{where}; {100 * system.level:g}% prediction intervals of one "
        "further run."
    ]
    if forecast.outside:
        lines.append(
            f"That lies outside of what was measured: {'; '.join(forecast.outside)}. The intervals know nothing of "
            "what else may begin to limit there."
        )
    return lines


def quantity_between(interval: Interval, unit: str = "") -> str:
    """An estimate with the ends of its interval, which need not lie around it evenly."""
    estimate = f"{number(interval.estimate)} {unit}".rstrip()
    if interval.low is None or interval.high is None:
        return estimate
    return f"{estimate} ({number(interval.low)} to {number(interval.high)})"


def _parameter(name: str, interval: Interval) -> str:
    stem, ms, _ = name.partition("_ms")
    if interval.low is not None and interval.high is not None and interval.high > UNDETERMINED * interval.low:
        return f"{stem} not determined by these measurements"
    return f"{stem} {quantity_between(interval, ms[1:])}"
