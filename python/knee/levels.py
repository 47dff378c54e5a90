"""What the only factor does to throughput, or in an open loop to the response time, and what cannot be told. Pure.

Of several factors a factorial analysis says which one matters; of one the question is which of its levels are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from knee.asymptotes import PLATEAU
from knee.intervals import LEVEL, Floats, Interval, difference_interval, mean_interval, quantity

_LOADS = ("clients", "rate")
"""Of these, the knee and the arrivals tell."""

_NAMED_MAX = 6
"""More levels in one sentence nobody reads."""

Level = int | float | str | bool


@dataclass(frozen=True)
class Levels:
    """What was measured at every level of a factor.

    response   "throughput", of which more is better, or "response_ms", of which less is
    measured   by level, in order; one measured once has no interval, and is neither best nor behind
    behind     by level, by which share of the best it is worse; surely so where its interval says so
    """

    factor: str
    response: str
    measured: tuple[tuple[Level, Interval], ...]
    behind: tuple[tuple[Level, Interval], ...]

    @property
    def best(self) -> tuple[Level, Interval] | None:
        """Of the levels with repetitions the one whose mean is best, and what was measured there; None where fewer than
        two have any."""
        others = {level for level, _ in self.behind}
        return next(
            (pair for pair in self.measured if others and pair[0] not in others and _is_repeated(pair[1])), None
        )

    @property
    def sentence(self) -> str:
        """The best level, which ones may be as good, which ones surely are not, and which ones lack repetitions."""
        more = self.response == "throughput"
        what = "throughput" if more else "the response time"
        once = [level for level, found in self.measured if not _is_repeated(found)]
        if self.best is None:
            again = "every level" if len(once) == len(self.measured) else _listed(once)
            return (
                f"What {self.factor} does to {what} cannot be told without repetitions: measure {again} more than once."
            )
        level, found = self.best
        most = f"{what} is {'largest' if more else 'shortest'} with {self.factor} = {level}"
        said = f"Of the levels with repetitions, {most}" if once else most[:1].upper() + most[1:]
        said += f": {quantity(found, 'requests/s' if more else 'ms')}."
        surely = [pair for pair in self.behind if pair[1].low is not None and pair[1].low > 0]
        close = [level for level, share in surely if share.high is not None and share.high <= PLATEAU]
        maybe = [level for level, share in self.behind if share.low is not None and share.low <= 0]
        worse = [f"{level} ({share.estimate:.0%})" for level, share in surely if level not in close]
        if maybe:
            said += f" With {_listed(maybe)} it may be as {'large' if more else 'short'}."
        if close:
            said += f" With {_listed(close)} it is within {PLATEAU:.0%} of that."
        if worse:
            said += f" It is surely {'less' if more else 'longer'} with {_listed(worse)}."
        if once:
            said += f" Of {_listed(once)} nothing can be told: measured once."
        return said


def levels(table: pl.DataFrame, factors: Sequence[str], level: float = LEVEL) -> Levels | None:
    """None where several factors vary, or none, or the load alone, or a level was never measured, or where rows of a
    closed loop would be compared with those of an open one.

    Parameters
    ----------
    table
        Rows of :mod:`knee.observations`.
    """
    if len(factors) != 1 or _varies(table, *_LOADS) or factors[0] in (*_LOADS, "request_type"):
        return None
    (factor,) = factors
    if table["think_ms"].null_count() not in (0, table.height):
        return None
    response = "response_ms" if table["think_ms"].null_count() else "throughput"
    if response not in table.columns:
        return None
    samples: dict[Level, Floats] = {
        at[factor][0]: at[response].drop_nulls().to_numpy()
        for _, at in table.sort(factor).group_by(factor, maintain_order=True)
    }
    if len(samples) < 2 or not all(sample.size and sample.mean() > 0 for sample in samples.values()):
        return None
    repeated = {at: sample for at, sample in samples.items() if sample.size > 1}
    behind: tuple[tuple[Level, Interval], ...] = ()
    if len(repeated) > 1:
        best = (max if response == "throughput" else min)(repeated, key=lambda at: float(repeated[at].mean()))
        # Which level is best comes from the same data, so that any pair might have been compared: Bonferroni's
        # correction.
        each = 1 - (1 - level) / math.comb(len(repeated), 2)
        behind = tuple((at, _behind(sample, repeated[best], each)) for at, sample in repeated.items() if at != best)
    measured = tuple((at, mean_interval(sample, level)) for at, sample in samples.items())
    return Levels(factor, response, measured, behind)


def _varies(table: pl.DataFrame, *names: str) -> bool:
    return any(name in table.columns and table[name].n_unique() > 1 for name in names)


def _is_repeated(found: Interval) -> bool:
    return found.repetitions > 1


def _behind(sample: Floats, best: Floats, level: float) -> Interval:
    """By which share of the best mean a level lies apart from it."""
    one, other = (best, sample) if best.mean() > sample.mean() else (sample, best)
    apart, whole = difference_interval(one, other, level), float(best.mean())
    ends = [None if end is None else end / whole for end in (apart.low, apart.high)]
    return Interval(apart.estimate / whole, ends[0], ends[1], level, apart.repetitions)


def _listed(named: Sequence[Level]) -> str:
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    return ", ".join(map(str, named[:_NAMED_MAX])) + more
