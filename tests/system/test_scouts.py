"""`load.clients = "auto"` against a real system, whose commits wait 20 ms: a worker serves at most 50 requests/s."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from json_schema import answered
from labs import knee, knee_run
from systems import wait_until

from knee.data import Dataset

REPOSITORY = Path(__file__).resolve().parents[2]
EXPERIMENT = """\
[experiment]
name = "slow"
[system]
load = { }
middleware = { workers = 1 }
store = { memory_mb = 64, durability = "always", dally_us = 20_000 }
[workload]
set_get = "1:0"
value_bytes = 100
keys = 100
populated = 0
think_ms = 20
[factors]
"load.clients" = "auto"
[measure]
repetitions = 1
seconds = 1
warmup_s = 0
cooldown_s = 0
"""
KNEE = 2.0
"""One worker, and as long a think time as a service time."""


def test_levels_enclose_the_knee_and_outlast_an_interrupt(memory_path: Path) -> None:
    (memory_path / "slow.toml").write_text(EXPERIMENT)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
    command = [sys.executable, "-m", "knee", "run", "--no-report", "slow.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=memory_path, env=environment) as process:
        begins = "the first measurement begins"
        wait_until(lambda: process.poll() is not None or any(memory_path.glob("runs/slow/*/points/*")), begins, 300)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    assert process.returncode == 130, printed
    (path,) = memory_path.glob("runs/slow/*")
    manifest = json.loads((path / "manifest.json").read_text())
    levels = manifest["overrides"]["load.clients"]
    assert f"load.clients = {levels}: scouts saw a knee near" in printed
    assert printed.count("requests/s") == len(manifest["scouts"]["runs"]["load.clients"]) >= 3
    assert levels[0] < KNEE < levels[-1]

    code, said = knee_run(memory_path, "--resume", str(path))
    assert code == 0, said
    run = Dataset.open(path)
    assert sorted(run.points["clients"]) == levels and "scout" not in said
    code, printed, _ = knee(memory_path, "diagnose", "--json", str(path))
    (found,) = answered("diagnose", printed)["configurations"]
    assert code == 0 and levels[0] <= found["knee"]["clients"]["estimate"] < levels[-1]


def test_scouts_of_a_system_that_only_fails_end_the_run(memory_path: Path) -> None:
    nothing = EXPERIMENT.replace(
        'memory_mb = 64, durability = "always", dally_us = 20_000', 'address = ["127.0.0.1:9"]'
    )
    (memory_path / "slow.toml").write_text(nothing)
    code, said = knee_run(memory_path, "slow.toml")
    assert code == 1
    assert "knee: scout with load.clients=1: " in said and "requests failed (100.00%): errors may be faster" in said
    assert "continue with `knee run --resume runs/slow/" in said
