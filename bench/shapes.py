"""The shapes of the seeds' curves, and whether the measured points have them.

Each shape is a statement of a seed on points of one experiment. The measured means and their 95 % intervals decide:
"same" if the whole interval agrees with the statement, "different" if no part of it does, and "cannot tell" otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from scipy import special

from bench.published import (
    CHARACTERS,
    CLIENTS,
    CONNECTIONS,
    KEYS,
    MIDDLEWARES,
    MULTIGET,
    READS,
    SET_GET,
    STORES,
    WORKERS,
    WRITES,
    Levels,
)
from knee.stats.intervals import LEVEL, number

RESPONSE = "response_ms"
CPUS, TRACE, MIX = "store.cpus", "store.trace", "workload.mix"

ALIKE = 1.1
"""Two throughputs are alike if their ratio is at most this, both ways: as on the page."""

Judged = tuple[str, str]
"""The measured numbers, and "same", "different" or "cannot tell"."""

Judge = Callable[[pl.DataFrame], Judged]
"""Decides from the table of an experiment's points."""


@dataclass(frozen=True)
class Shape:
    """A statement of a seed, and how points of the experiment decide it.

    place   the seed, and its section, table or figure
    """

    place: str
    says: str
    judge: Judge


@dataclass(frozen=True)
class Mean:
    """A mean with the variance of its error, and the degrees of freedom of this variance (Welch 1947)."""

    estimate: float
    variance: float
    freedom: float

    def ends(self) -> tuple[float, float]:
        """The 95 % interval."""
        half = float(special.stdtrit(self.freedom, (1 + LEVEL) / 2)) * math.sqrt(self.variance)
        return self.estimate - half, self.estimate + half


def combined(estimate: float, parts: Sequence[tuple[Mean, float]]) -> Mean:
    """An estimate whose error is the sum of independent errors, each times its weight."""
    variances = [(weight**2 * mean.variance, mean.freedom) for mean, weight in parts]
    total = sum(variance for variance, _ in variances)
    spread = sum(variance**2 / freedom for variance, freedom in variances)
    return Mean(estimate, total, total**2 / spread if spread else math.inf)


def mean_of(points: pl.DataFrame, column: str, levels: Levels) -> Mean:
    """The mean of all points with these levels, each of two repetitions or more."""
    rows = points.filter(*(pl.col(name).cast(str) == str(level) for name, level in levels.items()))
    if rows.is_empty():
        raise ValueError(f"no point has {dict(levels)}")
    cells = []
    for row in rows.iter_rows(named=True):
        freedom = row["repetitions"] - 1
        error = row[f"{column}_half"] / float(special.stdtrit(freedom, (1 + LEVEL) / 2))
        cells.append(Mean(row[column], error**2, freedom))
    share = 1 / len(cells)
    return combined(sum(cell.estimate for cell in cells) * share, [(cell, share) for cell in cells])


def _outcome(ends: tuple[float, float], low: float, high: float) -> str:
    """Whether the interval is within the bounds."""
    if low <= ends[0] and ends[1] <= high:
        return "same"
    return "different" if ends[1] < low or high < ends[0] else "cannot tell"


def ratio_within(column: str, to: Levels, over: Levels, low: float, high: float) -> Judge:
    """The ratio of the mean at `to` to that at `over` is within bounds: both above zero, on a logarithmic scale."""

    def judge(points: pl.DataFrame) -> Judged:
        means = [mean_of(points, column, levels) for levels in (to, over)]
        logarithm = math.log(means[0].estimate / means[1].estimate)
        ratio = combined(logarithm, [(mean, 1 / mean.estimate) for mean in means])
        ends = math.exp(ratio.ends()[0]), math.exp(ratio.ends()[1])
        digits = 3 if abs(logarithm) < 0.1 else 2
        text = f"{math.exp(logarithm):.{digits}f} ({ends[0]:.{digits}f} to {ends[1]:.{digits}f})"
        return text, _outcome(ends, low, high)

    return judge


def grows(to: Levels, over: Levels, column: str = "throughput") -> Judge:
    """The mean at `to` is larger than that at `over`."""
    return ratio_within(column, to, over, 1, math.inf)


def falls(to: Levels, over: Levels, column: str = "throughput") -> Judge:
    """The mean at `to` is smaller than that at `over`."""
    return ratio_within(column, to, over, 0, 1)


def stays(to: Levels, over: Levels, column: str = "throughput") -> Judge:
    """The means at both points are alike."""
    return ratio_within(column, to, over, 1 / ALIKE, ALIKE)


def outweighs(factor: str, other: str, column: str = "throughput") -> Judge:
    """In a design 2^k, a factor has a larger main effect than another one. The absolute effects are compared."""

    def judge(points: pl.DataFrame) -> Judged:
        effects = []
        for name in (factor, other):
            least, most = (mean_of(points, column, {name: level}) for level in points[name].unique().sort())
            effects.append(combined(abs(most.estimate - least.estimate), [(least, 1), (most, 1)]))
        first, second = effects
        difference = combined(first.estimate - second.estimate, [(first, 1), (second, 1)])
        measured = f"{number(first.estimate)} and {number(second.estimate)}"
        return measured, _outcome(difference.ends(), 0, math.inf)

    return judge


def _of(factor: str, first: object, second: object, **levels: object) -> tuple[Levels, Levels]:
    """Two levels of a factor, with the same levels of others."""
    return {factor: first, **levels}, {factor: second, **levels}


def _load(kind: str, most: int, least: int) -> tuple[Levels, Levels]:
    """Two numbers of clients, which read or write."""
    return _of(CLIENTS, most, least, **{SET_GET: kind})


SHAPES: Mapping[str, tuple[Shape, ...]] = {
    "baseline-one-store": (
        Shape("000, figure 6", "reads: 144 clients have the throughput of 6", stays(*_load(READS, 144, 6))),
        Shape("000, figure 5", "writes: 144 clients have more throughput than 6", grows(*_load(WRITES, 144, 6))),
    ),
    "baseline-two-stores": (
        Shape("000, figure 7", "writes: 12 clients have the throughput of 8", stays(*_load(WRITES, 12, 8))),
        Shape("000, figure 8", "reads: 12 clients have the throughput of 8", stays(*_load(READS, 12, 8))),
    ),
    "baseline-one-middleware": (
        Shape("000, figure 9", "reads: 96 clients have the throughput of 24", stays(*_load(READS, 96, 24))),
        Shape("000, figure 11", "writes: 96 clients have more throughput than 24", grows(*_load(WRITES, 96, 24))),
    ),
    "baseline-two-middlewares": (
        Shape("000, figure 14", "reads: 192 clients have the throughput of 18", stays(*_load(READS, 192, 18))),
        Shape("000, figure 13", "writes: 192 clients have more throughput than 18", grows(*_load(WRITES, 192, 18))),
    ),
    "throughput-for-writes": tuple(
        Shape(
            "000, figure 17",
            f"288 clients: {2 * workers} workers have more throughput than {workers}",
            grows({CLIENTS: 288, WORKERS: 2 * workers}, {CLIENTS: 288, WORKERS: workers}),
        )
        for workers in (8, 16, 32)
    ),
    "one-store-against-three": (
        Shape(
            "000, figure 20",
            "writes: three stores have slightly less throughput than one (0.8 to 1)",
            ratio_within("throughput", {SET_GET: WRITES, STORES: 3}, {SET_GET: WRITES, STORES: 1}, 0.8, 1),
        ),
        Shape(
            "000, section 2.3",
            "reads: three stores have three times the throughput of one (2.5 to 3.5)",
            ratio_within("throughput", {SET_GET: READS, STORES: 3}, {SET_GET: READS, STORES: 1}, 2.5, 3.5),
        ),
    ),
    "multigets-of-many-keys": (
        Shape(
            "000, figure 24",
            "9 keys: sharded multi-gets take longer than whole ones",
            grows({MULTIGET: "sharded", KEYS: 9}, {MULTIGET: "whole", KEYS: 9}, RESPONSE),
        ),
        Shape(
            "000, figure 24",
            "54 keys: both take as long",
            stays({MULTIGET: "sharded", KEYS: 54}, {MULTIGET: "whole", KEYS: 54}, RESPONSE),
        ),
        Shape(
            "000, figure 24",
            "81 keys: sharded multi-gets take less time",
            falls({MULTIGET: "sharded", KEYS: 81}, {MULTIGET: "whole", KEYS: 81}, RESPONSE),
        ),
    ),
    "factorial-writes": (
        Shape("000, table 28", "workers have a larger effect than middlewares", outweighs(WORKERS, MIDDLEWARES)),
        Shape("000, table 28", "middlewares have a larger effect than servers", outweighs(MIDDLEWARES, STORES)),
        Shape("000, table 28", "32 workers have more throughput than 8", grows(*_of(WORKERS, 32, 8))),
        Shape("000, table 28", "2 middlewares have more throughput than 1", grows(*_of(MIDDLEWARES, 2, 1))),
        Shape("000, table 28", "3 servers have less throughput than 1", falls(*_of(STORES, 3, 1))),
    ),
    "factorial-reads": (
        Shape("000, table 30", "servers have a larger effect than workers", outweighs(STORES, WORKERS)),
        Shape("000, table 30", "servers have a larger effect than middlewares", outweighs(STORES, MIDDLEWARES)),
        Shape("000, table 30", "3 servers have more throughput than 1", grows(*_of(STORES, 3, 1))),
    ),
    "queue-factorial-database": (
        Shape("001, figure 4", "the larger database machine has more throughput", grows(*_of(CPUS, 2, 1))),
        Shape("001, figure 5", "this machine has a larger effect than connections", outweighs(CPUS, CONNECTIONS)),
        Shape("001, figure 5", "this machine has a larger effect than workers", outweighs(CPUS, WORKERS)),
    ),
    "queue-workers": (Shape("001, section 3", "40 workers have the throughput of 20", stays(*_of(WORKERS, 40, 20))),),
    "queue-connections": (
        Shape("001, section 3", "40 connections have the throughput of 20", stays(*_of(CONNECTIONS, 40, 20))),
    ),
    "queue-clients": (
        Shape("001, section 6", "5 clients have more throughput than 2", grows(*_of(CLIENTS, 5, 2))),
        Shape("001, section 6", "30 clients have more throughput than 5", grows(*_of(CLIENTS, 30, 5))),
        Shape("001, section 6", "30 clients have a longer response time than 5", grows(*_of(CLIENTS, 30, 5), RESPONSE)),
    ),
    "queue-database-alone": (
        Shape("002, figure 2", "16 clients have more throughput than 1", grows(*_of(CLIENTS, 16, 1))),
        Shape("002, figure 2", "60 clients have the throughput of 30", stays(*_of(CLIENTS, 60, 30))),
    ),
    "queue-middleware-alone": (
        Shape("002, figure 7", "40 clients have more throughput than 2", grows(*_of(CLIENTS, 40, 2))),
        Shape("002, figure 7", "80 clients have the throughput of 60", stays(*_of(CLIENTS, 80, 60))),
    ),
    "queue-client-alone": (
        Shape(
            "002, figure 9",
            "32 clients: 200 characters have more throughput than 2000",
            grows({CLIENTS: 32, CHARACTERS: 200}, {CLIENTS: 32, CHARACTERS: 2000}),
        ),
        Shape(
            "002, figure 9",
            "32 clients have more throughput than 1",
            grows({CLIENTS: 32, CHARACTERS: 200}, {CLIENTS: 1, CHARACTERS: 200}),
        ),
    ),
    "queue-throughput": (
        Shape("002, figure 14", "40 connections have more throughput than 4", grows(*_of(CONNECTIONS, 40, 4))),
        Shape("002, section 3.2", "120 clients have the throughput of 40", stays(*_of(CLIENTS, 120, 40))),
    ),
    "queue-joining-clients": (
        Shape("002, section 3.2", "60 clients have the throughput of 30", stays(*_of(CLIENTS, 60, 30))),
    ),
    "queue-factorial-system": (
        Shape("002, table 3", "connections have a larger effect than clients", outweighs(CONNECTIONS, CLIENTS)),
        Shape("002, table 3", "connections have a larger effect than middlewares", outweighs(CONNECTIONS, MIDDLEWARES)),
        Shape("002, table 2", "40 connections have more throughput than 20", grows(*_of(CONNECTIONS, 40, 20))),
        Shape(
            "002, table 3",
            "response time: clients have a larger effect than connections",
            outweighs(CLIENTS, CONNECTIONS, RESPONSE),
        ),
        Shape(
            "002, table 2", "120 clients have a longer response time than 60", grows(*_of(CLIENTS, 120, 60), RESPONSE)
        ),
    ),
    "kv-zipf-reads": tuple(
        Shape(
            "003, table 3",
            f"{clients} clients have a longer response time than 1",
            grows(*_of(CLIENTS, clients, 1), RESPONSE),
        )
        for clients in (2, 4, 6)
    ),
    "kv-own-keys": (
        Shape("004", "25 clients have a longer response time than 1", grows(*_of(CLIENTS, 25, 1), RESPONSE)),
        Shape("004", "9 clients have more throughput than 1", grows(*_of(CLIENTS, 9, 1))),
        Shape("004", "25 clients have the throughput of 9", stays(*_of(CLIENTS, 25, 9))),
    ),
    "kv-trace": (Shape("004", "trace lines lower the throughput of a client", falls(*_of(TRACE, "true", "false"))),),
    "kv-mix": (
        Shape(
            "003, question 4",
            "16 clients: reads alone have more throughput than reads among writes",
            grows(*_of(MIX, "read:1", "read:50,update:30,insert:10,delete:10", **{CLIENTS: 16})),
        ),
    ),
}
"""By experiment. Seeds' statements without a direction are missing."""


def judged(folder: Path) -> list[dict[str, str]]:
    """A row for each shape, from the tables of points in the folder."""
    rows = []
    for name, shapes in SHAPES.items():
        points = pl.read_csv(folder / f"{name}.csv")
        for shape in shapes:
            measured, outcome = shape.judge(points)
            rows.append(
                {
                    "seed, place": shape.place,
                    "experiment": name,
                    "statement": shape.says,
                    "measured": measured,
                    "shape": outcome,
                }
            )
    return rows
