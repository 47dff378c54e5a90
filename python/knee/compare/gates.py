"""Conditions that fail a build, such as `throughput < -5%`: a change of B against A."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from knee.compare.findings import GateResult
from knee.compare.ratios import Ratio
from knee.compare.sides import QUANTITIES
from knee.errors import MeasurementsError
from knee.stats.intervals import Interval

_CONDITION = re.compile(r"\s*(\w+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Gate:
    """A condition on the ratio of a quantity: below `bound`, or with `above` above it."""

    text: str
    quantity: str
    above: bool
    bound: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Raises MeasurementsError for another text."""
        found = _CONDITION.fullmatch(text)
        bound = 1 + float(found[3]) / 100 if found else 0.0
        if not found or found[1] not in QUANTITIES or bound <= 0:
            raise MeasurementsError(
                f"--fail-if {text!r}: expected a condition such as 'throughput < -5%' or 'p99_ms > 10%', of "
                f"{' or '.join(QUANTITIES)}"
            )
        return cls(text.strip(), found[1], found[2] == ">", bound)

    def judge(self, ratio: Ratio, silent: tuple[bool, bool] = (False, False)) -> GateResult:
        """The condition fails the build if the whole interval meets it, and passes if none of the interval does.
        `silent` is whether A, and B, answered nothing at a point: the ratio lacks it.
        """
        if any(silent):
            reason = f"{' and '.join(name for name, each in zip('AB', silent, strict=True) if each)} answered nothing"
            falls = self.quantity == "throughput" and not self.above and silent == (False, True)
            unknown = Interval(math.nan, None, None, ratio.interval.level, 0)
            return GateResult(self.text, "fails" if falls else "cannot tell", unknown, reason)
        low, high = ratio.interval.low, ratio.interval.high
        if low is None or high is None:
            return GateResult(self.text, "cannot tell", ratio.interval)
        if low > self.bound if self.above else high < self.bound:
            return GateResult(self.text, "fails", ratio.interval)
        passes = high <= self.bound if self.above else low >= self.bound
        return GateResult(self.text, "passes" if passes else "cannot tell", ratio.interval)
