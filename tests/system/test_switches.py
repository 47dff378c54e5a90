"""The experiments about the middleware's switches, shortened: what they measure, and that the prediction holds."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from labs import knee_run

from knee.data import Dataset
from knee.data.observations import observations
from knee.queueing import cache_hit_ratio

SHORT = ("measure.repetitions=1", "measure.seconds=4", "measure.warmup_s=2", "measure.cooldown_s=0", "load.clients=[4]")


def shortened(folder: Path, experiment: str, *overrides: str) -> tuple[Dataset, pl.DataFrame]:
    code, said = knee_run(folder, experiment, *(word for text in (*SHORT, *overrides) for word in ("--set", text)))
    assert code == 0, said
    (path,) = (folder / "runs" / experiment).iterdir()
    dataset = Dataset.open(path)
    assert dataset.totals["errors"].sum() == 0
    return dataset, observations(dataset)


@pytest.mark.parametrize("mode", ["middleware.pipelined=true", "middleware.workers=4"])
def test_near_cache_hits_as_often_as_predicted(memory_path: Path, mode: str) -> None:
    keys, exponent = 2000, 1.0
    factors = (f"workload.keys={keys}", f'workload.key_choice=["zipf:{exponent}"]', "workload.think_ms=4")
    modes = (mode,) if "pipelined" in mode else ("middleware.pipelined=false", mode)
    dataset, table = shortened(memory_path, "near-cache", *factors, *modes)
    off, on = table.sort("middleware.cache_mb").iter_rows(named=True)
    assert off["cache_hit_ratio"] is None
    reads_per_s = on["throughput"] * 19 / 20
    popularity = [rank**-exponent for rank in range(1, keys + 1)]
    predicted = cache_hit_ratio(popularity, reads_per_s, 1.0, writes_per_read=1 / 19)
    assert on["cache_hit_ratio"] == pytest.approx(predicted, abs=0.06)
    # The stores get fewer reads than the middleware.
    sent = dataset.stations.group_by("point").agg(pl.col("servers_requests", "servers_bytes").list.sum().sum())
    without, with_cache = sent.sort("point").iter_rows(named=True)
    assert 0 < with_cache["servers_requests"] < without["servers_requests"]
    assert 0 < with_cache["servers_bytes"] < without["servers_bytes"]


def test_batches_are_limited_without_errors(memory_path: Path) -> None:
    brief = ("workload.think_ms=20", "measure.seconds=1", "measure.warmup_s=0")
    _, table = shortened(memory_path, "batching", "middleware.batch_max=[1, 65536]", *brief)
    assert table["throughput"].min() > 0 and table.height == 2
