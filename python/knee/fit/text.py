"""The sentences on fits and predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from knee.data.utilization import OUTSIDERS_MAX
from knee.fit.forecast import FittedSystem, Forecast
from knee.fit.goals import Goal, Sought, sought_max
from knee.fit.layered import LIMITS, LayeredForecast, LayeredSystem
from knee.fit.links import LINKS
from knee.fit.percentiles import Simulator
from knee.fit.plan import Plan
from knee.fit.selection import Selection
from knee.queueing import Shape
from knee.stats.intervals import Interval, counted, number

_DIGITS = 5

_PROCESSES = {"load": "load generator", "middleware": "middleware", "store": "store"}

_SHOWN = ("clients", "workers", "connections")
"""Columns of the table of predictions that stand there even if their values are equal."""

UNDETERMINED = 1e4
"""A parameter is undetermined if the upper end of its interval exceeds the lower end by this factor."""

_LEAST_MS = 1e-6
"""The search keeps parameters above zero: a fitted time below a nanosecond stands for zero."""

_BEYOND = 1.05
"""A prediction extrapolates if its throughput exceeds this multiple of the largest measured one."""

_APART = 0.1
"""Larger differences between the mean response times of model and simulation are printed."""

_TIMES_MAX = 1000.0
"""An interval's end is printed in digits if it and the estimate differ at most by this factor."""


def render_text(system: FittedSystem, forecast: Forecast | None) -> str:
    """One configuration: the prediction, if any, the model, the reason for choosing it, and its parameters."""
    lines = [system.label] if system.label else []
    if forecast is not None:
        lines += forecast_lines(system, forecast)
    lines.append(selection_sentence(system.selection))
    lines.append(parameter_sentence(system))
    others = ", ".join(
        f"{trial.model.name} {trial.score:.1%}"
        for trial in sorted(system.selection.trials, key=lambda trial: trial.score)
        if trial is not system.selection.chosen
    )
    if others:
        lines.append(
            f"Error on the hidden client counts: {system.selection.chosen.model.name} "
            f"{system.selection.chosen.score:.1%}; other models: {others}."
        )
    return "\n".join([*lines, *stage_lines(system)])


def render_layered(
    label: str,
    system: LayeredSystem,
    forecasts: Sequence[LayeredForecast],
    goal: Goal | None = None,
    simulator: Simulator | None = None,
) -> str:
    """The predictions of a layered model, the limits of the throughput, and the errors of the model."""
    lines = [label] if label else []
    if len(forecasts) == 1:
        lines += _layered_lines(system, forecasts[0])
        lines += [goal_sentence(goal, forecasts[0])] if goal is not None else []
    else:
        lines += _layered_table(system, forecasts, goal)
    if simulator is not None:
        lines += _quantile_lines(system, forecasts, simulator)
    data = system.data
    x_error, r_error = system.error
    lines.append(
        "Model: layered network of clients, worker slots, threads and processors, from the processor times of "
        f"{counted(len(data), 'run')}. Its median error at the measured points is {x_error:.1%} for throughput and "
        f"{r_error:.1%} for response time."
    )
    times = "; ".join(
        f"{tier} {number(1000 * work)} (+{number(1000 * wakeup)})"
        for tier, (work, wakeup) in zip(data.tiers, system.fit.laws.tolist(), strict=True)
    )
    lines.append(f"Processor time of a request in µs, and in brackets the additional time for waking threads: {times}.")
    if (busy := (data.foreign > OUTSIDERS_MAX) | (data.disturbed > 0)).any():
        lines.append(
            f"Other programs, other guests or emulated links used up to {data.foreign.max():.0%} of the host's "
            f"processors in {busy.sum():,} of {counted(len(data), 'run')}: the prediction is biased."
        )
    if data.left_out:
        lines.append(f"The model leaves out {counted(data.left_out, 'run')} that other programs or guests disturbed.")
    most = float(data.throughput.max()) * 1000
    if any(forecast.throughput.estimate > most * _BEYOND for forecast in forecasts):
        lines.append(
            f"This is an extrapolation: the largest measured throughput is {number(most)} requests/s. The intervals "
            "assume that no resource appears that the runs did not use."
        )
    return "\n".join(lines)


def goal_sentence(goal: Goal, forecast: LayeredForecast | Forecast) -> str:
    """Whether a forecast meets a goal."""
    likely, surely = (goal.is_met(forecast, surely=each) for each in (False, True))
    level = f"{100 * forecast.throughput.level:g}%"
    if not likely:
        return f"{goal}: the estimate does not meet it."
    return f"{goal}: the estimate meets it, {'and so does' if surely else 'but not'} the whole {level} interval."


def _quantile_lines(system: LayeredSystem, forecasts: Sequence[LayeredForecast], simulator: Simulator) -> list[str]:
    lines = []
    if len(forecasts) == 1:
        quantiles = ", ".join(
            f"{100 * share:g}% within {quantity_between(value, 'ms')}"
            for share, value in forecasts[0].quantiles_ms.items()
        )
        lines.append(f"Response times: {quantiles}.")
    scatter = simulator.scatter(system)
    line = f"Quantiles are simulated with {_shape_words(scatter.work)} processor times"
    if scatter.is_measured:
        worst = float(np.exp(np.abs(scatter.errors[:, -1] - np.median(scatter.errors[:, -1])).max())) - 1
        line += f", and corrected by their errors at the measured points. After that, p99 was off by up to {worst:.0%}."
    else:
        line += ". No run has quantiles: this shape is assumed, and the intervals do not contain its error."
    lines.append(line)
    for each in forecasts:
        apart = (each.simulated_ms or each.response_ms.estimate) / each.response_ms.estimate - 1
        if abs(apart) > _APART:
            lines.append(
                f"The simulated mean response time at {counted(round(each.clients), 'client')} differs from the "
                f"model's by {apart:+.0%}. The intervals of the quantiles contain this difference."
            )
    return lines


def render_sought(label: str, system: LayeredSystem, sought: Sought, simulator: Simulator | None = None) -> str:
    """The value that meets a goal, and the prediction for it."""
    lines = [label] if label else []
    if sought.likely is None:
        lines.append(f"{sought.goal}: no value of {sought.name} up to {sought_max(sought.name):,} meets it.")
        return "\n".join(lines)
    most, share = "largest" if sought.largest else "smallest", f"{100 * system.level:g}%"
    more = " or more" if sought.largest and sought.likely[0] == sought_max(sought.name) else ""
    lines.append(f"{sought.goal}: the {most} value of {sought.name} is {sought.likely[0]:,}{more}, by the estimate.")
    if sought.sure is None:
        lines.append(f"The whole {share} interval meets the goal at no value up to {sought_max(sought.name):,}.")
    else:
        lines.append(f"With {sought.sure[0]:,}, the whole {share} interval meets the goal.")
    return "\n".join([*lines, render_layered("", system, [sought.likely[1]], None, simulator)])


def _layered_lines(system: LayeredSystem, forecast: LayeredForecast) -> list[str]:
    setup = forecast.setup
    where = counted(round(forecast.clients), "client")
    where += "" if setup.slots is None else f", {counted(setup.slots, system.slots.removesuffix('s'))}"
    where += f" in each of {setup.middlewares} middlewares" if setup.middlewares > 1 else ""
    for i, tier in enumerate(system.data.tiers):
        name = _PROCESSES[tier]
        if tier != "middleware" and setup.processes[i] not in system.data.processes[:, i]:
            where += f", {counted(setup.processes[i], name)}"
        if setup.threads[i] not in system.data.each[:, i]:
            where += f", {counted(setup.threads[i], 'thread')} in each {name}"
    where += f", {number(setup.think_ms)} ms of thinking" if setup.think_ms else ""
    where += f", {setup.cores:g} cores" if setup.cores != system.data.cores else ""
    where += "".join(f", {LINKS[tier]} of {rate:,g} Mbit/s" for tier, rate in setup.links)
    name, gain = forecast.limits[0]
    limit = (
        f"The {name} limit the throughput: adding 10% to them raises throughput by about {10 * gain:.0f}%."
        if gain >= LIMITS
        else "No resource limits the throughput: clients and think time do."
    )
    busy = ", ".join(f"{name} {share:.0%}" for name, share in forecast.busy.items())
    return [
        f"At {where}: {quantity_between(forecast.throughput, 'requests/s')}, response time "
        f"{quantity_between(forecast.response_ms, 'ms')}. {_brackets(system.level)}",
        f"{limit} Busy: {busy}.",
    ]


def _brackets(level: float) -> str:
    return f"The brackets contain {100 * level:g}% prediction intervals for one further run."


def _layered_table(system: LayeredSystem, forecasts: Sequence[LayeredForecast], goal: Goal | None) -> list[str]:
    setups = [each.setup for each in forecasts]
    columns = {
        "clients": [f"{each.clients:,.10g}" for each in forecasts],
        "connections" if system.data.pooled else "workers": [
            "none" if s.slots is None else str(s.slots) for s in setups
        ],
        "load hosts": [str(setup.processes[0]) for setup in setups],
        "middlewares": [str(setup.middlewares) for setup in setups],
        "stores": [str(setup.processes[-1]) for setup in setups],
        "threads": ["/".join(map(str, setup.threads)) for setup in setups],
        "think ms": [number(setup.think_ms) for setup in setups],
        "cores": [f"{setup.cores:g}" for setup in setups],
        "Mbit/s": ["/".join(f"{rate:g}" for _, rate in setup.links) for setup in setups],
    }
    varied = {name: cells for name, cells in columns.items() if name in _SHOWN or len(set(cells)) > 1}
    varied["requests/s"] = [quantity_between(each.throughput) for each in forecasts]
    varied["response ms"] = [quantity_between(each.response_ms) for each in forecasts]
    for share in forecasts[0].quantiles_ms:
        varied[f"p{100 * share:g} ms"] = [quantity_between(each.quantiles_ms[share]) for each in forecasts]
    if goal is not None:
        varied[str(goal)] = [
            "yes" if goal.is_met(each, surely=True) else "likely" if goal.is_met(each, surely=False) else "no"
            for each in forecasts
        ]
    varied["limit"] = [each.limits[0][0] if each.limits[0][1] >= LIMITS else "clients" for each in forecasts]
    wide = []
    for name, cells in varied.items():
        width = max(map(len, [name, *cells]))
        wide.append([each.ljust(width) for each in (name, *cells)])
    lines = ["  ".join(row) for row in zip(*wide, strict=True)]
    notes = _brackets(system.level)
    if goal is not None:
        notes += " Goal: yes if the whole interval meets it, likely if only the estimate meets it."
    return [*(line.rstrip() for line in lines), notes]


def render_plan(system: FittedSystem, plan: Plan) -> str:
    """A simulated scenario, with the exact solution for comparison and the limits of the intervals."""
    chosen, model, assumed = system.selection.chosen, plan.trial.model, plan.assumptions
    what = f"Simulated: the {model.name}{_slots_words(plan)}"
    if plan.instead:
        error = f"{plan.trial.score:.1%} instead of {chosen.score:.1%}"
        what += f", because {plan.instead}; its error on hidden client counts is {error}"
    lines = [f"{what}."]
    times = f"{_shape_words(assumed.service)} service times"
    if assumed.thinking is not None:
        times += f", {_shape_words(assumed.thinking)} think times"
    if assumed.places is not None:
        times += f", {assumed.places:,} places to wait; a refused client thinks and tries again"
    lines.append(
        f"With {times}; {plan.replications} replications of {plan.rounds:,} rounds after a warm-up of {plan.warmup:,} "
        f"rounds; seed {plan.seed}."
    )
    if not assumed.exact:
        lines.append("The exact solution assumes exponential service times and a place for every client.")
    where = ", as the middleware saw it" if system.selection.curve.view == "middleware" else ""
    throughput, response = (number(value, _DIGITS) for value in plan.exact)
    rows = [
        ("throughput (requests/s)", f"{_fine(plan.throughput)}; exact {throughput}"),
        (f"mean response time (ms{where})", f"{_fine(plan.response_ms)}; exact {response}"),
        *(
            (f"{100 * share:g}% of response times within (ms)", _fine(value))
            for share, value in plan.quantiles_ms.items()
        ),
        *((f"{name} busy", _share(value)) for name, value in plan.utilisation.items()),
    ]
    if plan.refused is not None:
        rows.append(("rounds refused", _share(plan.refused)))
    width = max(len(name) for name, _ in rows)
    lines += [f"  {name:<{width}}  {value}" for name, value in rows]
    lines.append(
        f"These {100 * system.level:g}% intervals contain the simulation's noise only. The prediction intervals above "
        "contain the errors of the parameters and the model. The scatter of response times is not measured: it follows "
        "from the assumed service times and a constant delay outside."
    )
    return "\n".join(lines)


def _too(error: float) -> str:
    return f"{abs(error):.1%} too {'low' if error < 0 else 'high'}"


def _slots_words(plan: Plan) -> str:
    if plan.slot_ms is None:
        return ""
    return (
        f" with a service time of {number(plan.slot_ms, _DIGITS)} ms in each slot (for equal throughput at this load)"
    )


def _shape_words(shape: Shape) -> str:
    return f"{type(shape).__name__.lower()} (c² = {shape.scv:.3g})"


def _fine(interval: Interval) -> str:
    """An estimate and its interval, rounded to two digits of the half width."""
    digits = _DIGITS
    if interval.half_width:
        digits = max(
            3, 2 + math.floor(math.log10(abs(interval.estimate))) - math.floor(math.log10(interval.half_width))
        )
    estimate, low, high = (
        number(value, digits) for value in (interval.estimate, interval.low or 0.0, interval.high or 0.0)
    )
    return f"{estimate} ({low} to {high})"


def _share(interval: Interval) -> str:
    estimate, low, high = interval.estimate, interval.low or 0.0, interval.high or 0.0
    return f"{estimate:.2%} ({max(0.0, low):.2%} to {min(1.0, high):.2%})"


def selection_sentence(selection: Selection) -> str:
    """The model that was chosen, why, and how well it predicts hidden client counts."""
    chosen, best = selection.chosen, selection.best
    if best is chosen:
        head = f"Best model: {chosen.model.name}."
    else:
        head = (
            f"Best model: {chosen.model.name}. The {best.model.name} has more parameters, and predicts about equally "
            "well."
        )
    errors = (chosen.throughput_error, chosen.response_error)
    largest = np.array(chosen.left_out) == chosen.left_out[-1]
    x, r = (float(np.median(np.abs(error[~largest]))) for error in errors)
    x_edge, r_edge = (float(np.median(error[largest])) for error in errors)
    if selection.is_unfit:
        head = (
            f"No model describes these measurements: the best one, the {chosen.model.name}, is off by "
            f"{chosen.score:.0%} (root mean square) at client counts that it had not seen. Measure more client counts "
            "where throughput bends or falls."
        )
    passed = selection.passed_over
    if passed is not None:
        head += (
            f" The {passed.model.name} is closer (error {passed.score:.1%} instead of {chosen.score:.1%}), but it "
            "predicts a fall of throughput, and the measurements prove none."
        )
    return (
        f"{head} Knee predicted each client count but the smallest from the others. Between the ends, the median error "
        f"was {x:.1%} of throughput and {r:.1%} of response time. For the largest count, it predicted a throughput "
        f"{_too(x_edge)}, and a response time {_too(r_edge)}."
    )


def parameter_sentence(system: FittedSystem) -> str:
    """The chosen model's parameters with their intervals."""
    parameters = "; ".join(_parameter(name, value) for name, value in system.parameters.items())
    return f"The model's parameters, with {100 * system.level:g}% intervals: {parameters}."


def stage_lines(system: FittedSystem) -> list[str]:
    """The service demand of every stage, as a table, and the stages that cannot be separated."""
    lines = []
    if system.stages.found:
        lines.append("Service demand of every stage, over all client counts together (ms):")
        for stage in system.stages.found:
            servers = "" if stage.servers is None else f"{stage.servers:g} server{'s' * (stage.servers != 1)}"
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
    """The prediction, and how far it extrapolates."""
    scenario = forecast.scenario
    load = f"At {scenario.clients:,.10g} client{'s' * (scenario.clients != 1)}"
    if scenario.pipeline > 1:
        load += f" with {scenario.pipeline:,.10g} requests in flight each"
    if scenario.slots == scenario.slots:
        servers = scenario.servers.removesuffix("s") if scenario.slots == 1 else scenario.servers
        load += f", {scenario.slots:,.10g} {servers}"
    if scenario.think_ms:
        load += f", {number(scenario.think_ms)} ms of thinking"
    where = " (as the middleware saw it)" if system.selection.curve.view == "middleware" else ""
    throughput = quantity_between(forecast.throughput, "requests/s")
    response = quantity_between(forecast.response_ms, "ms")
    lines = [f"{load}: {throughput}, response time {response}{where}. {_brackets(system.level)}"]
    if forecast.outside:
        lines.append(f"This prediction is an extrapolation: {'; '.join(forecast.outside)}. {_beyond(system, forecast)}")
    return lines


def _beyond(system: FittedSystem, forecast: Forecast) -> str:
    """What the intervals of an extrapolation leave out."""
    if not forecast.may_fall:
        return "The intervals do not cover a new bottleneck that may appear there."
    most = system.selection.curve.counts[-1]
    return (
        f"The intervals cover a new limit above {most:,.10g} clients, but no fall of throughput, because the "
        "measurements prove none. If throughput falls there, only the upper end of the throughput and the lower end of "
        "the response time hold: measure this load to exclude a fall."
    )


def quantity_between(interval: Interval, unit: str = "") -> str:
    """An estimate with its interval. Ends beyond a thousandth or a thousand times the estimate are cut off."""
    estimate = f"{number(interval.estimate)} {unit}".rstrip()
    if interval.low is None or interval.high is None:
        return estimate
    least, most = interval.estimate / _TIMES_MAX, interval.estimate * _TIMES_MAX
    low = f"less than {number(least)}" if 0 < interval.low < least else number(interval.low)
    high = f"more than {number(most)}" if interval.high > most > 0 else number(interval.high)
    return f"{estimate} ({low} to {high})"


_PARAMETERS = {
    "outside_ms": "delay outside the queues",
    "service_ms": "service time",
    "slot_ms": "time in a slot",
    "server_ms": "service time of the server",
    "alone_ms": "response time of a client alone",
}
"""Names of the models' parameters in sentences; the others have their own."""


def _parameter(name: str, interval: Interval) -> str:
    _, ms, _ = name.partition("_ms")
    stem = _PARAMETERS.get(name, name)
    if ms and interval.estimate < _LEAST_MS and (interval.high is None or interval.high < _LEAST_MS):
        return f"{stem} 0 ms"
    if interval.low is not None and interval.high is not None and interval.high > UNDETERMINED * interval.low:
        return f"{stem} unknown (many values fit these measurements equally well)"
    return f"{stem} {quantity_between(interval, ms[1:])}"
