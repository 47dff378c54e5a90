"""Goal seek: the value of a setting with which a goal is met."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from knee.errors import FitError
from knee.fit.layered import LayeredForecast
from knee.fit.scenario import CLIENTS, PIPELINE
from knee.stats.intervals import number

SOUGHT_MAX = 4096
"""The largest value that is tried."""

_GOAL = re.compile(r"\s*(response_ms|throughput)\s*([<>])\s*([0-9.eE+]+)\s*")

_EACH = 32
"""Every value up to this one is tried, then values 12 % apart."""


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


def seek(name: str, goal: Goal, forecasts: Callable[[Sequence[int]], Sequence[LayeredForecast]]) -> Sought:
    """Tries values of a setting on a grid, and then all values next to the best one.

    Parameters
    ----------
    forecasts
        The forecast for each of some values of the setting.
    """
    coarse = np.unique(np.round(np.geomspace(_EACH, SOUGHT_MAX, 44)).astype(int)).tolist()
    values = [*range(1, _EACH), *coarse]
    found = dict(zip(values, forecasts(values), strict=True))
    best = []
    for surely in (False, True):
        value = _best(found, name, goal, surely)
        near = [] if value is None else _beside(values, value, wants_largest(name, goal))
        tried = found | (dict(zip(near, forecasts(near), strict=True)) if near else {})
        value = _best(tried, name, goal, surely)
        best.append(None if value is None else (value, tried[value]))
    return Sought(name, goal, *best)


def _best(found: dict[int, LayeredForecast], name: str, goal: Goal, surely: bool) -> int | None:
    met = [value for value, forecast in found.items() if goal.is_met(forecast, surely=surely)]
    return None if not met else max(met) if wants_largest(name, goal) else min(met)


def _beside(values: Sequence[int], value: int, above: bool) -> list[int]:
    """The untried values between a value and its neighbour, above or below."""
    place = values.index(value) + (1 if above else -1)
    if not 0 <= place < len(values):
        return []
    low, high = sorted((value, values[place]))
    return list(range(low + 1, high))
