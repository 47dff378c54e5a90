"""The experiment with an address space, shortened, over the real programs."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import polars as pl
from labs import knee_run

from knee.data import Dataset
from knee.laws import laws_of_run
from knee.report import balance
from knee.report.sheet import Sheet
from knee.verdict import Findings, analyse
from knee.verdict.text import render_text

SHORT = (
    *(
        "measure.hosts=local",
        "measure.repetitions=1",
        "measure.seconds=2",
        "measure.warmup_s=0",
        "measure.cooldown_s=0",
    ),
    *('middleware.layout=["length", "shift"]', "load.clients=4", "middleware.hosts=2", "store.hosts=2"),
    "store.memory_mb=1",
    # Some blocks lie on both servers.
    *("workload.block_bytes=100000", "workload.writes=0.5", "workload.verify=true", "workload.think_ms=10"),
)


def test_clients_and_managers_of_a_space_count_alike_in_each_layout(tmp_path: Path) -> None:
    flags = [flag for override in SHORT for flag in ("--set", override)]
    code, said = knee_run(tmp_path, "space-managers", *flags)
    assert code == 0, said
    (path,) = (tmp_path / "runs" / "space-managers").iterdir()
    dataset = Dataset.open(path)
    checks = laws_of_run(dataset).conservation
    assert [(check.tier, check.verdict) for check in checks] == [("middlewares", "holds")] * 2, checks
    load = dataset.totals.filter(role="load")
    assert set(load["op"]) == {"read", "write"}
    assert dataset.totals["errors"].sum() == 0
    assert dataset.summaries.filter(role="load")["wrong_values"].sum() == 0
    # Each server has a part of the requests, and each manager has clients.
    counted = dataset.totals.filter(pl.col("role") != "load", pl.col("count") > 0)
    processes = counted.group_by("point", "role").agg(pl.col("process").n_unique()).sort("point", "role")
    assert processes["role"].to_list() == ["middleware", "store"] * 2
    assert processes["process"].to_list() == [2] * 4
    assert_runs_without_counts_of_stores_are_named(path)


def assert_runs_without_counts_of_stores_are_named(path: Path) -> None:
    """In a folder whose runs become those of an earlier version of Knee, one after the other."""
    missing = "The requests of each store are missing in"
    shown = [stores_of(analyse(Dataset.open(path)))]
    for part in sorted((path / "tables" / "stations").glob("*.parquet")):
        pl.read_parquet(part).drop("servers_requests", "servers_bytes").write_parquet(part)
        shown.append(stores_of(analyse(Dataset.open(path))))
    whole, half, none = shown
    assert missing not in whole and whole.count("<tr>") == 3
    assert "of all repetitions, and the bytes of the blocks that they read or write." in whole
    assert f"{missing} 1 of 2 runs: an earlier version" in half and half.count("<tr>") == 2
    assert "of all other repetitions, and" in half
    assert f"{missing} 2 of 2 runs: an earlier version" in none and none.count("<tr>") == 0


def stores_of(findings: Findings) -> str:
    """The page's section of stores. The terminal has its sentences, too."""
    section = balance.section(Sheet(findings))
    text = render_text(findings)
    assert all(sentence in text for sentence in map(unescape, re.findall("<p>(.*?)</p>", section))), text
    return section
