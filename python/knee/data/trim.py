"""Trims warm-up and cool-down, and tests whether the rest is in a steady state.

The run folder keeps all windows, so a run can be trimmed again without a new measurement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from knee.data.once import once
from knee.stats.mser5 import mser5

if TYPE_CHECKING:
    from knee.data import Dataset

RUN = ["point", "repetition"]
"""The key of a measured run."""

RELEVANT_BIAS = 0.01
"""MSER-5 suggests a longer warm-up only if it changes the mean by more than this share.

On pure noise MSER cuts a batch or two in about one run of six; these cuts hardly change the mean.
"""

COVERED_S = pl.max_horizontal(pl.lit(1.0), pl.col("seconds").round())
"""Whole seconds that a window covers: one, or several if the process lacked CPU time."""

NS_PER_MS = 1e6

TIMED = pl.col("count").filter(pl.col("response_sum_ns").is_not_null()).sum()
"""Requests with a response time; an operation that always failed may have none."""

RESPONSE_NS = pl.when(TIMED > 0).then(pl.col("response_sum_ns").sum() / TIMED)
"""Mean response time of windows in ns; null without timed requests."""

Steadiness = Literal["steady", "longer warm-up", "no steady state", "cannot tell"]


def trim(frame: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Rows of finished runs whose seconds lie wholly between warm-up and cool-down.

    Parameters
    ----------
    frame
        Any table with `point`, `repetition`, `elapsed_s` and `seconds` (windows, stations, probes).
    points
        The runs, with `status`, `seconds`, `warmup_s` and `cooldown_s`.
    """
    bounds = points.filter(pl.col("status") == "done").select(
        *RUN, pl.col("warmup_s").alias("_from_s"), (pl.col("seconds") - pl.col("cooldown_s")).alias("_until_s")
    )
    return (
        frame.join(bounds, on=RUN, how="inner")
        .filter((pl.col("elapsed_s") >= pl.col("_from_s")) & (pl.col("elapsed_s") + COVERED_S <= pl.col("_until_s")))
        .drop("_from_s", "_until_s")
    )


@once
def trimmed(dataset: Dataset, table: str) -> pl.DataFrame:
    """The trimmed windows, stations or probes of a dataset (:func:`trim`)."""
    return trim(getattr(dataset, table), dataset.points)


@once
def steadiness(dataset: Dataset) -> pl.DataFrame:
    """The :func:`steady_state` of a dataset's runs."""
    return steady_state(dataset.windows, dataset.points)


def steady_state(windows: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """MSER-5 on the clients' throughput and mean response time in every finished run.

    The series begins at the start of the run, so that it contains the warm-up, and ends at the cool-down.

    Returns
    -------
    One row per run and series: `point, repetition, series, windows, suggested_s, warmup_s, bias, verdict`.
    `bias` is the relative difference of the mean after the declared warm-up to the mean after the suggested one.
    """
    per_second = (
        windows.filter((pl.col("role") == "load") & (pl.col("elapsed_s") >= 0) & (pl.col("seconds") > 0))
        .group_by(*RUN, "elapsed_s")
        .agg((pl.col("count") / pl.col("seconds")).sum().alias("rate"), RESPONSE_NS.alias("response_ns"))
        .sort(*RUN, "elapsed_s")
    )
    rows: list[dict[str, object]] = []
    for run in points.filter(pl.col("status") == "done").sort(RUN).iter_rows(named=True):
        seconds = per_second.filter(
            (pl.col("point") == run["point"])
            & (pl.col("repetition") == run["repetition"])
            & (pl.col("elapsed_s") + 1 <= run["seconds"] - run["cooldown_s"])
        )
        for name, series in (
            ("throughput", seconds["rate"].to_numpy()),
            ("response time", seconds["response_ns"].drop_nulls().to_numpy()),
        ):
            rows.append(
                {"point": run["point"], "repetition": run["repetition"], "series": name}
                | _judge(series, int(run["warmup_s"]))
            )
    return pl.DataFrame(
        rows,
        schema={
            "point": pl.Int64(),
            "repetition": pl.Int64(),
            "series": pl.String(),
            "windows": pl.Int64(),
            "suggested_s": pl.Int64(),
            "warmup_s": pl.Int64(),
            "bias": pl.Float64(),
            "verdict": pl.String(),
        },
    )


def _judge(series: npt.NDArray[np.float64], warmup_s: int) -> dict[str, object]:
    truncation = mser5(series)
    row: dict[str, object] = {
        "windows": truncation.length,
        "suggested_s": truncation.windows,
        "warmup_s": warmup_s,
        "bias": None,
    }
    verdict: Steadiness = "steady"
    if truncation.windows is None:
        verdict = "cannot tell"
    elif truncation.windows > warmup_s:
        bias = float(series[warmup_s:].mean() / series[truncation.windows :].mean() - 1)
        row["bias"] = bias
        if math.isfinite(bias) and abs(bias) > RELEVANT_BIAS:
            verdict = "no steady state" if truncation.boundary else "longer warm-up"
    return row | {"verdict": verdict}
