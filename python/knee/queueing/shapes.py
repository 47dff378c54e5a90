"""Distributions of the simulator's times. A shape has mean 1: the network gives the mean, the shape the variation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from knee.queueing.arguments import checked_whole
from knee.queueing.errors import ArgumentError
from knee.queueing.network import Floats

#: The kernel's description of a shape: name, parameters, probabilities of quantiles.
KernelShape = tuple[str, list[float], list[float]]

STAGES_MAX = 1_000_000
SCV_MAX = 1e6


class Shape(ABC):
    """A distribution of times with mean 1; `scv` is c², the variance over the squared mean."""

    scv: float

    @abstractmethod
    def for_kernel(self) -> KernelShape:
        """The description for `knee._kernels.simulate`."""


@dataclass(frozen=True)
class Exponential(Shape):
    """Memoryless; c² = 1."""

    scv: float = field(default=1.0, init=False)

    def for_kernel(self) -> KernelShape:
        return ("exponential", [], [])


@dataclass(frozen=True)
class Deterministic(Shape):
    """Constant; c² = 0."""

    scv: float = field(default=0.0, init=False)

    def for_kernel(self) -> KernelShape:
        return ("deterministic", [], [])


@dataclass(frozen=True)
class Erlang(Shape):
    """The sum of `stages` exponential times; c² = 1 / stages."""

    stages: int
    scv: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", checked_whole("stages", self.stages, 1, STAGES_MAX))
        object.__setattr__(self, "scv", 1 / self.stages)

    def for_kernel(self) -> KernelShape:
        return ("erlang", [float(self.stages)], [])


@dataclass(frozen=True)
class HyperExponential(Shape):
    """One of two exponentials, a slow and a fast one, with half of the work in each (Whitt 1982, "balanced means").

    The slow one has the probability p = (1 − √((c² − 1) / (c² + 1))) / 2 and the mean 1 / 2p.
    """

    scv: float

    def __post_init__(self) -> None:
        if not 1 <= self.scv <= SCV_MAX:
            raise ArgumentError("scv", f"expected 1 to {SCV_MAX:,.0f}, not {self.scv}")

    def for_kernel(self) -> KernelShape:
        root = math.sqrt((self.scv - 1) / (self.scv + 1))
        # (1 − r) / 2 without cancellation, because 1 − r² = 2 / (c² + 1).
        return ("hyperexponential", [1 / ((self.scv + 1) * (1 + root))], [])


@dataclass(frozen=True)
class Lognormal(Shape):
    """e to the power of a normal number with the standard deviation √ln(1 + c²)."""

    scv: float

    def __post_init__(self) -> None:
        if not 0 <= self.scv <= SCV_MAX:
            raise ArgumentError("scv", f"expected 0 to {SCV_MAX:,.0f}, not {self.scv}")

    def for_kernel(self) -> KernelShape:
        return ("lognormal", [math.sqrt(math.log1p(self.scv))], [])


class Samples(Shape):
    """Measured times, each equally likely; the simulator draws only these values.

    Parameters
    ----------
    times
        One or more in any unit, not all 0. `mean` is theirs in that unit, for the station: with
        `samples = Samples(times)` it is `Queue("store", samples.mean)`.
    """

    def __init__(self, times: Sequence[float] | Floats) -> None:
        values = _times("times", times)
        self.mean = float(values.mean())
        if self.mean == 0:
            raise ArgumentError("times", "expected times that are not all 0")
        self._values = values / self.mean
        self.scv = float(self._values.var())

    def for_kernel(self) -> KernelShape:
        return ("samples", self._values.tolist(), [])


class Quantiles(Shape):
    """Measured times, given by their quantiles; between two quantiles the distribution is uniform.

    Parameters
    ----------
    probabilities
        Rising, the first 0 and the last 1: the least and the greatest time must be known.
    times
        The quantiles in any unit, not falling and not all 0. `mean` is in that unit, as of `Samples`.
    """

    def __init__(self, probabilities: Sequence[float] | Floats, times: Sequence[float] | Floats) -> None:
        self._probabilities = np.array(probabilities, dtype=np.float64)
        values = _times("times", times)
        if self._probabilities.shape != values.shape or len(values) < 2:
            raise ArgumentError("probabilities", f"expected one for each of two or more times, not {probabilities}")
        steps = np.diff(self._probabilities)
        if self._probabilities[0] != 0 or self._probabilities[-1] != 1 or not (steps > 0).all():
            raise ArgumentError("probabilities", f"expected rising numbers from 0 to 1, not {probabilities}")
        if not (np.diff(values) >= 0).all():
            raise ArgumentError("times", "expected quantiles that do not fall")
        self.mean = float(steps @ (values[:-1] + values[1:]) / 2)
        if self.mean == 0:
            raise ArgumentError("times", "expected quantiles that are not all 0")
        self._values = values / self.mean
        low, high = self._values[:-1], self._values[1:]
        self.scv = float(steps @ (low * low + low * high + high * high)) / 3 - 1

    def for_kernel(self) -> KernelShape:
        return ("quantiles", self._values.tolist(), self._probabilities.tolist())


def _times(argument: str, times: Sequence[float] | Floats) -> Floats:
    values = np.array(times, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ArgumentError(argument, "expected one or more times")
    # Sums of neighbours make the mean of quantiles: no more than twice the sum of all.
    with np.errstate(over="ignore"):
        if not ((values >= 0).all() and math.isfinite(2 * values.sum())):
            raise ArgumentError(argument, "expected times from 0 with a finite sum")
    return values
