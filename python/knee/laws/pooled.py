"""Each law at all points of a table together: one test, and the smallest violation that it could have shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from knee.laws.interactive import InteractiveCheck
from knee.laws.residual import VISIBLE_MAX, Comparison, Rule, Verdict, half_width, t_interval, t_quantile, tolerated
from knee.laws.stations import StationCheck
from knee.stats.intervals import Interval

STAGES = "the order of response times"
"""Stages take no longer than the middlewares' response times, and these no longer than the clients'."""

FAMILIES = 3
"""Laws at points, laws over all points, and repetitions against their others share the errors of a table."""

POWER = 0.9
"""The probability with which the smallest visible violation is found."""


_Point = tuple[Comparison, float, Verdict]
"""Residual of a point, the share of an error by which it moves, and the point's own verdict."""


@dataclass(frozen=True)
class PooledCheck:
    """A law at all points together, for one view, request type or station.

    quantity  the measured quantity that all points would have wrong by the same share
    residual  predicted / measured − 1 of that quantity, by least squares over the points
    visible   the smallest violation of all points that this test, or those of half of the points, find with
              probability POWER
    points    number of points
    """

    law: str
    subject: str
    quantity: str
    residual: Interval
    visible: float
    points: int
    verdict: Verdict


def pooled_checks(
    interactive: Sequence[InteractiveCheck], stations: Sequence[StationCheck], rule: Rule
) -> list[PooledCheck]:
    """Every law over all points that it applies to.

    An error of X moves the interactive law's residual e = N / (R + Z) / X − 1 by the same share at all points, an error
    of R by the share R / (R + Z), and an error of Z by Z / (R + Z).
    """
    groups: dict[tuple[str, str, str], list[_Point]] = {}
    for check in interactive:
        if check.verdict == "does not apply":
            continue
        subject = f"{check.view}s" if check.request_type is None else f"{check.request_type} ({check.view}s)"
        shares = {"throughput": 1.0}
        # In a middleware's view, its response time cancels.
        response, think = check.response_ms.measured.estimate, check.think_ms.estimate
        if check.view == "client" and check.request_type is None and response > 0:
            shares |= {"response time": response / (response + think), "think time": think / (response + think)}
        for quantity, share in shares.items():
            groups.setdefault((check.law, subject, quantity), []).append((check.throughput, share, check.verdict))
    for one in stations:
        if not one.is_below_resolution:
            groups.setdefault((one.law, one.station, one.quantity), []).append((one.comparison, 1.0, one.verdict))
    together = replace(rule, tests=FAMILIES * len(groups))
    found = [check for keys, of in groups.items() for check in _pooled(*keys, of, rule, together)]
    return [*found, *_of_middlewares(interactive, rule)]


def _of_middlewares(interactive: Iterable[InteractiveCheck], rule: Rule) -> Iterable[PooledCheck]:
    """The middlewares' response times, at least as long as their stages and at most as the clients' response times. Of
    an error common to all points, the point shows most that leaves least time to other processes and the network.
    """
    hidden = [check.hidden for check in interactive if check.hidden and check.request_type is None]
    if not hidden:
        return
    known = all(len(of) == 2 for of in hidden)
    visible = max(map(min, zip(*hidden, strict=True))) if known else math.inf
    nothing = Interval(math.nan, None, None, rule.level, 0)
    verdict: Verdict = "holds" if visible <= VISIBLE_MAX else "cannot tell"
    yield PooledCheck(STAGES, "middlewares", "response time", nothing, visible, len(hidden), verdict)


def _pooled(
    law: str, subject: str, quantity: str, points: Sequence[_Point], rule: Rule, together: Rule
) -> Iterable[PooledCheck]:
    """The check, unless no point has a residual. `rule` judges the points, and `together` all of them."""
    points = [point for point in points if math.isfinite(point[0].residual.estimate) and point[1] > 0]
    # Without repetitions the scatter is unknown, and only the values of X can be judged.
    points = [point for point in points if point[0].freedom > 0] or [point for point in points if point[1] == 1]
    if not points:
        return
    counts, estimates, roundings, errors, freedoms = np.array(
        [(of.residual.repetitions, of.residual.estimate, of.rounding, of.error, of.freedom) for of, _, _ in points]
    ).T
    shares = np.array([share for _, share, _ in points])
    # A line through the origin. All repetitions weigh alike, because a point's own scatter is badly known.
    weights = counts * shares / np.sum(counts * shares**2)
    parts = (weights * errors) ** 2
    error = math.sqrt(parts.sum())
    # Satterthwaite (1946), but never more than the repetitions have.
    freedom = min(float(parts.sum() ** 2 / np.sum(parts**2 / freedoms)) if error > 0 else math.inf, sum(counts - 1))
    residual = t_interval(float(weights @ estimates), error, freedom, rule.level, int(sum(counts)))
    rounding = float(weights @ roundings)

    def visible(error: float, freedom: float, rounding: float, rule: Rule, certain: float | None = None) -> float:
        around = t_interval(0.0, error, freedom, rule.level, 0)
        power = t_quantile(POWER, freedom) * error if freedom > 0 else 0.0
        return tolerated(around, rule, freedom, certain) + power + rounding

    # The median, because the least scatter of many points is least by luck.
    at_points = [visible(of.error / share, of.freedom, of.rounding / share, rule) for of, share, _ in points]
    least = min(visible(error, freedom, rounding, together, rule.level), float(np.median(at_points)))
    apart = abs(residual.estimate)
    verdict: Verdict = "cannot tell"
    if apart - rounding > tolerated(residual, together, freedom, rule.level):
        verdict = "violated"
    elif least <= VISIBLE_MAX and (
        apart + half_width(residual, rule.level, freedom) + rounding <= rule.tolerance
        or all(at_point == "holds" for _, _, at_point in points)
    ):
        verdict = "holds"
    yield PooledCheck(law, subject, quantity, residual, least, len(points), verdict)
