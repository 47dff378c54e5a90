"""Folders with the outputs of load generators: that of a search, and that of an experiment whose load is a command.

runs/find/UTC-TIME/, or runs/NAME/UTC-TIME/
    find.json             of a search: the command, the options, the versions and the machine
    experiment.toml, manifest.json
                          of an experiment, as in every run folder
    table.csv             all finished measurements, for the commands that take a CSV
    outputs/cN-rREP.txt   what the load generator printed in each measurement, for `knee check`; POINT-cN-rREP.txt in an
                          experiment
    outputs/cN-rREP.cpu.json
                          the processor times of the measurement
    scouts/cN.txt         the same of short runs, which only choose the loads
    unfinished/           the output of a run that failed or was interrupted
    system.log, system.txt
                          the system's standard error and output; in an experiment, those of its last run
    report.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from knee.data.foreign import Result, read
from knee.data.measurements import label_of
from knee.data.reading import REPORT, Dataset, is_run_folder, resuming
from knee.data.recording import new_folder, write_atomically
from knee.data.usage import SUFFIX, Usage
from knee.errors import DatasetError, StorageError
from knee.spec.design import Run, runs
from knee.spec.tables import CLIENTS
from knee.stats.intervals import counted
from knee.storage import writing

FAILURES = "failures"
"""The part of a manifest with the reason of each failed run, by its name among the commands."""

_SETTINGS = "find.json"
_TABLE = "table.csv"
_OUTPUTS, _SCOUTS, _UNFINISHED = "outputs", "scouts", "unfinished"
_NAME = "find"


class Outputs:
    """Writes such a folder. Every write failure is a StorageError with a remedy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def within(cls, path: Path) -> Outputs:
        """Make the folders of outputs within a folder, if they are missing."""
        with writing(path):
            for name in (_OUTPUTS, _UNFINISHED):
                (path / name).mkdir(exist_ok=True)
        return cls(path)

    @property
    def report_path(self) -> Path:
        """The page."""
        return self.path / REPORT

    @property
    def outputs_path(self) -> Path:
        """The folder of finished measurements."""
        return self.path / _OUTPUTS

    def process_paths(self, process: str) -> tuple[Path, Path]:
        """Output and standard error of a process of the system."""
        return self.path / f"{process}.txt", self.path / f"{process}.log"

    def unfinished_paths(self, name: str) -> tuple[Path, Path, Path]:
        """A run's output, standard error, and the file that the generator may write itself."""
        folder = self.path / _UNFINISHED
        return folder / f"{name}.txt", folder / f"{name}.log", folder / f"{name}-file.txt"

    def keep(self, output: Path, unfinished: str, name: str, usage: Usage | None = None) -> Path:
        """Move a whole output to its place, beside its processor times, and remove what the run left `unfinished`.
        Returns the path."""
        return self._move(output, unfinished, self.outputs_path / f"{name}.txt", usage)

    def _move(self, output: Path, unfinished: str, kept: Path, usage: Usage | None) -> Path:
        with writing(kept):
            times = kept.with_suffix(SUFFIX)
            times.unlink(missing_ok=True)
            if usage is not None:
                write_atomically(times, usage.to_json().encode())
            output.replace(kept)
            for rest in self.unfinished_paths(unfinished):
                rest.unlink(missing_ok=True)
        return kept

    def write_table(self, text: str) -> None:
        """Replace the table."""
        with writing(self.path):
            write_atomically(self.path / _TABLE, text.encode())


class SearchFolder(Outputs):
    """Writes the folder of a search."""

    @classmethod
    def create(cls, runs_dir: Path, settings: Mapping[str, Any]) -> SearchFolder:
        """Make `runs_dir/find/UTC-TIME`."""
        path = new_folder(runs_dir, _NAME)
        cls.within(path)
        with writing(path):
            (path / _SCOUTS).mkdir()
            write_atomically(path / _SETTINGS, (json.dumps(settings, indent=2) + "\n").encode())
        return cls(path)

    def keep_scout(self, output: Path, unfinished: str) -> Path:
        """Move the output of a scout to its place. Returns the path."""
        return self._move(output, unfinished, self.path / _SCOUTS / f"{unfinished}.txt", None)


def output_name(run: Run) -> str:
    """The name of a run's output. The number of clients is in it for `knee check` of the file alone."""
    return f"{run.point:03d}-c{run.configuration.clients}-r{run.repetition}"


def finished(dataset: Dataset) -> list[tuple[Run, Path]]:
    """The finished runs of an experiment whose load is a command, with their outputs."""
    every = ((run, dataset.path / _OUTPUTS / f"{output_name(run)}.txt") for run in runs(dataset.spec, 0))
    return [(run, output) for run, output in every if output.is_file()]


def results_of(dataset: Dataset, known: dict[Path, Result] | None = None) -> list[Result]:
    """The results of an experiment whose load is a command, in the order of its points. `known` keeps them by output
    for the next call. Raises MeasurementsError."""
    known = {} if known is None else known
    begun = {name: place for place, name in enumerate(dataset.manifest.get("commands", {}), start=1)}
    every = finished(dataset)
    known |= {output: _result(run, output) for run, output in every if output not in known}
    places = {output: str(begun.get(command_name(run), 0)) for run, output in every}
    return [replace(known[output], row={**known[output].row, "run_order": at}) for output, at in places.items()]


def command_name(run: Run) -> str:
    """The name of a run among the commands of a manifest."""
    return f"{run.point}-r{run.repetition}"


def _result(run: Run, output: Path) -> Result:
    """The result in an output, with the levels of its factors as further cells of its row."""
    (found,), _ = read([output], clients=run.configuration.clients)
    levels = {name: str(level) for name, level in run.levels.items() if name != CLIENTS}
    operation = ", ".join(filter(None, (found.operation, label_of(levels))))
    return replace(found, operation=operation, row={**levels, "repetition": str(run.repetition)})


def failures_of(path: Path, dataset: Dataset) -> list[str]:
    """How many runs of an experiment have failed, why, and the remedy; empty without a failed run."""
    if not (failures := dataset.manifest.get(FAILURES)):
        return []
    total, reason = counted(len(runs(dataset.spec, 0)), "run"), next(iter(failures.values()))
    return [f"{len(failures)} of {total} failed: {reason}; {resuming(path, dataset.manifest)} repeats the missing ones"]


def is_search(path: Path) -> bool:
    """Whether a folder is that of a search."""
    return (path / _SETTINGS).is_file()


def is_commands(path: Path) -> bool:
    """Whether a folder is that of an experiment whose load is a command."""
    return is_run_folder(path) and (path / _OUTPUTS).is_dir()


def table_of(path: Path) -> Path:
    """The table of such a folder; another path stays as it is. Raises DatasetError for an experiment without a finished
    run."""
    if not is_commands(path):
        return path / _TABLE if is_search(path) else path
    if not (path / _TABLE).is_file():
        dataset = Dataset.open(path)
        (why,) = failures_of(path, dataset) or [f"{resuming(path, dataset.manifest)} makes them"]
        raise DatasetError(f"{path}: no run is complete; {why}")
    return path / _TABLE


def page_of(path: Path) -> Path | None:
    """The page of such a folder; None for another path."""
    return path / REPORT if is_search(path) or is_commands(path) else None


def name_of(path: Path) -> str | None:
    """The command of a search, which names its page; None for another path. Raises StorageError."""
    if not is_search(path):
        return None
    try:
        return str(json.loads((path / _SETTINGS).read_text(encoding="utf-8"))["command"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path / _SETTINGS}: cannot be read: {error}; run the search again") from error


def outputs_of(path: Path) -> Path:
    """The folder with the outputs of a search; another path stays as it is."""
    return path / _OUTPUTS if is_search(path) else path
