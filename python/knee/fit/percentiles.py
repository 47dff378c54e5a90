"""Quantiles of response times from a simulation of the layered network. See docs/methods/layered.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from scipy import special

from knee.data.hdr import Histogram
from knee.data.trim import RUN, trimmed
from knee.errors import FitError
from knee.fit.demands import closed
from knee.fit.layered import LayeredForecast, LayeredSystem, Setup, setup_of
from knee.queueing import Erlang, Exponential, HyperExponential, Shape
from knee.queueing.layered_simulation import REPLICATIONS, LayeredSimulation, simulate_layered
from knee.stats.intervals import Floats, Interval

if TYPE_CHECKING:
    from knee.data import Dataset

SHARES = (0.5, 0.95, 0.99)

COLUMNS = tuple(f"response_p{100 * share:g}_ms" for share in SHARES)

SHAPES = (Erlang(4), Exponential(), HyperExponential(4.0), HyperExponential(16.0))
"""Distributions of processor times that are compared with the measured quantiles."""

_POINTS_MAX = 8
"""Measured points that are simulated for each shape."""

_ROUNDS, _ROUNDS_EACH = 10_000, 5
"""Requests of each replication at a measured point, and at least this many of each customer."""

_NS_PER_MS = 1e6


def with_quantiles(dataset: Dataset, table: pl.DataFrame) -> pl.DataFrame:
    """The observations with COLUMNS: quantiles of the clients' response times, null for runs that timed none."""
    windows = trimmed(dataset, "windows").filter((pl.col("role") == "load") & pl.col("response").is_not_null())
    rows = []
    for point, repetition, texts in windows.group_by(*RUN).agg("response").iter_rows():
        whole = Histogram.decode(*texts)
        if whole.total:
            rows.append((point, repetition, *(whole.percentile(100 * share) / _NS_PER_MS for share in SHARES)))
    schema = pl.Schema({name: table.schema[name] for name in RUN} | dict.fromkeys(COLUMNS, pl.Float64()))
    return table.join(pl.DataFrame(rows, schema=schema, orient="row"), on=RUN, how="left", maintain_order="left")


@dataclass(frozen=True, eq=False)
class Scatter:
    """How response times scatter about their mean.

    work    distribution of processor times
    errors  logarithms of measured over simulated quantiles, both over their means, (points, SHARES); no rows if no
            quantile was measured
    """

    work: Shape
    errors: Floats

    @property
    def is_measured(self) -> bool:
        return len(self.errors) > 0


@dataclass(frozen=True, eq=False)
class Simulator:
    """Adds quantiles of the response time to forecasts.

    work      distribution of processor times; None for the one of SHAPES that fits the measured quantiles best
    thinking  of think times, exponential by default
    places    refused unless None: the layered model has a place for every request
    rounds    requests of each replication
    """

    work: Shape | None = None
    thinking: Shape | None = None
    places: int | None = None
    rounds: int | None = None
    replications: int = REPLICATIONS
    seed: int = 0
    _scatters: dict[LayeredSystem, Scatter] = field(default_factory=dict, repr=False)

    def scatter(self, system: LayeredSystem) -> Scatter:
        """How the response times of a system scatter."""
        if system not in self._scatters:
            self._scatters[system] = scatter_of(system, self.work, seed=self.seed)
        return self._scatters[system]

    def __call__(self, system: LayeredSystem, forecast: LayeredForecast) -> LayeredForecast:
        """The forecast with quantiles.

        The model gives the mean, and the simulation each quantile over the mean, corrected by the median error at the
        measured points. The interval contains, as logarithms: the interval of the mean, the scatter of these
        corrections (Student's t), the noise of the simulation, and the difference of its mean to the model's.

        Raises FitError for a limit of places, or a fraction of a request in flight.
        """
        if self.places is not None:
            raise FitError("--places: the layered model has a place for every request")
        scatter = self.scatter(system)
        found = _simulated(system, forecast.setup, scatter.work, self)
        relative = _relative(found) + (np.median(scatter.errors, axis=0) if scatter.is_measured else 0.0)
        mean, simulated_ms = forecast.response_ms, float(found.response_time.estimate)
        apart = float(np.log(simulated_ms / mean.estimate))
        each = []
        for log, errors, share in zip(relative, scatter.errors.T, SHARES, strict=True):
            noise = found.response_quantile(share)
            widths = (_half_width(errors, mean.level), noise.relative_half_width or 0.0, apart)
            each.append(_quantile(mean, float(log), float(np.linalg.norm(widths))))
        return replace(forecast, quantiles_ms=_ascending(each), simulated_ms=simulated_ms)


def scatter_of(system: LayeredSystem, work: Shape | None = None, *, seed: int = 0) -> Scatter:
    """The shape of SHAPES whose simulated quantiles differ least from the measured ones, or the given shape."""
    data, quantiles = system.data, system.quantiles
    points = [np.flatnonzero(data.point == point) for point in np.unique(data.point)]
    points = [rows for rows in points if quantiles is not None and np.isfinite(quantiles[rows]).all()]
    if quantiles is None or not points:
        return Scatter(work or Exponential(), np.empty((0, len(SHARES))))
    points.sort(key=lambda rows: float(data.throughput[rows].mean()))
    points = [points[i] for i in np.unique(np.linspace(0, len(points) - 1, _POINTS_MAX).round().astype(int))]
    measured = np.array([np.log(quantiles[rows] / data.response[rows, np.newaxis]).mean(axis=0) for rows in points])
    setups = [setup_of(data, rows) for rows in points]
    most = max(int(setup.customers) for setup in setups)
    short = Simulator(rounds=max(_ROUNDS, _ROUNDS_EACH * most), replications=2, seed=seed)
    each = [
        Scatter(shape, measured - [_relative(_simulated(system, one, shape, short)) for one in setups])
        for shape in (SHAPES if work is None else [work])
    ]
    return min(each, key=lambda scatter: float(np.mean((scatter.errors - np.median(scatter.errors, axis=0)) ** 2)))


def _simulated(system: LayeredSystem, setup: Setup, work: Shape, simulator: Simulator) -> LayeredSimulation:
    if setup.customers % 1:
        raise FitError(f"--simulate: expected a whole number of requests in flight, not {setup.customers:g}")
    return simulate_layered(
        system.fit.network(setup),
        int(setup.customers),
        work=work,
        thinking=simulator.thinking or Exponential(),
        rounds=simulator.rounds,
        replications=simulator.replications,
        seed=simulator.seed,
        level=system.level,
    )


def _relative(found: LayeredSimulation) -> Floats:
    """Logarithms of the quantiles over the mean."""
    mean = float(found.response_time.estimate)
    return np.log([found.response_quantile(share).estimate / mean for share in SHARES])


def _half_width(errors: Floats, level: float) -> float:
    """Of the interval of one further error."""
    if (count := len(errors)) < 2:
        return 0.0
    return float(special.stdtrit(count - 1, (1 + level) / 2) * errors.std(ddof=1) * np.sqrt(1 + 1 / count))


def _quantile(mean: Interval, relative: float, half_width: float) -> Interval:
    """The quantile whose logarithm exceeds that of the mean by `relative`."""
    down, up = (np.hypot(half_width, np.log((end or mean.estimate) / mean.estimate)) for end in (mean.low, mean.high))
    estimate = mean.estimate * float(np.exp(relative))
    return replace(mean, estimate=estimate, low=estimate * float(np.exp(-down)), high=estimate * float(np.exp(up)))


def _ascending(each: Sequence[Interval]) -> dict[float, Interval]:
    """The quantiles by SHARES; corrections of their own may put two in the wrong order."""
    ends = [[one.estimate, one.low, one.high] for one in each]
    rising = np.maximum.accumulate(np.array(ends, dtype=np.float64)).tolist()
    return {
        share: replace(one, estimate=estimate, low=low, high=high)
        for share, one, (estimate, low, high) in zip(SHARES, each, rising, strict=True)
    }


def quantiles_of(rows: pl.DataFrame) -> Floats:
    """COLUMNS of the runs that :func:`knee.fit.demands.demands_of` takes, (runs, SHARES)."""
    return closed(rows).select(pl.col(COLUMNS).fill_null(float("nan"))).to_numpy()
