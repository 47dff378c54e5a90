"""Utilisation of every resource in each run, and CPU time by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.foreign_stores import foreign_stores
from knee.data.once import once
from knee.data.pools import waited_for
from knee.data.threads import threads
from knee.data.trim import RUN, trimmed
from knee.spec.tables import TIERS

if TYPE_CHECKING:
    from knee.data import Dataset

SATURATED = 0.90
"""Utilisation from which a resource counts as saturated. At 90 %, throughput can grow by at most 11 %."""

OUTSIDERS_MAX = 0.10
"""Largest share of the host's CPU for programs outside the experiment without lower confidence in the verdict."""

STOLEN_MAX = 0.05
"""Largest share of the processors that the hypervisor takes in a run without a warning."""

OUTSIDERS_DECISIVE = 0.25
"""From this share for outside programs or emulated links on, a full host gives no evidence about the system."""


def utilizations(dataset: Dataset) -> pl.DataFrame:
    """Utilisation of every resource in each run, over the trimmed windows.

    Returns
    -------
    One row per run and resource of a process: `point, repetition, role, process, resource, utilization` (0 to 1).
    "worker slots": workers_busy_s / (workers · s). "connections": service time less the wait for a connection, over
    (connections · s), :mod:`knee.data.pools`; absent if no slot waits for a connection. "commits": share of the time
    that a store spent in group commits; absent without commits. "thread": CPU time of the process's busiest thread per
    second, as reported by the process, or by the probes if the process does not report it or other threads work for its
    tier (:mod:`knee.data.threads`). "CPU share": CPU time of a store with a limited share of the host's processors,
    over that share. "sending link", "receiving link": bytes on an emulated host's link, over its rate. "host CPU": CPU
    time of all processes, over the time of all cores less stolen time. Its process is the machine; its role is the
    machine's only tier, or "host".
    """
    stations = trimmed(dataset, "stations")
    probes, of_machines = trimmed(dataset, "probes"), by_machine(dataset)
    keys = [*RUN, "role", "process"]
    pools = waited_for(dataset).select(*keys, pl.col("utilization").alias("connections"))
    own = stations.group_by(keys).agg(
        (pl.col("workers_busy_s").sum() / (pl.col("workers") * pl.col("seconds")).sum())
        .fill_nan(None)
        .alias("worker slots"),
        pl.when(pl.col("commits").sum() > 0)
        .then(pl.col("commit_sum_ns").sum() / pl.col("seconds").sum() / 1e9)
        .alias("commits"),
    )
    known = threads(dataset).filter(pl.col("untold").is_null() & pl.col("busiest").is_not_null())
    busiest = known.select(*keys, pl.col("busiest").alias("thread"))
    seen = (
        probes.filter(pl.col("thread_cpu_max_s").is_not_null())
        .with_columns(pl.col("target").alias("process"), pl.col("target").str.replace(r"-\d+$", "").alias("role"))
        .filter(pl.col("role").is_in(["load", "middleware", "store"]))
        .group_by(keys)
        .agg((pl.col("thread_cpu_max_s").sum() / pl.col("seconds").sum()).alias("thread"))
        .join(busiest, on=keys, how="anti")
    )
    confined = (
        foreign_stores(dataset)
        .filter("confined")
        .select(*RUN, pl.lit("store").alias("role"), "process", pl.col("utilization").alias("CPU share"))
    )
    tier = pl.when(pl.lit(dataset.has_machines)).then(pl.col("target").str.extract(r"^(load|middleware|store)-\d+$"))
    tiers = of_machines.group_by(*RUN, "machine").agg(tier.drop_nulls().unique().alias("role"))
    host = (
        of_machines.filter(pl.col("target") == "host")
        .group_by(*RUN, "machine")
        .agg(
            (
                (pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum()
                # Stolen CPU time is not capacity.
                / (pl.col("cpu_count") * pl.col("seconds") - pl.col("cpu_steal_s").fill_null(0.0)).sum()
            ).alias("host CPU")
        )
        .join(tiers, on=[*RUN, "machine"])
        .with_columns(
            pl.when(pl.col("role").list.len() == 1).then(pl.col("role").list.first()).otherwise(pl.lit("host"))
        )
        .rename({"machine": "process"})
    )
    return (
        pl.concat([own, pools, busiest, seen, confined, links(dataset), host], how="diagonal")
        .unpivot(index=keys, variable_name="resource", value_name="utilization")
        .drop_nulls("utilization")
        .sort(*keys, "resource")
    )


@once
def by_machine(dataset: Dataset) -> pl.DataFrame:
    """The trimmed probes with the name of their `machine`: "host" unless the run had several. Folders of older versions
    have the sum of several machines, which is left out.
    """
    machine = pl.col("machine") if dataset.has_machines else pl.lit("host")
    return trimmed(dataset, "probes").with_columns(machine.alias("machine")).drop_nulls("machine")


def stolen(dataset: Dataset) -> pl.DataFrame:
    """Share of the processors that the hypervisor took for other guests, over the trimmed windows, on the machine with
    the largest share: `point, repetition, stolen`. A run without this counter has no row."""
    return (
        by_machine(dataset)
        .filter((pl.col("target") == "host") & pl.col("cpu_steal_s").is_not_null())
        .group_by(*RUN, "machine")
        .agg((pl.col("cpu_steal_s").sum() / (pl.col("cpu_count") * pl.col("seconds")).sum()).alias("stolen"))
        .group_by(RUN)
        .agg(pl.col("stolen").max())
    )


def cpu_of(machine: str) -> str:
    """The name of a machine's processors."""
    return "the host's CPU" if machine == "host" else f"{machine}'s CPU"


@once
def links(dataset: Dataset) -> pl.DataFrame:
    """The emulated links with a rate: `point, repetition, role, process, sending link, receiving link`. The shares of
    the rate that are used, from 0 to 1, over the trimmed windows.
    """
    keys = [*RUN, "role", "process"]

    def rate(role: str) -> pl.Expr:
        send, receive = (dataset.setting(f"{role}.{name}").cast(pl.Float64) for name in ("link_mbit", "receive_mbit"))
        return pl.struct(send.alias("send"), receive.fill_null(send).alias("receive")).alias(role)

    rates = dataset.points.select(*RUN, *map(rate, TIERS)).unpivot(index=RUN, variable_name="role", value_name="rate")
    used = (
        trimmed(dataset, "probes")
        .filter(pl.col("target") != "host", pl.col("net_tx_bytes").is_not_null())
        .with_columns(pl.col("target").alias("process"), pl.col("target").str.replace(r"-\d+$", "").alias("role"))
        .group_by(keys)
        .agg(pl.col("net_tx_bytes", "net_rx_bytes", "seconds").sum())
    )
    megabits = 8e-6 / pl.col("seconds")
    return used.join(rates.unnest("rate"), on=[*RUN, "role"]).select(
        *keys,
        (pl.col("net_tx_bytes") * megabits / pl.col("send")).alias("sending link"),
        (pl.col("net_rx_bytes") * megabits / pl.col("receive")).alias("receiving link"),
    )


@once
def cpu_shares(dataset: Dataset) -> pl.DataFrame:
    """CPU time by owner: `point, repetition, machine, owner, share, share_of_all`, over the trimmed windows. The shares
    are of the machine's cores, and of the cores of all machines. Owners are "load", "middleware", "store", "links"
    (emulated delays), "knee" (the lab) and "others" (the rest of the machine's use).
    """
    keys = [*RUN, "machine"]
    probes = by_machine(dataset).with_columns(
        (pl.col("cpu_user_s") + pl.col("cpu_system_s")).alias("cpu_s"),
        pl.col("target").str.replace(r"-\d+$", "").alias("owner"),
    )
    host = (
        probes.filter(pl.col("target") == "host")
        .group_by(keys)
        .agg(pl.col("cpu_s").sum().alias("used_s"), (pl.col("cpu_count") * pl.col("seconds")).sum().alias("capacity_s"))
        .with_columns(pl.col("capacity_s").sum().over(RUN).alias("all_s"))
    )
    owned = probes.filter(pl.col("target") != "host").group_by(*keys, "owner").agg(pl.col("cpu_s").sum())
    others = host.join(owned.group_by(keys).agg(pl.col("cpu_s").sum()), on=keys, how="left").select(
        *keys,
        pl.lit("others").alias("owner"),
        (pl.col("used_s") - pl.col("cpu_s").fill_null(0.0)).clip(lower_bound=0.0).alias("cpu_s"),
    )
    return (
        pl.concat([owned, others], how="vertical")
        .join(host, on=keys)
        .select(
            *keys,
            "owner",
            (pl.col("cpu_s") / pl.col("capacity_s")).alias("share"),
            (pl.col("cpu_s") / pl.col("all_s")).alias("share_of_all"),
        )
        .sort(*keys, "owner")
    )
