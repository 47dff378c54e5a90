"""Runs on several machines: the processors of each one are a resource with the machine's name."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, synthetic_dataset
from test_report_kv import charts

from knee.data import Dataset
from knee.data.utilization import cpu_shares, utilizations
from knee.errors import FitError
from knee.fit.setups import layered_systems
from knee.laws import laws_of_run
from knee.report.page import html
from knee.verdict import analyse, words
from knee.verdict.bottleneck import Bottleneck
from knee.verdict.evidence import evidence_of_run
from knee.verdict.health import Outsiders, Stolen, warnings_of_run

FULL_STORE = System(store_cpu_us=120)
FULL_CLIENTS = System(load_cpu_us=120)
SHARED = {"load-0": "a", "middleware-0": "a", "middleware-1": "b", "store-0": "b"}


def on_machines(system: System, *, machines: dict[str, str] | None = None, others: float = 0.0) -> Dataset:
    """The run as it would be with a machine of one core for each process, or with those of `machines`. Each
    process has two equal threads. Other programs use a share of the store's machine."""
    dataset = synthetic_dataset(system)
    halved = pl.col("thread_cpu_max_s") / 2
    dataset.stations = dataset.stations.with_columns(halved, threads=2)
    machine = pl.col("target").replace({"load-0": "clients"} if machines is None else machines)
    own = dataset.probes.filter(pl.col("target") != "host").with_columns(halved, machine.alias("machine"))
    run = ["point", "repetition", "second", "elapsed_s", "seconds", "machine"]
    hosts = (
        own.group_by(run, maintain_order=True)
        .agg(pl.col("cpu_user_s").sum())
        .select(
            *run,
            "cpu_user_s",
            pl.when(pl.col("machine").is_in(["store-0", "b"])).then(others).otherwise(0.0).alias("cpu_system_s"),
            pl.lit("host").alias("target"),
            pl.lit(1, pl.Int64).alias("cpu_count"),
        )
    )
    dataset.probes = pl.concat([own, hosts], how="diagonal")
    workers = {name: {"address": f"tcp://{name}:1", "boot": name} for name in own["machine"].unique()}
    dataset.manifest = {**dataset.manifest, "cluster": {"workers": workers}}
    return dataset


def bottleneck_of(dataset: Dataset) -> Bottleneck:
    (verdict,) = analyse(dataset).verdicts
    return verdict.bottleneck


def test_full_machine_of_a_store_is_the_bottleneck() -> None:
    dataset = on_machines(FULL_STORE)
    found = bottleneck_of(dataset)
    assert found.names == ("store-0's CPU",)
    assert words.bottleneck(found).startswith("The bottleneck is store-0's CPU (96% busy at ")
    assert "Shares of store-0's CPU time: stores 96%." in words.evidence(found)
    assert found.unmeasured == ("the network between the machines",)
    assert found.confidence != "high"
    assert found.by_demand is None
    (own,) = laws_of_run(dataset).demands
    assert own.bottleneck is not None
    assert own.bottleneck.station == "store-0's CPU"
    assert own.bottleneck.capacity.estimate == pytest.approx(1e6 / 120, rel=0.01)


def test_each_machine_has_its_own_utilisation_and_the_role_of_its_only_tier() -> None:
    busy = utilizations(on_machines(FULL_STORE)).filter(resource="host CPU")
    most = busy.group_by("role", "process").agg(pl.col("utilization").max()).sort("process")
    assert most.select("role", "process").rows() == [
        ("load", "clients"),
        ("middleware", "middleware-0"),
        ("middleware", "middleware-1"),
        ("store", "store-0"),
    ]
    assert most["utilization"].to_list() == pytest.approx([0.16, 0.08, 0.08, 0.96], abs=0.01)
    shared = utilizations(on_machines(FULL_STORE, machines=SHARED)).filter(resource="host CPU")
    assert set(shared.select("role", "process").rows()) == {("host", "a"), ("host", "b")}


def test_shares_are_of_a_machine_and_of_all() -> None:
    shares = cpu_shares(on_machines(FULL_STORE, machines=SHARED))
    totals = shares.group_by("point", "repetition", "machine").agg(pl.col("share").sum())
    used = utilizations(on_machines(FULL_STORE, machines=SHARED)).filter(resource="host CPU")
    both = totals.join(used.rename({"process": "machine"}), on=["point", "repetition", "machine"])
    assert both.height == used.height
    assert both["share"].to_list() == pytest.approx(both["utilization"].to_list())
    # Each of the two machines has half of all cores.
    assert shares["share_of_all"].to_list() == pytest.approx((shares["share"] / 2).to_list())


def test_full_machine_of_the_load_generator_is_its_own_limit() -> None:
    found = bottleneck_of(on_machines(FULL_CLIENTS))
    assert found.status == "load generator"
    assert words.bottleneck(found).startswith("clients's CPU is the limit (96% busy at ")
    assert "Give the load generator more hosts or processors, and measure again." in words.evidence(found)


def test_other_programs_count_on_their_machine() -> None:
    dataset = on_machines(System(), others=0.15)
    (outsiders,) = (one for one in warnings_of_run(dataset, evidence_of_run(dataset)) if isinstance(one, Outsiders))
    assert (outsiders.affected, outsiders.runs, outsiders.cpu) == (15, 15, "store-0's CPU")
    assert outsiders.worst == pytest.approx(0.15)
    found = bottleneck_of(dataset)
    assert "programs outside the experiment took 15% of store-0's CPU" in words.bottleneck_lines(found)[-1]
    full = bottleneck_of(on_machines(System(store_cpu_us=80), others=0.3))
    assert full.cause == "other programs"
    assert "store-0's CPU is full" in words.bottleneck(full)


def test_stolen_time_is_of_the_worst_machine() -> None:
    dataset = on_machines(System())
    of_store = (pl.col("target") == "host") & (pl.col("machine") == "store-0")
    dataset.probes = dataset.probes.with_columns(
        pl.when(of_store).then(0.2).when(pl.col("target") == "host").then(0.0).alias("cpu_steal_s")
    )
    (stolen,) = (one for one in warnings_of_run(dataset, evidence_of_run(dataset)) if isinstance(one, Stolen))
    assert stolen.worst == pytest.approx(0.2)


@pytest.mark.usefixtures("scriptless", "modelless")
def test_page_names_each_machine() -> None:
    page = html(analyse(on_machines(FULL_STORE)))
    found = charts(page)
    drawn = {row["resource"] for row in found["utilization"]["data"]["values"]}
    machines = ("clients", "middleware-0", "middleware-1", "store-0")
    assert {f"{name} CPU" for name in machines} < drawn
    assert not any("host" in resource for resource in drawn)
    assert all(f'<td class="text">host {name}</td>' in page for name in machines)
    assert '<td class="text">store-0&#x27;s CPU</td><td class="text">store-0</td>' in page


def test_layered_model_of_several_machines_is_refused() -> None:
    with pytest.raises(FitError, match="several machines"):
        layered_systems(on_machines(System()), [], level=0.95, seed=0)


def test_workers_on_one_machine_share_the_host() -> None:
    dataset = synthetic_dataset(FULL_STORE)
    dataset.probes = dataset.probes.with_columns(machine=pl.lit("clients"))
    workers = {name: {"address": f"tcp://{name}:1", "boot": "x"} for name in ("clients", "store-0")}
    dataset.manifest = {**dataset.manifest, "cluster": {"workers": workers}}
    assert not dataset.has_machines
    (host,) = utilizations(dataset).filter(resource="host CPU").select("role", "process").unique().rows()
    assert host == ("host", "host")


def test_sum_over_machines_of_an_older_folder_is_no_machine() -> None:
    dataset = on_machines(System())
    dataset.probes = dataset.probes.with_columns(machine=pl.lit(None, pl.String))
    assert "host CPU" not in utilizations(dataset)["resource"]
    assert evidence_of_run(dataset).unmeasured[:1] == ("the processors of each machine",)
