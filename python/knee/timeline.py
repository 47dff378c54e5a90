"""What happened second by second, nothing trimmed: for looking at a run, not for numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.trim import RUN

if TYPE_CHECKING:
    from knee.dataset import Dataset

_NS_PER_MS = 1e6


def load_per_second(dataset: Dataset) -> pl.DataFrame:
    """The clients' view: `point, repetition, elapsed_s, throughput, response_ms, trimmed`, over all load hosts."""
    spans = dataset.points.select(*RUN, "warmup_s", (pl.col("seconds") - pl.col("cooldown_s")).alias("until_s"))
    return (
        dataset.windows.filter(pl.col("role") == "load")
        .group_by(*RUN, "elapsed_s")
        .agg(
            (pl.col("count") / pl.col("seconds")).sum().alias("throughput"),
            (pl.col("response_sum_ns").sum() / pl.col("count").sum() / _NS_PER_MS).alias("response_ms"),
        )
        .join(spans, on=RUN)
        .select(
            *RUN,
            "elapsed_s",
            "throughput",
            "response_ms",
            ((pl.col("elapsed_s") < pl.col("warmup_s")) | (pl.col("elapsed_s") + 1 > pl.col("until_s"))).alias(
                "trimmed"
            ),
        )
        .sort(*RUN, "elapsed_s")
    )


def resources_per_second(dataset: Dataset) -> pl.DataFrame:
    """The probes' view: `point, repetition, elapsed_s, target, cores`, CPU seconds used per second."""
    return dataset.probes.filter(pl.col("seconds") > 0).select(
        *RUN,
        "elapsed_s",
        "target",
        ((pl.col("cpu_user_s") + pl.col("cpu_system_s")) / pl.col("seconds")).alias("cores"),
    )


def resources_per_point(dataset: Dataset) -> pl.DataFrame:
    """Means over each point's runs: `point, target, cores, rss_mb, net_mb_per_s, disk_mb_per_s`.

    Network is the host's only: loopback, and what other interfaces received and sent.
    """
    seconds = pl.col("seconds").sum()
    network = pl.sum_horizontal("net_lo_bytes", "net_rx_bytes", "net_tx_bytes")
    disk = pl.sum_horizontal("disk_read_bytes", "disk_write_bytes")
    return (
        dataset.probes.filter((pl.col("seconds") > 0) & (pl.col("elapsed_s") >= 0))
        .group_by("point", "target")
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
