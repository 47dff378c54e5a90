"""The published values of the seeds, and how a run folder gives each of them.

Seeds 001 to 004 had a machine for each tier. On a single machine, their shares, ratios and positions are comparable,
and their rates are not. The experiments of seed 000 emulate its links, so its rates are comparable too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from knee.data import Dataset
from knee.data.observations import observations
from knee.stats.intervals import Interval, mean_interval, ratio_interval
from knee.verdict import Findings
from knee.verdict.analyse import analyse

CLIENTS, WORKERS, CONNECTIONS = "load.clients", "middleware.workers", "middleware.connections"
CHARACTERS, LEVEL, INDEXES, SET_GET = "workload.characters", "workload.level", "store.indexes", "workload.set_get"
MULTIGET, KEYS = "middleware.multiget", "workload.multiget"
MIDDLEWARES, STORES, LOADS, BACKLOG = "middleware.hosts", "store.hosts", "load.hosts", "workload.backlog"

Levels = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder with its tables."""

    dataset: Dataset

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per point and repetition."""
        return observations(self.dataset).with_columns(pl.col("clients").alias(CLIENTS))

    @cached_property
    def findings(self) -> Findings:
        """The results of all analyses."""
        return analyse(self.dataset)

    def at(self, levels: Levels) -> pl.DataFrame:
        """The rows of some levels."""
        return self.table.filter(*(pl.col(name) == level for name, level in levels.items()))

    def cell(self, column: str, levels: Levels) -> Interval:
        """The mean of a column at one point."""
        return mean_interval(self.at(levels)[column].to_list())

    def best(self, levels: Levels) -> dict[str, object]:
        """The point with the largest mean throughput among those that have these levels."""
        points = self.at(levels).group_by("point").agg(pl.col("throughput").mean(), pl.exclude("throughput").first())
        return points.sort("throughput").row(-1, named=True)

    def bottleneck(self, levels: Levels) -> str:
        """The bottleneck of the configuration of the best point."""
        row = self.best(levels)
        (verdict,) = (
            each for each in self.findings.verdicts if all(row[name] == level for name, level in each.factors.items())
        )
        return " and ".join(verdict.bottleneck.names) or "cannot tell"


Measured = Callable[[Run], Interval]


def cell(column: str, levels: Levels) -> Measured:
    """The mean of a column at one point."""
    return lambda run: run.cell(column, levels)


def ratio(column: str, levels: Levels, to: Levels) -> Measured:
    """The ratio of two points."""
    return lambda run: ratio_interval(run.cell(column, levels), run.cell(column, to))


def largest(levels: Levels) -> Measured:
    """The largest mean throughput."""
    return lambda run: run.cell("throughput", {"point": run.best(levels)["point"]})


def at_largest(factor: str, levels: Levels) -> Measured:
    """The level with the largest mean throughput."""
    return lambda run: _exactly(run.best(levels)[factor])


def share(response: str, factor: str) -> Measured:
    """The share of a response's variation that a factor explains."""

    def found(run: Run) -> Interval:
        (effects,) = (each for each in run.findings.effects if each.response == response)
        return _exactly(next(term.share for term in effects.analysis.terms if term.factors == (factor,)))

    return found


def knee(levels: Levels) -> Measured:
    """The knee of one configuration; 0 without one."""

    def found(run: Run) -> Interval:
        (verdict,) = (each for each in run.findings.verdicts if levels.items() <= each.factors.items())
        return verdict.knee.clients or _exactly(0)

    return found


def response_of(operation: str, levels: Levels) -> Measured:
    """The mean response time of an operation at one point, in ms."""

    def found(run: Run) -> Interval:
        details = run.findings.details
        assert details is not None
        return details.operations[run.at(levels)["point"].unique().item()][operation].mean_ms

    return found


def of_one_client(run: Run) -> Interval:
    """Answers per second of the waiting of a single client."""
    return mean_interval((1000 / run.at({CLIENTS: 1})["response_ms"]).to_list())


def sent(host: str) -> Measured:
    """The rate at which a host's link sends, in Mbit/s."""
    return lambda run: _exactly({each["host"]: each["sending_mbit"] for each in run.dataset.manifest["links"]}[host])


def _exactly(value: object) -> Interval:
    return Interval(float(str(value)), None, None, 0.95, 1)


@dataclass(frozen=True)
class Published:
    """A value of a seed, and how a run folder gives it.

    place   the seed, and its table or section
    levels  of the configuration whose bottleneck is of interest, if any
    """

    place: str
    what: str
    value: float
    measured: Measured
    levels: Levels | None = None


def _at(place: str, levels: Levels, what: str, values: Mapping[str, float]) -> Iterable[Published]:
    """Values of columns at one point."""
    names = {
        "throughput": "requests/s",
        "response_ms": "response time, ms",
        "queueing_ms": "time in the queue, ms",
        "service_ms": "time in the worker, ms",
    }
    for column, value in values.items():
        yield Published(place, f"{what}: {names[column]}", value, cell(column, levels), levels)


def _shares(place: str, response: str, values: Mapping[str, float]) -> Iterable[Published]:
    """The shares of factors in the variation of a response."""
    names = {"throughput": "throughput", "response_ms": "response time"}
    for factor, value in values.items():
        yield Published(place, f"{names[response]}: share of {factor}", value, share(response, factor))


def _over_first(place: str, column: str, what: str, values: Mapping[int, float]) -> Iterable[Published]:
    """A value for each number of clients, as a ratio to the first."""
    (first, base), *others = values.items()
    for clients, value in others:
        measured = ratio(column, {CLIENTS: clients}, {CLIENTS: first})
        yield Published(place, f"{what}, {clients} clients over {first}", value / base, measured)


def _largest(place: str, levels: Levels, what: str, value: float) -> Published:
    return Published(place, f"{what}: largest throughput/s", value, largest(levels), levels)


READS, WRITES = "0:1", "1:0"
SECTION_6 = {2: 1419.2, 5: 2473.5, 10: 3090.5, 15: 3591.5, 20: 3360.4, 25: 4008.7, 30: 4198.3}
"""Seed 001, section 6: requests/s by clients."""


POINTS: dict[str, Levels] = {
    "baseline-one-store": {CLIENTS: [6, 144]},
    "baseline-two-stores": {CLIENTS: [8, 12]},
    "baseline-one-middleware": {WORKERS: 64, CLIENTS: [24, 96]},
    "baseline-two-middlewares": {WORKERS: 64, CLIENTS: [18, 192]},
    "throughput-for-writes": {CLIENTS: [24, 96, 192, 288]},
    "one-store-against-three": {CLIENTS: [192]},
    "queue-message-size": {CHARACTERS: 200_000},
    "queue-workers": {WORKERS: [20, 40]},
    "queue-connections": {CONNECTIONS: [20, 40]},
    "queue-one-server": {CLIENTS: [1, 50]},
    "queue-database-alone": {LEVEL: 2, INDEXES: "needed"},
    "queue-middleware-alone": {LOADS: 2},
    "queue-client-alone": {CLIENTS: [1, 32]},
    "queue-stability": {BACKLOG: 300_000},
}
"""The levels that the published values need, in place of those of the files."""

SEED_000: dict[str, tuple[Published, ...]] = {
    "baseline-one-store": (
        *_at("000, table 3", {SET_GET: READS, CLIENTS: 6}, "one store, reads, 6 clients", {"throughput": 2897.9}),
        *_at(
            "000, table 3", {SET_GET: WRITES, CLIENTS: 144}, "one store, writes, 144 clients", {"throughput": 17556.5}
        ),
    ),
    "baseline-two-stores": (
        *_at("000, table 3", {SET_GET: READS, CLIENTS: 12}, "one load host, reads, 12 clients", {"throughput": 5856.1}),
        *_at("000, table 3", {SET_GET: WRITES, CLIENTS: 8}, "one load host, writes, 8 clients", {"throughput": 5960.9}),
    ),
    "baseline-one-middleware": (
        *_at(
            "000, table 4",
            {SET_GET: READS, CLIENTS: 24},
            "one middleware, reads, 24 clients",
            {"throughput": 2969.3, "response_ms": 8.083, "queueing_ms": 0.406},
        ),
        *_at(
            "000, table 4",
            {SET_GET: WRITES, CLIENTS: 96},
            "one middleware, writes, 96 clients",
            {"throughput": 8263.5, "response_ms": 11.628, "queueing_ms": 2.74},
        ),
    ),
    "baseline-two-middlewares": (
        *_at(
            "000, table 5",
            {SET_GET: READS, CLIENTS: 18},
            "two middlewares, reads, 18 clients",
            {"throughput": 2964.4, "response_ms": 6.077, "queueing_ms": 0.181},
        ),
        *_at(
            "000, table 5",
            {SET_GET: WRITES, CLIENTS: 192},
            "two middlewares, writes, 192 clients",
            {"throughput": 10566.4, "response_ms": 18.206, "queueing_ms": 4.557},
        ),
    ),
    "throughput-for-writes": (
        *(
            Published("000, table 2", f"{host} sends, Mbit/s", rate, sent(f"{host}-0"))
            for host, rate in {"load": 200, "middleware": 800, "store": 100}.items()
        ),
        *(
            _largest("000, table 6", {WORKERS: workers}, f"writes to three stores, {workers} workers", value)
            for workers, value in {8: 3492.8, 16: 4674.3, 32: 6412.2, 64: 8161.5}.items()
        ),
    ),
    "one-store-against-three": (
        _largest("000, section 5.1.1", {SET_GET: READS, STORES: 3}, "reads from three stores, at most", 9000),
    ),
    "multigets-of-many-keys": (
        Published(
            "000, figure 24",
            "response time, 54 keys, sharded over whole",
            1,
            ratio("response_ms", {MULTIGET: "sharded", KEYS: 54}, {MULTIGET: "whole", KEYS: 54}),
        ),
    ),
    "factorial-writes": (*_shares("000, table 28", "throughput", {MIDDLEWARES: 0.196, STORES: 0.054, WORKERS: 0.731}),),
    "factorial-reads": (*_shares("000, table 30", "throughput", {MIDDLEWARES: 0.004, STORES: 0.974, WORKERS: 0.004}),),
}
"""By experiment, of the first report. The experiments run on emulated hosts with its links."""

PUBLISHED: dict[str, tuple[Published, ...]] = {
    **SEED_000,
    "queue-message-size": (
        Published("001, section 2", "200,000 characters: requests/s", 294.3, cell("throughput", {})),
        Published("001, section 2", "200,000 characters: list, ms", 75.21, response_of("list_queues", {})),
        Published("001, section 2", "200,000 characters: send, ms", 304.2, response_of("send", {})),
        Published("001, section 2", "200,000 characters: receive, ms", 130.6, response_of("remove", {})),
    ),
    "queue-factorial-database": tuple(
        _shares("001, section 3", "throughput", {"store.cpus": 0.957, CONNECTIONS: 0.006, WORKERS: 0.007})
    ),
    "queue-workers": (
        Published(
            "001, section 3", "throughput, 40 workers over 20", 0.964, ratio("throughput", {WORKERS: 40}, {WORKERS: 20})
        ),
    ),
    "queue-connections": (
        Published(
            "001, section 3",
            "throughput, 40 connections over 20",
            1.035,
            ratio("throughput", {CONNECTIONS: 40}, {CONNECTIONS: 20}),
        ),
    ),
    "queue-clients": (
        *_at("001, section 6", {CLIENTS: 2}, "2 clients", {"throughput": 1419.2}),
        *_over_first("001, section 6", "throughput", "throughput", SECTION_6),
    ),
    "queue-one-server": tuple(
        _at(
            "001, section 6",
            {CLIENTS: 50},
            "50 clients",
            {"throughput": 1096.5, "response_ms": 45.59, "service_ms": 0.906},
        )
    ),
    "queue-trace": tuple(
        _at(
            "001, section 6",
            {},
            "98 clients",
            {"throughput": 5897, "response_ms": 16.67, "queueing_ms": 13.32, "service_ms": 3.33},
        )
    ),
    "queue-service-demands": tuple(_at("001, section 7", {CLIENTS: 2}, "2 clients", {"service_ms": 1.354})),
    "queue-database-alone": (
        Published("002, section 1.1.4", "level 2: knee, clients", 20, knee({}), {}),
        _largest("002, section 1.1.4", {}, "level 2", 20_000),
    ),
    "queue-middleware-alone": (
        _largest("002, section 1.2.4", {}, "two load hosts", 45_000),
        Published("002, section 1.2.4", "two load hosts: clients at it", 70, at_largest(CLIENTS, {})),
    ),
    "queue-client-alone": (
        *_at("002, section 1.3.3", {CLIENTS: 32, CHARACTERS: 200}, "32 clients", {"throughput": 45_000}),
        Published(
            "002, section 1.3.3",
            "32 clients: throughput, 200 characters over 2000",
            1.5,
            ratio("throughput", {CLIENTS: 32, CHARACTERS: 200}, {CLIENTS: 32, CHARACTERS: 2000}),
        ),
    ),
    "queue-stability": tuple(_at("002, section 3.1", {}, "300,000 messages", {"throughput": 1000, "response_ms": 120})),
    "queue-throughput": (
        _largest("002, section 3.2", {}, "all", 19_500),
        Published("002, section 3.2", "connections at it", 40, at_largest(CONNECTIONS, {})),
        Published("002, section 3.2", "clients at it", 60, at_largest(CLIENTS, {})),
    ),
    "queue-joining-clients": (
        _largest("002, section 3.2", {}, "joining clients", 19_500),
        Published("002, section 3.2", "clients at it", 60, at_largest(CLIENTS, {})),
    ),
    "queue-factorial-system": (
        *_shares("002, section 3.5", "throughput", {CONNECTIONS: 0.834, CLIENTS: 0.071, MIDDLEWARES: 0.011}),
        *_shares("002, section 3.5", "response_ms", {CLIENTS: 0.776, CONNECTIONS: 0.178}),
    ),
    "kv-zipf-reads": tuple(
        _over_first(
            "003, table 3",
            "response_ms",
            "response time",
            {1: 27.63, 2: 30.65, 3: 34.73, 4: 42.18, 5: 39.25, 6: 84.92},
        )
    ),
    "kv-own-keys": (
        Published("004", "1 client: requests/s of its waiting", 1200, of_one_client),
        _largest("004", {}, "server", 16_000),
        Published("004", "server: knee, clients", 9, knee({}), {}),
    ),
}
"""By experiment. Sections without a printed number are missing."""
