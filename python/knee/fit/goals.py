"""Goal seek: the value of a setting with which a goal is met."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from knee.errors import FitError
from knee.fit.forecast import Forecast
from knee.fit.layered import LayeredForecast
from knee.fit.percentiles import SHARES
from knee.fit.scenario import CLIENTS, PIPELINE
from knee.stats.intervals import number


def sought_max(name: str) -> int:
    """The largest value that is tried."""
    return 16_384 if name in CLIENTS else 4096


_QUANTILES = {f"p{100 * share:g}": share for share in SHARES}
_GOAL = re.compile(rf"\s*(response_ms|throughput|{'|'.join(_QUANTILES)})\s*([<>])\s*([0-9.eE+]+)\s*(ms|/s)?\s*")


@dataclass(frozen=True)
class Goal:
    """`response_ms < bound`, `throughput > bound`, or a quantile of the response time such as `p99 < bound`, in ms."""

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
        wanted = ("<", "ms") if found and found[1] != "throughput" else (">", "/s")
        if not found or bound <= 0 or found[2] != wanted[0] or found[4] not in (None, wanted[1]):
            known = ", ".join(["response_ms", *_QUANTILES])
            raise FitError(
                f"--slo {text!r}: expected a goal such as 'response_ms < 5' ({known}) or 'throughput > 1000'"
            )
        return cls(found[1], bound)

    def __str__(self) -> str:
        return f"{self.quantity} {'>' if self.quantity == 'throughput' else '<'} {number(self.bound)}"

    @property
    def share(self) -> float | None:
        """The probability of the quantile; None for a mean."""
        return _QUANTILES.get(self.quantity)

    def is_met(self, forecast: LayeredForecast | Forecast, *, surely: bool) -> bool:
        """Whether the estimate meets the goal, or with `surely` all of the interval."""
        if self.quantity == "throughput":
            worst = forecast.throughput.low if surely else forecast.throughput.estimate
            return worst is not None and worst > self.bound
        time = forecast.response_ms
        if self.share is not None:
            if not isinstance(forecast, LayeredForecast):
                raise FitError(f"{self}: only a layered model has quantiles")
            time = forecast.quantiles_ms[self.share]
        worst = time.high if surely else time.estimate
        return worst is not None and worst < self.bound


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
    return name in (*CLIENTS, *PIPELINE) and goal.quantity != "throughput"


def seek(name: str, goal: Goal, forecast: Callable[[int], LayeredForecast]) -> Sought:
    """Doubles the value of a setting until the goal is met or missed, and halves the last step. More clients serve more
    and wait longer; more of any other setting serves more and shortens waits.

    `forecast`: the forecast for a value of the setting.
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
