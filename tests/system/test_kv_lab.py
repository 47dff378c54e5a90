"""The key-value experiments over the real programs: what the lab measures of a store that keeps versions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from knee.data import Dataset
from knee.data.observations import observations
from knee.laws import laws_of_run
from knee.verdict.distributions import merged
from knee.verdict.outcomes import reads
from knee.verdict.views import throughput_views

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
"""With runs that take some twenty seconds where nothing else does."""

SHORT = ("measure.repetitions=1", "measure.seconds=6", "measure.warmup_s=1", "measure.cooldown_s=1")


class Lab:
    """`knee run` of an experiment of the project, shortened, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self._folder = folder

    def start(self, experiment: str, *overrides: str) -> subprocess.Popen[str]:
        flags = [flag for override in (*SHORT, *overrides) for flag in ("--set", override)]
        file = str(REPOSITORY / "experiments" / f"{experiment}.toml")
        return subprocess.Popen(
            [sys.executable, "-m", "knee", "run", "--no-report", file, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
        )

    def run(self, experiment: str, *overrides: str) -> Dataset:
        with self.start(experiment, *overrides) as process:
            _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        (path,) = (self.runs / experiment).iterdir()
        return Dataset.open(path)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def assert_counted_alike(dataset: Dataset) -> None:
    """Clients and stores tell of the same requests, also where clients tell reads apart and stores do not."""
    (check,) = laws_of_run(dataset).conservation
    assert (check.tier, check.verdict) == ("stores", "holds"), check


def test_own_keys_over_grpc_are_seen_by_clients_and_server_and_traced(lab: Lab) -> None:
    dataset = lab.run("kv-own-keys", "load.hosts=2", "load.clients=4", "store.trace=true", "workload.ttl_s=60")
    assert_counted_alike(dataset)
    found = observations(dataset)
    (view,) = throughput_views(dataset, found).iter_rows(named=True)
    assert view["server"] == pytest.approx(view["together"], rel=0.3)
    # Four clients that do not think make at most four times what one gets while it waits, but for what each had begun
    # to wait for before the seconds that count.
    slowest_s = max(one.percentile(100) for key, one in merged(dataset).items() if key[2] == "load") / 1e9
    assert view["together"] <= 4 * view["each"] * (1.05 + slowest_s / found["observed_s"][0])
    (log,) = dataset.path.glob("points/*/store-0.log")
    lines = log.read_bytes().count(b"\n")
    assert lines >= dataset.totals.filter(role="load")["count"].sum()


def test_a_graph_is_made_and_loaded_and_reads_tell_what_came_back(lab: Lab) -> None:
    dataset = lab.run(
        "kv-zipf-reads",
        "load.clients=2",
        "workload.graph.users=300",
        "workload.graph.largest=250",
        "workload.keys=600",
        "workload.large_bytes=40",
    )
    assert_counted_alike(dataset)
    assert {op for *_, op in reads(merged(dataset))} == {"read", "read_missing", "read_large"}
    started = dataset.manifest["commands"]["0-r1"]
    assert {"graph", "init-0"} <= set(started)
    assert_nothing_left(dataset)


def test_data_on_disk_are_gone_after_the_run_and_commits_were_told(lab: Lab) -> None:
    dataset = lab.run("kv-durability", "load.clients=4", "store.durability=always")
    assert_counted_alike(dataset)
    seconds = dataset.stations.filter(role="store").sort("second")
    # Of some, as the first and the last one, a server may see so little that it cannot tell them.
    assert seconds.select("commits", "commit_records", "file_bytes", "file_live_bytes").drop_nulls().height > 0, seconds
    acknowledged = dataset.totals.filter(role="load")["count"].sum()
    assert seconds["commit_records"].sum() >= acknowledged
    assert 0 < seconds["commits"].sum() <= seconds["commit_records"].sum()
    assert dataset.manifest["scratch"]["filesystem"]
    assert_nothing_left(dataset)


def assert_nothing_left(dataset: Dataset) -> None:
    assert list(dataset.path.parent.iterdir()) == [dataset.path]


def test_the_memcached_protocol_reaches_the_same_store(lab: Lab) -> None:
    dataset = lab.run("kv-wrappers", "load.clients=2", "workload.value_bytes=10", "workload.interface=memcached")
    assert_counted_alike(dataset)
    ops = dict(dataset.totals.group_by("role").agg(pl.col("op").unique()).iter_rows())
    assert set(ops["load"]) >= {"read", "put"}
    assert set(ops["store"]) >= {"get", "set"}


def test_an_interrupted_run_leaves_no_data_behind(lab: Lab) -> None:
    process = lab.start("kv-durability", "load.clients=4", "store.durability=none", "measure.seconds=30")
    try:
        until = time.monotonic() + PATIENCE_S
        while not any('"window"' in lines.read_text() for lines in lab.runs.glob("*/*/points/*/load-0.jsonl")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        (room,) = lab.runs.glob("*/.*.scratch")
        assert list(room.glob("data/store-0/*"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert not room.exists()
    (manifest,) = lab.runs.glob("*/*/manifest.json")
    assert json.loads(manifest.read_text())["scratch"]["path"].endswith(room.name)
