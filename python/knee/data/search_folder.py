"""The folder of a search.

runs/find/UTC-TIME/
    find.json             the command, the options, the versions and the machine
    table.csv             all finished measurements, for the commands that take a CSV
    outputs/cN-rREP.txt   what the load generator printed in each measurement, for `knee check`
    outputs/cN-rREP.cpu.json
                          the processor times of the measurement
    scouts/cN.txt         the same of short runs, which only choose the loads
    unfinished/           the output of a run that failed or was interrupted
    system.log, system.txt
                          the system's standard error and output
    report.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from knee.data.recording import new_folder, write_atomically
from knee.data.usage import SUFFIX, Usage
from knee.errors import StorageError
from knee.storage import writing

_SETTINGS = "find.json"
_TABLE = "table.csv"
_REPORT = "report.html"
_OUTPUTS, _SCOUTS, _UNFINISHED = "outputs", "scouts", "unfinished"
_NAME = "find"


class SearchFolder:
    """Writes the folder of a search. Every write failure is a StorageError with a remedy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, runs_dir: Path, settings: Mapping[str, Any]) -> SearchFolder:
        """Make `runs_dir/find/UTC-TIME`."""
        path = new_folder(runs_dir, _NAME)
        with writing(path):
            for name in (_OUTPUTS, _SCOUTS, _UNFINISHED):
                (path / name).mkdir()
            write_atomically(path / _SETTINGS, (json.dumps(settings, indent=2) + "\n").encode())
        return cls(path)

    @property
    def report_path(self) -> Path:
        """The page."""
        return self.path / _REPORT

    @property
    def outputs_path(self) -> Path:
        """The folder of finished measurements."""
        return self.path / _OUTPUTS

    def system_paths(self) -> tuple[Path, Path]:
        """The system's output and standard error."""
        return self.path / "system.txt", self.path / "system.log"

    def unfinished_paths(self, clients: int) -> tuple[Path, Path, Path]:
        """A run's output, standard error, and the file that the generator may write itself."""
        folder = self.path / _UNFINISHED
        return folder / f"c{clients}.txt", folder / f"c{clients}.log", folder / f"c{clients}-file.txt"

    def keep(self, output: Path, clients: int, repetition: int, usage: Usage | None = None) -> Path:
        """Move a whole output to its place, beside its processor times; repetition 0 is a scout. Returns the path."""
        kept = self.path / _SCOUTS / f"c{clients}.txt"
        if repetition:
            kept = self.outputs_path / f"c{clients}-r{repetition}.txt"
        with writing(kept):
            if usage is not None:
                write_atomically(kept.with_suffix(SUFFIX), usage.to_json().encode())
            output.replace(kept)
            for rest in self.unfinished_paths(clients):
                rest.unlink(missing_ok=True)
        return kept

    def write_table(self, text: str) -> None:
        """Replace the table."""
        with writing(self.path):
            write_atomically(self.path / _TABLE, text.encode())


def is_search(path: Path) -> bool:
    """Whether a folder is that of a search."""
    return (path / _SETTINGS).is_file()


def table_of(path: Path) -> Path:
    """The table of a search; another path stays as it is."""
    return path / _TABLE if is_search(path) else path


def page_of(path: Path) -> Path | None:
    """The page of a search; None for another path."""
    return path / _REPORT if is_search(path) else None


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
