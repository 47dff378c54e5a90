"""Which errors the operational laws find, in seeded tables of closed networks, and how often they accuse a right table.

    python -m bench.laws_power [TABLES] [REPETITIONS]

Each table has six client counts around N*. In one half of the trials the noise is common: a run's response time is off
by 2 %, and all other quantities follow by the laws. In the other half each measured column has its own 2 %. An error of
±5 % is put into a whole column, into all repetitions of one client count, or into one repetition.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from knee.laws import LawReport, check_laws
from knee.laws.stations import STATIONS
from knee.queueing import Delay, Network, Queue, solve_closed
from knee.stats.intervals import Floats

NOISE = 0.02
ERROR = 0.05
STORES = 3
RUN = ("point", "repetition")
INNER = ("middleware_throughput", "middleware_response_ms", "queueing_ms", "service_ms")

Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Injection:
    """An error of a column, in the rows of a station or type. Its law needs the columns of `tables` only."""

    name: str
    table: str
    column: str
    rows: str = ""
    extent: str = "column"
    tables: tuple[str, ...] = ("runs",)


INJECTIONS = (
    Injection("X", "runs", "throughput"),
    Injection("X, one level", "runs", "throughput", extent="level"),
    Injection("X, one repetition", "runs", "throughput", extent="repetition"),
    Injection("R", "runs", "response_ms"),
    Injection("R, one level", "runs", "response_ms", extent="level"),
    Injection("R, one repetition", "runs", "response_ms", extent="repetition"),
    Injection("Z", "runs", "think_ms"),
    Injection("X of reads", "types", "throughput", "read", tables=("runs", "types")),
    Injection("R of reads", "types", "response_ms", "read", tables=("runs", "types")),
    Injection("queue length", "stations", "queue_length", "slots", tables=("runs", "stations")),
    Injection("queue length, one level", "stations", "queue_length", "slots", "level", ("runs", "stations")),
    Injection("utilisation", "stations", "utilization", "slots", tables=("runs", "stations")),
    Injection("throughput of the middlewares", "stations", "throughput", "middlewares", tables=("runs", "stations")),
    Injection("throughput of one store of three", "stations", "throughput", "store-1", tables=("runs", "stations")),
    Injection("R of the middlewares", "runs", "middleware_response_ms", tables=("runs", "middlewares")),
)


def system(rng: np.random.Generator, repetitions: int, *, common: bool) -> dict[str, pl.DataFrame]:
    """The runs, types and stations of a random system with its noise, as :func:`check_laws` takes them."""
    think_ms, gap_ms, reply_ms = 10 ** rng.uniform(0.3, 1.7), rng.uniform(0.1, 0.5), rng.uniform(0.01, 0.05)
    slots, slot_ms, store_ms = int(rng.integers(2, 17)), rng.uniform(1, 4), rng.uniform(0.1, 0.4)
    writes = int(rng.integers(1, 4)), int(rng.integers(1, 10))
    write = writes[0] / sum(writes)
    visits = write + (1 - write) / STORES
    delays = [Delay("gap", gap_ms), Delay("reply", reply_ms)]
    stores = [Queue(f"store-{number}", store_ms, visits=visits) for number in range(STORES)]
    network = Network([*delays, Queue("slots", slot_ms, servers=slots), *stores], think_time=think_ms)
    capacity = min(slots / slot_ms, 1 / (visits * store_ms))
    alone_ms = gap_ms + reply_ms + slot_ms + STORES * visits * store_ms
    shares = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    counts = sorted({max(1, round(share * capacity * (think_ms + alone_ms))) for share in shares})
    solved = solve_closed(network, counts[-1])
    rows = np.repeat(np.array(counts) - 1, repetitions)
    noise = rng.normal(0, NOISE, rows.size)
    right = solved.response_time[rows]
    response_ms = right * (1 + noise * common)
    x = 1000 * (rows + 1) / (think_ms + response_ms)
    slots_ms = solved.residence_time[rows, 2] * response_ms / right
    middleware_ms = response_ms * (1 - gap_ms / right)
    inside_ms = middleware_ms - reply_ms
    service_ms = np.minimum(slots_ms, slot_ms)
    keys = {
        "point": np.repeat(np.arange(len(counts)), repetitions),
        "repetition": np.tile(np.arange(1, repetitions + 1), len(counts)),
    }

    def noisy(values: Floats) -> pl.Series:
        """A measured column, printed with five digits."""
        return pl.Series(values if common else values * (1 + rng.normal(0, NOISE, rows.size))).round_sig_figs(5)

    runs = keys | {"clients": rows + 1, "think_ms": np.full(rows.size, think_ms)}
    runs |= {"throughput": noisy(x), "response_ms": noisy(response_ms), "middleware_throughput": noisy(x)}
    runs |= {"middleware_response_ms": noisy(middleware_ms), "queueing_ms": noisy(inside_ms * 0.6)}
    runs |= {"service_ms": noisy(inside_ms * 0.4)}
    slower = rng.uniform(1.0, 2.0)
    read_ms = response_ms / (1 - write + write * slower)
    types = [
        keys
        | {"request_type": [name] * rows.size, "visits": [count] * rows.size}
        | {"throughput": noisy(share * x), "response_ms": noisy(times * read_ms)}
        for name, count, share, times in (
            ("write", writes[0], write, slower),
            ("read", writes[1], 1 - write, 1.0),
        )
    ]
    slot_rows = keys | {"station": ["slots"] * rows.size, "throughput": noisy(x), "servers": [float(slots)] * rows.size}
    slot_rows |= {"service_ms": noisy(service_ms), "response_ms": noisy(slots_ms)}
    slot_rows |= {"queue_length": noisy(x * slots_ms / 1000), "utilization": noisy(x * service_ms / 1000 / slots)}
    flows = [("middlewares", 1.0), *((store.name, visits) for store in stores)]
    stations = [
        keys | {"station": [name] * rows.size, "visits": [each] * rows.size, "throughput": noisy(each * x)}
        for name, each in flows
    ]
    schema = pl.Schema({**STATIONS, "software": pl.Boolean()})
    return {
        "runs": pl.DataFrame(runs),
        "types": pl.concat(map(pl.DataFrame, types)),
        "stations": pl.concat([schema.to_frame(), *map(pl.DataFrame, (slot_rows, *stations))], how="diagonal_relaxed"),
    }


def spoilt(tables: Tables, injection: Injection, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """The tables with the error."""
    table = tables[injection.table]
    there = pl.lit(value=True)
    for key in RUN[: ("column", "level", "repetition").index(injection.extent)]:
        there &= pl.col(key) == int(rng.choice(table[key].unique().sort().to_numpy()))
    if injection.rows:
        there &= pl.col("request_type" if injection.table == "types" else "station") == injection.rows
    factor = 1 + ERROR * float(rng.choice([-1, 1]))
    column = pl.col(injection.column)
    return {**tables, injection.table: table.with_columns(pl.when(there).then(column * factor).otherwise(column))}


def accused(tables: Tables, given: tuple[str, ...]) -> bool:
    """Whether a law of the given tables is violated."""
    runs = tables["runs"] if "middlewares" in given else tables["runs"].drop(INNER)
    types, stations = (tables[name] if name in given else None for name in ("types", "stations"))
    return violated(check_laws(runs, types=types, stations=stations))


def violated(report: LawReport) -> bool:
    """Whether a law is violated at a point or at all together, or a repetition departs from its others."""
    verdicts = [check.verdict for checks in (report.interactive, report.stations, report.pooled) for check in checks]
    return "violated" in verdicts or bool(report.outliers)


def main() -> None:
    """Print the shares of tables that are accused."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 220
    repetitions = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    found = {name: [0, 0] for name in (*(injection.name for injection in INJECTIONS), "nothing")}
    for seed in range(count):
        for independent in (False, True):
            rng = np.random.default_rng(seed)
            tables = system(rng, repetitions, common=not independent)
            for injection in INJECTIONS:
                found[injection.name][independent] += accused(spoilt(tables, injection, rng), injection.tables)
            found["nothing"][independent] += accused(tables, ("middlewares", "types", "stations"))
    print("| ±5 % in | common noise | independent noise |\n|---|---|---|")
    for name, shares in found.items():
        print(f"| {name} | {' | '.join(f'{share / count:.3f}' for share in shares)} |")


if __name__ == "__main__":
    main()
