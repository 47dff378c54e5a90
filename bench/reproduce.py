"""The published values of the seeds, beside what this machine measures.

    python -m bench.reproduce FOLDER [EXPERIMENT…]
    python -m bench.reproduce --short

The points that have a published value are measured, with the length and the repetitions of the experiment's file.
FOLDER keeps the runs: after an interruption, the same command continues. The program renews the rows of the named
experiments in docs/reproductions/published.csv, the table of published.md and the picture of all ratios. It writes the
means of each measured point to points/EXPERIMENT.csv. For the first report, it also writes the fitted queueing model
beside the middlewares' queues to points/EXPERIMENT-model.csv. Any experiment of the folder experiments/ may be named.
With --short it measures each point of the first report for 8 s, once (three times for the factorial designs), and only
prints.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from bench.published import CLIENTS, POINTS, PUBLISHED, SEED_000, Run
from bench.shapes import judged
from knee.data import Dataset
from knee.report.drawing import Drawing
from knee.stats.intervals import mean_interval, number

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproductions" / "published.md"
TABLE = PAGE.with_suffix(".csv")
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"

Row = dict[str, str]


def measure(folder: Path, name: str, *, short: bool) -> Dataset:
    """The experiment's runs. Those that the folder lacks are measured."""
    levels = dict(POINTS.get(name, {}))
    if short:
        levels |= {"measure.seconds": 8, "measure.repetitions": 3 if name.startswith("factorial") else 1}
    begun = list((folder / name).glob("2*"))
    if any(Dataset.open(run).spec.overrides != levels for run in begun) or len(begun) > 1:
        raise SystemExit(f"{folder / name}: it has runs of other points; give another FOLDER")
    given = [f"experiments/{name}.toml", f"--runs-dir={folder}"]
    given += [f"--set={key}={json.dumps(level)}" for key, level in levels.items()]
    given = ["--resume", str(begun[0])] if begun else given
    subprocess.run([sys.executable, "-m", "knee", "run", "--no-report", *given], check=True, cwd=ROOT)
    (run,) = (folder / name).glob("2*")
    return Dataset.open(run)


def rows_of(name: str, run: Run) -> list[Row]:
    """A row for each published value of the experiment."""
    shares = run.findings.cpu_shares.filter(pl.col("owner") == "others")["share"]
    shape = run.dataset.spec.measure
    rows = []
    for each in PUBLISHED.get(name, ()):
        measured = each.measured(run)
        half = measured.half_width
        rows.append(
            {
                "seed, place": each.place,
                "experiment": name,
                "value": each.what,
                "published": f"{each.value:.6g}",
                "measured": number(measured.estimate) + (f" ± {number(half, 2)}" if half is not None else ""),
                "ratio": f"{measured.estimate / each.value:.2f}",
                "bottleneck": "–" if each.levels is None else run.bottleneck(each.levels),
                "runs": f"{shape.repetitions} × {shape.seconds} s",
                "others": f"{float(shares.median() or 0):.0%}",  # type: ignore[arg-type]
            }
        )
    return rows


def write_points(name: str, run: Run) -> None:
    """Write the mean throughput and response time of each point, with half the width of their 95 % intervals.

    For seed 000, a second file has X (requests/s), ρ, E[n], E[n_q], E[r] and E[w] (ms) of model and measurement, as in
    its tables 13 to 24.
    """
    factors = run.dataset.factors
    points = []
    for _, rows in run.table.sort("point", "repetition").group_by("point", maintain_order=True):
        point: dict[str, object] = {factor: rows[factor][0] for factor in factors} or {CLIENTS: rows[CLIENTS][0]}
        for column in ("throughput", "response_ms"):
            mean = mean_interval(rows[column].to_list())
            half = "" if mean.half_width is None else f"{mean.half_width:.2g}"
            point |= {column: f"{mean.estimate:.5g}", f"{column}_half": half}
        points.append(point | {"repetitions": rows.height, "observed_s": rows["observed_s"][0]})
    pl.DataFrame(points).write_csv(PAGE.parent / "points" / f"{name}.csv")
    path = PAGE.parent / "points" / f"{name}-model.csv"
    path.unlink(missing_ok=True)
    if name in SEED_000 and run.findings.beside:
        model = [
            {"configuration": each.label, "model": each.name, "clients": each.clients}
            | {f"model {quantity}": f"{value:.4g}" for quantity, value in each.model.items()}
            | {f"measured {quantity}": f"{mean.estimate:.4g}" for quantity, mean in each.measured.items()}
            for each in run.findings.beside
        ]
        pl.DataFrame(model).write_csv(path)


def lines_of(rows: list[Row], align: str) -> str:
    """The rows as a table in Markdown. `align` has l or r for each column."""
    head = [list(rows[0]), [{"l": ":--", "r": "--:"}[side] for side in align]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [*head, *(row.values() for row in rows)])


def by_seed(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["seed, place"][:3], []).append(row)
    return found


def agreement(rows: list[Row]) -> str:
    """How many values of each report come out, as a table in Markdown."""
    lines = []
    for seed, of in by_seed(rows).items():
        each = [round(abs(float(row["ratio"]) - 1), 2) for row in of]
        near = {f"within {most} %": str(sum(value <= most / 100 for value in each)) for most in (5, 20)}
        lines.append({"seed": seed, "values": str(len(each)), **near})
    return lines_of(lines, "lrrr")


def agreement_of_shapes(rows: list[Row]) -> str:
    """How many statements of each report hold, as a table in Markdown."""
    lines = []
    for seed, of in by_seed(rows).items():
        found = [row["shape"] for row in of]
        counts = {outcome: str(found.count(outcome)) for outcome in ("same", "different", "cannot tell")}
        lines.append({"seed": seed, "statements": str(len(found)), **counts})
    return lines_of(lines, "lrrrr")


def picture(rows: list[Row]) -> Drawing:
    """Each ratio as a point, with a band of 20 %. A ratio of 0 has none."""
    values = [
        {
            "value": f"{row['experiment']}: {row['value']}",
            "ratio": float(row["ratio"]),
            "seed": row["seed, place"].partition(",")[0],
            "low": 0.8,
            "high": 1.2,
        }
        for row in rows
        if float(row["ratio"]) > 0
    ]
    x = {"type": "quantitative", "scale": {"type": "log"}, "title": "measured / published", "axis": {"orient": "top"}}
    y = {"field": "value", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 600}}
    band = {
        "mark": {"type": "bar", "color": "#eeeeee"},
        "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}},
    }
    points = {
        "mark": {"type": "point", "filled": True, "size": 60},
        "encoding": {"x": x | {"field": "ratio"}, "color": {"field": "seed", "type": "nominal"}},
    }
    return Drawing(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "background": "white",
            "data": {"values": values},
            "width": 420,
            "encoding": {"y": y},
            "layer": [band, points],
        }
    )


def write(rows: list[Row]) -> None:
    """Renew the rows of their experiments in the table and the page, and the picture."""
    renewed = {row["experiment"] for row in rows}
    rows = [row for row in csv.DictReader(TABLE.open()) if row["experiment"] not in renewed] + rows
    rows.sort(key=lambda row: list(PUBLISHED).index(row["experiment"]))
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    picture(rows).save(PAGE.with_suffix(".svg"))
    shapes = judged(PAGE.parent / "points")
    tables = (agreement(rows), agreement_of_shapes(shapes), lines_of(rows, "lllrrrlrr"), lines_of(shapes, "lllrl"))
    above, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(above + BEGIN + "\n".join(tables) + "\n" + END + rest.partition(END)[2])


def main(arguments: list[str]) -> None:
    """Measure what is missing, then write or print the rows."""
    if arguments == ["--short"]:
        with tempfile.TemporaryDirectory() as folder:
            each = (rows_of(name, Run(measure(Path(folder), name, short=True))) for name in SEED_000)
            rows = [row for rows in each for row in rows]
        print(agreement(rows) + "\n" + lines_of(rows, "lllrrrlrr"), end="")
        return
    folder, *names = arguments
    for name in names or PUBLISHED:
        run = Run(measure(Path(folder).resolve(), name, short=False))
        write_points(name, run)
        write(rows_of(name, run))


if __name__ == "__main__":
    main(sys.argv[1:])
