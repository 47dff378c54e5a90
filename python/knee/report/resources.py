"""Utilisation of every resource, and CPU time by owner."""

from __future__ import annotations

import polars as pl

from knee.data.utilization import SATURATED
from knee.report.charts.resources import cpu_bars, utilization_lines
from knee.report.charts.vega import rows as records
from knee.report.sheet import Sheet
from knee.report.tables import Cell, columns, folded, grid, table
from knee.stats.intervals import Interval


def section(sheet: Sheet) -> str:
    """Utilisation against the load, the candidates for the bottleneck, and the use of resources by every process."""
    return "".join(_of_part(part) for part in sheet.parts)


def _of_part(sheet: Sheet) -> str:
    points = pl.col("point").is_in(list(sheet.naming.load))
    usage = sheet.findings.utilizations.filter(points)
    if usage.is_empty():
        return ""
    named = (
        pl.when(resource="host CPU")
        .then(pl.col("process") + " CPU")
        .otherwise(pl.col("role") + " " + pl.col("resource"))
        .str.replace(r" (station|generator|software)$", "")
    )
    means = _by_load(
        sheet,
        usage.with_columns(named.alias("resource"))
        .group_by("point", "repetition", "resource")
        .agg(pl.col("utilization").max().alias("value")),
        ["resource"],
    )
    busiest = ", at the busiest process of its tier" if sheet.findings.details else ""
    figures = sheet.figure(
        "utilization" if "utilization" not in sheet.charts else f"utilization-{sheet.axis.field}",
        utilization_lines(records(means), sheet.axis, SATURATED, sheet.naming.labels),
        f"Utilisation of each resource{busiest}. The resource that first crosses the dashed line ({SATURATED:.0%}) is "
        "a candidate for the bottleneck.",
        place="open",
    )
    shares = sheet.findings.cpu_shares.filter(points)
    if not shares.is_empty():
        of_all = shares.group_by("point", "repetition", "owner").agg(pl.col("share_of_all").sum().alias("value"))
        owners = _by_load(sheet, of_all, ["owner"]).rename({"value": "share"})
        figures += sheet.figure(
            "cpu-shares",
            cpu_bars(records(owners), sheet.axis, sheet.naming.labels),
            "CPU time by owner, as a share of all cores. “knee” is this program; “others” are programs outside the "
            "experiment.",
        )
    return grid(figures) + _candidates(sheet) + _components(sheet) + _per_point(sheet)


def _candidates(sheet: Sheet) -> str:
    """Utilisation at the largest client count, and at the knee if it lies below that count."""
    over = len(sheet.naming.counts) > 1 and not sheet.naming.open_loop
    verdicts = sheet.naming.verdicts
    kneed = [one for one in verdicts if one.bottleneck.at_knee_clients not in (None, one.bottleneck.to_clients)]
    rows = [(verdict, candidate) for verdict in verdicts for candidate in verdict.bottleneck.candidates]
    columns: dict[str, list[Cell]] = {
        "configuration": [verdict.label for verdict, _ in rows],
        "resource": [found.name for _, found in rows],
        "busiest process": [found.process for _, found in rows],
    }
    if over and kneed:
        columns["utilisation at the knee"] = [
            _share(found.at_knee) if verdict in kneed else None for verdict, found in rows
        ]
    columns["utilisation at the largest client count" if over else "utilisation"] = [
        _share(found.at_most) for _, found in rows
    ]
    if over:
        columns[f"{SATURATED:.0%} busy from (clients)"] = [found.first_saturated for _, found in rows]
    return sheet.of_configurations(tuple(columns), list(zip(*columns.values(), strict=True)))


def _components(sheet: Sheet) -> str:
    header, rows = columns(
        [
            {
                "configuration": verdict.label,
                "part of the response time": part.name,
                "clients": verdict.bottleneck.from_clients,
                "ms at these clients": part.from_ms,
                "most clients": verdict.bottleneck.to_clients,
                "ms at most clients": part.to_ms,
                "growth (ms)": part.growth_ms,
            }
            for verdict in sheet.naming.verdicts
            for part in verdict.bottleneck.components
        ]
    )
    return sheet.of_configurations(header, rows) if rows else ""


def _per_point(sheet: Sheet) -> str:
    if sheet.findings.details is None:
        return ""
    names = dict(sheet.naming.points)
    columns = ("target", "cores", "rss_mb", "net_mb_per_s", "disk_mb_per_s")
    rows = [
        (names.get(row["point"], ""), *(row[column] for column in columns))
        for row in sheet.findings.details.resources.iter_rows(named=True)
    ]
    header = ("point", "target", "CPU (cores)", "memory (MB)", "network (MB/s)", "disk (MB/s)")
    return folded("CPU, memory, network and disk of every process and the host", table(header, rows))


def _by_load(sheet: Sheet, frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The frame with the load and the line of each point, and the mean `value` of its repetitions."""
    return (
        frame.group_by("point", *keys)
        .agg(pl.col("value").mean())
        .with_columns(
            pl.col("point").replace_strict(sheet.naming.load, return_dtype=pl.Float64).alias(sheet.axis.field),
            pl.col("point").replace_strict(sheet.naming.series, return_dtype=pl.String).alias("series"),
        )
        .drop("point")
        .sort("series", sheet.axis.field, *keys)
    )


def _share(interval: Interval) -> str:
    half_width = interval.half_width
    return f"{interval.estimate:.1%}" + ("" if half_width is None else f" ± {half_width:.1%}")
