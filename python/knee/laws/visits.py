"""How often each request type occurs in a round of a client, as the experiment declares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from knee.data.trim import RUN
from knee.spec.tables import LOOPS

if TYPE_CHECKING:
    from knee.data import Dataset

_SKIPPED = ("read_all", "remove")
"""Steps that a message client skips in a round in which it knows no queue with messages for it."""


def with_visits(types: pl.DataFrame, dataset: Dataset) -> pl.DataFrame:
    """Add `visits`, requests of the type in one round of a client; null if not declared.

    For the memcached protocol `workload.set_get` declares them; for protocol "queue", `workload.loop` does, with each
    step once. Clients skip the steps on a queue in rounds without a queue, unless they send to themselves. The visits
    of such steps are then estimated: their requests together, per request of the other types. A step that is never
    skipped always has a row, with a throughput of 0 if it never occurred.

    `types`: `point, repetition, op, throughput, errors` of each type that a run's clients sent.
    """
    protocol, kind = dataset.spec.base.workload.protocol, dataset.spec.base.system.load.kind
    if protocol == "memcached":
        return _of_set_get(types, dataset)
    if protocol == "queue" and kind == "knee-load":
        return _of_loop(types, dataset)
    return types.with_columns(pl.lit(None, pl.Float64).alias("visits"))


def _of_set_get(types: pl.DataFrame, dataset: Dataset) -> pl.DataFrame:
    ratio = dataset.setting("workload.set_get").cast(pl.String).str.split(":")
    sets, gets = (ratio.list.get(number).cast(pl.Float64, strict=False) for number in (0, 1))
    op = pl.col("op")
    visits = pl.when(op == "set").then("_sets").when(op.is_in(["get", "multiget"])).then("_gets").alias("visits")
    declared = dataset.points.select(*RUN, sets.alias("_sets"), gets.alias("_gets"))
    return types.join(declared, on=RUN, how="left").with_columns(visits).drop("_sets", "_gets")


def _of_loop(types: pl.DataFrame, dataset: Dataset) -> pl.DataFrame:
    loop, receivers = (dataset.setting(f"workload.{name}").alias(f"_{name}") for name in ("loop", "receivers"))
    steps = pl.col("_loop").replace_strict(LOOPS, return_dtype=pl.List(pl.String))
    skipped = pl.col("op").is_in(_SKIPPED)
    # A client that sends to itself always finds its message, unless the send failed.
    never_skipped = (pl.col("_receivers") == "self") & (pl.col("errors").sum().over(RUN) == 0)
    share = pl.col("throughput").filter(skipped).mean() / pl.col("throughput").filter(~skipped).mean()
    times = pl.when(skipped & ~never_skipped).then(share.over(RUN)).otherwise(1.0)
    runs = dataset.points.select(*RUN, loop, receivers).join(types.select(RUN).unique(), on=RUN)
    declared = runs.select(*RUN, steps.alias("op")).explode("op")
    return (
        types.join(declared, on=[*RUN, "op"], how="full", coalesce=True)
        .with_columns(pl.col("throughput", "errors").fill_null(0))
        .join(runs, on=RUN, how="left")
        .filter((pl.col("throughput") > 0) | ~skipped | never_skipped)
        .with_columns(pl.when(pl.col("op").is_in(steps)).then(times).alias("visits"))
        .drop("_loop", "_receivers")
    )
