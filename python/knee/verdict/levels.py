"""What the only factor does to throughput, or in an open loop to the response time, and what cannot be told. Pure.

Of several factors a factorial analysis says which one matters; of one the question is which of its levels are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from knee.data.csv import is_open_loop
from knee.stats.comparisons import EQUAL, scattered_mean, shares_apart
from knee.stats.intervals import LEVEL, Floats, Interval, listed, number, quantity
from knee.verdict.failures import percent
from knee.verdict.knee import PLATEAU

_LOADS = ("clients", "rate")
"""Of these, the knee and the arrivals tell."""

Level = int | float | str | bool

Name = Level | None
"""A row of somebody else's table may lack the level."""


class Measured(NamedTuple):
    """What was measured at a level, over the repetitions."""

    level: Name
    found: Interval


@dataclass(frozen=True)
class Levels:
    """What was measured at every level of a factor.

    response    "throughput", of which more is better, or "response_ms", of which less is
    measured    at every level, in order; one measured once, or always the same, has no interval
    best        of the levels that can be compared, the one whose mean is best; None where that takes more repetitions
    behind      by which share of the best the others of these are worse; surely so where their intervals say so, which
                there are none of where nothing says how much noise there is
    overloaded  levels at which throughput surely does not follow the arrival rate: response times are those of a queue
                that grows, and not compared
    unsure      levels of which that cannot be told: not compared either
    failing     by level, which share of the requests failed, where that is more than PLATEAU; throughput is that of the
                others, and response times are not compared
    """

    factor: str
    response: str
    measured: tuple[Measured, ...]
    best: Measured | None
    behind: tuple[Measured, ...]
    overloaded: tuple[Name, ...] = ()
    unsure: tuple[Name, ...] = ()
    failing: tuple[tuple[Name, float], ...] = ()

    @property
    def sentence(self) -> str:
        """The best level, which ones may be as good, which ones surely are not, and of which ones nobody can tell."""
        return " ".join(filter(None, (self._best, *self._worse(), *self._beside())))

    @property
    def _of_throughput(self) -> bool:
        return self.response == "throughput"

    @property
    def _apart(self) -> frozenset[Name]:
        """Levels whose response times say nothing, so that they are not compared."""
        if self._of_throughput:
            return frozenset()
        return frozenset((*self.overloaded, *self.unsure, *(level for level, _ in self.failing)))

    @property
    def _few(self) -> list[Measured]:
        """Levels that would be compared, had they been measured more often."""
        return [one for one in self.measured if one.level not in self._apart and not _is_repeated(one.found)]

    @property
    def _best(self) -> str:
        what = "throughput" if self._of_throughput else "the response time"
        if self.best is None:
            again = "every level" if len(self._few) == len(self.measured) else _named(one.level for one in self._few)
            return (
                f"What {self.factor} does to {what} cannot be told without repetitions: measure {again} more than once."
            )
        here = f"with {self.factor} = {_name(self.best.level)}"
        value = quantity(self.best.found, "requests/s" if self._of_throughput else "ms")
        if not self.behind and not self._few:
            return f"Only {here} can {what} be judged: it is {value}."
        is_known = all(one.found.low is not None for one in self.behind)
        most = (
            f"{what} {'is' if is_known else 'was'} {'largest' if self._of_throughput else 'shortest'} {here}: {value}."
        )
        if self._of_throughput and (self.overloaded or self.unsure):
            # A level that follows is not compared by its response time only where requests fail.
            failing = (
                "" if len(self.overloaded) + len(self.unsure) == len(self.measured) else " without requests that fail"
            )
            follows = "is throughput known to" if self.unsure or not failing else "does throughput"
            return f"With no {self.factor} {follows} follow the arrival rate{failing}. {_capital(most)}"
        if self._apart:
            return f"Of the levels that can be compared, {most}"
        return f"Of the levels with repetitions, {most}" if self._few else _capital(most)

    def _worse(self) -> list[str]:
        more = self._of_throughput
        surely = [one for one in self.behind if one.found.low is not None and one.found.low > 0]
        close = [one for one in surely if one.found.high is not None and one.found.high <= PLATEAU]
        unknown = [one for one in self.behind if one.found.low is None]
        silent = [one.level for one in unknown if more and one.found.estimate == 1]
        untold = [one.level for one in unknown if one.level not in silent]
        maybe = [one.level for one in self.behind if one not in surely and one not in unknown]
        worse = [f"{_name(one.level)} ({_how_much(one.found)})" for one in surely if one not in close]
        return [
            f"Whether it is {'less' if more else 'longer'} with {_named(untold)} cannot be told: {EQUAL}."
            if untold
            else "",
            f"With {_named(silent)} nothing was answered." if silent else "",
            f"With {_named(maybe)} it may be as {'large' if more else 'short'}." if maybe else "",
            f"With {_named(one.level for one in close)} it is within {PLATEAU:.0%} of that." if close else "",
            f"It is surely {'less' if more else 'longer'} with {listed(worse)}." if worse else "",
        ]

    def _beside(self) -> list[str]:
        """What is to be known of the levels that were not compared, and of requests that were left out."""
        none = [one.level for one in self._few if not one.found.repetitions]
        once = [one.level for one in self._few if one.found.repetitions] if self.best is not None else []
        failed = listed([f"{_name(level)} ({percent(share)})" for level, share in self.failing])
        lines = [
            f"Of {_named(once)} nothing can be told: measured once." if once else "",
            f"With {_named(none)} nothing was measured." if none else "",
        ]
        if self._of_throughput:
            return [*lines, f"Not counted are requests that failed, as with {failed}." if failed else ""]
        return [
            *lines,
            f"With {_named(self.overloaded)} throughput does not follow the arrival rate, so that the response time "
            "says nothing."
            if self.overloaded
            else "",
            f"With {_named(self.unsure)} it cannot be told whether throughput follows the arrival rate, without which "
            "the response time says nothing."
            if self.unsure
            else "",
            f"With {failed} requests failed, so that the response time says nothing." if failed else "",
        ]


def levels(
    table: pl.DataFrame,
    factors: Sequence[str],
    keeps_up: Mapping[int, bool | None] | None = None,
    level: float = LEVEL,
) -> Levels | None:
    """None where several factors vary, or none, or the load alone, or fewer than two levels were measured, or where
    rows of a closed loop would be compared with those of an open one.

    Parameters
    ----------
    table
        Rows of :mod:`knee.data.observations`.
    keeps_up
        Of an open loop's points, as far as throughput was measured there, whether it follows the arrival rate; None
        where that cannot be told. Where no level's does, it is throughput that is compared.
    """
    if len(factors) != 1 or _varies(table, *_LOADS) or factors[0] in (*_LOADS, "request_type"):
        return None
    (factor,) = factors
    if table["think_ms"].null_count() not in (0, table.height):
        return None
    rows: dict[Name, pl.DataFrame] = {
        at[factor][0]: at for _, at in table.sort(factor).group_by(factor, maintain_order=True)
    }
    failed = {at: share_failed(of) for at, of in rows.items()}
    failing = tuple((at, share) for at, share in failed.items() if share > PLATEAU)
    follow = {at: _follows(of, keeps_up or {}) for at, of in rows.items()} if is_open_loop(table) else {}
    overloaded = tuple(at for at, follows in follow.items() if follows is False)
    unsure = tuple(at for at, follows in follow.items() if follows is None)
    steady = [at for at in follow if at not in (*overloaded, *unsure, *dict(failing))]
    response = "response_ms" if steady else "throughput"
    if response not in table.columns:
        return None
    samples = {at: sample(of, response) for at, of in rows.items()}
    measured = tuple(Measured(at, scattered_mean(values, level)) for at, values in samples.items())
    if len(measured) < 2 or not any((values > 0).any() for values in samples.values()):
        return None
    compared = steady or list(rows)
    repeated = {at: samples[at] for at in compared if samples[at].size > 1}
    if not repeated or len(repeated) < min(2, len(compared)):
        return Levels(factor, response, measured, None, (), overloaded, unsure, failing)
    best = (max if response == "throughput" else min)(repeated, key=lambda at: float(repeated[at].mean()))
    if not repeated[best].mean() > 0:
        return None
    behind = tuple(Measured(at, share) for at, share in shares_apart(repeated, best, level).items())
    crowned = next(one for one in measured if one.level == best)
    return Levels(factor, response, measured, crowned, behind, overloaded, unsure, failing)


def _varies(table: pl.DataFrame, *names: str) -> bool:
    return any(name in table.columns and table[name].n_unique() > 1 for name in names)


def sample(of_level: pl.DataFrame, response: str) -> Floats:
    """What was measured in each repetition, of throughput less what failed; 0 is a throughput as any other."""
    known = of_level.filter(pl.col(response).is_finite())
    if response == "throughput":
        failed = pl.col("errors") / pl.col("observed_s") if _tells_of_errors(known) else pl.lit(0.0)
        return known.select((pl.col(response) - failed.fill_null(0.0)).clip(lower_bound=0.0)).to_series().to_numpy()
    return known.filter(pl.col(response) > 0)[response].to_numpy()


def share_failed(of_level: pl.DataFrame) -> float:
    """Of the requests that were answered at a level, which share with an error; 0 where nobody tells."""
    if not _tells_of_errors(of_level):
        return 0.0
    requests = of_level.select((pl.col("throughput") * pl.col("observed_s")).sum()).item()
    return float(of_level["errors"].sum()) / requests if requests else 0.0


def _tells_of_errors(rows: pl.DataFrame) -> bool:
    """Whether these are a run folder's: somebody else may mean anything by such a name."""
    return {"throughput", "observed_s", "errors", "load_total"} <= set(rows.columns)


def _follows(of_level: pl.DataFrame, keeps_up: Mapping[int, bool | None]) -> bool | None:
    """Whether throughput follows the arrival rate at all points of a level, or nobody measured it there."""
    found = {keeps_up[point] for point in of_level["point"].unique() if point in keeps_up}
    return False if False in found else None if None in found else True


def _is_repeated(found: Interval) -> bool:
    return found.repetitions > 1


def _how_much(share: Interval) -> str:
    """By how much a level is worse, the best of which may be many times better."""
    return f"{share.estimate:.0%}" if share.estimate <= 1 else f"{number(1 + share.estimate, 2)} times as long"


def _named(levels: Iterable[Name]) -> str:
    return listed([_name(level) for level in levels])


def _name(level: Name) -> str:
    return "none" if level is None else str(level)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
