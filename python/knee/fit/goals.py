"""Goal seek: the value of a setting with which a goal is met."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from knee.errors import FitError
from knee.fit.layered import LayeredForecast
from knee.fit.scenario import CLIENTS, PIPELINE
from knee.stats.intervals import number


def sought_max(name: str) -> int:
    """The largest value that is tried."""
    return 16_384 if name in CLIENTS else 4096


_GOAL = re.compile(r"\s*(response_ms|throughput)\s*([<>])\s*([0-9.eE+]+)\s*")


@dataclass(frozen=True)
class Goal:
    """`response_ms < bound` or `throughput > bound`."""

    quantity: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Raises FitError for another text."""
        found = _GOAL.fullmatch(text)
        try:
            bound = float(found[3]) if found else 0.0
        except ValueError:
            bound = 0.0
        if not found or bound <= 0 or (found[1] == "response_ms") != (found[2] == "<"):
            raise FitError(f"--slo {text!r}: expected 'response_ms < NUMBER' or 'throughput > NUMBER'")
        return cls(found[1], bound)

    def __str__(self) -> str:
        return f"{self.quantity} {'<' if self.quantity == 'response_ms' else '>'} {number(self.bound)}"

    def is_met(self, forecast: LayeredForecast, *, surely: bool) -> bool:
        """Whether the estimate meets the goal, or with `surely` all of the interval."""
        if self.quantity == "response_ms":
            worst = forecast.response_ms.high if surely else forecast.response_ms.estimate
            return worst is not None and worst < self.bound
        worst = forecast.throughput.low if surely else forecast.throughput.estimate
        return worst is not None and worst > self.bound


@dataclass(frozen=True)
class Sought:
    """The best value by the estimate, and the best value by the whole interval, with its forecast; None if no value up
    to SOUGHT_MAX meets the goal."""

    name: str
    goal: Goal
    likely: tuple[int, LayeredForecast] | None
    sure: tuple[int, LayeredForecast] | None

    @property
    def largest(self) -> bool:
        """Whether the largest value is sought, not the smallest."""
        return wants_largest(self.name, self.goal)


def wants_largest(name: str, goal: Goal) -> bool:
    """More clients lengthen response times; more of any other setting shortens them."""
    return name in (*CLIENTS, *PIPELINE) and goal.quantity == "response_ms"


def seek(name: str, goal: Goal, forecast: Callable[[int], LayeredForecast]) -> Sought:
    """Doubles the value of a setting until the goal is met or missed, and halves the last step. More clients serve more
    and wait longer; more of any other setting serves more and shortens waits.

    Parameters
    ----------
    forecast
        The forecast for a value of the setting.
    """
    known = cache(forecast)
    largest = wants_largest(name, goal)
    most = sought_max(name)
    best = []
    for surely in (False, True):
        # The largest value that meets the goal, or the largest that misses it, is from `low` to below `high`.
        low, high = 0, 1
        while high <= most and goal.is_met(known(high), surely=surely) == largest:
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            if goal.is_met(known(middle), surely=surely) == largest:
                low = middle
            else:
                high = middle
        value = low if largest else high
        best.append((value, known(value)) if 1 <= value <= most else None)
    return Sought(name, goal, *best)
