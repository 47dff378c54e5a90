"""The published tables of the first report, measured again on emulated hosts.

    python -m bench.reproduce [FOLDER] [--full]

Each experiment runs shortened: 8 s, and only the client counts of the tables. With --full it runs as its file says,
which takes 14 hours and more. FOLDER has runs from before. The program writes docs/reproductions/published.csv, and
prints it.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from knee.data import Dataset
from knee.data.observations import observations
from knee.verdict.analyse import analyse

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "reproductions" / "published.csv"
READS, WRITES = "0:1", "1:0"
SECONDS = 8

RUNS: dict[str, dict[str, object]] = {
    "baseline-one-store": {"load.clients": [6, 144]},
    "baseline-two-stores": {"load.clients": [8, 12]},
    "baseline-one-middleware": {"middleware.workers": 64, "load.clients": [24, 96]},
    "baseline-two-middlewares": {"middleware.workers": 64, "load.clients": [18, 192]},
    "throughput-for-writes": {"load.clients": [24, 96, 288]},
    "one-store-against-three": {"load.clients": [192]},
    "gets-and-multigets": {},
    "multigets-of-many-keys": {},
    "factorial-writes": {},
    "factorial-reads": {},
}
"""Overrides of each experiment when it is shortened."""


@dataclass(frozen=True)
class Published:
    """A published value: its table, its experiment, and where a run folder has it. Without a number of clients, the
    largest throughput is compared.
    """

    table: str
    what: str
    experiment: str
    where: dict[str, object]
    column: str
    value: float


def _rows(table: str, experiment: str, mix: str, clients: int, values: dict[str, float]) -> list[Published]:
    kind = "reads" if mix == READS else "writes"
    names = {"throughput": "requests/s", "response_ms": "response time, ms", "queueing_ms": "time in the queue, ms"}
    where: dict[str, object] = {"workload.set_get": mix, "clients": clients}
    return [
        Published(table, f"{kind}, {clients} clients: {names[column]}", experiment, where, column, value)
        for column, value in values.items()
    ]


TABLES = [
    *_rows("3: one store", "baseline-one-store", READS, 6, {"throughput": 2897.9}),
    *_rows("3: one store", "baseline-one-store", WRITES, 144, {"throughput": 17556.5}),
    *_rows("3: one load host", "baseline-two-stores", READS, 12, {"throughput": 5856.1}),
    *_rows("3: one load host", "baseline-two-stores", WRITES, 8, {"throughput": 5960.9}),
    *_rows(
        "4: one middleware",
        "baseline-one-middleware",
        READS,
        24,
        {"throughput": 2969.3, "response_ms": 8.083, "queueing_ms": 0.406},
    ),
    *_rows(
        "4: one middleware",
        "baseline-one-middleware",
        WRITES,
        96,
        {"throughput": 8263.5, "response_ms": 11.628, "queueing_ms": 2.74},
    ),
    *_rows(
        "5: two middlewares",
        "baseline-two-middlewares",
        READS,
        18,
        {"throughput": 2964.4, "response_ms": 6.077, "queueing_ms": 0.181},
    ),
    *_rows(
        "5: two middlewares",
        "baseline-two-middlewares",
        WRITES,
        192,
        {"throughput": 10566.4, "response_ms": 18.206, "queueing_ms": 4.557},
    ),
    *(
        Published(
            "6: writes to three stores",
            f"{workers} workers: requests/s",
            "throughput-for-writes",
            {"middleware.workers": workers},
            "throughput",
            value,
        )
        for workers, value in ((8, 3492.8), (16, 4674.3), (32, 6412.2), (64, 8161.5))
    ),
    Published(
        "5.1.1: reads from three stores",
        "192 clients: requests/s, at most",
        "one-store-against-three",
        {"workload.set_get": READS, "store.hosts": 3},
        "throughput",
        9000,
    ),
]

LINKS = {"load-0": 200, "middleware-0": 800, "store-0": 100}
"""Table 2: the rate at which each machine sends, in Mbit/s. The experiment of table 6 has all three."""

CROSSING_KEYS = 54
"""Section 5.4: with this many keys, the response times of whole and of sharded multi-gets are equal."""

EFFECTS = {
    "factorial-writes": (
        "28: effects on writes",
        {"middleware.hosts": 0.196, "store.hosts": 0.054, "middleware.workers": 0.731},
    ),
    "factorial-reads": (
        "30: effects on reads",
        {"middleware.hosts": 0.004, "store.hosts": 0.974, "middleware.workers": 0.004},
    ),
}
"""The published shares of variation in throughput."""


def measure(folder: Path, *, full: bool) -> None:
    """Run every experiment that the folder lacks."""
    for name, levels in RUNS.items():
        if (folder / name).is_dir():
            continue
        short = {"measure.seconds": SECONDS, "measure.repetitions": 3 if name in EFFECTS else 1, **levels}
        given = [] if full else [f"--set={key}={json.dumps(value)}" for key, value in short.items()]
        command = [sys.executable, "-m", "knee", "run", f"experiments/{name}.toml", "--runs-dir", str(folder), *given]
        subprocess.run([*command, "--no-report"], check=True, cwd=ROOT)


def rows(folder: Path) -> list[dict[str, str]]:
    """A row for each published value, with the measured one, the ratio and the bottleneck that Knee names."""
    found = []
    for name in RUNS:
        (run,) = (folder / name).iterdir()
        dataset = Dataset.open(run)
        table = observations(dataset)
        findings = analyse(dataset)
        limits = {
            tuple(verdict.factors.items()): " and ".join(verdict.bottleneck.names) or "cannot tell"
            for verdict in findings.verdicts
        }
        for each in TABLES:
            if each.experiment == name:
                means = (
                    table.filter(*(pl.col(key) == value for key, value in each.where.items()))
                    .group_by("clients", maintain_order=True)
                    .agg(pl.col("throughput", each.column).mean())
                )
                at = means.sort("throughput").tail(1)
                wanted = each.where
                limit = next(limits[levels] for levels in limits if all(wanted.get(k, v) == v for k, v in levels))
                found.append(_row(each.table, each.what, each.value, float(at[each.column][0]), limit))
        if name == "throughput-for-writes":
            sent = {each["host"]: each["sending_mbit"] for each in dataset.manifest["links"]}
            found += [_row("2: links", f"{host} sends, Mbit/s", mbit, sent[host], "") for host, mbit in LINKS.items()]
        if name == "multigets-of-many-keys":
            crossing = _row("24: multi-gets", "keys from which sharding pays", CROSSING_KEYS, _crossing(table), "")
            found.append(crossing)
        if name in EFFECTS:
            title, shares = EFFECTS[name]
            (effects,) = (each for each in findings.effects if each.response == "throughput")
            measured = {term.factors[0]: term.share for term in effects.analysis.terms if len(term.factors) == 1}
            found += [_row(title, factor, share, measured[factor], "") for factor, share in shares.items()]
    return found


def _crossing(table: pl.DataFrame) -> float:
    """The fewest keys from which on a sharded multi-get is not the slower one; 0 if it is always slower."""
    whole, sharded = (
        pl.col("response_ms").filter(pl.col("middleware.multiget") == how).mean() for how in ("whole", "sharded")
    )
    by_keys = table.group_by(pl.col("workload.multiget").alias("keys")).agg((sharded > whole).alias("is_slower"))
    last_slower = max(by_keys.filter("is_slower")["keys"].to_list(), default=0)
    return float(min((keys for keys in by_keys["keys"].to_list() if keys > last_slower), default=0))


def _row(table: str, what: str, published: float, measured: float, limit: str) -> dict[str, str]:
    return {
        "table": table,
        "value": what,
        "published": f"{published:.5g}",
        "measured": f"{measured:.5g}",
        "ratio": f"{measured / published:.2f}",
        "bottleneck": limit,
    }


def main() -> None:
    """Measure what is missing, compare, write and print."""
    arguments = [each for each in sys.argv[1:] if each != "--full"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments[0]) if arguments else Path(temporary)
        measure(folder, full="--full" in sys.argv)
        found = rows(folder)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(TABLE.read_text(), end="")


if __name__ == "__main__":
    main()
