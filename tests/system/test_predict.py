"""A prediction from a real run, confirmed by the run that it predicts."""

from __future__ import annotations

import re
from pathlib import Path

from json_schema import answered
from labs import knee

EXPERIMENT = """\
[experiment]
name = "predicted"
[system]
middleware = { workers = 1 }
store = { memory_mb = 64 }
[workload]
value_bytes = 100
keys = 500
think_ms = 40
think = "exponential"
[factors]
"load.clients" = [4, 16, 32]
[measure]
repetitions = 1
seconds = 2
warmup_s = 0
cooldown_s = 0
"""


def printed(folder: Path, *arguments: str) -> str:
    code, said, complaints = knee(folder, *arguments)
    assert code == 0, said + complaints
    return said


# The model explains clients that mostly think, even beside other tests.
def test_predicted_workers_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "predicted.toml"
    file.write_text(EXPERIMENT)
    printed(tmp_path, "run", str(file), "--runs-dir", str(tmp_path), "--no-report")
    (folder,) = (tmp_path / "predicted").iterdir()
    asked = (str(folder), "--set", "workers=3", "--set", "think_ms=40", "--measure")
    text = printed(tmp_path, "predict", *asked)
    assert "At 32 clients, " in text and "3 worker" in text, text
    measured = re.search(r"^Measured throughput: (\S+) requests/s .*; predicted (\S+), ", text, re.MULTILINE)
    assert measured, text
    assert all(float(value.replace(",", "")) > 0 for value in measured.groups())
    again = Path(text.splitlines()[-1].removeprefix("run folder: "))
    assert 'workers": 3' in (again / "manifest.json").read_text()
    answer = answered("predict", printed(tmp_path, "predict", "--json", *asked))
    assert len(answer["predictions"]) == 1 and answer["measured"]["throughput"][0] > 0
    assert 'workers": 3' in (Path(answer["measured"]["run"]) / "manifest.json").read_text()
