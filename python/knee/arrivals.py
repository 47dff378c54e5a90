"""Whether throughput follows the arrival rate of an open loop, and up to which rate. Pure.

Whoever sends does not wait for answers, so N limits nothing and there is no knee over clients: X is the arrival rate λ
for as long as the system keeps up, and what it can do at most beyond (Lazowska et al. 1984, ch. 5). There requests
come faster than they are answered, and the response time has no steady value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl

from knee.asymptotes import NOISE_MAX, PLATEAU
from knee.intervals import LEVEL, Interval, counted, mean_interval, quantity

_AGAIN = "Measure longer, with more repetitions, on a quieter machine."


@dataclass(frozen=True)
class Arrivals:
    """What came of each arrival rate, or of the only one, at one combination of the other factors.

    factors   the levels of these
    rates     of every point, requests per second asked for
    measured  throughput at each rate, ascending; empty where nobody gave it
    limited   the points at which a load generator says that it was itself a limit
    """

    factors: dict[str, int | float | str | bool]
    rates: dict[int, int | float]
    measured: tuple[tuple[int | float, Interval], ...]
    limited: frozenset[int]

    @property
    def follows(self) -> int | float | None:
        """The largest rate that throughput reaches to within PLATEAU, and surely to within NOISE_MAX; None where it
        reaches none."""
        return max((rate for rate, found in self.measured if _reaches(found, rate)), default=None)

    @property
    def behind(self) -> tuple[int | float, Interval] | None:
        """The smallest rate above those that throughput surely does not reach, and throughput there; None without."""
        unsure = [(rate, found) for rate, found in self.measured if rate > (self.follows or 0)]
        return next((one for one in unsure if _falls_behind(one[1], one[0])), None)

    @property
    def dips(self) -> tuple[tuple[int | float, Interval], ...]:
        """The rates below one that throughput follows at which it surely falls behind, and throughput there."""
        return tuple(one for one in self.measured if one[0] < (self.follows or 0) and _falls_behind(one[1], one[0]))

    @property
    def varied(self) -> bool:
        """Whether there is more than one rate."""
        return len(set(self.rates.values())) > 1

    def keeps_up(self, point: int) -> bool | None:
        """Whether throughput follows the rate of a point; None where that cannot be told."""
        # What a higher rate reaches says nothing of a dip below it.
        found = dict(self.measured).get(self.rates[point])
        if found is None:
            return None
        return (
            True if _reaches(found, self.rates[point]) else False if _falls_behind(found, self.rates[point]) else None
        )

    @property
    def sentence(self) -> str:
        """Up to which rate throughput follows, and where it dips below; empty where nobody gave it."""
        if not self.measured:
            return ""
        return self._up_to + self._except

    @property
    def _up_to(self) -> str:
        follows, behind = self.follows, self.behind
        if behind is not None:
            here = f"{rate_in_words(behind[0])} it is {quantity(behind[1], 'requests/s')}"
            limit = " The load generator says that it was itself a limit there." if self._is_limited(behind[0]) else ""
            if follows is None:
                return f"Throughput follows the arrival rate nowhere: at {here}.{limit} Measure lower rates."
            return (
                f"Throughput follows the arrival rate up to {rate_in_words(follows)}, and no longer: at {here}.{limit}"
            )
        largest, there = self.measured[-1]
        if follows == largest and not self.varied:
            return f"Throughput follows the arrival rate, {rate_in_words(largest)}: it is {quantity(there)}."
        if follows == largest:
            return (
                f"Throughput follows the arrival rate up to {rate_in_words(largest)}, the largest measured. Measure "
                "higher rates to see where it stops."
            )
        unsure = f"at {rate_in_words(largest)} it is {quantity(there, 'requests/s')}"
        if follows is None:
            return f"Cannot tell whether throughput follows the arrival rate: {unsure}. {_AGAIN}"
        return (
            f"Throughput follows the arrival rate up to {rate_in_words(follows)}; whether it does above that cannot be "
            f"told: {unsure}. {_AGAIN}"
        )

    @property
    def _except(self) -> str:
        if not self.dips:
            return ""
        rate, found = self.dips[0]
        also = f", and it falls behind at {counted(len(self.dips) - 1, 'other rate')}" if len(self.dips) > 1 else ""
        limit = " The load generator says that it was itself a limit there." if self._is_limited(rate) else ""
        return (
            f" But not everywhere below: at {rate_in_words(rate)} it is {quantity(found, 'requests/s')}{also}.{limit}"
        )

    def _is_limited(self, rate: float) -> bool:
        return any(self.rates[point] == rate for point in self.limited)


def arrivals(
    table: pl.DataFrame, factors: Sequence[str], limited: Collection[int] = (), level: float = LEVEL
) -> tuple[Arrivals, ...]:
    """One for each combination of the factors, but for the rate and whatever says the same as the rate.

    Rows without a rate are a closed loop's, and take no part.

    Parameters
    ----------
    table
        Rows of :mod:`knee.observations`.
    limited
        Points at which a load generator says that it was itself a limit.
    """
    table = table.filter(pl.col("rate").is_not_null()) if "rate" in table.columns else table.clear()
    if table.is_empty():
        return ()
    apart = [name for name in factors if not (table[name].is_null().all() or _is_rate(table, name))]
    groups = table.sort(apart).group_by(apart, maintain_order=True) if apart else [((), table)]
    return tuple(_line(dict(zip(apart, levels, strict=True)), rows, limited, level) for levels, rows in groups)


def rate_in_words(rate: float) -> str:
    """“1,500 requests/s”."""
    return f"{rate:,} requests/s"


def _line(
    factors: dict[str, int | float | str | bool], rows: pl.DataFrame, limited: Collection[int], level: float
) -> Arrivals:
    rates = {point: _whole(rate) for point, rate in rows.select("point", "rate").sort("rate").iter_rows()}
    known = rows.filter(pl.col("throughput").is_finite()) if "throughput" in rows.columns else rows.clear()
    measured = tuple(
        (_whole(at["rate"][0]), mean_interval(at["throughput"].to_numpy(), level))
        for _, at in known.sort("rate").group_by("rate", maintain_order=True)
    )
    return Arrivals(factors, rates, measured, frozenset(rates) & frozenset(limited))


def _is_rate(table: pl.DataFrame, factor: str) -> bool:
    """Whether a factor is the rate, or another name of each of its levels."""
    levels = table.select("rate", pl.col(factor).alias("_level"))
    return levels.n_unique() == levels["rate"].n_unique() == levels["_level"].n_unique()


def _whole(rate: float) -> int | float:
    return int(rate) if rate == int(rate) else rate


def _reaches(found: Interval, rate: float) -> bool:
    return found.estimate >= _enough(rate) and (found.low is None or found.low >= (1 - NOISE_MAX) * rate)


def _falls_behind(found: Interval, rate: float) -> bool:
    return found.high is not None and found.high < _enough(rate)


def _enough(rate: float) -> float:
    return (1 - PLATEAU) * rate
