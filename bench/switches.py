"""Switches of a design, off and on: what each experiment measured, beside the prediction that Knee has.

    python -m bench.switches FOLDER [EXPERIMENT…]

Each experiment runs shortened, all of them in about 14 minutes. FOLDER keeps the runs: after an interruption, the same
command continues. The program writes switches.md, switches.csv and switches.svg in docs/reproductions.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from knee.data import Dataset
from knee.data.observations import observations
from knee.data.trim import trimmed
from knee.errors import FitError
from knee.fit.demands import demands_of, with_demands
from knee.fit.layered import layered_system, setup_of
from knee.fit.links import FRAME_BYTES, HEADER_BYTES
from knee.queueing import GroupCommit, cache_hit_ratio
from knee.report.charts.clients import against_load
from knee.report.charts.vega import Axis, Spec
from knee.report.drawing import Drawing
from knee.stats.intervals import Interval, between, counted, mean_interval, number, percent, ratio_interval

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproductions" / "switches.md"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
SHORT = {"measure.seconds": 3, "measure.warmup_s": 1, "measure.cooldown_s": 0, "measure.repetitions": 3}
NBD_REQUEST_BYTES, NBD_REPLY_BYTES = 28, 16
EACH_MS = 0.004
"""The time d that each commit adds to a sync: an assumption."""


class Predictions(dict[int, float | None]):
    """By point; None for a point that the model was fitted to. `refused` says for which points Knee has none."""

    refused = ""


def no_predictions(_: Dataset, __: pl.DataFrame) -> Predictions:
    """Of a switch without a model."""
    return Predictions()


def hit_ratios(dataset: Dataset, table: pl.DataFrame) -> Predictions:
    """Che's approximation for every point with a cache, at the measured rate of reads."""
    sets, gets = map(int, dataset.constant["workload.set_get"].split(":"))
    ranks, found = np.arange(1.0, dataset.constant["workload.keys"] + 1), Predictions()
    points = table.filter(pl.col("middleware.cache_mb") > 0).group_by("point", KEYS).agg(pl.col("throughput").mean())
    for point, choice, throughput in points.iter_rows():
        reads_per_s, popularity = throughput * gets / (sets + gets), ranks ** -float(choice.removeprefix("zipf:"))
        found[point] = cache_hit_ratio(popularity, reads_per_s, 1.0, writes_per_read=sets / gets)
    return found


def commits_per_s(dataset: Dataset, table: pl.DataFrame) -> Predictions:
    """The model of group commit, with the times of one client's commits without batches or dallying."""
    factor = next(name for name in ("store.batch_max", "store.dally_us") if name in table.columns)
    first = dataset.spec.factors[factor][0]
    table = table.with_columns(pl.col(factor).cast(pl.String))
    alone = table.filter((pl.col(factor) == str(first)) & (pl.col("clients") == 1))
    stations = trimmed(dataset, "stations").filter(pl.col("commits") > 0).join(alone, on=["point", "repetition"])
    sync = float(stations["commit_sum_ns"].sum()) / float(stations["commits"].sum()) / 1e6
    think = 1000 / float(alone["throughput"].to_numpy().mean()) - sync
    found = Predictions(dict.fromkeys(alone["point"].to_list()))
    for point, clients, level in table.select("point", "clients", factor).unique().iter_rows():
        dally, most = (int(level) / 1000, None) if factor == "store.dally_us" else (0.0, level)
        limit = None if most in (None, "all") else int(most)
        model = GroupCommit(clients, think, sync - EACH_MS, EACH_MS, dally, limit)
        found.setdefault(point, 1000 * model.throughput)
    return found


def other_threads(dataset: Dataset, table: pl.DataFrame) -> Predictions:
    """The layered model, fitted to the runs with the first number of the store's threads, at every other number."""
    table, found = with_demands(dataset, table), Predictions()
    fitted = pl.col("store.threads") == dataset.spec.factors["store.threads"][0]
    for (durability,), rows in table.group_by("store.durability", maintain_order=True):
        try:
            system = layered_system(demands_of(rows.filter(fitted)), level=0.95, seed=0)
        except FitError as error:
            found.refused += f" With durability {durability} Knee refuses to predict: {error}."
            continue
        found |= dict.fromkeys(rows.filter(fitted)["point"].to_list())
        others = demands_of(rows.filter(~fitted))
        for point in np.unique(others.point):
            setup = setup_of(others, np.flatnonzero(others.point == point))
            found[int(point)] = system.forecast(setup).throughput.estimate
    return found


def sending_links(dataset: Dataset, table: pl.DataFrame) -> Predictions:
    """The Mbit/s of blocks that the slower tier's links send. A manager sends replies, and requests to the servers."""
    found = Predictions()
    for row in table.unique("point").iter_rows(named=True):
        block = row["workload.block_bytes"]
        reply = block + NBD_REPLY_BYTES + HEADER_BYTES * np.ceil((block + NBD_REPLY_BYTES) / FRAME_BYTES)
        sent = {"middleware": reply + NBD_REQUEST_BYTES + HEADER_BYTES, "store": reply}
        rates = {tier: row[f"{tier}.hosts"] * dataset.constant[f"{tier}.link_mbit"] for tier in sent}
        found[row["point"]] = float(min(rates[tier] * block / sent[tier] for tier in sent))
    return found


@dataclass(frozen=True)
class Switch:
    """An experiment.

    name         of the switch
    axis         setting on the horizontal axis
    figures      measured columns and their titles; predictions are of the first
    source       of the predictions
    overrides    that shorten the experiment
    """

    name: str
    axis: str
    figures: dict[str, str]
    source: str
    predictions: Callable[[Dataset, pl.DataFrame], Predictions]
    overrides: Mapping[str, object]


CLIENTS, KEYS, RESPONSE = "load.clients", "workload.key_choice", {"response_ms": "response time (ms)"}
THROUGHPUT = {"throughput": "throughput (requests/s)"}
NONE = ("none; Knee has no model of this switch", no_predictions)
COMMITS = (f"GroupCommit; s + d and Z are of the fitted point, and d = {EACH_MS} ms is assumed", commits_per_s)
CHE = ("Che's approximation of the hit ratio, from the measured rate; none of the response time", hit_ratios)
LAYERED = ("the layered model, fitted to the runs with one thread", other_threads)
LINKS = ("the rate of the sending links, less the headers of TCP and NBD", sending_links)
BATCHES, COMMITTED = {CLIENTS: [1, 16, 64], "middleware.batch_max": [1, 8, 65536]}, {CLIENTS: [1, 16, 64]}
DALLIES = {CLIENTS: [1, 2, 16], "store.dally_us": [0, 100, 1000], "workload.think_ms": 0}
RATES = {"store.dally_us": [0, 1000], "workload.rate": [1000, 4000, 16_000]}
SWITCHES = {
    "near-cache": Switch("middleware.cache_mb", KEYS, {"cache_hit_ratio": "hit ratio"} | RESPONSE, *CHE, {}),
    "batching": Switch("middleware.batch_max", CLIENTS, THROUGHPUT, *NONE, BATCHES),
    "kv-batching": Switch(
        "store.batch_max", CLIENTS, THROUGHPUT, *COMMITS, COMMITTED | {"store.batch_max": [1, 4, "all"]}
    ),
    "kv-dallying": Switch("store.dally_us", CLIENTS, THROUGHPUT, *COMMITS, DALLIES),
    "kv-dallying-rate": Switch("store.dally_us", "workload.rate", RESPONSE, *NONE, RATES),
    "kv-concurrency": Switch("store.threads", CLIENTS, THROUGHPUT, *LAYERED, {}),
    "space-managers": Switch("middleware.hosts", "store.hosts", {"mbit": "blocks (Mbit/s)"}, *LINKS, {CLIENTS: 16}),
}


@dataclass(frozen=True)
class Row:
    """A measured figure of a point. `predicted` is None without a prediction, and for a fitted point."""

    experiment: str
    figure: str
    levels: dict[str, str]
    measured: Interval
    predicted: float | None
    is_fitted: bool

    @property
    def setting(self) -> str:
        """The levels as text."""
        return ", ".join(f"{name} = {level}" for name, level in self.levels.items())

    @property
    def line(self) -> str:
        """Of the table."""
        half, predicted = self.measured.half_width, self.predicted
        measured = number(self.measured.estimate) + (f" ± {number(half, 2)}" if half is not None else "")
        beside = "fitted | –" if self.is_fitted else "– | –"
        if predicted is not None:
            beside = f"{number(predicted)} | {self.measured.estimate / predicted:.2f}"
        return f"| {self.setting} | {measured} | {beside} |"


def rows_of(name: str, dataset: Dataset) -> tuple[list[Row], str]:
    """A row for each figure of each point of a run folder, and why predictions are missing."""
    switch, table, found = SWITCHES[name], observations(dataset), list[Row]()
    if "workload.block_bytes" in table.columns:
        table = table.with_columns((pl.col("throughput") * pl.col("workload.block_bytes") * 8e-6).alias("mbit"))
    predictions = switch.predictions(dataset, table)
    for column, figure in switch.figures.items():
        known = predictions if column == next(iter(switch.figures)) else Predictions()
        for (key,), rows in table.drop_nulls(column).sort("point").group_by("point", maintain_order=True):
            point, levels = int(str(key)), {each: str(rows[each][0]) for each in dataset.spec.factors}
            is_fitted = known.get(point, 0.0) is None
            found.append(Row(name, figure, levels, mean_interval(rows[column].to_list()), known.get(point), is_fitted))
    return found, predictions.refused


def sentences(rows: list[Row], first: str, last: str) -> str:
    """The effect of the switch on a figure, and the errors of the predictions."""
    switch, figure, said = SWITCHES[rows[0].experiment].name, rows[0].figure, []
    at = {tuple(row.levels.items()): row.measured for row in rows}
    pairs = (
        (row.measured, at.get(tuple((row.levels | {switch: last}).items())))
        for row in rows
        if row.levels[switch] == first
    )
    ratios = sorted((ratio_interval(on, off) for off, on in pairs if on is not None), key=lambda each: each.estimate)
    if ratios:
        low, high = (
            number(each.estimate) + (f" ({between(each)})" if each.low is not None else "")
            for each in (ratios[0], ratios[-1])
        )
        said.append(f"`{switch}` = {last} in place of {first} multiplies the {figure} by {low} to {high}.")
    errors = [abs(row.predicted / row.measured.estimate - 1) for row in rows if row.predicted is not None]
    if errors:
        median, most = percent(float(np.median(errors))), percent(max(errors))
        said.append(f"The predictions of the {figure} miss by {median} in the median, and by {most} at most.")
    return " ".join(said)


def chart(rows: list[Row]) -> Spec:
    """A figure against its setting; dashed lines are predictions."""
    switch, values, bounds = SWITCHES[rows[0].experiment], [], []
    for row in rows:
        rest = [f"{name.split('.')[1]} {level}" for name, level in row.levels.items() if name != switch.axis]
        at = {"at": float(row.levels[switch.axis].removeprefix("zipf:")), "series": ", ".join(rest)}
        values.append({**at, "value": row.measured.estimate, "low": row.measured.low, "high": row.measured.high})
        if row.predicted is not None:
            bounds.append({**at, "value": row.predicted})
    choices = list(dict.fromkeys(str(each["series"]) for each in values))
    axis = Axis("at", switch.axis, sorted({float(str(each["at"])) for each in values}))
    drawn = against_load(values, rows[0].figure, series="curve", choices=choices, axis=axis, bounds=bounds or None)
    drawn["encoding"]["color"] |= {"title": None, "legend": {"orient": "right"}}
    return {"title": rows[0].experiment, "width": 300, **drawn}


def measure(folder: Path, name: str) -> Dataset:
    """The experiment's runs. Those that the folder lacks are measured."""
    flags = [f"--set={key}={json.dumps(value)}" for key, value in {**SHORT, **SWITCHES[name].overrides}.items()]
    begun = list((folder / name).glob("2*"))
    given = ["--resume", str(begun[0])] if begun else [f"experiments/{name}.toml", f"--runs-dir={folder}", *flags]
    subprocess.run([sys.executable, "-m", "knee", "run", "--no-report", *given], check=True, cwd=ROOT)
    (run,) = (folder / name).glob("2*")
    return Dataset.open(run)


def main(arguments: list[str]) -> None:
    """Measure, and write the three files."""
    folder, every, parts, charts, noise = (
        Path(arguments[0]).resolve(),
        list[Row](),
        list[str](),
        list[Spec](),
        list[bool](),
    )
    for name in arguments[1:] or SWITCHES:
        dataset = measure(folder, name)
        noise += with_demands(dataset, observations(dataset))["disturbed"].to_list()
        (rows, refused), switch = rows_of(name, dataset), SWITCHES[name]
        levels = dataset.spec.factors[switch.name]
        parts += [f"## {name}", "", f"Prediction: {switch.source}.{refused}"]
        for figure in switch.figures.values():
            own = [row for row in rows if row.figure == figure]
            parts += [sentences(own, str(levels[0]), str(levels[-1])), ""]
            parts += [
                f"| setting | {figure} | predicted | ratio |",
                "|:--|--:|--:|--:|",
                *(row.line for row in own),
                "",
            ]
            charts.append(chart(own))
            every += own
    day, shape = str(dataset.manifest["started"])[:10], dataset.spec.measure
    repetitions = counted(shape.repetitions, "repetition")
    about = f"""# Switches, measured and predicted

`python -m bench.switches` wrote this page, [its numbers](switches.csv) and the figure, from runs of {day} on one
machine: {repetitions} of {shape.seconds} s each, {shape.warmup_s} s of them to warm up.
A measured value is the mean with its 95 % interval (Student's t); a ratio is measured / predicted. Other programs or
other guests disturbed {sum(noise)} of {len(noise)} runs; none is left out of the means.

![Measured values with intervals; dashed lines are predictions](switches.svg)
"""
    PAGE.write_text("\n".join([about, *parts]).rstrip() + "\n")
    whole = {"$schema": SCHEMA, "background": "white", "config": {"aria": False}, "columns": 2, "concat": charts}
    Drawing(whole | {"resolve": {"scale": {"color": "independent"}}}).save(PAGE.with_suffix(".svg"))
    with PAGE.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["experiment", "setting", "figure", "measured", "low", "high", "predicted"])
        for row in every:
            numbers = (row.measured.estimate, row.measured.low, row.measured.high, row.predicted)
            shown = ("" if value is None else f"{value:.5g}" for value in numbers)
            writer.writerow([row.experiment, row.setting, row.figure, *shown])


if __name__ == "__main__":
    main(sys.argv[1:])
