"""Time series with one row a second, including warm-up and cool-down, and mean resource use of each point without them.
`middle_s` is the middle of a second. Seconds before the start and after the end of the load are excluded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import NS_PER_MS, RESPONSE_NS, RUN, trimmed
from knee.verdict.outcomes import OPERATION

if TYPE_CHECKING:
    from knee.data import Dataset

_LOG_SECONDS_MIN = 20
"""Shortest run, in seconds, that shows whether its log grows."""

_LOG_GROWS = 0.05
"""Least relative growth of a log. A log frees one segment at a time, so its size varies by less than this without
growth."""

_MIDDLE = (pl.col("elapsed_s") + 0.5).alias("middle_s")


def load_per_second(dataset: Dataset) -> pl.DataFrame:
    """The clients' view: `point, repetition, middle_s, throughput, response_ms`, over all load hosts. A second without
    an answer has a throughput of 0. `response_ms` is null in a second without a timed answer.
    """
    return (
        _of_load(dataset)
        .group_by(*RUN, "elapsed_s")
        .agg(
            (pl.col("count") / pl.col("seconds")).sum().alias("throughput"),
            (RESPONSE_NS / NS_PER_MS).alias("response_ms"),
        )
        .select(*RUN, _MIDDLE, "throughput", "response_ms")
        .sort(*RUN, "middle_s")
    )


def operations_per_second(dataset: Dataset) -> pl.DataFrame:
    """The clients' view of every operation: `point, repetition, middle_s, op, response_ms`, over all load hosts.

    Reads are one operation, whatever their outcome. `response_ms` is null in a second without a timed answer, for each
    operation that the run timed at all.
    """
    load = _of_load(dataset)
    timed = (
        load.group_by(*RUN, "elapsed_s", OPERATION)
        .agg((RESPONSE_NS / NS_PER_MS).alias("response_ms"))
        .drop_nulls(["op", "response_ms"])
    )
    return (
        load.select(*RUN, "elapsed_s")
        .unique()
        .join(timed.select(*RUN, "op").unique(), on=RUN)
        .join(timed, on=[*RUN, "elapsed_s", "op"], how="left")
        .select(*RUN, _MIDDLE, "op", "response_ms")
        .sort(*RUN, "middle_s", "op")
    )


def resources_per_second(dataset: Dataset) -> pl.DataFrame:
    """The probes' view: `point, repetition, middle_s, target, cores`, CPU seconds used per second."""
    return _within_run(dataset.probes, dataset.points).select(
        *RUN,
        _MIDDLE,
        _target(dataset),
        ((pl.col("cpu_user_s") + pl.col("cpu_system_s")) / pl.col("seconds")).alias("cores"),
    )


def store_per_second(dataset: Dataset) -> pl.DataFrame:
    """Reports of versioned stores, all stores of a run together.

    Returns
    -------
    `point, repetition, middle_s, file_mb, live_mb, versions, snapshot_age_s, commit_ms, commit_records`:
    `snapshot_age_s` is the age of the oldest open snapshot. `commit_ms` and `commit_records` are means over the commits
    of the second, null without one.
    """
    commits = pl.when(pl.col("commits").sum() > 0)
    return (
        _within_run(dataset.stations, dataset.points)
        .filter((pl.col("role") == "store") & pl.col("versions").is_not_null())
        .group_by(*RUN, "elapsed_s")
        .agg(
            (pl.col("file_bytes").sum() / 1e6).alias("file_mb"),
            (pl.col("file_live_bytes").sum() / 1e6).alias("live_mb"),
            pl.col("versions").sum(),
            pl.col("snapshot_age_s").max(),
            commits.then(pl.col("commit_sum_ns").sum() / pl.col("commits").sum() / NS_PER_MS).alias("commit_ms"),
            commits.then(pl.col("commit_records").sum() / pl.col("commits").sum()).alias("commit_records"),
        )
        .select(*RUN, _MIDDLE, "file_mb", "live_mb", "versions", "snapshot_age_s", "commit_ms", "commit_records")
        .sort(*RUN, "middle_s")
    )


@dataclass(frozen=True)
class LogGrowth:
    """Size of a run's log in its second half, in MB: from `low_mb` to `high_mb`, with `live_mb` of live data.
    `before_mb` is the largest size in the first half.
    """

    low_mb: float
    high_mb: float
    before_mb: float
    live_mb: float

    @property
    def grows(self) -> bool:
        """Whether the log is clearly larger in the second half than in the first."""
        return self.high_mb > (1 + _LOG_GROWS) * self.before_mb


def log_growth(stores: pl.DataFrame) -> LogGrowth | None:
    """Whether a log still grows; None for a store in memory or a short run.

    `stores` are one run's rows of :func:`store_per_second`.
    """
    taken = stores.drop_nulls("file_mb").filter(pl.col("file_mb") > 0).sort("middle_s")
    if taken.height < _LOG_SECONDS_MIN:
        return None
    first, second = taken[: taken.height // 2], taken[taken.height // 2 :]
    low, high, before = second["file_mb"].min(), second["file_mb"].max(), first["file_mb"].max()
    live = second["live_mb"].mean()
    return LogGrowth(*(float(value) for value in (low, high, before, live)))  # type: ignore[arg-type]


def resources_per_point(dataset: Dataset) -> pl.DataFrame:
    """Means over each point's trimmed runs: `point, target, cores, rss_mb, net_mb_per_s, disk_mb_per_s`.

    Memory is the largest sample. Network traffic is for the whole host only: loopback, and bytes received and sent on
    other interfaces.
    """
    seconds = pl.col("seconds").sum()
    network = pl.sum_horizontal("net_lo_bytes", "net_rx_bytes", "net_tx_bytes")
    disk = pl.sum_horizontal("disk_read_bytes", "disk_write_bytes")
    return (
        trimmed(dataset, "probes")
        .filter(pl.col("seconds") > 0)
        .group_by("point", _target(dataset))
        .agg(
            ((pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum() / seconds).alias("cores"),
            (pl.col("rss_bytes").max() / 1e6).alias("rss_mb"),
            pl.when(pl.col("net_lo_bytes").is_not_null().any())
            .then(network.sum() / seconds / 1e6)
            .alias("net_mb_per_s"),
            pl.when(pl.col("disk_read_bytes").is_not_null().any())
            .then(disk.sum() / seconds / 1e6)
            .alias("disk_mb_per_s"),
        )
        .sort("point", "target")
    )


def _target(dataset: Dataset) -> pl.Expr:
    """The target of a probe; a host has the name of its machine, if there are several."""
    named = pl.when(pl.lit(dataset.has_machines), target="host").then(pl.concat_str(pl.lit("host "), "machine"))
    return pl.coalesce(named, "target").alias("target")


def _of_load(dataset: Dataset) -> pl.DataFrame:
    """The load generators' rows of every second. A second without an answer of an operation has no row for it, but each
    generator always has a row of its own."""
    seconds = pl.concat([dataset.windows, dataset.stations], how="diagonal")
    return _within_run(seconds, dataset.points).filter(pl.col("role") == "load")


def _within_run(frame: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    lengths = points.select(*RUN, pl.col("seconds").alias("length_s"))
    return (
        frame.filter(pl.col("seconds") > 0)
        .join(lengths, on=RUN)
        .filter((pl.col("elapsed_s") >= 0) & (pl.col("elapsed_s") < pl.col("length_s")))
        .drop("length_s")
    )
