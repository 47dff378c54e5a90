"""Puts the page together: verdict first, then every measurement, then where it all came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, cached_property
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import vl_convert

from knee import __version__
from knee.bottleneck import SATURATED
from knee.diagnose import Diagnosis, Verdict, confidence_line, diagnose, knee_lines
from knee.distributions import ALL, densities, merged, percentiles
from knee.intervals import Interval, mean_interval, number
from knee.report import charts
from knee.report.tables import Cell, folded, provenance, table
from knee.timeline import load_per_second, resources_per_point, resources_per_second

if TYPE_CHECKING:
    from knee.dataset import Dataset

_EXPORT = "window.vegaEmbed = vegaEmbed;"
"""What the bundled script leaves behind for page.js."""

_VIEWS = {"load": "client", "middleware": "middleware"}

_QUANTITIES = (
    ("throughput", "Throughput (requests/s)", "Throughput, as the clients saw it."),
    (
        "response_ms",
        "Response time (ms)",
        "Mean response time, as the clients saw it. Beyond the knee it grows linearly.",
    ),
    (
        "queue_length",
        "Queue length (requests)",
        "Requests waiting for a worker slot, time average over all middlewares together.",
    ),
    (
        "queueing_ms",
        "Queueing time (ms)",
        "Mean time from received to dequeued. It grows where worker slots are the limit.",
    ),
    (
        "service_ms",
        "Service time (ms)",
        "Mean time from dequeued to answered. It grows where what lies behind the middleware is the limit.",
    ),
    (
        "middleware_response_ms",
        "Response time at the middleware (ms)",
        "Mean time from received to replied. What the clients see on top of it passes between them and the middleware.",
    ),
)


def write(dataset: Dataset, path: Path) -> None:
    """Write the report of a dataset to a file.

    Raises KneeError where a table or a histogram of the dataset cannot be read, OSError where the file cannot
    be written.
    """
    path.write_text(Page(dataset, diagnose(dataset)).html(), encoding="utf-8")


class Page:
    """One report. Sections add their charts to `_charts` as they are written; the script draws them by name."""

    def __init__(self, dataset: Dataset, diagnosis: Diagnosis) -> None:
        self._dataset = dataset
        self._diagnosis = diagnosis
        self._charts: dict[str, charts.Spec] = {}

    def html(self) -> str:
        """The whole page."""
        resources = files("knee.report")
        style = (resources / "style.css").read_text(encoding="utf-8")
        script = (resources / "page.js").read_text(encoding="utf-8")
        name = escape(self._dataset.name)
        sections = [
            ("verdict", "Verdict", self._verdicts()),
            ("clients", "Against clients", self._against_clients()),
            ("laws", "Do the numbers hold together?", self._laws()),
            ("percentiles", "Response-time distribution", self._distributions()),
            ("resources", "Resources", self._resources()),
            ("timeline", "Second by second", self._timeline()),
            ("provenance", "Where the numbers come from", self._provenance()),
        ]
        present = [section for section in sections if section[2]]
        links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in present)
        body = "\n".join(self._section(key, title, content) for key, title, content in present)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="knee {escape(__version__)}">
<title>{name} · Knee</title>
<style>
{style}</style>
</head>
<body>
<header class="page">
<h1>{name}</h1>
{self._question()}
<p class="facts">{escape(self._facts())}</p>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
<noscript><p class="warnings">The charts need JavaScript. The tables below hold the same numbers.</p></noscript>
{body}
</main>
<footer>Written by knee {escape(__version__)}. Error bars are {self._level:.0%} Student's t intervals over the
repetitions, unless a caption says otherwise. Warm-up and cool-down are cut off.</footer>
<script type="application/json" id="charts">{_inline_json(self._charts)}</script>
<script>{_vega()}</script>
<script>
{script}</script>
</body>
</html>
"""

    @staticmethod
    def _section(key: str, title: str, content: str) -> str:
        heading = "" if key == "verdict" else f"<h2>{escape(title)}</h2>"
        return f'<section id="{key}" aria-label="{escape(title)}">{heading}{content}</section>'

    @cached_property
    def _level(self) -> float:
        levels = [level for verdict in self._diagnosis.verdicts for level in verdict.knee.levels]
        return levels[0].throughput.level if levels else 0.95

    @cached_property
    def _series(self) -> dict[int, str]:
        """What to call the combination of factors that a point belongs to."""
        return {point: verdict.label for verdict in self._diagnosis.verdicts for point in verdict.points}

    @cached_property
    def _labels(self) -> list[str]:
        return list(dict.fromkeys(verdict.label for verdict in self._diagnosis.verdicts))

    @cached_property
    def _series_title(self) -> str:
        """Over a legend: the other factor where there is only one, so that its entries are its levels."""
        factors = self._diagnosis.verdicts[0].factors
        return next(iter(factors)) if len(factors) == 1 else "Configuration"

    def _short(self, label: str) -> str:
        return label.removeprefix(f"{self._series_title} = ")

    @cached_property
    def _short_labels(self) -> list[str]:
        return [self._short(label) for label in self._labels]

    @cached_property
    def _clients(self) -> dict[int, int]:
        table = self._diagnosis.observations
        return dict(zip(table["point"].to_list(), table["clients"].to_list(), strict=True))

    @cached_property
    def _counts(self) -> list[int]:
        return sorted(set(self._clients.values()))

    @cached_property
    def _points(self) -> list[tuple[int, str]]:
        """Point numbers and what to call them, for the charts in which the reader chooses one."""
        named = [
            (point, f"{clients} clients" + (f", {self._series[point]}" if self._series[point] else ""))
            for point, clients in self._clients.items()
        ]
        return sorted(named, key=lambda pair: (self._series[pair[0]], self._clients[pair[0]]))

    @cached_property
    def _chosen(self) -> int:
        """The point shown first: that of the first knee."""
        for verdict in self._diagnosis.verdicts:
            for point in verdict.points:
                if verdict.knee.level and self._clients[point] == verdict.knee.level.clients:
                    return point
        return self._points[0][0] if self._points else 0

    def _figure(self, name: str, spec: charts.Spec, caption: str, *, wide: bool = False) -> str:
        self._charts[name] = spec
        text = escape(caption)
        return (
            f'<figure class="{"wide" if wide else ""}"><div class="chart" data-chart="{name}" role="img" '
            f'aria-label="{text}"></div><figcaption>{text}</figcaption></figure>'
        )

    def _question(self) -> str:
        question = self._dataset.question
        return f'<p class="question">{escape(question)}</p>' if question else ""

    def _facts(self) -> str:
        points = self._dataset.points
        done = points.filter(pl.col("status") == "done")
        if done.is_empty():
            return "No run is complete."
        first = done.sort("start_unix_s").row(0, named=True)
        parts = [
            f"{done['point'].n_unique()} points, {done.height} runs of {first['seconds']} s "
            f"({first['warmup_s']} s warm-up and {first['cooldown_s']} s cool-down cut off)"
        ]
        tiers = [("middlewares", "middleware"), ("stores", "store")]
        parts += [
            f"{first[column]} {name}{'s' if first[column] != 1 else ''}" for column, name in tiers if first[column]
        ]
        return " · ".join(parts)

    def _verdicts(self) -> str:
        warnings = self._warnings()
        if not self._diagnosis.verdicts:
            return '<p class="lead">No run is complete: there is nothing to diagnose.</p>' + warnings
        first, *others = self._diagnosis.verdicts
        if not others:
            return self._verdict(0, first) + warnings
        summary = table(
            (
                "configuration",
                "knee (clients)",
                "verdict",
                "requests/s there",
                "response ms there",
                "bottleneck",
                "confidence",
            ),
            [self._summary_row(verdict) for verdict in self._diagnosis.verdicts],
        )
        rest = "".join(
            folded(f"{verdict.label}: {verdict.knee.sentence}", self._verdict(i + 1, verdict))
            for i, verdict in enumerate(others)
        )
        return f'<div class="panel" style="margin-top:22px">{summary}</div>' + self._verdict(0, first) + rest + warnings

    def _summary_row(self, verdict: Verdict) -> Sequence[str | Interval | None]:
        knee, bottleneck = verdict.knee, verdict.bottleneck
        names = " and ".join(bottleneck.names) or bottleneck.status
        return (
            verdict.label,
            _knee_figure(verdict)[0],
            knee.status,
            knee.level.throughput if knee.level else None,
            knee.level.response_ms if knee.level else None,
            names,
            f"{knee.confidence} / {bottleneck.confidence}",
        )

    def _verdict(self, index: int, verdict: Verdict) -> str:
        knee, bottleneck = verdict.knee, verdict.bottleneck
        heading = f"<h3>{escape(verdict.label)}</h3>" if verdict.label else ""
        law = self._diagnosis.laws.sentences[0] if self._diagnosis.laws.sentences else ""
        findings = (
            _finding("Knee", knee_lines(verdict), confidence_line(knee))
            + _finding("Bottleneck", (bottleneck.sentence, *bottleneck.evidence), confidence_line(bottleneck))
            + _finding("Interactive law", [law], "")
        )
        drawing = ""
        if len(knee.levels) > 1:
            drawing = self._figure(
                f"knee-{index}",
                charts.knee_throughput(knee),
                "Measured throughput (dots, with error bars) between its two asymptotes: what clients could do "
                "if nobody "
                "waited, and what the system can do at most. They meet at the knee; the band is its interval.",
            ) + self._figure(
                f"knee-response-{index}",
                charts.knee_response(knee),
                "Response time on the same axis: flat up to the knee, then rising with every client.",
            )
        panel = f'<div class="panel">{drawing}</div>' if drawing else ""
        return f'<div class="verdict"><div>{heading}{_figures(verdict)}{findings}</div>{panel}</div>'

    def _warnings(self) -> str:
        if not self._diagnosis.warnings:
            return ""
        items = "".join(f"<li>{escape(warning)}</li>" for warning in self._diagnosis.warnings)
        return (
            f'<div class="warnings" role="note"><strong>Before you trust these numbers</strong><ul>{items}</ul></div>'
        )

    def _against_clients(self) -> str:
        observations = self._diagnosis.observations
        if observations.is_empty():
            return ""
        named = len(self._labels) > 1
        figures: list[str] = []
        for column, title, caption in _QUANTITIES:
            values = [
                {
                    "clients": clients,
                    "series": self._short(series),
                    "value": at.estimate,
                    "low": at.low,
                    "high": at.high,
                }
                for clients, series, at in self._means(column)
            ]
            if values:
                spec = charts.against_clients(
                    values,
                    title,
                    series=self._series_title if named else None,
                    choices=self._short_labels,
                    counts=self._counts,
                )
                figures.append(self._figure(f"clients-{column}", spec, caption))
        rows: list[tuple[Cell, ...]] = [
            (self._series[point], self._clients[point], *(self._mean(point, column) for column, _, _ in _QUANTITIES))
            for point, _ in self._points
        ]
        header = ("configuration", "clients", *(title for _, title, _ in _QUANTITIES))
        if not named:
            rows, header = [row[1:] for row in rows], header[1:]
        return f'<div class="grid">{"".join(figures)}</div>' + folded("The numbers", table(header, rows))

    def _mean(self, point: int, column: str) -> Interval:
        values = self._diagnosis.observations.filter(pl.col("point") == point)[column]
        return mean_interval(values.drop_nulls().to_numpy(), self._level)

    def _means(self, column: str) -> list[tuple[int, str, Interval]]:
        intervals = [
            (self._clients[point], self._series[point], self._mean(point, column)) for point, _ in self._points
        ]
        return [entry for entry in intervals if entry[2].repetitions]

    def _laws(self) -> str:
        laws = self._diagnosis.laws
        sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in laws.sentences)
        closed = [check for check in laws.interactive if check.verdict != "does not apply"]
        if not closed:
            return sentences
        figures = []
        residuals = []
        for quantity_name, unit, caption in (
            ("throughput", "requests/s", "X = N / (R + Z): every point on the diagonal obeys the law."),
            ("response_ms", "ms", "R = N / X − Z, the same law the other way round."),
        ):
            values = [
                {
                    "clients": check.clients,
                    "view": check.view,
                    "measured": getattr(check, quantity_name).measured.estimate,
                    "predicted": getattr(check, quantity_name).predicted.estimate,
                }
                for check in closed
            ]
            figures.append(self._figure(f"law-{quantity_name}", charts.law_scatter(values, unit), caption))
            short = "X" if quantity_name == "throughput" else "R"
            residuals += [
                {
                    "clients": check.clients,
                    "check": f"{short}, {check.view}",
                    "residual": getattr(check, quantity_name).residual.estimate,
                    "low": getattr(check, quantity_name).residual.low,
                    "high": getattr(check, quantity_name).residual.high,
                }
                for check in closed
            ]
        figures.append(
            self._figure(
                "law-residuals",
                charts.law_residuals(residuals, laws.tolerance, self._counts),
                f"How far the law's prediction lies from the measurement, both ways and from each view. "
                f"The band is the tolerance of ±{laws.tolerance:.0%}.",
                wide=True,
            )
        )
        rows = [
            (
                self._series.get(check.point, ""),
                check.clients,
                check.view,
                check.think_ms,
                check.throughput.measured,
                check.throughput.predicted,
                f"{check.throughput.residual.estimate:+.2%}",
                check.response_ms.measured,
                check.response_ms.predicted,
                f"{check.response_ms.residual.estimate:+.2%}",
                check.verdict,
            )
            for check in closed
        ]
        header = (
            *("configuration", "clients", "view", "think ms", "X", "X by law", "apart"),
            *("R ms", "R by law", "apart", "verdict"),
        )
        caption = (
            '<p class="facts">From the middleware\'s view a client thinks for its own think time and the round trip '
            "between client and middleware, which is the difference of their response times.</p>"
        )
        return (
            sentences
            + f'<div class="grid">{"".join(figures)}</div>{caption}'
            + folded("The numbers", table(header, rows))
        )

    def _distributions(self) -> str:
        histograms = merged(self._dataset)
        if not histograms:
            return ""
        table_of = percentiles(histograms).with_columns(
            pl.col("point").replace_strict(self._clients, return_dtype=pl.Int64).alias("clients"),
            pl.col("point").replace_strict(self._series, return_dtype=pl.String).alias("series"),
            ("p" + pl.col("percentile").cast(pl.String).str.strip_suffix(".0")).alias("name"),
        )
        seen = table_of.filter((pl.col("role") == "load") & (pl.col("op") == ALL))
        lines = seen.select("clients", "series", pl.col("name").alias("percentile"), "value_ms", "low_ms", "high_ms")
        density = densities(histograms).with_columns(pl.col("role").replace_strict(_VIEWS, return_dtype=pl.String))
        ops = sorted(density["op"].unique().to_list(), key=lambda op: (op != ALL, op))
        if len(ops) == 2:  # one operation: "all" would show the same again
            ops = ops[:1]
            density = density.filter(pl.col("op") == ALL)
        figures = self._figure(
            "percentiles",
            charts.percentile_lines(charts.rows(lines), self._counts, self._labels),
            "Percentiles as the clients saw them, read off the merged histograms; the bars span the repetitions. "
            "Mind the logarithmic axis.",
        ) + self._figure(
            "histogram",
            charts.histogram(charts.rows(density), self._points, self._chosen, ops),
            "The same requests, timed by the clients and by the middlewares. The distance between the two "
            "is the way between them.",
        )
        names = list(dict.fromkeys(seen["name"].to_list()))
        rows = []
        for point, label in self._points:
            for (role, op), group in table_of.filter(pl.col("point") == point).group_by(
                "role", "op", maintain_order=True
            ):
                rows.append((label, _VIEWS[str(role)], str(op), *group.sort("percentile")["value_ms"].to_list()))
        header = ("point", "view", "operation", *(f"{name} ms" for name in names))
        return f'<div class="grid">{figures}</div>' + folded("The numbers", table(header, rows))

    def _resources(self) -> str:
        usage = self._diagnosis.utilizations
        if usage.is_empty():
            return ""
        means = self._by_clients(
            usage.group_by("point", "repetition", "role", "resource")
            .agg(pl.col("utilization").max().alias("value"))
            .with_columns(
                (pl.col("role") + " " + pl.col("resource")).str.replace("host host", "host").alias("resource"),
            ),
            ["resource"],
        )
        figures = self._figure(
            "utilization",
            charts.utilization_lines(charts.rows(means), self._counts, SATURATED, self._labels),
            f"How busy each resource is, at the busiest process of its tier. What first crosses the dashed line "
            f"({SATURATED:.0%}) is a candidate for the bottleneck.",
        )
        shares = self._diagnosis.cpu_shares
        if not shares.is_empty():
            owners = self._by_clients(shares.rename({"share": "value"}), ["owner"]).rename({"value": "share"})
            figures += self._figure(
                "cpu-shares",
                charts.cpu_bars(charts.rows(owners), self._labels),
                "Whose CPU time it was, as a share of all the host's cores. “knee” is the lab itself, “others” "
                "are programs "
                "outside the experiment.",
            )
        candidates = [
            (verdict.label, c.name, c.process, _share(c.at_knee), _share(c.at_most), c.first_saturated)
            for verdict in self._diagnosis.verdicts
            for c in verdict.bottleneck.candidates
        ]
        header = (
            "configuration",
            "resource",
            "busiest process",
            "utilisation at the knee",
            "at most clients",
            "saturated from (clients)",
        )
        components = [
            (verdict.label, c.name, c.at_knee_ms, c.at_most_ms, c.growth_ms)
            for verdict in self._diagnosis.verdicts
            for c in verdict.bottleneck.components
        ]
        parts = (
            "configuration",
            "part of the response time",
            "at the knee (ms)",
            "at most clients (ms)",
            "growth (ms)",
        )
        if len(self._labels) < 2:
            candidates, header = [row[1:] for row in candidates], header[1:]  # type: ignore[misc, assignment]
            components, parts = [row[1:] for row in components], parts[1:]  # type: ignore[misc, assignment]
        per_point = [
            (
                dict(self._points).get(row["point"], ""),
                row["target"],
                row["cores"],
                row["rss_mb"],
                row["net_mb_per_s"],
                row["disk_mb_per_s"],
            )
            for row in resources_per_point(self._dataset).iter_rows(named=True)
        ]
        return (
            f'<div class="grid">{figures}</div>'
            + table(header, candidates)
            + (table(parts, components) if components else "")
            + folded(
                "CPU, memory, network and disk of every process and the host",
                table(("point", "target", "CPU (cores)", "memory (MB)", "network (MB/s)", "disk (MB/s)"), per_point),
            )
        )

    def _by_clients(self, frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
        """Attach each point's clients and configuration; `value` is averaged over the repetitions."""
        return (
            frame.group_by("point", *keys)
            .agg(pl.col("value").mean())
            .with_columns(
                pl.col("point").replace_strict(self._clients, return_dtype=pl.Int64).alias("clients"),
                pl.col("point").replace_strict(self._series, return_dtype=pl.String).alias("series"),
            )
            .drop("point")
            .sort("series", "clients", *keys)
        )

    def _timeline(self) -> str:
        seconds = load_per_second(self._dataset).filter(pl.col("point").is_in(list(self._clients)))
        if seconds.is_empty():
            return ""
        run = self._dataset.points.filter(pl.col("status") == "done").row(0, named=True)
        shades = [
            {"from": 0, "to": run["warmup_s"]},
            {"from": run["seconds"] - run["cooldown_s"], "to": run["seconds"]},
        ]
        values = charts.rows(seconds)
        figures = "".join(
            self._figure(
                f"timeline-{field}",
                charts.timeline(values, shades, field, title, self._points, self._chosen),
                caption,
            )
            for field, title, caption in (
                (
                    "throughput",
                    "Throughput (requests/s)",
                    "Each second of each repetition. The shaded parts are cut off; between them lines should be level.",
                ),
                ("response_ms", "Response time (ms)", "Mean response time of each second."),
            )
        )
        cores = resources_per_second(self._dataset).filter(
            (pl.col("repetition") == 1) & pl.col("point").is_in(list(self._clients))
        )
        if not cores.is_empty():
            figures += self._figure(
                "cpu-timeline",
                charts.resource_timeline(charts.rows(cores.drop("repetition")), self._points, self._chosen),
                "CPU use of the host and of every process, in the first repetition.",
                wide=True,
            )
        return f'<div class="grid">{figures}</div>'

    def _provenance(self) -> str:
        text = self._dataset.experiment_text
        return provenance(self._dataset.manifest) + (
            "" if text is None else folded("The experiment file", f"<pre>{escape(text)}</pre>")
        )


def _finding(kind: str, lines: Sequence[str], confidence: str) -> str:
    lead, *rest = [line for line in lines if line]
    more = "".join(f"<p>{escape(line)}</p>" for line in rest)
    doubt = f'<p class="doubt">{escape(confidence)}</p>' if confidence else ""
    return f'<div class="finding"><div class="kind">{kind}</div><p class="lead">{escape(lead)}</p>{more}{doubt}</div>'


def _knee_figure(verdict: Verdict) -> tuple[str, str]:
    """The knee as a figure, and its interval or what kind of bound it is."""
    knee = verdict.knee
    if knee.clients is None:
        return "–", "cannot tell"
    estimate = f"{knee.clients.estimate:,.{0 if knee.clients.estimate >= 10 else 1}f}"
    if knee.status == "not reached":
        return f"> {estimate}", "not reached"
    if knee.status == "saturated from the start":
        return f"≤ {knee.levels[0].clients}", "saturated from the start"
    if knee.status == "cannot tell":
        return f"{estimate}?", "cannot tell"
    assert knee.clients.low is not None and knee.clients.high is not None
    return estimate, f"{knee.clients.low:.1f} to {knee.clients.high:.1f}"


def _figures(verdict: Verdict) -> str:
    estimate, note = _knee_figure(verdict)
    cells = [("Knee (clients)", estimate, note)]
    if (level := verdict.knee.level) is not None:
        for name, interval, unit in (
            ("Requests/s", level.throughput, ""),
            ("Response time", level.response_ms, "ms"),
        ):
            spread = "one repetition" if interval.half_width is None else f"± {number(interval.half_width, 2)} {unit}"
            cells.append(
                (name, f"{number(interval.estimate)} {unit}".strip(), f"{spread.strip()} at {level.clients} clients")
            )
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(small)}</small></dd></div>"
        for name, value, small in cells
    )
    return f'<dl class="figures">{inner}</dl>'


def _share(interval: Interval) -> str:
    half_width = interval.half_width
    return f"{interval.estimate:.1%}" + ("" if half_width is None else f" ± {half_width:.1%}")


def _inline_json(value: object) -> str:
    """JSON in which nothing can end the script element it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def _vega() -> str:
    """The bundled script, unable to end the script element it stands in; in code, `</script` is always in a string.

    Bundling takes seconds, so a process does it once.
    """
    return vl_convert.javascript_bundle(_EXPORT).replace("</script", "<\\/script")
