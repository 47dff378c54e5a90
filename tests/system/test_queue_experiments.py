"""The experiments on queues that no other test runs: each asks for what its question is about, and nothing fails."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from knee import spec
from knee.data import Dataset, RunFolder
from knee.lab import pgbench, run
from knee.lab.deployment import Progress
from knee.lab.design import runs
from knee.lab.hosts.local import LocalHost
from knee.spec import Configuration
from knee.spec.tables import LOOPS

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"

RUN_ELSEWHERE = {"queue-database-alone", "queue-factorial-system", "queue-middleware-alone"}
"""By tests of what these measure."""

FILES = sorted(file.stem for file in EXPERIMENTS.glob("queue-*.toml") if file.stem not in RUN_ELSEWHERE)

SHORT = ("measure.repetitions=1", "measure.seconds=2", "measure.warmup_s=0", "measure.cooldown_s=0")

CLIENTS_MAX = 8
"""Few, so that each comes to the end of its loop."""

PROCESSORS = {"queue-factorial-database": "store.cpus=1"}
"""A whole one, where nobody may make control groups."""


def shortened(name: str) -> spec.Spec:
    """The experiment with the first level of each factor alone, few clients, and so that no disk is waited for."""
    file = EXPERIMENTS / f"{name}.toml"
    whole = spec.parse(spec.read(file), str(file), {})
    store = whole.base.system.store
    assert store is not None
    overrides = {factor: levels[0] for factor, levels in whole.factors.items()}
    clients = overrides.get("load.clients", whole.base.clients)
    assert isinstance(clients, int)
    overrides["load.clients"] = min(clients, CLIENTS_MAX)
    overrides |= spec.parse_overrides(SHORT)
    overrides |= spec.parse_overrides([PROCESSORS[name]] if name in PROCESSORS else [])
    overrides |= {"store.durability": "none"} if store.kind == "postgresql" else {}
    return spec.parse(spec.read(file), str(file), overrides)


def asked_for(configuration: Configuration) -> set[str]:
    """The operations that occur, where all goes well."""
    system, workload = configuration.system, configuration.workload
    if system.load.kind == "pgbench":
        return {script.operation for script in pgbench.scripts(workload)}
    return set(LOOPS[workload.loop])


# Beside others the system may let a server wait for a processor for as long as such an experiment takes.
@pytest.mark.alone
@pytest.mark.parametrize("name", FILES)
def test_an_experiment_asks_for_all_of_its_loop_and_nothing_fails(memory_path: Path, name: str) -> None:
    experiment = shortened(name)
    folder = RunFolder.create(memory_path, name, spec.read(EXPERIMENTS / f"{name}.toml"))
    folder.write_manifest({"overrides": experiment.overrides})
    tally = run.Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1), lambda *_: None)
    assert (tally.done, tally.failed) == (1, [])
    totals = Dataset.open(folder.path).totals.filter(pl.col("count") > 0)
    asked = totals.filter(role="load")
    assert set(asked["op"]) == asked_for(experiment.base)
    assert totals["errors"].sum() == 0
