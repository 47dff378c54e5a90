"""One result of another tool, and the parts that its readers share. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from knee.data.usage import Usage

_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}


_NUMBER_MAX = 1e15
_NO_NUMBERS = ("tool", "operation", "source", "percentiles_ms", "counts", "usage", "column", "unit", "row")


class ForeignError(Exception):
    """A text is not a whole result of its tool; the message names the missing part."""


@dataclass(frozen=True)
class Result:
    """Means of one run, as the tool printed them.

    throughput     answers per second
    response_ms    mean response time; None if the tool printed none
    clients        customers of a closed loop, pipelined requests included; the connections of an open loop
    declared       the number of clients that the tool printed, if it ran others
    percentiles_ms response times by percentile
    max_ms         longest response time
    duration_s     time by which the tool divided
    load_s         time during which it sent requests, if that differs
    rate           requested rate of an open loop
    sent_rate      rate at which an open loop sent
    is_open        whether requests have due times of their own
    computed       whether the tool computed the mean from N and X, and so measured none
    corrected      whether the tool adds response times of requests that it did not send
    rest_ms        time of a request's cycle outside of its response time, as the tool measured it
    rounding       largest relative error of X · R by the last digits of its factors
    generator_busy busy share of a thread of the load generator
    counts         answers in equal parts of the run, in the order of time
    dropped        due requests that the tool left out, for lack of clients
    usage          processor times of the run, if `knee find` made it
    column         a table's column of response times
    unit           the unit in which these were read
    row            further cells of its row in a table, by column
    """

    tool: str
    throughput: float
    response_ms: float | None
    operation: str = ""
    source: str = ""
    clients: int | None = None
    declared: int | None = None
    percentiles_ms: Mapping[float, float] = field(default_factory=dict)
    max_ms: float | None = None
    duration_s: float | None = None
    load_s: float | None = None
    requests: int | None = None
    errors: int = 0
    rate: float | None = None
    sent_rate: float | None = None
    is_open: bool = False
    computed: bool = False
    corrected: bool = False
    rest_ms: float | None = None
    rounding: float = 0.0
    generator_busy: float | None = None
    dropped: int = 0
    counts: tuple[int, ...] = ()
    usage: Usage | None = None
    column: str = ""
    unit: str = ""
    row: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ForeignError for a value that is no number from 0 to _NUMBER_MAX."""
        if self.throughput is None or self.clients == 0:
            raise ForeignError("no clients" if self.clients == 0 else "no throughput")
        numbers = {name: value for name, value in vars(self).items() if name not in _NO_NUMBERS and value is not None}
        for name, value in [*numbers.items(), *((f"p{share}", time) for share, time in self.percentiles_ms.items())]:
            if not isinstance(value, int | float) or not 0 <= value <= _NUMBER_MAX:
                raise ForeignError(f"{name} is {value!r}, not a number from 0 to {_NUMBER_MAX:g}")


def found(text: str, pattern: str, what: str) -> str:
    """The first group of a pattern at a line's start, after blanks. Raises ForeignError if no line has it."""
    if (value := maybe(text, pattern)) is None:
        raise ForeignError(f"no {what}")
    return value


def maybe(text: str, pattern: str) -> str | None:
    """Like :func:`found`; None if no line has it."""
    match = re.search(rf"(?m)^[ \t]*{pattern}", text)
    return match[1] if match else None


def milliseconds(time: str) -> float:
    """A time with its unit, such as 1.5ms or 2m3.5s."""
    parts = re.findall(r"([\d.]+)\s*(ns|us|µs|ms|s|m|h)", time)
    if not parts:
        raise ForeignError(f"{time!r} is not a time")
    return sum(float(number) * _MS[unit] for number, unit in parts)


def rounding(*numbers: str) -> float:
    """Largest relative error of a product of numbers as printed: half a unit of each last digit."""
    return sum(0.5 * 10.0 ** -len(number.partition(".")[2]) / max(float(number), 1e-9) for number in numbers)


def loaded(text: str) -> dict[str, Any]:
    """The JSON object of a text. Raises ForeignError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ForeignError(f"not whole JSON: {error}") from None
    if not isinstance(value, dict):
        raise ForeignError("not a JSON object")
    return value
