"""Fits and predictions in words."""

from __future__ import annotations

from knee.fit.what_if import FittedSystem, Forecast
from knee.intervals import Interval, number


def render_text(system: FittedSystem, forecast: Forecast | None) -> str:
    """One configuration: the prediction, where there is one, the model and why it was chosen, its parameters."""
    lines = [system.label] if system.label else []
    if forecast is not None:
        lines += forecast_lines(system, forecast)
    lines.append(system.selection.sentence)
    parameters = "; ".join(_parameter(name, value) for name, value in system.parameters.items())
    lines.append(f"Its parameters, with {100 * system.level:g}% intervals: {parameters}.")
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
    return "\n".join(lines)


def forecast_lines(system: FittedSystem, forecast: Forecast) -> list[str]:
    """The prediction, and how far outside of what was measured it lies."""
    scenario = forecast.scenario
    load = f"At {scenario.clients:g} clients"
    if scenario.pipeline > 1:
        load += f" with {scenario.pipeline:g} requests in flight each"
    if scenario.slots == scenario.slots:
        load += f", {scenario.slots:g} worker slots"
    if scenario.think_ms:
        load += f", {number(scenario.think_ms)} ms of thinking"
    where = " (seen by the middleware)" if system.selection.curve.view == "middleware" else ""
    lines = [
        f"{load}: {_between(forecast.throughput, 'requests/s')}, response time "
        f"{_between(forecast.response_ms, 'ms')}{where}; {100 * system.level:g}% prediction intervals of one further "
        "run."
    ]
    if forecast.outside:
        lines.append(
            f"That lies outside of what was measured: {'; '.join(forecast.outside)}. The intervals know nothing of "
            "what else may begin to limit there."
        )
    return lines


def _between(interval: Interval, unit: str) -> str:
    assert interval.low is not None and interval.high is not None
    return f"{number(interval.estimate)} {unit} ({number(interval.low)} to {number(interval.high)})"


def _parameter(name: str, interval: Interval) -> str:
    assert interval.low is not None and interval.high is not None
    stem, ms, _ = name.partition("_ms")
    unit = " ms" if ms else ""
    return f"{stem} {number(interval.estimate)}{unit} ({number(interval.low)} to {number(interval.high)})"
