"""Whether throughput follows the arrival rate of an open loop, and up to which rate. Pure.

Clients do not wait for answers, so N does not limit the load, and there is no knee over clients. Up to the capacity, X
equals the arrival rate λ; beyond it, X is the capacity (Lazowska et al. 1984, ch. 5). Beyond the capacity the queue
grows, and the response time has no steady value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl
from scipy import special

from knee.stats.intervals import LEVEL, Interval, mean_interval
from knee.verdict.knee import NOISE_MAX, PLATEAU


@dataclass(frozen=True)
class AtRate:
    """The measurements of one arrival rate.

    rate        declared arrival rate, requests/s
    throughput  requests/s, mean over the repetitions
    completed   the rate times the share of the due requests that ended in the run (answered or failed), requests/s;
                None if unknown
    due         expected number of requests at this rate over all repetitions; None if the length of the runs is unknown
    """

    rate: int | float
    throughput: Interval
    completed: Interval | None
    due: float | None

    @property
    def reaches(self) -> bool:
        """Whether throughput is within PLATEAU of the rate, and its interval within NOISE_MAX."""
        return _reaches(self.throughput, self.rate) or (
            self.completed is not None and _reaches(self.completed, self.rate)
        )

    @property
    def falls_behind(self) -> bool:
        """Whether throughput is significantly below the rate by more than PLATEAU."""
        known = [one for one in (self.throughput, self.completed) if one is not None]
        return all(one.high is not None and one.high < _enough(self.rate) for one in known)

    @property
    def may_be_chance(self) -> bool:
        """Whether random arrivals alone may explain a throughput this far below the rate."""
        if self.due is None:
            return False
        chance = float(special.ndtri((1 + self.throughput.level) / 2)) / math.sqrt(self.due)
        return self.throughput.estimate >= (1 - chance) * self.rate

    @property
    def throughput_reaches(self) -> bool:
        """Whether throughput reaches the rate, without regard to the number of due requests."""
        return _reaches(self.throughput, self.rate)


@dataclass(frozen=True)
class Arrivals:
    """The measurements of each arrival rate at one combination of the other factors.

    factors   levels of the other factors
    rates     declared arrival rate by point, requests/s
    measured  measurements of each rate, ascending; empty without throughput
    limited   points at which the load generator was the bottleneck
    """

    factors: dict[str, int | float | str | bool]
    rates: dict[int, int | float]
    measured: tuple[AtRate, ...]
    limited: frozenset[int]

    @property
    def follows(self) -> int | float | None:
        """The largest rate that throughput reaches; None if it reaches none."""
        return max((one.rate for one in self.measured if one.reaches), default=None)

    @property
    def behind(self) -> AtRate | None:
        """The smallest rate above `follows` that throughput significantly misses; None without one."""
        return next((one for one in self.measured if one.rate > (self.follows or 0) and one.falls_behind), None)

    @property
    def dips(self) -> tuple[AtRate, ...]:
        """The rates below `follows` at which throughput significantly falls behind."""
        return tuple(one for one in self._below if self._follows_at(one) is False)

    @property
    def unsettled(self) -> tuple[AtRate, ...]:
        """The rates below `follows` at which it is unclear whether throughput follows."""
        return tuple(one for one in self._below if self._follows_at(one) is None)

    @property
    def varied(self) -> bool:
        return len(set(self.rates.values())) > 1

    def at(self, point: int) -> AtRate | None:
        """The measurements of a point's rate; None without throughput."""
        return next((one for one in self.measured if one.rate == self.rates[point]), None)

    def keeps_up(self, point: int) -> bool | None:
        """Whether throughput follows the rate of a point; None if unknown."""
        found = self.at(point)
        return None if found is None else self._follows_at(found)

    def _follows_at(self, one: AtRate) -> bool | None:
        # If throughput reaches a higher rate, chance is the better explanation of a deficit at this one.
        if one.reaches or (one.may_be_chance and one.rate < (self.follows or 0)):
            return True
        return False if one.falls_behind else None

    def is_limited(self, one: AtRate) -> bool:
        """Whether a load generator was the bottleneck at this rate."""
        return any(self.rates[point] == one.rate for point in self.limited)

    @property
    def _below(self) -> list[AtRate]:
        return [one for one in self.measured if one.rate < (self.follows or 0)]


def arrivals(
    table: pl.DataFrame, factors: Sequence[str], limited: Collection[int] = (), level: float = LEVEL
) -> tuple[Arrivals, ...]:
    """One entry for each combination of the factors other than the rate and its aliases. Rows without a rate come from
    a closed loop and are ignored.

    `table`: rows of :mod:`knee.data.observations`. `limited`: points at which a load generator reports that it was the
    bottleneck.
    """
    table = table.filter(pl.col("rate").is_not_null()) if "rate" in table.columns else table.clear()
    if table.is_empty():
        return ()
    apart = [name for name in factors if not (table[name].is_null().all() or _is_rate(table, name))]
    groups = table.sort(apart).group_by(apart, maintain_order=True) if apart else [((), table)]
    return tuple(_line(dict(zip(apart, levels, strict=True)), rows, limited, level) for levels, rows in groups)


def _line(
    factors: dict[str, int | float | str | bool], rows: pl.DataFrame, limited: Collection[int], level: float
) -> Arrivals:
    rates = {point: _whole(rate) for point, rate in rows.select("point", "rate").sort("rate").iter_rows()}
    known = rows.filter(pl.col("throughput").is_finite()) if "throughput" in rows.columns else rows.clear()
    measured = tuple(
        _at_rate(_whole(rate), at, level) for (rate,), at in known.sort("rate").group_by("rate", maintain_order=True)
    )
    return Arrivals(factors, rates, measured, frozenset(rates) & frozenset(limited))


def _at_rate(rate: int | float, rows: pl.DataFrame, level: float) -> AtRate:
    shares = rows["completed_share"] if "completed_share" in rows.columns else None
    is_known = shares is not None and not shares.null_count()
    lasted = rows["observed_s"] if "observed_s" in rows.columns else None
    return AtRate(
        rate,
        mean_interval(rows["throughput"].to_numpy(), level),
        mean_interval((rate * shares).to_numpy(), level) if shares is not None and is_known else None,
        rate * float(lasted.sum()) if lasted is not None and not lasted.null_count() else None,
    )


def _is_rate(table: pl.DataFrame, factor: str) -> bool:
    """Whether a factor is the rate, or determines the rate one to one."""
    levels = table.select("rate", pl.col(factor).alias("_level"))
    return levels.n_unique() == levels["rate"].n_unique() == levels["_level"].n_unique()


def _whole(rate: float) -> int | float:
    return int(rate) if rate == int(rate) else rate


def _reaches(found: Interval, rate: float) -> bool:
    return found.estimate >= _enough(rate) and (found.low is None or found.low >= (1 - NOISE_MAX) * rate)


def _enough(rate: float) -> float:
    return (1 - PLATEAU) * rate
