"""Predictions of the layered model, held back and measured, on seventeen systems, beside simpler ones.

    python -m bench.predict [FOLDER]

Each run varies one or two settings. The fit sees one level of them; the model predicts the points at all others. Runs
that other programs or other guests of the machine disturbed are left out. FOLDER has runs from before; without it,
the suite is measured in about 30 minutes. The suite is in bench/predicted/.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from bench.baselines import NAMES, Seen, baselines
from knee.data import Dataset
from knee.data.observations import observations
from knee.data.trim import RUN
from knee.errors import FitError
from knee.fit.between import amount, between
from knee.fit.demands import Demands, closed, demands_of, with_demands
from knee.fit.layered import LayeredSystem, Setup, layered_system, setup_of
from knee.fit.percentiles import Simulator, quantiles_of, with_quantiles
from knee.stats.intervals import Floats

SUITE = Path(__file__).parent / "predicted"
"""Experiments; a comment `# fit: SETTING = LEVEL` names each level that the fit sees. `# between: NAME = LEVEL` names
the level that is predicted from its neighbours."""

BUSY = 0.7
"""A host is busy above this share of its cores. Below it, N / (Z + R) is nearly N / Z, which is easy to predict."""

MODEL, BOUND = "model", "bound"

NOTE = """Median errors of throughput / response time. Model, bound, USL and line see the same runs. USL is fitted over
the clients; the line goes through the two nearest levels of the factor at the same number of clients. Where the runs
have one level of the factor, both predict no change of the response time. In the columns of other levels, they see all
runs but those at the predicted level. The line then needs two levels, USL over a number of servers three."""


@dataclass(frozen=True)
class Held:
    """A held-back point: measured means, predictions, and how many of its runs the interval holds.

    `bound` and `same` are baselines: the asymptotic bound from the processor times at the lightest load, and the
    throughput that the fit measured with the same number of clients (NaN without such runs). `others` are those of
    :mod:`bench.baselines`. `levels` is the number of levels that the fit saw.
    """

    system: str
    setup: Setup
    throughput: float
    response_ms: float
    predicted: float
    predicted_ms: float
    low: float
    high: float
    held: int
    runs: int
    busy: bool
    bound: float
    same: float
    p99_ms: float
    predicted_p99_ms: float
    held_p99: int
    levels: int
    others: dict[str, float]

    @property
    def errors(self) -> tuple[float, float, float, float, float]:
        """Relative errors of throughput, response time, the two baselines, and the quantile of 99 %."""
        return (
            self.predicted / self.throughput - 1,
            self.predicted_ms / self.response_ms - 1,
            self.bound / self.throughput - 1,
            self.same / self.throughput - 1,
            self.predicted_p99_ms / self.p99_ms - 1,
        )


def measured(folder: Path) -> None:
    """Run every experiment of the suite."""
    for file in sorted(SUITE.glob("*.toml")):
        subprocess.run(
            [sys.executable, "-m", "knee", "run", str(file), "--no-report", "--runs-dir", str(folder)], check=True
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """The system from the runs that the fit sees, all others with their quantiles, and the runs for the baselines."""

    system: LayeredSystem
    others: Demands
    quantiles: Floats
    seen: Seen
    every: Seen


def parts(folder: Path, file: Path) -> Parts:
    """The runs of a system of the suite."""
    (run,) = (folder / tomllib.loads(file.read_text())["experiment"]["name"]).iterdir()
    dataset = Dataset.open(run)
    table = with_quantiles(dataset, with_demands(dataset, observations(dataset)))
    table = table.filter(~pl.col("disturbed"))
    seen, hidden, names = pl.lit(True), None, []
    for line in file.read_text().splitlines():
        kind, _, rest = line.removeprefix("# ").partition(": ")
        if line.startswith("# ") and kind in ("fit", "between"):
            name, level = rest.split(" = ")
            names.append(name)
            setting = dataset.points.select(*RUN, dataset.setting(name).cast(pl.String).alias(f"_{name}"))
            table = table.join(setting, on=RUN, maintain_order="left")
            if kind == "fit":
                seen &= pl.col(f"_{name}") == level
            else:
                seen, hidden = pl.col(f"_{name}") != level, (name, level)
    others = table.filter(~seen)
    runs = (demands_of(others), quantiles_of(others), seen_by(table.filter(seen), names), seen_by(table, names))
    if hidden is None:
        return Parts(fitted(table.filter(seen)), *runs)
    name, level = hidden
    wanted, levels = placed(dataset, name, level)
    low = max(each for each in levels if each < wanted)
    high = min(each for each in levels if each > wanted)
    first, second = (fitted(table.filter(pl.col(f"_{name}") == str(levels[each]))) for each in (low, high))
    return Parts(between(first, second, (wanted - low) / (high - low)), *runs)


def seen_by(table: pl.DataFrame, names: list[str]) -> Seen:
    """The runs of a table for the baselines."""
    rows = closed(table)
    each = [[amount(name, level) for level in rows[f"_{name}"]] for name in names]
    numbers = [
        rows[f"_{name}"].cast(pl.Float64).to_list() if None in found else found
        for name, found in zip(names, each, strict=True)
    ]
    customers = (rows["clients"] * rows["pipeline"]).cast(pl.Float64).to_numpy()
    return Seen(
        tuple(names),
        rows["point"].to_numpy(),
        customers,
        rows["think_ms"].to_numpy(),
        np.array(numbers).T,
        rows["throughput"].to_numpy(),
    )


def fitted(rows: pl.DataFrame) -> LayeredSystem:
    """The model of some runs."""
    return layered_system(demands_of(rows), level=0.95, seed=0, quantiles=quantiles_of(rows))


def placed(dataset: Dataset, name: str, level: str) -> tuple[float, dict[float, object]]:
    """The amount of a level, and the other levels by their amounts."""
    found = {amount(name, each): each for each in dataset.spec.factors[name]}
    (own,) = (key for key, each in found.items() if str(each) == level)
    assert own is not None
    return own, {key: each for key, each in found.items() if key is not None and key != own}


def held_back(name: str, part: Parts) -> Iterator[Held]:
    """Every point that the fit did not see."""
    system, others, quantiles = part.system, part.others, part.quantiles
    fit, simulator = system.data, Simulator(rounds=50_000, replications=4)
    light = fit.throughput == fit.throughput.min()
    least = float((fit.response - fit.waiting)[light].mean())
    for point in np.unique(others.point):
        rows = np.flatnonzero(others.point == point)
        setup = setup_of(others, rows)
        found = simulator(system, system.forecast(setup))
        p99, interval = quantiles[rows, -1], found.quantiles_ms[0.99]
        x = 1000 * others.throughput[rows]
        low, high = found.throughput.low or 0.0, found.throughput.high or np.inf
        same = fit.throughput[fit.customers == setup.customers]
        yield Held(
            name,
            setup,
            float(x.mean()),
            float(others.response[rows].mean()),
            found.throughput.estimate,
            found.response_ms.estimate,
            low,
            high,
            int(((x >= low) & (x <= high)).sum()),
            len(rows),
            bool((others.throughput[rows] * others.cpu[rows].sum(axis=1)).mean() > BUSY * others.cores),
            1000
            * min(setup.customers / (setup.think_ms + least), setup.cores / float(fit.cpu[light].mean(axis=0).sum())),
            1000 * float(same.mean()) if same.size else float("nan"),
            float(p99.mean()),
            interval.estimate,
            int(((p99 >= (interval.low or 0.0)) & (p99 <= (interval.high or np.inf))).sum()),
            len(np.unique(part.seen.levels, axis=0)),
            baselines(
                part.seen,
                part.every,
                setup.customers,
                setup.think_ms,
                part.every.levels[part.every.point == point][0],
            ),
        )


def line(name: str, rows: list[Held]) -> str:
    """A row of the table: medians of absolute errors, the worst, and the share of runs within the intervals."""
    x, r, bound, same, p99 = np.abs(np.array([row.errors for row in rows])).T
    held, runs = sum(row.held for row in rows), sum(row.runs for row in rows)
    held_p99 = sum(row.held_p99 for row in rows)
    return (
        f"| {name} | {len(rows)} | {np.median(x):.1%} | {x.max():.0%} | {np.median(r):.0%} | {r.max():.0%} "
        f"| {held} of {runs} | {np.median(bound):.0%} | {np.nanmedian(same):.0%} "
        f"| {np.median(p99):.0%} | {p99.max():.0%} | {held_p99} of {runs} |"
    )


def errors_beside(rows: list[Held], predict: str) -> str:
    """Median absolute errors of X and R of a baseline, or of the model, over the points that it predicts. A throughput
    gives a response time by the interactive law."""
    found = []
    for row in rows:
        x = row.predicted if predict == MODEL else row.bound if predict == BOUND else row.others[predict]
        r = 1000 * row.setup.customers / x - row.setup.think_ms
        found.append((x / row.throughput - 1, r / row.response_ms - 1))
    errors = np.abs(np.array(found)).reshape(-1, 2)
    errors = errors[~np.isnan(errors[:, 0])]
    if not errors.size:
        return "–"
    x, r = np.median(errors, axis=0)
    return f"{x:.1%} / {r:.0%}" + (f" of {len(errors)}" if len(errors) < len(rows) else "")


def beside(every: list[Held]) -> Iterator[str]:
    """The table of the model and the baselines, by system."""
    columns = (MODEL, BOUND, *NAMES)
    yield "| system | points | levels seen | " + " | ".join(columns) + " |"
    yield "|:--|" + "--:|" * (2 + len(columns))
    for name in dict.fromkeys(row.system for row in every):
        rows = [row for row in every if row.system == name]
        levels = f"{rows[0].levels}: no change" if rows[0].levels == 1 else str(rows[0].levels)
        yield f"| {name} | {len(rows)} | {levels} | " + " | ".join(errors_beside(rows, each) for each in columns) + " |"
    for name, rows in (("all", every), (f"host above {BUSY:.0%}", [row for row in every if row.busy])):
        yield f"| {name} | {len(rows)} | | " + " | ".join(errors_beside(rows, each) for each in columns) + " |"


def main(arguments: list[str]) -> None:
    """Print a table of errors by system."""
    folder = Path(arguments[0]) if arguments else Path(tempfile.mkdtemp())
    if not arguments:
        measured(folder)
    every: list[Held] = []
    refused: list[str] = []
    print(
        "| system | points | X median | worst | R median | worst | runs held | X: bound | X: as measured "
        "| p99 median | worst | runs held |"
    )
    print("|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for file in sorted(SUITE.glob("*.toml")):
        try:
            rows = list(held_back(file.stem, parts(folder, file)))
        except FitError as error:
            refused.append(f"{file.stem}: refused: {error}")
            continue
        print(line(file.stem, rows), flush=True)
        every += rows
    print(line("all", every))
    print(line(f"host above {BUSY:.0%}", [row for row in every if row.busy]))
    print(*refused, f"\n{NOTE}\n", *beside(every), sep="\n")
    with (folder / "predicted.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        head = ("system", "clients", "think_ms", "slots", "processes", "threads")
        writer.writerow([*head, "measured", "predicted", "low", "high", BOUND, *NAMES])
        for row in every:
            setup = row.setup
            counts = (" ".join(map(str, each)) for each in (setup.processes, setup.threads))
            each = (row.throughput, row.predicted, row.low, row.high, row.bound, *row.others.values())
            values = ("" if np.isnan(value) else round(value) for value in each)
            load = (f"{setup.customers:g}", f"{setup.think_ms:.2f}", setup.slots or "")
            writer.writerow([row.system, *load, *counts, *values])
    print(f"Runs and every point: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
