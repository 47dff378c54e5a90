"""The knee: the client count at which the light-load asymptote meets the saturation plateau.

In a closed system X(N) ≤ min(N / (R_0 + Z), X_max); the two bounds meet at N* = X_max · (R_0 + Z)
(Jain 1991, §33.6; Lazowska et al. 1984, ch. 5). Below N*, more clients add throughput; beyond N*, they add waiting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from knee.stats.intervals import LEVEL, Floats, Interval, mean_interval, pooled_bootstrap

LEVELS_MIN = 3
"""Fewer client counts cannot show both a slope and a plateau."""

PLATEAU = 0.02
"""Throughputs within this share of the largest form the plateau. If the noise is larger, it replaces this share, up to
NOISE_MAX."""

NOISE_MAX = 0.10
"""If noise can separate equal levels by more than this share, growth may be noise."""

MARGIN = 0.10
"""Throughput has stopped growing if X_max's upper confidence limit is within this share of the last level's throughput.
"""

STEP_MIN = 1.25
"""The last level is compared with those that have at least this factor fewer clients: closer ones show only noise."""

Confidence = Literal["high", "medium", "low"]
KneeStatus = Literal["found", "not reached", "saturated from the start", "cannot tell"]


@dataclass(frozen=True)
class Doubt:
    """A reason for lower confidence in a verdict: its kind, with a figure or a name for some kinds."""

    kind: Literal[
        "few repetitions",
        "noisy repetitions",
        "wide interval",
        "unknown interval",
        "one level on the plateau",
        "loaded from the start",
        "uncertain knee",
        "may keep up",
        "outsiders",
        "unmeasured",
        "unknown growth",
        "load shares cores",
        "load waited",
        "load limited",
        "other demand",
        "other utilisation",
        "hardly full",
        "may wait",
    ]
    figure: float = 0.0
    name: str = ""


@dataclass(frozen=True)
class Obstacle:
    """Why the knee is unknown.

    missing  the columns that a table lacks, or that have no value
    growth   relative growth of throughput. For "noise": from the lightest load to the largest throughput. For "unclear
             growth": an upper limit of the growth from the last level to X_max
    noise    relative difference that two equal levels may show by chance
    """

    kind: Literal[
        "open loop",
        "missing columns",
        "no answer",
        "single request type",
        "few levels",
        "noise",
        "unclear growth",
        "one repetition",
    ]
    missing: tuple[str, ...] = ()
    growth: float = 0.0
    noise: float = 0.0


OPEN_LOOP = Obstacle("open loop")


@dataclass(frozen=True)
class Level:
    """The measurements at one client count, over the repetitions."""

    clients: int
    throughput: Interval
    response_ms: Interval

    @property
    def power(self) -> float | None:
        """Kleinrock's power X / R (Kleinrock 1979), whose maximum is a second opinion on the knee.

        None if R was rounded to zero.
        """
        response_ms = self.response_ms.estimate
        return self.throughput.estimate / response_ms if response_ms > 0 else None


@dataclass(frozen=True)
class Knee:
    """The knee of one combination of the other factors.

    clients        N* with its interval. When the knee was not reached, the estimate is a lower bound; when the system
                   was saturated from the start, an upper bound. None without data for an estimate
    between        the measured client counts next to N* on either side; None on a side without one
    level          the smallest measured level at or above the knee; the largest level when the knee was not reached,
                   the smallest one when the system was saturated from the start
    throughput_max, response_light_ms, think_ms, pipeline
                   the asymptotes: X_max, R_0 and Z, for clients that keep `pipeline` requests in flight each
    plateau        the client counts whose throughput counts as X_max
    retrograde     whether throughput falls again beyond the plateau
    power_clients  client count with the largest X / R; None if R was rounded to zero at all levels
    obstacle       why the knee is unknown; None unless `status` is "cannot tell"
    rise           relative rise of throughput to the largest client count, from the best of the levels far enough below
                   it (STEP_MIN)
    """

    status: KneeStatus
    levels: tuple[Level, ...]
    obstacle: Obstacle | None = None
    rise: float = 0.0
    confidence: Confidence = "low"
    doubts: tuple[Doubt, ...] = ()
    clients: Interval | None = None
    between: tuple[int | None, int | None] = (None, None)
    level: Level | None = None
    throughput_max: Interval | None = None
    response_light_ms: Interval | None = None
    think_ms: float = 0.0
    pipeline: float = 1.0
    plateau: tuple[int, ...] = ()
    retrograde: bool = False
    power_clients: int | None = None

    def bounds(self, clients: float) -> tuple[float, float] | None:
        """Both asymptotes at N clients, in requests/s: N / (R_0 + Z) and X_max. None without an estimate."""
        if self.throughput_max is None or self.response_light_ms is None:
            return None
        light = 1000 * clients * self.pipeline / (self.response_light_ms.estimate + self.think_ms)
        return light, self.throughput_max.estimate


@dataclass(frozen=True)
class _Curve:
    """Measurements in order of clients: per level an array (repetitions, 2) of X (1/s) and R + Z (ms).

    The relative scatter of X, and that of R + Z, hardly depend on the level. With a long Z, that of R alone does.
    `think_ms` is the think time at the smallest client count.
    """

    clients: tuple[int, ...]
    samples: tuple[Floats, ...]
    think_ms: float
    pipeline: float
    noise: float | None

    @property
    def throughputs(self) -> Floats:
        return np.array([sample[:, 0].mean() for sample in self.samples])

    @property
    def tolerance(self) -> float:
        return min(max(PLATEAU, self.noise or 0.0), NOISE_MAX)

    @property
    def light_share(self) -> float:
        """A lower bound of the share of R + Z, at the lightest load, that is not waiting.

        The cycle time is convex in N. So N − 1 times the slope between the first two levels bounds the time that the
        other N − 1 customers add. The cycle contains at least 1 / X_max of service.
        """
        cycle_ms, next_ms = (float(sample[:, 1].mean()) for sample in self.samples[:2])
        customers, further = (clients * self.pipeline for clients in self.clients[:2])
        added_ms = (customers - 1) * (next_ms - cycle_ms) / (further - customers)
        service_ms = 1000 / float(self.throughputs.max())
        return 1 - max(0.0, min(added_ms, cycle_ms - self.think_ms - service_ms)) / cycle_ms

    @property
    def _earlier(self) -> list[int]:
        """Places of the levels with at least STEP_MIN times fewer clients than the last."""
        return [i for i, clients in enumerate(self.clients) if clients * STEP_MIN <= self.clients[-1]] or [0]

    @property
    def rise(self) -> float:
        """Relative rise of throughput to the last level, from the best of the earlier ones. The nearest level is no
        reference, because recovery from a dip is not growth.
        """
        return float(self.throughputs[-1] / self.throughputs[self._earlier].max()) - 1

    def excess(self, level: float) -> tuple[float, float]:
        """An upper bound of X_max / last throughput − 1: the estimate, and its upper confidence limit.

        The cycle time N / X is convex in N, and its slope tends to 1 / X_max. So every chord to the last level is
        flatter: (N_b − N_a) / (N_b / X_b − N_a / X_a) ≥ X_max. The chord with the
        smallest bound (the steepest) decides; Bonferroni's correction accounts for the choice. Levels in a dip are left
        out.
        """
        throughputs, counts = self.throughputs, np.array([len(sample) for sample in self.samples])
        best = np.maximum.accumulate(throughputs)
        usable = [i for i in self._earlier if throughputs[i] >= (1 - self.tolerance) * best[i]]
        cycles = np.array(self.clients) / throughputs
        rest = np.maximum(cycles[-1] - cycles[usable], 1e-12 * cycles[-1])
        chords = (self.clients[-1] - np.array(self.clients)[usable]) / rest / throughputs[-1]
        variance, freedom = _scatter(self.samples)
        quantile = float(special.stdtrit(freedom, 1 - (1 - level) / len(usable))) if freedom else 0.0
        errors = np.sqrt(variance * (1 / counts[usable] + 1 / counts[-1])) * cycles[usable] / rest
        # A chord is positive, so its error is relative.
        upper = chords * np.exp(np.minimum(quantile * errors, 50.0))
        return float(chords.min()) - 1, float(upper.min()) - 1


def find_knee(observations: pl.DataFrame, *, level: float = LEVEL, seed: int = 0) -> Knee:
    """The knee over the client counts of one combination of the other factors.

    `observations`: rows of :mod:`knee.data.observations` that differ in `clients` and `repetition` only. `seed`: seed
    of the bootstrap for the interval.
    """
    # A response time may be rounded to zero. Its row is kept if R + Z is positive.
    cycle_ms = pl.col("response_ms") + pl.col("think_ms").fill_null(0.0)
    known = observations.filter(
        pl.col("throughput").is_finite() & (pl.col("throughput") > 0) & cycle_ms.is_finite() & (cycle_ms > 0)
    ).sort("clients")
    levels = _levels(known, level)
    if known.height and known["think_ms"].null_count() > 0:
        return Knee("cannot tell", levels, OPEN_LOOP)
    if len(levels) < LEVELS_MIN:
        return Knee("cannot tell", levels, Obstacle("few levels"))
    curve = _curve(known, level)
    return _classify(curve, levels, level, seed)


def _by_clients(known: pl.DataFrame, *columns: str | pl.Expr) -> list[Floats]:
    """An array (repetitions, 1 + columns) for each number of clients, which its first column repeats."""
    rows = known.select("clients", *columns).to_numpy()
    return [each for each in np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1) if each.size]


def _levels(known: pl.DataFrame, level: float) -> tuple[Level, ...]:
    return tuple(
        Level(
            clients=int(rows[0, 0]),
            throughput=mean_interval(rows[:, 1], level),
            response_ms=mean_interval(rows[:, 2], level),
        )
        for rows in _by_clients(known, "throughput", "response_ms")
    )


def _curve(known: pl.DataFrame, level: float) -> _Curve:
    groups = _by_clients(known, "throughput", pl.col("response_ms") + pl.col("think_ms"), "think_ms")
    samples = tuple(rows[:, 1:3] for rows in groups)
    return _Curve(
        clients=tuple(int(rows[0, 0]) for rows in groups),
        samples=samples,
        think_ms=float(groups[0][:, 3].mean()),
        pipeline=_pipeline(known),
        noise=_noise(samples, level),
    )


def _pipeline(known: pl.DataFrame) -> float:
    """Requests in flight per client; one by default."""
    if "pipeline" not in known.columns or known["pipeline"].null_count():
        return 1.0
    return float(known["pipeline"].mean())  # type: ignore[arg-type]


def _noise(samples: Sequence[Floats], level: float) -> float | None:
    """How far below the largest mean throughput an equal level may lie by chance, as a share.

    The least significant difference from a relative variance that is pooled over the levels (Jain 1991, §20.5),
    with Bonferroni's correction because every level is compared with the largest. None without repetitions.
    """
    variance, freedom = _scatter(samples)
    if freedom == 0:
        return None
    repetitions = len(samples) / sum(1 / sample.shape[0] for sample in samples)
    quantile = float(special.stdtrit(freedom, 1 - (1 - level) / 2 / max(1, len(samples) - 1)))
    return quantile * math.sqrt(variance * 2 / repetitions)


def _scatter(samples: Sequence[Floats]) -> tuple[float, int]:
    """The relative variance of throughput, pooled over the levels, with its degrees of freedom; zero without
    repetitions."""
    freedom = sum(sample.shape[0] - 1 for sample in samples)
    squares = sum(float(((s[:, 0] / s[:, 0].mean() - 1) ** 2).sum()) for s in samples)
    return squares / max(1, freedom), freedom


def _on_plateau(throughputs: Floats, tolerance: float) -> npt.NDArray[np.bool_]:
    """Whether each level is on the plateau, for many rows of throughputs at once: the contiguous levels around the
    largest throughput that lie within the tolerance of it."""
    places = np.arange(throughputs.shape[1])
    peak = throughputs.argmax(axis=1)[:, np.newaxis]
    below = ~(throughputs >= (1 - tolerance) * throughputs.max(axis=1, keepdims=True))
    first = np.where(below & (places < peak), places + 1, 0).max(axis=1, keepdims=True)
    stop = np.where(below & (places > peak), places, places.size).min(axis=1, keepdims=True)
    return np.asarray((places >= first) & (places < stop))


def _classify(curve: _Curve, levels: tuple[Level, ...], level: float, seed: int) -> Knee:
    throughputs = curve.throughputs
    tolerance = curve.tolerance
    places = np.flatnonzero(_on_plateau(throughputs[np.newaxis], tolerance)[0])
    plateau = slice(int(places[0]), int(places[-1]) + 1)
    throughput_max = mean_interval(np.concatenate([s[:, 0] for s in curve.samples[plateau]]), level)
    excess, surely = curve.excess(level)
    counts = np.array([[sample.shape[0]] for sample in curve.samples])
    starts = np.cumsum(counts) - counts[:, 0]

    def intersection(samples: Sequence[Floats]) -> Floats:
        means = np.add.reduceat(np.concatenate(samples, axis=1), starts, axis=1) / counts
        throughputs = means[:, :, 0]
        top = throughputs.mean(axis=1, where=_on_plateau(throughputs, tolerance))
        return np.asarray(top * means[:, 0, 1] / 1000 / curve.pipeline)

    clients = _widened(
        pooled_bootstrap(curve.samples, intersection, positive=True, level=level, seed=seed),
        throughputs[plateau] / throughputs[plateau].mean(),
        max(1.0, (1 + excess) * throughputs[-1] / throughput_max.estimate),
        curve.light_share,
    )
    between = (
        max((count for count in curve.clients if count < clients.estimate), default=None),
        min((count for count in curve.clients if count >= clients.estimate), default=None),
    )
    status, obstacle = _status(curve, plateau, excess, surely)
    at = next((found for found in levels if found.clients == between[1]), levels[-1])
    if status != "found":
        at = {"not reached": levels[-1], "saturated from the start": levels[0]}.get(status, at)
    # The plateau's tolerance has a cap; a fall of throughput must exceed the uncapped noise.
    fallen = max(tolerance, curve.noise or 0.0)
    retrograde = bool((throughputs[plateau.stop :] < (1 - fallen) * throughputs.max()).any())
    confidence, doubts = _confidence(curve, status, plateau, clients, throughputs)
    powers = {found.clients: found.power for found in levels if found.power is not None}
    return Knee(
        status=status,
        levels=levels,
        obstacle=obstacle,
        rise=curve.rise,
        confidence=confidence if status != "cannot tell" else "low",
        doubts=doubts,
        clients=clients,
        between=between,
        level=at,
        throughput_max=throughput_max,
        response_light_ms=levels[0].response_ms,
        think_ms=curve.think_ms,
        pipeline=curve.pipeline,
        plateau=curve.clients[plateau],
        retrograde=retrograde and status != "cannot tell",
        power_clients=max(powers, key=lambda clients: powers[clients], default=None),
    )


def _widened(clients: Interval, heights: Floats, most: float, light: float) -> Interval:
    """The bootstrap's interval, widened for two errors that it does not cover: a plateau at finite N still rises, and
    the response time at the lightest load contains waiting.

    Parameters
    ----------
    heights
        Throughputs of the plateau's levels relative to their mean: each may be X_max.
    most
        The largest X_max relative to the plateau's mean.
    light
        The share of R + Z at the lightest load that is not waiting.
    """
    if clients.low is None or clients.high is None:
        return clients
    low = min(clients.low, clients.estimate * float(heights.min())) * light
    high = max(clients.high, clients.estimate * float(heights.max())) * float(most)
    return replace(clients, low=low, high=high)


def _status(curve: _Curve, plateau: slice, excess: float, surely: float) -> tuple[KneeStatus, Obstacle | None]:
    noise = curve.noise
    growth = float(curve.throughputs.max() / curve.throughputs[0] - 1)
    if noise is not None and noise > NOISE_MAX and growth < noise:
        return "cannot tell", Obstacle("noise", growth=growth, noise=noise)
    fallen = curve.throughputs[-1] < (1 - max(curve.tolerance, noise or 0.0)) * curve.throughputs.max()
    if not fallen and surely >= MARGIN:
        if excess < MARGIN or curve.rise < (noise or 0.0):
            return "cannot tell", Obstacle("unclear growth", growth=surely)
        return "not reached", None
    if plateau.start == 0:
        return "saturated from the start", None
    if noise is None:
        return "cannot tell", Obstacle("one repetition")
    return "found", None


def _confidence(
    curve: _Curve, status: KneeStatus, plateau: slice, clients: Interval, throughputs: Floats
) -> tuple[Confidence, tuple[Doubt, ...]]:
    doubts: list[Doubt] = []
    repetitions = min(sample.shape[0] for sample in curve.samples)
    if repetitions < 3:
        doubts.append(Doubt("few repetitions", repetitions))
    if curve.noise is not None and curve.noise > NOISE_MAX:
        doubts.append(Doubt("noisy repetitions", curve.noise))
    width = clients.relative_half_width
    if width is None:
        doubts.append(Doubt("unknown interval"))
    elif width > 0.1:
        doubts.append(Doubt("wide interval", width))
    if status != "not reached" and plateau.stop - plateau.start < 2:
        doubts.append(Doubt("one level on the plateau"))
    light = float(throughputs[0] / throughputs.max())
    if light > 0.5:
        # The response time at the lightest load may include queueing.
        doubts.append(Doubt("loaded from the start", light))
    return confidence_of(doubts), tuple(doubts)


def confidence_of(doubts: Sequence[Doubt]) -> Confidence:
    """High without a doubt, medium with one, low with more."""
    return "high" if not doubts else "medium" if len(doubts) == 1 else "low"
