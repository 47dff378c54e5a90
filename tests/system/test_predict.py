"""A prediction from a real run, confirmed by the run that it predicts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from json_schema import answered

EXPERIMENT = """\
[experiment]
name = "predicted"
[system]
middleware = { workers = 1 }
store = { memory_mb = 64 }
[workload]
value_bytes = 100
keys = 500
think_ms = 4
think = "exponential"
[factors]
"load.clients" = [4, 16, 48]
[measure]
repetitions = 1
seconds = 2
warmup_s = 0
cooldown_s = 0
"""


def knee(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "knee", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Beside others the model may not explain the run, and refuses.
@pytest.mark.alone
def test_predicted_workers_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "predicted.toml"
    file.write_text(EXPERIMENT)
    knee("run", str(file), "--runs-dir", str(tmp_path), "--no-report")
    (folder,) = (tmp_path / "predicted").iterdir()
    printed = knee("predict", str(folder), "--set", "workers=3", "--measure")
    assert "At 48 clients, " in printed and "3 worker" in printed, printed
    measured = re.search(r"^Measured throughput: (\S+) requests/s .*; predicted (\S+), ", printed, re.MULTILINE)
    assert measured, printed
    assert all(float(value.replace(",", "")) > 0 for value in measured.groups())
    again = Path(printed.splitlines()[-1].removeprefix("run folder: "))
    assert 'workers": 3' in (again / "manifest.json").read_text()
    answer = answered("predict", knee("predict", "--json", str(folder), "--set", "workers=3", "--measure"))
    assert len(answer["predictions"]) == 1 and answer["measured"]["throughput"][0] > 0
    assert 'workers": 3' in (Path(answer["measured"]["run"]) / "manifest.json").read_text()
