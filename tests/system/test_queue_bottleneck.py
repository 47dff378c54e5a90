"""The bottleneck in front of a slow database, by the number of connections; `make soak` measures longer (KNEE_SOAK)."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from databases import PASSWORD, Database

from knee import spec
from knee.data import Dataset, RunFolder
from knee.data.pools import connection_pools
from knee.lab import run
from knee.lab.deploy.deployment import Progress
from knee.lab.deploy.queue import QueueDeployment
from knee.lab.hosts.local import LocalHost
from knee.spec.design import runs
from knee.verdict import analyse, words

EXPERIMENT = """\
[experiment]
name = "connections"
[system]
load = {{}}
middleware = {{ workers = 8, connections = {connections} }}
store = {{ kind = "postgresql", address = ["{address}"], user = "bench", database = "{name}" }}
[workload]
protocol = "queue"
loop = "list-receive-send"
[factors]
"load.clients" = [6, 12]
[measure]
repetitions = {repetitions}
seconds = {seconds}
warmup_s = 1
cooldown_s = 0
ramp = true
"""

SLOW = """\
CREATE FUNCTION knee_queue.slow() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$;
CREATE TRIGGER slow AFTER INSERT OR UPDATE OR DELETE ON knee_queue.message EXECUTE FUNCTION knee_queue.slow();
"""
"""Each send and each remove takes twenty times as long as it would otherwise, and no processor's time: how fast the
machine is, and who else uses it, matters little."""


REPETITIONS, SECONDS = (2, 8) if "KNEE_SOAK" in os.environ else (1, 3)


class OfItself(Dataset):
    """A run folder without other programs' CPU time: other tests may keep the machine busy."""

    @cached_property
    def probes(self) -> pl.DataFrame:
        """See Dataset."""
        return super().probes.filter(pl.col("target") != "host")


# Beside others it may be a processor that is waited for, which the system may keep from a server for seconds.
@pytest.mark.alone
@pytest.mark.parametrize(
    ("connections", "bottleneck", "waits"),
    [(1, "the middleware's connections", True), (8, "the middleware's worker slots", False)],
)
def test_too_small_connection_pool_is_the_bottleneck(
    memory_path: Path,
    elsewhere: Database,
    monkeypatch: pytest.MonkeyPatch,
    connections: int,
    bottleneck: str,
    waits: bool,
) -> None:
    start = QueueDeployment._start_database

    def start_slowly(self: QueueDeployment, configuration: spec.Configuration, store: spec.Store) -> Any:
        started = start(self, configuration, store)
        elsewhere.sql(SLOW)
        return started

    monkeypatch.setattr(QueueDeployment, "_start_database", start_slowly)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    text = EXPERIMENT.format(
        address=elsewhere.address,
        name=elsewhere.name,
        connections=connections,
        repetitions=REPETITIONS,
        seconds=SECONDS,
    )
    experiment = spec.parse(text, "connections.toml")
    folder = RunFolder.create(memory_path, "connections", text)
    folder.write_manifest({"overrides": {}})
    tally = run.Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1), lambda *_: None)
    assert (tally.done, tally.failed) == (REPETITIONS, [])

    dataset = OfItself.open(folder.path)
    (verdict,) = analyse(dataset).verdicts
    assert (verdict.bottleneck.status, verdict.bottleneck.names) == ("found", (bottleneck,)), verdict.bottleneck
    assert words.bottleneck(verdict.bottleneck).startswith(f"The bottleneck is {bottleneck} (")
    # The reason: connections wait for the database all the time, and slots wait for a connection.
    pools = connection_pools(dataset)
    assert pools["connections"].unique().to_list() == [connections]
    if waits:
        # In all runs but one, in which the clients may have waited for a processor.
        assert (pools["utilization"] > 0.9).sum() >= pools.height - 1
        assert any("worker slots are full as well" in one for one in words.evidence(verdict.bottleneck))
    waited, served = (
        dataset.windows.filter(role="middleware").select("connection_sum_ns", "service_sum_ns").sum().row(0)
    )
    assert (waited > served / 2) == waits
