"""The key-value experiments over the real programs: what the lab measures of a store that keeps versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from labs import knee_run

from knee.data import Dataset
from knee.data.observations import observations
from knee.laws import laws_of_run
from knee.verdict.distributions import merged
from knee.verdict.outcomes import reads
from knee.verdict.views import throughput_views

SHORT = ("measure.repetitions=1", "measure.seconds=3", "measure.warmup_s=1", "measure.cooldown_s=0")


class Lab:
    """`knee run` of an experiment of the project, shortened, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self._folder = folder

    def run(self, experiment: str, *overrides: str) -> Dataset:
        flags = [flag for override in (*SHORT, *overrides) for flag in ("--set", override)]
        code, said = knee_run(self._folder, experiment, *flags)
        assert code == 0, said
        (path,) = (self.runs / experiment).iterdir()
        return Dataset.open(path)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def assert_counted_alike(dataset: Dataset) -> None:
    """Clients and stores count the same requests; only clients count reads by outcome."""
    (check,) = laws_of_run(dataset).conservation
    assert (check.tier, check.verdict) == ("stores", "holds"), check


def test_own_keys_are_counted_alike_and_traced(lab: Lab) -> None:
    dataset = lab.run("kv-own-keys", "load.hosts=2", "load.clients=4", "store.trace=true", "workload.ttl_s=60")
    assert_counted_alike(dataset)
    found = observations(dataset)
    (view,) = throughput_views(dataset, found).iter_rows(named=True)
    assert view["server"] == pytest.approx(view["together"], rel=0.3)
    # Four clients without think time make at most four times the requests of one, but for those that were in flight
    # when the measured seconds began.
    slowest_s = max(one.percentile(100) for key, one in merged(dataset).items() if key[2] == "load") / 1e9
    assert view["together"] <= 4 * view["each"] * (1.05 + slowest_s / found["observed_s"][0])
    (log,) = dataset.path.glob("points/*/store-0.log")
    lines = log.read_bytes().count(b"\n")
    assert lines >= dataset.totals.filter(role="load")["count"].sum()


def test_a_graph_is_loaded_and_reads_count_by_outcome(lab: Lab) -> None:
    dataset = lab.run(
        "kv-zipf-reads",
        "measure.seconds=2",
        "load.clients=2",
        "workload.graph.users=300",
        "workload.graph.largest=250",
        "workload.keys=600",
        "workload.large_bytes=40",
    )
    assert_counted_alike(dataset)
    assert {op for *_, op in reads(merged(dataset))} == {"read", "read_missing", "read_large"}
    started = dataset.manifest["commands"]["0-r1"]
    assert {"graph-0", "init-0"} <= set(started)
    assert_nothing_left(dataset)


def test_data_on_disk_are_gone_after_the_run(lab: Lab) -> None:
    dataset = lab.run("kv-durability", "load.clients=4", "store.durability=always")
    assert_counted_alike(dataset)
    seconds = dataset.stations.filter(role="store").sort("second")
    # A server may see too little of the first and the last second.
    assert seconds.select("commits", "commit_records", "file_bytes", "file_live_bytes").drop_nulls().height > 0, seconds
    acknowledged = dataset.totals.filter(role="load")["count"].sum()
    assert seconds["commit_records"].sum() >= acknowledged
    assert 0 < seconds["commits"].sum() <= seconds["commit_records"].sum()
    assert dataset.manifest["scratch"]["filesystem"]
    assert dataset.manifest["machine"]["disk_sync_per_s"]["median"] > 0
    assert_nothing_left(dataset)


def assert_nothing_left(dataset: Dataset) -> None:
    assert list(dataset.path.parent.iterdir()) == [dataset.path]
