"""The published values of seeds 001 to 004, beside what this machine measures.

    python -m bench.seeds FOLDER [--seconds N] [EXPERIMENT…]

Each experiment runs as its file says: about eight hours for all, by the lengths in the files. With --seconds, a
measurement takes N seconds. FOLDER keeps the runs: after an interruption, the same command continues. The program
renews the rows of the named experiments in docs/reproductions/seeds.csv, and writes all rows to seeds.md. The seeds
had a machine for each tier, so shares, ratios and positions are comparable, and rates are not.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from knee.data import Dataset
from knee.data.observations import observations
from knee.stats.intervals import Interval, mean_interval, number, ratio_interval
from knee.verdict import Findings
from knee.verdict.analyse import analyse

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproductions" / "seeds.md"
CLIENTS, WORKERS, CONNECTIONS = "load.clients", "middleware.workers", "middleware.connections"
CHARACTERS, HOSTS, LEVEL, INDEXES = "workload.characters", "middleware.hosts", "workload.level", "store.indexes"

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

    def cell(self, column: str, levels: Levels) -> Interval:
        """The mean of a column at one point."""
        return mean_interval(
            self.table.filter(*(pl.col(name) == level for name, level in levels.items()))[column].to_list()
        )

    def largest(self, factor: str, levels: Levels) -> tuple[object, Interval]:
        """The level of a factor at which throughput is largest, and this throughput."""
        rows = self.table.filter(*(pl.col(name) == level for name, level in levels.items()))
        points = rows.group_by("point").agg(pl.col("throughput").mean(), pl.col(factor).first()).sort("throughput")
        best = rows.filter(pl.col("point") == points["point"][-1])
        return points[factor][-1], mean_interval(best["throughput"].to_list())


Measured = Callable[[Run], Interval]


def cell(column: str, levels: Levels | None = None) -> Measured:
    """The mean of a column at one point."""
    return lambda run: run.cell(column, levels or {})


def ratio(column: str, levels: Levels, to: Levels) -> Measured:
    """The ratio of two points."""
    return lambda run: ratio_interval(run.cell(column, levels), run.cell(column, to))


def largest(levels: Levels | None = None) -> Measured:
    """The largest mean throughput."""
    return lambda run: run.largest(CLIENTS, levels or {})[1]


def at_largest(factor: str, levels: Levels | None = None) -> Measured:
    """The level with the largest mean throughput."""
    return lambda run: _exactly(run.largest(factor, levels or {})[0])


def share(response: str, factor: str) -> Measured:
    """The share of a response's variation that a factor explains."""

    def found(run: Run) -> Interval:
        (effects,) = (each for each in run.findings.effects if each.response == response)
        return _exactly(next(term.share for term in effects.analysis.terms if term.factors == (factor,)))

    return found


def knee(levels: Levels | None = None) -> Measured:
    """The knee of one configuration; 0 without one."""

    def found(run: Run) -> Interval:
        wanted = (levels or {}).items()
        (verdict,) = (each for each in run.findings.verdicts if wanted <= each.factors.items())
        return verdict.knee.clients or _exactly(0)

    return found


def response_of(operation: str, levels: Levels) -> Measured:
    """The mean response time of an operation at one point, in ms."""

    def found(run: Run) -> Interval:
        points = run.table.filter(*(pl.col(name) == level for name, level in levels.items()))["point"].unique()
        details = run.findings.details
        assert details is not None
        return details.operations[points.item()][operation].mean_ms

    return found


def of_one_client(clients: int) -> Measured:
    """Answers per second of a client's waiting."""

    def found(run: Run) -> Interval:
        times = run.table.filter(pl.col(CLIENTS) == clients)["response_ms"]
        return mean_interval((1000 / times).to_list())

    return found


def _exactly(value: object) -> Interval:
    return Interval(float(str(value)), None, None, 0.95, 1)


@dataclass(frozen=True)
class Published:
    """A value of a seed's section, and how a run folder gives it."""

    section: str
    what: str
    value: float
    measured: Measured


def _clients(section: str, column: str, what: str, values: Mapping[int, float]) -> Iterable[Published]:
    """A value for each number of clients, as a ratio to the first."""
    (first, base), *others = values.items()
    for clients, value in others:
        measured = ratio(column, {CLIENTS: clients}, {CLIENTS: first})
        yield Published(section, f"{what}, {clients} clients over {first}", value / base, measured)


SECTION_6 = {2: 1419.2, 5: 2473.5, 10: 3090.5, 15: 3591.5, 20: 3360.4, 25: 4008.7, 30: 4198.3}
"""Seed 001, section 6: requests/s by clients."""

LONGEST = {CHARACTERS: 200_000}
NEEDED_2 = {LEVEL: 2, INDEXES: "needed"}

PUBLISHED: dict[str, tuple[Published, ...]] = {
    "queue-message-size": (
        Published("001, 2", "200,000 characters: requests/s", 294.3, cell("throughput", LONGEST)),
        Published("001, 2", "200,000 characters: list, ms", 75.21, response_of("list_queues", LONGEST)),
        Published("001, 2", "200,000 characters: send, ms", 304.2, response_of("send", LONGEST)),
        Published("001, 2", "200,000 characters: receive, ms", 130.6, response_of("remove", LONGEST)),
    ),
    "queue-factorial-database": (
        Published("001, 3", "throughput: share of the database's machine", 0.957, share("throughput", "store.cpus")),
        Published("001, 3", "throughput: share of the connections", 0.006, share("throughput", CONNECTIONS)),
        Published("001, 3", "throughput: share of the workers", 0.007, share("throughput", WORKERS)),
    ),
    "queue-workers": (
        Published("001, 3", "throughput, 40 workers over 20", 0.964, ratio("throughput", {WORKERS: 40}, {WORKERS: 20})),
    ),
    "queue-connections": (
        Published(
            "001, 3",
            "throughput, 40 connections over 20",
            1.035,
            ratio("throughput", {CONNECTIONS: 40}, {CONNECTIONS: 20}),
        ),
    ),
    "queue-clients": (
        Published("001, 6", "2 clients: requests/s", 1419.2, cell("throughput", {CLIENTS: 2})),
        *_clients("001, 6", "throughput", "throughput", SECTION_6),
    ),
    "queue-one-server": (
        Published("001, 6", "50 clients: requests/s", 1096.5, cell("throughput", {CLIENTS: 50})),
        Published("001, 6", "50 clients: response time, ms", 45.59, cell("response_ms", {CLIENTS: 50})),
        Published("001, 6", "50 clients: time in the worker, ms", 0.906, cell("service_ms", {CLIENTS: 50})),
    ),
    "queue-trace": (
        Published("001, 6", "requests/s", 5897, cell("throughput")),
        Published("001, 6", "response time, ms", 16.67, cell("response_ms")),
        Published("001, 6", "time in the queue, ms", 13.32, cell("queueing_ms")),
        Published("001, 6", "time in the worker, ms", 3.33, cell("service_ms")),
    ),
    "queue-service-demands": (
        Published("001, 7", "2 clients: time in the worker, ms", 1.354, cell("service_ms", {CLIENTS: 2})),
    ),
    "queue-database-alone": (
        Published("002, 1.1.4", "level 2: knee, clients", 20, knee(NEEDED_2)),
        Published("002, 1.1.4", "level 2: largest throughput/s", 20_000, largest(NEEDED_2)),
    ),
    "queue-middleware-alone": (
        Published("002, 1.2.4", "two load hosts: largest throughput/s", 45_000, largest({"load.hosts": 2})),
        Published("002, 1.2.4", "two load hosts: clients at it", 70, at_largest(CLIENTS, {"load.hosts": 2})),
    ),
    "queue-client-alone": (
        Published("002, 1.3.3", "32 clients: requests/s", 45_000, cell("throughput", {CLIENTS: 32, CHARACTERS: 200})),
        Published(
            "002, 1.3.3",
            "32 clients: throughput, 200 characters over 2000",
            1.5,
            ratio("throughput", {CLIENTS: 32, CHARACTERS: 200}, {CLIENTS: 32, CHARACTERS: 2000}),
        ),
    ),
    "queue-stability": (
        Published("002, 3.1", "300,000 messages: requests/s", 1000, cell("throughput", {"workload.backlog": 300_000})),
        Published(
            "002, 3.1", "300,000 messages: response time, ms", 120, cell("response_ms", {"workload.backlog": 300_000})
        ),
    ),
    "queue-throughput": (
        Published("002, 3.2", "largest throughput/s", 19_500, largest()),
        Published("002, 3.2", "connections at it", 40, at_largest(CONNECTIONS)),
        Published("002, 3.2", "clients at it", 60, at_largest(CLIENTS)),
    ),
    "queue-joining-clients": (
        Published("002, 3.2", "largest throughput/s", 19_500, largest()),
        Published("002, 3.2", "clients at it", 60, at_largest(CLIENTS)),
    ),
    "queue-factorial-system": (
        Published("002, 3.5", "throughput: share of the connections", 0.834, share("throughput", CONNECTIONS)),
        Published("002, 3.5", "throughput: share of the clients", 0.071, share("throughput", CLIENTS)),
        Published("002, 3.5", "throughput: share of the middlewares", 0.011, share("throughput", HOSTS)),
        Published("002, 3.5", "response time: share of the clients", 0.776, share("response_ms", CLIENTS)),
        Published("002, 3.5", "response time: share of the connections", 0.178, share("response_ms", CONNECTIONS)),
    ),
    "kv-zipf-reads": tuple(
        _clients(
            "003, table 3",
            "response_ms",
            "response time",
            {1: 27.63, 2: 30.65, 3: 34.73, 4: 42.18, 5: 39.25, 6: 84.92},
        )
    ),
    "kv-own-keys": (
        Published("004", "1 client: requests/s of its waiting", 1200, of_one_client(1)),
        Published("004", "server: largest throughput/s", 16_000, largest()),
        Published("004", "server: knee, clients", 9, knee()),
    ),
}
"""By experiment. Sections without a printed number are missing."""


ABOUT = """# Values of seeds 001 to 004

`python -m bench.seeds` wrote this page and [its numbers](seeds.csv). The seeds had a machine for each tier. Here, all
tiers share one machine with two processors. So shares, ratios and positions are comparable, and rates are not. A
measured value is the mean with its 95 % interval (Student's t). `others` is the median share of processor time that
other programs took. [Queues](../queue-experiments.md) and [stores](../key-value-experiments.md) say why values differ.
"""


def measure(folder: Path, name: str, seconds: str | None) -> Dataset:
    """The experiment's runs. Those that the folder lacks are measured."""
    begun = list((folder / name).glob("2*"))
    flags = [f"--set=measure.seconds={seconds}"] if seconds else []
    given = ["--resume", str(begun[0])] if begun else [f"experiments/{name}.toml", f"--runs-dir={folder}", *flags]
    subprocess.run([sys.executable, "-m", "knee", "run", "--no-report", *given], check=True, cwd=ROOT)
    (run,) = (folder / name).glob("2*")
    return Dataset.open(run)


def rows_of(name: str, run: Run) -> list[dict[str, str]]:
    """A row for each published value of the experiment."""
    shares = run.findings.cpu_shares.filter(pl.col("owner") == "others")["share"]
    shape = run.dataset.spec.measure
    rows = []
    for each in PUBLISHED[name]:
        measured = each.measured(run)
        half = measured.half_width
        rows.append(
            {
                "experiment": name,
                "section": each.section,
                "value": each.what,
                "published": number(each.value),
                "measured": number(measured.estimate) + (f" ± {number(half, 2)}" if half is not None else ""),
                "ratio": f"{measured.estimate / each.value:.2f}",
                "runs": f"{shape.repetitions} × {shape.seconds} s",
                "others": f"{float(shares.median() or 0):.0%}",  # type: ignore[arg-type]
            }
        )
    return rows


def main(arguments: list[str]) -> None:
    """Measure what is missing, and renew the rows."""
    seconds = None
    if "--seconds" in arguments:
        at = arguments.index("--seconds")
        seconds = arguments[at + 1]
        del arguments[at : at + 2]
    folder, names = Path(arguments[0]).resolve(), arguments[1:] or list(PUBLISHED)
    table = PAGE.with_suffix(".csv")
    known = list(csv.DictReader(table.open())) if table.exists() else []
    for name in names:
        rows = rows_of(name, Run(measure(folder, name, seconds)))
        known = [row for row in known if row["experiment"] != name] + rows
        known.sort(key=lambda row: list(PUBLISHED).index(row["experiment"]))
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(known)
        columns = [":--"] * 3 + ["--:"] * (len(rows[0]) - 3)
        lines = [f"| {' | '.join(cells)} |" for cells in (rows[0], columns, *(row.values() for row in known))]
        PAGE.write_text("\n".join([ABOUT, *lines]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
