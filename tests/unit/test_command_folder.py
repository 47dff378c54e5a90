"""Folders of experiments whose load is a command: what the commands read of them, and what they refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import knee

from knee import spec
from knee.cli.measure import so_far
from knee.data import RunFolder
from knee.data.outputs import Outputs, output_name
from knee.spec.design import runs

pytestmark = pytest.mark.usefixtures("scriptless")

LEVELS = Path(__file__).resolve().parents[1] / "data" / "foreign" / "levels"
EXPERIMENT = """\
[experiment]
name = "levels"
question = "Where is the knee?"
[system]
load = { command = "wrk -c{clients} -d{seconds}s http://127.0.0.1:28802/" }
[factors]
"load.clients" = [1, 2, 4, 8, 16, 32]
[measure]
repetitions = 3
[thresholds]
p99_ms = 1
"""


def folder_with(tmp_path: Path, finished: int, text: str = EXPERIMENT) -> Path:
    """A folder in which this many runs are complete, and in which a scout and another run are not."""
    folder = RunFolder.create(tmp_path, "levels", text)
    folder.write_manifest({"seed": 1, "overrides": {}})
    outputs = Outputs.within(folder.path)
    for run in runs(spec.parse(text, "x.toml"), 1)[:finished]:
        recorded = LEVELS / f"c{run.configuration.clients}-r{run.repetition}.txt"
        shutil.copy(recorded, outputs.outputs_path / f"{output_name(run)}.txt")
    if finished:
        (folder.path / "table.csv").write_text("clients,throughput\n1,350\n2,700\n")
    (folder.path / "unfinished" / "000-c1-r9.txt").write_text("Running 2s test\n")
    return folder.path


def test_several_folders_are_checked_together(tmp_path: Path) -> None:
    started = EXPERIMENT.replace("[measure]", '"system.command" = ["nginx -c x"]\n[measure]')
    paths = [str(folder_with(tmp_path, 18, text)) for text in (EXPERIMENT, EXPERIMENT, started)]
    done = knee("check", *paths[:2])
    assert done.returncode == 0 and "36 results" in done.stdout, done.stderr
    done = knee("check", *paths, str(LEVELS))
    assert done.returncode == 0 and "of 72 files" in done.stdout, done.stderr
    assert "nginx -c x" in done.stdout


@pytest.mark.parametrize(
    "options", [["--from", "hey"], ["--clients", "99"], ["--rate", "5"], ["--map", "a=b"], ["--ignore", "a"]]
)
def test_check_of_a_folder_refuses_options_of_other_results(tmp_path: Path, options: list[str]) -> None:
    path = folder_with(tmp_path, 3)
    done = knee("check", str(path), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"knee: {options[0]}: does not apply to {path}, whose runs Knee made; leave it out")


def test_check_of_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    path = folder_with(tmp_path, 0)
    done = knee("check", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"knee: {path}: no run is complete; `knee run --resume {path}` makes them\n"


def test_predict_refuses_to_measure_with_another_generator(tmp_path: Path) -> None:
    path = folder_with(tmp_path, 18)
    done = knee("predict", str(path), "--set", "clients=3", "--measure")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"--measure: does not apply to another load generator; measure the settings with `knee run {path}"
        in done.stderr
    )
    (path / "manifest.json").rename(path / "find.json")
    done = knee("predict", str(path), "--set", "clients=3", "--measure")
    assert done.returncode == 2 and f"--measure: {path} is no run folder" in done.stderr


def test_live_page_waits_for_a_complete_run_and_names_the_experiment(tmp_path: Path) -> None:
    assert so_far(RunFolder(folder_with(tmp_path, 0)), "18 runs") is None
    found = so_far(RunFolder(folder_with(tmp_path, 2)), "18 runs")
    assert found is not None and found[1] == "2 of 18 runs"
    assert (found[0].name, found[0].question) == ("levels", "Where is the knee?")
