"""Which loads to measure, in which order, and when to stop. Pure.

Scouts are short runs that double the load until it encloses the target. They only choose the loads. Each chosen load is
then measured REPETITIONS_MIN times, in a random order. Further blocks repeat the loads that narrow the interval.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from knee.data.foreign import Result
from knee.errors import ProcessError
from knee.generators.runner import ExitError
from knee.stats.intervals import counted

REPETITIONS_MIN = 3
_STEP_MAX = 16
"""Most clients of the first scout: some generators need a client for each of their threads."""


class SharesError(ProcessError):
    """The generator ran only this many clients: the same number in each of its threads."""

    def __init__(self, text: str, ran: int) -> None:
        super().__init__(text)
        self.ran = ran


Runs = Mapping[int, Sequence[Result]]
"""Results by the load that the command had."""


class Spent(Exception):  # noqa: N818 - it is no error
    """The budget ends before another run would."""


@dataclass(frozen=True)
class Next:
    """Loads to measure: those that are new, or without any, those whose repetition narrows the interval."""

    new: tuple[float, ...]
    again: tuple[int, ...] = ()


class Target(Protocol):
    """What a search looks for; `precision` is the half width of its interval, as a share."""

    @property
    def precision(self) -> float: ...

    def is_enclosed(self, scouts: Runs) -> bool:
        """Whether the largest load is large enough."""

    def loads(self, scouts: Runs) -> Sequence[float]:
        """The loads to measure first."""

    def judge(self, runs: Runs) -> Next | None:
        """The next loads; None if the interval is narrow enough."""


@dataclass
class Search:
    """A search, and its results by load.

    measure  runs the generator with a load, shortly for a scout. Raises Spent, and ProcessError if the command failed
    report   takes the reason if a command failed, and the search goes on
    least    the fewest clients; every load is a multiple of it
    has_failed
             whether larger loads than `most` failed
    """

    target: Target
    measure: Callable[[int, bool], Result]
    report: Callable[[str], None]
    rng: random.Random
    least: int = 1
    most: int = 10_000
    has_failed: bool = False
    scouts: dict[int, list[Result]] = field(default_factory=dict)
    runs: dict[int, list[Result]] = field(default_factory=dict)

    def go(self) -> Literal["precise", "budget", "limit"]:
        """Search, and return why the search ended."""
        try:
            self.scout()
            block = REPETITIONS_MIN * self.rounded(self.target.loads(self.scouts))
            while block:
                self._measure(block)
                found = self.target.judge(self.runs)
                if found is None:
                    return "precise"
                new = [load for load in self.rounded(found.new) if load not in self.runs]
                block = REPETITIONS_MIN * new or list(found.again)
        except Spent:
            return "budget"
        return "limit"

    def scout(self, up_to: int = 0) -> None:
        """Double the load until it encloses the target, and reaches `up_to`. Raises ProcessError if no load works."""
        load, failed = 2 * max(self.scouts) if self.scouts else self.least, set[int]()
        while load <= self.most and not (
            self.scouts and max(self.scouts) >= up_to and self.target.is_enclosed(self.scouts)
        ):
            try:
                self.scouts[load] = [self.measure(load, True)]
            except ProcessError as error:
                failed.add(load)
                least = error.ran if isinstance(error, SharesError) else 2 * load
                may_suit = isinstance(error, ExitError | SharesError) and 0 < least <= min(_STEP_MAX, self.most)
                if self.scouts or not may_suit or least in failed:
                    self._stay_below(load, error)
                    return
                self.least = load = least
                self.report(f"{error}; trying {counted(least, 'client')}")
            else:
                load *= 2

    def _measure(self, block: Sequence[int]) -> None:
        for load in self.rng.sample(block, len(block)):
            if load <= self.most and (result := self._run(load)) is not None:
                self.runs.setdefault(load, []).append(result)

    def _run(self, load: int) -> Result | None:
        """A result; None if the load failed, and is left out with larger ones.

        A failure may be chance if this or a larger load worked before, so that it is tried again. Raises the second
        error if a run of this or a larger load worked: something has changed.
        """
        try:
            return self.measure(load, False)
        except ProcessError as error:
            if load > max((*self.scouts, *self.runs)):
                self._stay_below(load, error)
                return None
            self.report(f"{error}; trying {counted(load, 'client')} again")
        try:
            return self.measure(load, False)
        except ProcessError as error:
            if load <= max(self.runs, default=0):
                raise
            self._stay_below(load, error)
            return None

    def _stay_below(self, load: int, error: ProcessError) -> None:
        """Leave out a load that failed, and larger ones. Raises the error if no smaller one worked."""
        worked = [one for one in (*self.scouts, *self.runs) if one < load]
        if not worked:
            raise error
        self.most, self.has_failed = max(worked), True
        self.report(f"{error}; the search stays at {counted(self.most, 'client')} or fewer")

    def rounded(self, loads: Sequence[float]) -> list[int]:
        """The nearest multiples of the fewest clients, within the limits."""
        most = self.most // self.least
        return sorted({self.least * min(max(1, round(load / self.least)), most) for load in loads})
