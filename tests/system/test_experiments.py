"""The experiments of the project, shortened: each asks for what its question is about, and nothing fails.

`make soak` runs them all (KNEE_SOAK). Otherwise test_kv_lab and test_queue_lab run three of each kind, and test_spec
parses and plans the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from knee import spec
from knee.data import Dataset, RunFolder
from knee.lab import run
from knee.lab.deploy import pgbench
from knee.lab.deploy.deployment import Progress
from knee.lab.hosts.local import LocalHost
from knee.laws import laws_of_run
from knee.spec import Configuration, Workload
from knee.spec.design import runs
from knee.spec.tables import LOOPS
from knee.verdict.outcomes import OUTCOMES

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"

SHORT = ("measure.repetitions=1", "measure.seconds=2", "measure.warmup_s=0", "measure.cooldown_s=0")
KV_CLIENTS = 4
QUEUE_CLIENTS_MAX = 8
"""Few, so that each comes to the end of its loop."""
RAREST = 20
"""One operation in so many is of each kind, so that each occurs on a slow machine."""

LEVELS = {
    "kv-trace": "store.trace=true",
    "kv-shared-key": "store.consistency=sequential",
    "kv-cores": "store.threads=2",
    "kv-wrappers": "workload.interface=memcached",
    "queue-joining-clients": "measure.ramp=false",
    "queue-middleware-alone": "store.kind=null",
}
"""Other levels than the first ones, which more experiments have."""

pytestmark = pytest.mark.skipif("KNEE_SOAK" not in os.environ, reason="make soak runs all experiments")


def all_of(mixes: Iterable[object]) -> str:
    """A mix with the operations of several."""
    weights: dict[str, int] = {}
    for mix in mixes:
        for operation, weight in Workload(protocol="kv", mix=str(mix)).operations:
            weights[operation] = max(weight, weights.get(operation, 0))
    least = max(1, max(weights.values()) // RAREST)
    return ",".join(f"{operation}:{max(weight, least)}" for operation, weight in weights.items())


def shortened(name: str) -> spec.Spec:
    """The experiment with one level of each factor, the operations of all, and few clients."""
    file = EXPERIMENTS / f"{name}.toml"
    whole = spec.load(file)
    overrides = {factor: levels[0] for factor, levels in whole.factors.items()}
    if whole.base.workload.protocol == "queue":
        clients = overrides.get("load.clients", whole.base.clients)
        overrides["load.clients"] = min(int(clients), QUEUE_CLIENTS_MAX)
        store = whole.base.system.store
        # Other tests keep the disk busy.
        overrides |= {"store.durability": "none"} if store is not None and store.kind == "postgresql" else {}
    if whole.base.workload.protocol == "kv":
        overrides["load.clients"] = KV_CLIENTS
        overrides["workload.mix"] = all_of(whole.factors.get("workload.mix", [whole.base.workload.mix]))
    overrides |= spec.parse_overrides([*SHORT, *([LEVELS[name]] if name in LEVELS else [])])
    return spec.parse(spec.read(file), str(file), overrides)


def asked_for(configuration: Configuration) -> set[str]:
    """The operations that occur when nothing fails."""
    system, workload = configuration.system, configuration.workload
    if workload.protocol == "kv":
        return {operation for operation, _ in workload.operations}
    if system.load.kind == "pgbench":
        return {script.operation for script in pgbench.scripts(workload)}
    return set(LOOPS[workload.loop])


def measured(folder: Path, name: str) -> tuple[spec.Spec, Dataset]:
    experiment = shortened(name)
    run_folder = RunFolder.create(folder, name, spec.read(EXPERIMENTS / f"{name}.toml"))
    run_folder.write_manifest({"overrides": experiment.overrides})
    tally = run.Lab(experiment, 1, run_folder, LocalHost(), Progress()).make(runs(experiment, seed=1), lambda *_: None)
    assert (tally.done, tally.failed) == (1, [])
    return experiment, Dataset.open(run_folder.path)


def assert_asked(experiment: spec.Spec, dataset: Dataset) -> None:
    totals = dataset.totals.filter(pl.col("count") > 0)
    asked = {"read" if operation in OUTCOMES else operation for operation in totals.filter(role="load")["op"]}
    assert asked == asked_for(experiment.base)
    assert totals["errors"].sum() == 0


@pytest.mark.parametrize("name", sorted(file.stem for file in EXPERIMENTS.glob("kv-*.toml")))
def test_a_kv_experiment_makes_all_its_requests(memory_path: Path, name: str) -> None:
    experiment, dataset = measured(memory_path, name)
    assert_asked(experiment, dataset)
    (check,) = laws_of_run(dataset).conservation
    assert (check.tier, check.verdict) == ("stores", "holds"), check


# Beside other tests a server may wait for a processor for as long as such an experiment takes.
@pytest.mark.alone
@pytest.mark.parametrize("name", sorted(file.stem for file in EXPERIMENTS.glob("queue-*.toml")))
def test_a_queue_experiment_makes_all_its_requests(memory_path: Path, name: str) -> None:
    assert_asked(*measured(memory_path, name))
