"""The experiments on stores that keep versions that no other test runs: each operation occurs, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from knee import spec
from knee.data import Dataset, RunFolder
from knee.lab import run
from knee.lab.deployment import Progress
from knee.lab.design import runs
from knee.lab.hosts.local import LocalHost
from knee.laws import laws_of_run
from knee.spec import Workload
from knee.verdict.outcomes import OUTCOMES

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"

RUN_ELSEWHERE = {"kv-durability", "kv-own-keys", "kv-wrappers", "kv-zipf-reads"}
"""By tests of what these measure."""

FILES = sorted(file.stem for file in EXPERIMENTS.glob("kv-*.toml") if file.stem not in RUN_ELSEWHERE)

SHORT = ("measure.repetitions=1", "measure.seconds=2", "measure.warmup_s=0", "measure.cooldown_s=0")

CLIENTS = 4

RAREST = 20
"""At least one operation in so many is of each kind, so that each occurs however slow the machine is."""

LEVELS = {
    "kv-trace": "store.trace=true",
    "kv-shared-key": "store.consistency=sequential",
    "kv-cores": "store.threads=2",
}
"""Other than the first ones, which more experiments have."""


def all_of(mixes: Iterable[object]) -> str:
    """A mix with the operations of all of them."""
    weights: dict[str, int] = {}
    for mix in mixes:
        for operation, weight in Workload(protocol="kv", mix=str(mix)).operations:
            weights[operation] = max(weight, weights.get(operation, 0))
    least = max(1, max(weights.values()) // RAREST)
    return ",".join(f"{operation}:{max(weight, least)}" for operation, weight in weights.items())


def shortened(name: str) -> spec.Spec:
    """The experiment with one level of each factor, but for the operations of all, and few clients."""
    file = EXPERIMENTS / f"{name}.toml"
    whole = spec.parse(spec.read(file), str(file), {})
    overrides = {factor: levels[0] for factor, levels in whole.factors.items()}
    overrides["load.clients"] = CLIENTS
    overrides["workload.mix"] = all_of(whole.factors.get("workload.mix", [whole.base.workload.mix]))
    overrides |= spec.parse_overrides([*SHORT, *([LEVELS[name]] if name in LEVELS else [])])
    return spec.parse(spec.read(file), str(file), overrides)


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_asks_for_all_of_its_mix_and_nothing_fails(tmp_path: Path, name: str) -> None:
    experiment = shortened(name)
    folder = RunFolder.create(tmp_path, name, spec.read(EXPERIMENTS / f"{name}.toml"))
    folder.write_manifest({"overrides": experiment.overrides})
    tally = run.Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1), lambda *_: None)
    assert (tally.done, tally.failed) == (1, [])
    dataset = Dataset.open(folder.path)
    totals = dataset.totals.filter(pl.col("count") > 0)
    asked = {"read" if operation in OUTCOMES else operation for operation in totals.filter(role="load")["op"]}
    assert asked == {operation for operation, _ in experiment.base.workload.operations}
    assert totals["errors"].sum() == 0
    (check,) = laws_of_run(dataset).conservation
    assert (check.tier, check.verdict) == ("stores", "holds"), check
