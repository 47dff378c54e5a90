"""The layered model of a run, from measured demands, and its predictions for other numbers of clients, workers,
middlewares and cores, other think times, and links.

Estimation and intervals: docs/methods/layered.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import special

from knee.data.utilization import OUTSIDERS_MAX
from knee.errors import FitError
from knee.fit.demands import TIERS, Demands
from knee.fit.links import LINKS, Rates, busiest, link_times, rates_of, with_links
from knee.queueing.layered import Layered, LayeredSolution, Loads, Stage, Tier, loads_of, settle, solve_layered
from knee.stats.intervals import Floats, Interval

HOST = "host"

SLOTS, CONNECTIONS, CORES = "worker slots", "connections", "host's cores"

THREADS = {"load": "load generators' threads", "middleware": "middlewares' threads", "store": "stores' threads"}

RESAMPLES = 60

WAKEUPS = (np.log(0.7), 0.5)
"""Prior of ln(b / a), the price of a wake-up over the work of a request: mean and standard deviation. Light loads
hardly show how many wake-ups full loads share."""

STRAY = 0.03
"""Least standard deviation of ln(processor time) around work and wake-ups: the law is not exactly linear."""

BEYOND = 0.3
"""Standard deviation of ln(demand) beyond the measured range, for each unit of
ln(predicted throughput / largest measured throughput). UNMEASURED was chosen on eight systems, WAKEUPS and BEYOND on
seventeen (docs/reproductions/layered.md).
"""

UNMEASURED = 0.05
"""Standard deviation of ln(demand) in a system that was not measured, for errors of the model's structure and of the
machine's speed."""

FITTED = 3
"""Degrees of freedom that a fit takes from the errors of the response time (bench.layered_coverage: 3.2 of 15)."""

LIMITS = 0.1
"""A resource limits the throughput if 10 % more of the resource raise the throughput by at least 1 %."""

MISFIT = 0.15
"""A model makes predictions only if its median error of the throughput at the measured points is at most this."""

_RATIOS = np.geomspace(0.01, 50, 120)
"""Candidates of b / a."""

_STEP = 1.02
"""Growth of the cores and links in the computation of their elasticity; slots and threads grow by one in each process.
"""

_LEAST_GAP = 1e-3
"""Lower bound of a thread's speed minus its use by other requests, both as shares of a core."""

_LEAST_WORK = 1e-6
"""Least processor time of a request, in ms: with zero, a tier's speed is undefined."""


@dataclass(frozen=True)
class Setup:
    """What the model predicts for.

    customers    clients times `pipeline`, the requests that each keeps in flight
    slots        of each middleware: workers, or connections if these are fewer; None if requests wait for none
    processes    of each tier, from the client inwards
    threads      of each tier's process
    cores        of the host
    links        rates of the tiers' links; a tier without a rate is on this machine, where messages take no time
    """

    customers: float
    think_ms: float
    slots: int | None
    processes: tuple[int, ...]
    threads: tuple[int, ...]
    cores: float
    pipeline: float = 1.0
    links: Rates = ()

    @property
    def middlewares(self) -> int:
        """Their number; 0 without a middleware."""
        return self.processes[1] if len(self.processes) == len(TIERS) else 0

    def is_system_of(self, other: Setup) -> bool:
        """Whether only the load differs."""
        return replace(other, customers=self.customers, think_ms=self.think_ms, pipeline=self.pipeline) == self


@dataclass(frozen=True, eq=False)
class LayeredFit:
    """Parameters of a layered model, times in ms.

    tiers      their names, from the client inwards
    backends   whether the last tier has a process for each slot
    laws       of each tier: work of a request, and the price of its wake-ups
    inside     delay of the stage in which a slot is held, and its stretch: a factor on the time at the processors
    outside    the same of the rest of a request
    share_out  of the middleware's work, the share outside of the slot
    wire       as :func:`knee.fit.links.wire_of`; None without links
    """

    tiers: tuple[str, ...]
    backends: bool
    laws: Floats
    inside: tuple[float, float]
    outside: tuple[float, float]
    share_out: float
    wire: Floats | None = None

    def network(self, setup: Setup) -> Layered:
        """The model for :func:`knee.queueing.layered.solve_layered`, times in ms."""
        count = [own * each for own, each in zip(setup.processes, setup.threads, strict=True)]
        if self.backends and setup.slots is not None:
            count[-1] = setup.middlewares * setup.slots
        tiers = [
            Tier(name, HOST, number, float(work), float(wakeup), self.backends and i == len(count) - 1)
            for i, (name, number, (work, wakeup)) in enumerate(zip(self.tiers, count, self.laws, strict=True))
        ]
        inside, outside = _shares(self.tiers, self.share_out)
        network = Layered(
            {HOST: setup.cores},
            tiers,
            Stage(outside, *self.outside),
            Stage(inside, *self.inside),
            setup.think_ms,
            max(1, setup.middlewares),
            setup.slots,
        )
        return network if self.wire is None else with_links(network, setup.links, setup.processes, self.wire)


def _shares(tiers: Sequence[str], share_out: float) -> tuple[dict[str, float], dict[str, float]]:
    """Of each tier's work, the share inside of the slot and outside."""
    if "middleware" not in tiers:
        return {}, dict.fromkeys(tiers, 1.0)
    return {"middleware": 1 - share_out, "store": 1.0}, {"load": 1.0, "middleware": share_out}


@dataclass(frozen=True, eq=False)
class _Threads:
    """The state of each tier's threads in each run, (runs, tiers).

    used    share of a core that a thread uses
    speed   of an active thread, 1 on a core of its own
    asleep  probability that an event finds the thread asleep
    """

    used: Floats
    speed: Floats
    asleep: Floats

    @classmethod
    def of(cls, data: Demands) -> _Threads:
        used = data.throughput[:, np.newaxis] * data.cpu / data.threads
        speed, asleep = np.empty_like(used), np.empty_like(used)
        for counts in np.unique(data.threads, axis=0):
            own = (data.threads == counts).all(axis=1)
            hosts, cores = [HOST] * len(data.tiers), np.full(len(data.tiers), data.cores)
            active, speed[own] = settle(used[own], counts.astype(np.int64), hosts, cores)
            asleep[own] = 1 - active
        return cls(used, speed, asleep)

    def take(self, rows: np.ndarray) -> _Threads:
        return _Threads(self.used[rows], self.speed[rows], self.asleep[rows])


def fit_layered(data: Demands, threads: _Threads | None = None, rng: np.random.Generator | None = None) -> LayeredFit:
    """Two fits of relative errors: processor time as a linear function of the probability that a thread sleeps, then
    stage time as a linear function of the residence at the processors. With `rng`, the first is a draw of its
    posterior."""
    threads = _Threads.of(data) if threads is None else threads
    ones = np.ones(len(data))
    queues = np.array([not data.backends or i < len(data.tiers) - 1 for i in range(len(data.tiers))], dtype=np.float64)
    laws = np.array([_law(data.cpu[:, i], threads.asleep[:, i], rng) for i in range(len(data.tiers))])
    share_out = 0.0
    if "middleware" in data.tiers:
        light = data.throughput == data.throughput.min()
        share_out = float(np.clip(np.mean(data.reply[light] / data.cpu[light, 1]), 0.1, 0.6))

    def stage(shares: dict[str, float], there: Floats, times: Floats, on_links: Floats) -> tuple[float, float]:
        if not shares:
            return 0.0, 1.0
        others = 1 - 1 / np.maximum(1, np.fmin(there, data.customers))
        gap = np.maximum(threads.speed - threads.used * queues * others[:, np.newaxis], _LEAST_GAP)
        work = np.array([shares.get(tier, 0.0) for tier in data.tiers]) * data.cpu
        each = np.stack([ones, (work / gap).sum(axis=1)], axis=1) / times[:, np.newaxis]
        return _not_negative(each, 1 - on_links / times)

    inside, outside = _shares(data.tiers, share_out)
    on_links = link_times(data)
    return LayeredFit(
        data.tiers,
        data.backends,
        laws,
        stage(inside, data.slots * data.middlewares, data.inside, on_links[0]),
        stage(outside, np.full(len(data), np.inf), data.outside, on_links[1]),
        share_out,
        data.wire,
    )


def _not_negative(columns: Floats, wanted: Floats) -> tuple[float, float]:
    """The two factors of `columns`, (runs, 2), with the least squares of errors among those that are not negative."""
    free = np.linalg.lstsq(columns, wanted)[0]
    if (free >= 0).all():
        return float(free[0]), float(free[1])
    # The sum of squares is convex, so that its minimum is on an edge.
    first, second = (max(0.0, float(column @ wanted / (column @ column))) for column in columns.T)
    edges = ((first, 0.0), (0.0, second))
    return min(edges, key=lambda factors: float(np.sum((columns @ factors - wanted) ** 2)))


def _law(cpu: Floats, asleep: Floats, rng: np.random.Generator | None = None) -> Floats:
    """Work and price of wake-ups: the most probable ones under the prior WAKEUPS, or a draw of the posterior."""
    each = (1 + _RATIOS[:, np.newaxis] * asleep) / cpu
    work = each.sum(axis=1) / (each**2).sum(axis=1)
    squares = ((work[:, np.newaxis] * each - 1) ** 2).sum(axis=1)
    variance = max(STRAY**2, float(squares.min()) / max(1, len(cpu) - 2))
    mean, spread = WAKEUPS
    logs = -squares / (2 * variance) - (np.log(_RATIOS) - mean) ** 2 / (2 * spread**2)
    weights = np.exp(logs - logs.max())
    chosen = int(logs.argmax()) if rng is None else int(rng.choice(len(logs), p=weights / weights.sum()))
    return np.array([1.0, _RATIOS[chosen]]) * max(_LEAST_WORK, float(work[chosen]))


@dataclass(frozen=True, eq=False)
class LayeredForecast:
    """A prediction with intervals for one further run, and the limits of the throughput.

    throughput   requests/s
    response_ms  of the clients
    limits       elasticity of the throughput: growth in percent per percent more of a resource, descending
    busy         share of time in which each resource is busy
    quantiles_ms of the response time, by probability; empty unless simulated
    simulated_ms mean response time of the simulation; None unless simulated
    """

    setup: Setup
    clients: float
    throughput: Interval
    response_ms: Interval
    limits: tuple[tuple[str, float], ...]
    busy: dict[str, float]
    quantiles_ms: Mapping[float, Interval] = field(default_factory=dict)
    simulated_ms: float | None = None


@dataclass(frozen=True)
class Limit:
    """The elasticity of the throughput to a resource: how many percent it grows if the resource grows by 1 %."""

    resource: str
    elasticity: Interval


@dataclass(frozen=True, eq=False)
class LayeredSystem:
    """A fitted layered model.

    draws     fits to resampled repetitions
    misfit    logarithmic errors of the response time of each run, measured / predicted
    error     median absolute relative errors of throughput and response time at the measured points
    measured  whether the runs are of this system; False if the system lies between two measured ones
    quantiles measured quantiles of each run's response time in ms, (runs, :data:`knee.fit.percentiles.SHARES`); None if
              they were not read
    """

    data: Demands
    fit: LayeredFit
    draws: tuple[LayeredFit, ...]
    misfit: Floats
    error: tuple[float, float]
    level: float
    seed: int
    quantiles: Floats | None = None
    measured: bool = True
    _loads: dict[tuple[object, ...], Loads] = field(default_factory=dict, repr=False)

    def forecast(self, setup: Setup) -> LayeredForecast:
        """Predict one further run of a setup."""
        solution = self._solve(setup, [self.fit])
        throughput, response = float(solution.throughput[0]), float(solution.response_time[0])
        rng = np.random.default_rng(self.seed)
        beyond = BEYOND * max(0.0, np.log(throughput / self.data.throughput.max()))
        known = self.measured and any(setup.is_system_of(setup_of(self.data, rows)) for rows in self._points)
        factors = np.exp(np.hypot(beyond, 0.0 if known else UNMEASURED) * rng.standard_normal(len(self.draws)))
        times = self._solve(setup, self.draws, factors).response_time
        logs = np.log(np.maximum(times, _LEAST_WORK) / response) + rng.choice(self.misfit, size=len(times))
        # Sixty draws are too few for a quantile of 2.5 %.
        half = float(special.stdtrit(len(self.data), (1 + self.level) / 2)) * float(np.sqrt(np.mean(logs**2)))
        low, high = response * np.exp(-half), response * np.exp(half)

        def rate(time: float) -> float:
            return 1000 * setup.customers / (time + setup.think_ms)

        count = len(self.data)
        return LayeredForecast(
            setup,
            setup.customers / setup.pipeline,
            Interval(1000 * throughput, rate(high), rate(low), self.level, count),
            Interval(response, low, high, self.level, count),
            tuple((name, float(gains[0])) for name, gains in self._gains(setup, [self.fit], solution)),
            {**self._slots_busy(setup, solution), CORES: float(solution.host_busy[0, 0])}
            | {THREADS[tier]: float(solution.busy[0, i]) for i, tier in enumerate(self.data.tiers)}
            | {
                self._link(tier): float(solution.busy[0, len(self.data.tiers) + 2 * i :][:2].max())
                for i, (tier, _) in enumerate(setup.links)
            },
        )

    @cached_property
    def _points(self) -> list[np.ndarray]:
        return _points_of(self.data)

    @property
    def slots(self) -> str:
        """What the slots are."""
        return CONNECTIONS if self.data.pooled else SLOTS

    def _link(self, tier: str) -> str:
        """What the links of a tier are called."""
        return LINKS[tier] if self.fit.wire is None else busiest(tier, self.data.tiers, self.fit.wire)

    def _slots_busy(self, setup: Setup, solution: LayeredSolution) -> dict[str, float]:
        if setup.slots is None:
            return {}
        held = float(solution.throughput[0] * solution.inside[0])
        return {self.slots: min(1.0, held / (setup.middlewares * setup.slots))}

    def _solve(self, setup: Setup, fits: Sequence[LayeredFit], factors: Floats | None = None) -> LayeredSolution:
        """The solutions of the fit, of its draws, or both. Setups with equal processes share the cached loads."""
        networks = [fit.network(setup) for fit in fits]
        slots = setup.slots if self.fit.backends else None
        keys = [(fit, setup.processes, setup.threads, setup.cores, slots, setup.links) for fit in fits]
        new = {key: network for key, network in zip(keys, networks, strict=True) if key not in self._loads}
        self._loads.update(zip(new, loads_of(list(new.values())), strict=True))
        times = np.ones(len(fits)) if factors is None else factors
        loaded = [
            network.with_loads(self._loads[key], factor)
            for network, key, factor in zip(networks, keys, times.tolist(), strict=True)
        ]
        return solve_layered(loaded, setup.customers)

    def limits(self, setup: Setup) -> tuple[Limit, ...]:
        """The elasticities of a setup with their intervals, descending."""
        fits = [self.fit, *self.draws]
        edges = (50 * (1 - self.level), 50 * (1 + self.level))
        found = []
        for name, gains in self._gains(setup, fits, self._solve(setup, fits)):
            low, high = np.percentile(gains[1:], edges).tolist()
            found.append(Limit(name, Interval(float(gains[0]), low, high, self.level, len(self.data))))
        return tuple(found)

    def twice(self, setup: Setup, resource: str) -> Setup:
        """The setup with twice as much of a resource."""
        if resource == CORES:
            return replace(setup, cores=2 * setup.cores)
        if resource == self.slots and setup.slots is not None:
            # A worker uses one connection: more would stay idle.
            most = int(self.data.workers.max()) if self.data.pooled else 2 * setup.slots
            return replace(setup, slots=min(2 * setup.slots, most))
        if resource in [self._link(tier) for tier, _ in setup.links]:
            return replace(
                setup, links=tuple((tier, rate * (1 + (self._link(tier) == resource))) for tier, rate in setup.links)
            )
        each = zip(self.data.tiers, setup.threads, strict=True)
        return replace(setup, threads=tuple(count * (2 if THREADS[tier] == resource else 1) for tier, count in each))

    def _gains(self, setup: Setup, fits: Sequence[LayeredFit], now: LayeredSolution) -> list[tuple[str, Floats]]:
        """The elasticity of the throughput of each fit to each resource, the largest first; `now` is their solution."""

        def gain(other: Setup, grown: float) -> Floats:
            return np.asarray(np.log(self._solve(other, fits).throughput / now.throughput) / np.log(grown))

        found = [(CORES, gain(replace(setup, cores=setup.cores * _STEP), _STEP))]
        if setup.slots is not None:
            grown = (setup.slots + 1) / setup.slots
            found.append((self.slots, gain(replace(setup, slots=setup.slots + 1), grown)))
        for i, tier in enumerate(self.data.tiers):
            each = list(setup.threads)
            each[i] += 1
            found.append((THREADS[tier], gain(replace(setup, threads=tuple(each)), each[i] / setup.threads[i])))
        for i, (tier, rate) in enumerate(setup.links):
            links = (*setup.links[:i], (tier, rate * _STEP), *setup.links[i + 1 :])
            found.append((self._link(tier), gain(replace(setup, links=links), _STEP)))
        return sorted(found, key=lambda each: -each[1][0])


def layered_system(data: Demands, *, level: float, seed: int, quantiles: Floats | None = None) -> LayeredSystem:
    """Fit a layered model, with resamples of the repetitions.

    Raises FitError if there are fewer than three numbers of customers: fewer cannot separate work from wake-ups. Or if
    the median error of the throughput exceeds MISFIT.
    """
    if np.unique(data.customers).size < 3:
        raise FitError("a layered model needs 3 client counts or more: measure more")
    threads = _Threads.of(data)
    fit = fit_layered(data, threads)
    points = _points_of(data)
    rng = np.random.default_rng(seed)
    drawn = [np.concatenate([rng.choice(rows, size=rows.size) for rows in points]) for _ in range(RESAMPLES)]
    draws = tuple(fit_layered(data.take(rows), threads.take(rows), rng) for rows in drawn)
    predicted = np.empty((len(data), 2))
    networks = [fit.network(setup_of(data, rows)) for rows in points]
    systems: dict[tuple[object, ...], list[int]] = {}
    for i, network in enumerate(networks):
        systems.setdefault(network.structure, []).append(i)
    for alike in systems.values():
        solution = solve_layered([networks[i] for i in alike], [float(data.customers[points[i][0]]) for i in alike])
        for i, x, r in zip(alike, solution.throughput, solution.response_time, strict=True):
            predicted[points[i]] = x, r
    errors = np.array(
        [
            (data.throughput[rows].mean() / predicted[rows[0], 0], data.response[rows].mean() / predicted[rows[0], 1])
            for rows in points
        ]
    )
    x_error, r_error = np.median(np.abs(errors - 1), axis=0).tolist()
    if x_error > MISFIT:
        reason = "another resource, such as a disk, may limit them"
        if (foreign := float(data.foreign.max())) > OUTSIDERS_MAX:
            reason = f"other programs, other guests or emulated links used up to {foreign:.0%} of the processors"
        raise FitError(
            f"processor times and slots do not explain the measured throughputs (median error {x_error:.0%}); {reason}"
        )
    # The fit follows its own runs.
    freedom = max(len(data) - FITTED, len(data) / 4)
    misfit = np.log(data.response / predicted[:, 1]) * np.sqrt(len(data) / freedom)
    return LayeredSystem(data, fit, draws, misfit, (x_error, r_error), level, seed, quantiles)


def _points_of(data: Demands) -> list[np.ndarray]:
    """The rows of each point."""
    return [np.flatnonzero(data.point == point) for point in np.unique(data.point)]


def setup_of(data: Demands, rows: np.ndarray) -> Setup:
    """The setup of a measured point."""
    first = rows[0]
    return Setup(
        float(data.customers[first]),
        float(data.think[rows].mean()),
        int(data.slots[first]) if np.isfinite(data.slots[first]) else None,
        tuple(data.processes[first].astype(int).tolist()),
        tuple(data.each[first].astype(int).tolist()),
        data.cores,
        float(data.pipeline[first]),
        rates_of(data, first),
    )
