"""Rules that find contradictions within one result.

A closed loop without think time keeps N requests in flight, so N = X · R (Little 1961), whatever the distributions. A
tool that measures all three can be audited.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev
from typing import Literal

from knee.data.foreign import Result
from knee.data.utilization import OUTSIDERS_MAX, SATURATED
from knee.laws.causes import wrong_unit
from knee.stats.intervals import counted, number

TOLERANCE = 0.05
"""Allowed deviation of X · R from N: a tool's run time may include the start and end of its clients."""

INVENTED = "invented latencies"
MILD = 1.25
"""Invented latencies below this factor are a doubt, not wrong: wrk invents some in every run."""

_ACCOUNTED = 0.8
"""A pause may have held all clients if their mean time outside median responses is at least this share of it."""
_MOST = 0.5
"""A pause held all clients for sure if it is at least this share of that time: other long responses explain less."""
_HIDDEN = 0.5
"""A percentile hides a pause if it is below this share of the same percentile of requests with due times."""
_ROUNDED = 0.25
"""A mean with a larger rounding error cannot show a violation."""
_WARM_UP = 0.1
_ERRORS = 0.01
_REACHED = 0.95
_BUSY = 0.9
_SECONDS_MIN = 10.0
_SHARED = 0.05
_REST = 0.1

_REMEDIES = {
    "pgbench": "add -P 1",
    "ab": "keep the table of connection times",
    "vllm": "add --percentile-metrics ttft,tpot,itl,e2el",
}
"""How a tool is made to print its mean response time."""

_UNITS = ("ns", "us", "ms", "s")
_WORDS = {"s": "seconds", "us": "µs"}

State = Literal["wrong", "doubt", "unknown", "holds"]


@dataclass(frozen=True)
class Finding:
    """A result of one rule.

    kind    the rule's name
    state   `wrong` contradicts a number, `doubt` weakens it, `unknown` names a missing number, `holds` confirms it
    figure  how bad it is; the worst of a kind is printed
    what, cause, remedy
            the parts of the message
    source  the file, or the tool and the operation
    """

    kind: str
    state: State
    figure: float
    what: str
    cause: str
    remedy: str = ""
    source: str = ""


def findings_of(result: Result, tolerance: float | None = TOLERANCE) -> list[Finding]:
    """The findings of all rules about one result. X · R may deviate from N by `tolerance`; None skips this rule."""
    if result.throughput <= 0:
        what, cause = "the throughput is 0", "no request was answered in the run"
        remedy = "check the address, and that the server runs"
        return [Finding("none", "wrong", 1, what, cause, remedy, result.source)]
    rules = (_clients, _open if result.is_open else partial(_law, tolerance=tolerance), *_OTHERS)
    return [replace(finding, source=result.source) for rule in rules for finding in rule(result)]


def in_flight(result: Result) -> float | None:
    """X (R + rest): the mean number of clients in a response or, in a closed loop, in a measured rest. None if R is
    unknown."""
    if result.response_ms is None:
        return None
    return result.throughput * (result.response_ms + (result.rest_ms or 0.0)) / 1000


def _clients(result: Result) -> Iterator[Finding]:
    if result.clients is not None and result.declared is not None and result.declared != result.clients:
        yield Finding(
            "clients",
            "wrong",
            result.declared / max(result.clients, 1),
            f"{result.clients} of {result.declared} connections were open",
            f"the threads of {result.tool} take equal shares, rounded down",
            "choose a multiple of the threads",
        )


def ends(result: Result) -> float:
    """R / T: the share of requests in flight at an end of the run. They count on one side of N = X · R only."""
    return (result.response_ms or 0.0) / 1000 / result.duration_s if result.duration_s else 0.0


def _law(result: Result, tolerance: float | None) -> Iterator[Finding]:
    inside, tool = in_flight(result), "the table" if result.tool == "table" else result.tool
    if inside is None or result.computed:
        why = "computed its mean response time from N / X" if result.computed else "printed no mean response time"
        remedy = _REMEDIES.get(tool, "record mean response times")
        what = "N = X · R was not checked"
        yield Finding("law", "unknown", 0, what, f"{tool} {why}, and measured none", remedy)
        return
    if result.clients is None:
        yield Finding(
            "law",
            "unknown",
            0,
            "N = X · R was not checked",
            f"{tool} printed no number of clients; about {number(inside)} requests were in flight",
            "add --clients, or name the file like c16.txt",
        )
        return
    if result.rounding > _ROUNDED:
        what, cause = "N = X · R was not checked", f"the last digits of X and R allow an error of {result.rounding:.0%}"
        yield Finding("law", "unknown", 0, what, cause, "take more digits, or a tool that prints them")
        return
    if tolerance is None:
        return
    ratio = inside / result.clients
    allowed = tolerance + result.rounding + ends(result)
    what = f"X · R is {number(inside)} requests in flight, and {counted(result.clients, 'client')} ran"
    if abs(ratio - 1) <= allowed:
        what = f"X · R is {number(inside)}, and N is {result.clients} ({ratio - 1:+.1%}, allowed ±{allowed:.0%})"
        yield Finding("law", "holds", abs(ratio - 1), what, "throughput and response time agree")
    else:
        worse = max(ratio, 1 / ratio) if ratio else float("inf")
        kind, cause, remedy = _why(result, ratio, allowed)
        state: State = "doubt" if kind == INVENTED and worse < MILD else "wrong"
        yield Finding(kind, state, worse, what, cause, remedy)


def _why(result: Result, ratio: float, allowed: float) -> tuple[str, str, str]:
    """The kind, the cause and the remedy of a violation."""
    assert result.clients is not None and result.response_ms is not None
    cycle_ms = 1000 * result.clients / result.throughput
    expected_ms = cycle_ms - (result.rest_ms or 0.0)
    if unit := wrong_unit(result.response_ms / expected_ms if expected_ms > 0 else 1.0):
        cause, _, remedy = unit.partition(": ")
        return "unit", cause + _needed_unit(result, expected_ms), remedy
    # A tool invents latencies only after responses longer than two cycles.
    if ratio > 1 and result.corrected and (result.max_ms or 0.0) > 2 * cycle_ms:
        return (
            INVENTED,
            f"after each response longer than two mean cycles (N / X = {number(cycle_ms)} ms), {result.tool} adds "
            f"latencies of requests that it never sent; the longest took {number(result.max_ms or 0.0)} ms",
            f"take N / X = {number(cycle_ms)} ms as the mean, and measure percentiles at a constant rate, such as "
            f"wrk2 -R {0.8 * result.throughput:.0f}",
        )
    if result.load_s and result.duration_s and abs(ratio * result.duration_s / result.load_s - 1) <= allowed:
        return (
            "duration",
            f"{result.tool} divides by {result.duration_s:.3g} s, but sent requests for {result.load_s:.3g} s",
            f"take {result.throughput * result.duration_s / result.load_s:,.0f}/s as the throughput, or measure longer",
        )
    if ratio > 1:
        return (
            "clients",
            f"each client had {number(ratio)} requests in flight, by pipelining, or more clients ran",
            "give the requests in flight (clients × pipeline) with --clients",
        )
    return (
        "outside",
        f"{1 - ratio:.0%} of the clients' time ({number(cycle_ms * (1 - ratio))} ms a request) is in no response time: "
        "waiting in the generator, connecting, thinking, or a ramp of clients",
        "time requests from when they are due, keep connections open, and cut the ramp off"
        + "; if wrk2 wrote the file, add --from wrk2" * (result.tool == "wrk"),
    )


def _needed_unit(result: Result, expected_ms: float) -> str:
    """A clause with the unit of a table's response times, and the unit that the law needs."""
    times = math.log10((result.response_ms or 1.0) / expected_ms)
    at = _UNITS.index(result.unit) - round(times / 3) if result.unit else -1
    if not 0 <= at < len(_UNITS):
        return ""
    read, needed = (_WORDS.get(unit, unit) for unit in (result.unit, _UNITS[at]))
    return f": {result.column} reads as {read}, the law needs {needed}"


def _open(result: Result) -> Iterator[Finding]:
    # The last responses come after the last request was due.
    if result.rate and result.throughput < (_REACHED - ends(result)) * result.rate:
        yield Finding(
            "rate",
            "wrong",
            result.rate / max(result.throughput, 1e-9),
            f"{number(result.throughput)} of {number(result.rate)} requests/s were answered",
            "the server cannot serve this rate, or the generator's limit of clients is too low for it",
            "report the throughput as the capacity; measure response times below 80% of it",
        )
        return
    inside, median = in_flight(result), result.percentiles_ms.get(50.0)
    if inside is None:
        return
    if result.clients and median and result.throughput * median / 1000 > (1 + TOLERANCE) * result.clients:
        yield Finding(
            "rate",
            "wrong",
            inside / result.clients,
            f"{number(inside)} requests were due and unanswered on average, and {result.clients} connections ran",
            "the rate exceeds the capacity, so response times grow with the length of the run",
            "report the throughput as the capacity; measure response times below 80% of it",
        )
        return
    what = f"X · R is {number(inside)} requests in the system"
    if result.rate:
        yield Finding("rate", "holds", 0, what, "requests kept their rate")
    else:
        sent = result.sent_rate or result.throughput
        cause = f"{result.tool} printed no requested rate, so it may have fallen behind; it sent {number(sent)}/s"
        yield Finding("rate", "unknown", 0, what, cause, "add --rate")


def _pause(result: Result) -> Iterator[Finding]:
    """Coordinated omission: while the server stands, a closed loop sends nothing, so few latencies show the pause."""
    clients = result.clients or in_flight(result)
    if result.is_open or result.corrected or not clients or not result.duration_s or not result.max_ms:
        return
    percentile = max((each for each in result.percentiles_ms if each <= 99), default=None)
    median = result.percentiles_ms.get(50.0, result.response_ms)
    if percentile is None or median is None:
        return
    # All clients together spend N · T. Their time outside median cycles is pauses: `away_ms` for each client.
    cycle_ms = median + (result.rest_ms or 0.0)
    away_ms = 1000 * result.duration_s - result.throughput * result.duration_s * cycle_ms / clients
    # Of requests that are due during a pause of M, the last wait least: (M − w) / T of all wait longer than w.
    due_ms = result.max_ms - (1 - percentile / 100) * 1000 * result.duration_s
    shown_ms = result.percentiles_ms[percentile]
    if away_ms >= _ACCOUNTED * result.max_ms and shown_ms < _HIDDEN * due_ms:
        is_sure = result.max_ms >= _MOST * away_ms
        name, verb, proviso = f"p{percentile:g}", "hides", "each client sent one request in it"
        if not is_sure:
            verb, proviso = "may hide", "if all clients waited, each sent one request in it"
        yield Finding(
            "omission",
            "wrong" if is_sure else "doubt",
            due_ms / max(shown_ms, 1e-9),
            f"the {name} of {number(shown_ms)} ms {verb} a pause of {number(result.max_ms)} ms",
            f"coordinated omission: {proviso}; requests that are due at a constant rate would have a {name} of "
            f"{number(due_ms)} ms or more",
            f"measure percentiles at a constant rate, such as wrk2 -R {0.8 * result.throughput:.0f}",
        )


def _errors(result: Result) -> Iterator[Finding]:
    cause, remedy = (
        "errors may be faster than answers, and count in the throughput",
        "remove their cause, and measure again",
    )
    if result.errors and result.requests is None:
        yield Finding("errors", "doubt", 0, f"{result.errors} requests failed, of an unknown number", cause, remedy)
        return
    total = max(result.requests or 0, result.errors)
    if result.errors:
        share = result.errors / total
        yield Finding(
            "errors",
            "wrong" if share >= _ERRORS else "doubt",
            share,
            f"{result.errors} of {total} requests failed ({share:.2%})",
            cause,
            remedy,
        )


def _generator(result: Result) -> Iterator[Finding]:
    remedy = "use more generator threads or hosts"
    if result.generator_busy is not None and result.generator_busy >= _BUSY:
        what = f"a thread of {result.tool} was {result.generator_busy:.0%} busy"
        cause = "the generator limits the throughput, not the system"
        yield Finding("generator", "wrong", result.generator_busy, what, cause, remedy)
    if result.dropped:
        share = result.dropped / (result.dropped + (result.requests or 0))
        what = f"{result.tool} left out {result.dropped} due requests ({share:.0%})"
        cause = "all its clients were waiting, so response times leave out the wait for a client"
        yield Finding("generator", "wrong", share, what, cause, "allow more clients, or lower the rate")
    # A table declares its think time.
    is_measured = result.tool != "table"
    if is_measured and result.response_ms and result.rest_ms and result.rest_ms > _REST * result.response_ms:
        what = f"clients spent {number(result.rest_ms)} ms between response times of {number(result.response_ms)} ms"
        cause = "scripts, connecting or thinking, which response times leave out"
        yield Finding("rest", "doubt", result.rest_ms / result.response_ms, what, cause)


def _processors(result: Result) -> Iterator[Finding]:
    """Full processors that the system shares with the load generator, or with programs that are not watched."""
    usage = result.usage
    if usage is not None and usage.host_cores is None:
        what, cause = "the machine's processors were not measured", "Knee may use only some of them"
        yield Finding("confined", "doubt", 0, what, cause, "run it without a limit of processors")
    if usage is None or usage.host_busy < SATURATED:
        return
    what = f"the processors were {usage.host_busy:.0%} busy"
    if usage.generator >= _SHARED:
        cause = f"{result.tool} took {usage.generator:.0%} of them"
        yield Finding("shared", "doubt", usage.generator, what, cause, "run it on another machine")
    if usage.others > OUTSIDERS_MAX:
        cause = f"programs that are not watched took {usage.others:.0%} of them"
        yield Finding("others", "doubt", usage.others, what, cause, "watch them if they are the system's, or stop them")


def _warm_up(result: Result) -> Iterator[Finding]:
    """The first fifth of a run differs from the rest, by more than the rest scatters."""
    first = len(result.counts) // 5
    if first < 2:
        return
    early, rest = fmean(result.counts[:first]), fmean(result.counts[first:])
    noise = stdev(result.counts[first:]) * (1 / first + 1 / (len(result.counts) - first)) ** 0.5
    if abs(early - rest) > max(_WARM_UP * rest, 3 * noise):
        apart = early / max(rest, 1e-9) - 1
        what, cause = f"the first fifth of the run is {apart:+.0%} from the rest", "warm-up is part of the means"
        yield Finding("warm-up", "wrong", abs(apart), what, cause, "cut the warm-up off, or measure longer")


def _short(result: Result) -> Iterator[Finding]:
    if result.duration_s is not None and result.duration_s < _SECONDS_MIN:
        yield Finding(
            "short",
            "doubt",
            1 / max(result.duration_s, 1e-9),
            f"the run took {number(result.duration_s)} s",
            "warm-up is part of it, and a pause of a second may be missed",
            "measure for 30 s or more, after a warm-up",
        )


_OTHERS = (_pause, _errors, _generator, _processors, _warm_up, _short)
