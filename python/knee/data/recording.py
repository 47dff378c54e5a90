"""Writing a run folder."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from knee.data.columns import POINTS, TABLES, factor_type, frame_of
from knee.data.lines import Rows, add_summary, add_window, messages, part_of
from knee.data.reading import EXPERIMENT, MANIFEST, Dataset, part_path, run_name
from knee.errors import DatasetError, StorageError
from knee.spec import Spec
from knee.spec.design import Run
from knee.storage import locks, writing

_SCRATCH = ".scratch"


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    status        "done", "failed" or "interrupted"
    start_unix_s  the agreed start second; None if the run failed before it
    processes     names and roles of the processes whose lines are in the run's folder
    samples       samples of the probe
    throughput    requests/s, if a load generator printed them
    """

    status: str
    reason: str | None = None
    start_unix_s: int | None = None
    processes: Mapping[str, str] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()
    throughput: float | None = None


class RunFolder:
    """Writes a run folder. Every write failure is a StorageError with a remedy."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, runs_dir: Path, name: str, text: str) -> RunFolder:
        """Make `runs_dir/NAME/UTC-TIME` with a copy of the experiment file."""
        path = new_folder(runs_dir, name)
        with writing(path):
            write_atomically(path / EXPERIMENT, text.encode())
        return cls(path)

    def lock(self) -> None:
        """Lock the folder against other `knee run` processes until this one ends. Raises DatasetError if another one
        holds the lock. The kernel releases the lock when the process ends.
        """
        with writing(self.path):
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DatasetError(f"{self.path}: another `knee run` uses this folder; wait for it") from error
        except OSError:
            # The file system has no locks; users must avoid concurrent runs.
            return

    def fingerprint(self) -> dict[str, str]:
        """The hash in the manifest that detects a later change of the experiment file."""
        return {"experiment_sha256": hashlib.sha256((self.path / EXPERIMENT).read_bytes()).hexdigest()}

    def check_fingerprint(self, manifest: Mapping[str, Any]) -> None:
        """Raise DatasetError if the experiment file changed after the manifest was written."""
        for name, value in self.fingerprint().items():
            if manifest.get(name, value) != value:
                raise DatasetError(
                    f"{self.path / EXPERIMENT}: changed after the run began, so its points may differ; "
                    "restore it, or start a new run with it"
                )

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        with writing(self.path):
            write_atomically(self.path / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())

    def point_folder(self, run: Run) -> Path:
        """Make an empty folder for a run's lines and logs; files of an earlier attempt are removed."""
        folder = self._folder_of(run)
        with writing(folder):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        return folder

    @property
    def scratch_path(self) -> Path:
        """Scratch folder for temporary files of a run, next to the run folder and on the same disk."""
        return self.path.with_name(f".{self.path.name}{_SCRATCH}")

    def remove_abandoned_scratch(self) -> list[str]:
        """Remove scratch folders of killed runs, which no process has locked. Returns notes on those that remain."""
        notes = []
        for left in self.path.parent.glob(f".*{_SCRATCH}"):
            if left != self.scratch_path and locks(left):
                shutil.rmtree(left, ignore_errors=True)
                if left.exists():
                    notes.append(f"{left}, which a run that was killed has left, cannot be removed")
        return notes

    def lines_path(self, run: Run, process: str) -> Path:
        """Path of a process's JSON lines."""
        return self._folder_of(run) / f"{process}.jsonl"

    def log_path(self, run: Run, process: str) -> Path:
        """Path of a process's standard error."""
        return self._folder_of(run) / f"{process}.log"

    def _folder_of(self, run: Run) -> Path:
        return self.path / "points" / run_name(run.point, run.repetition)

    def record(self, run: Run, spec: Spec, outcome: Outcome) -> None:
        """Add a run to the tables. The row in `points` comes last, with the run's status.

        A run that is not "done" gets only this row, so a partial measurement never enters the other tables. Its lines
        stay in its folder. The steps of a ramp become separate runs; the last one has the lines of all.
        """
        for number, step in enumerate(run.measurements):
            begun_s = number * spec.measure.seconds
            start = None if outcome.start_unix_s is None else outcome.start_unix_s + begun_s
            own = replace(outcome, start_unix_s=start)
            if run.steps and start is not None:
                until = start + spec.measure.seconds
                own = replace(own, samples=[one for one in outcome.samples if start <= one["second"] < until])
            if outcome.status == "done":
                for table, frame in self._measured(run, step, own, spec).items():
                    self._write_part(table, step, frame)
            self._write_part("points", step, _point_frame(step, spec, own))

    def _measured(self, run: Run, step: Run, outcome: Outcome, spec: Spec) -> dict[str, pl.DataFrame]:
        rows: Rows = {table: [] for table in TABLES if table != "points"}
        start = outcome.start_unix_s or 0
        key = {"point": step.point, "repetition": step.repetition}
        for process, role in outcome.processes.items():
            of_process = {**key, "role": role, "process": process}
            printed = messages(self.lines_path(run, process))
            if run.steps:
                clients = step.configuration.clients // step.configuration.system.load.hosts
                printed = part_of(printed, start, spec.measure.seconds, clients)
            for message in printed:
                if message.get("type") == "window":
                    add_window(rows, of_process, message, start)
                elif message.get("type") == "summary":
                    add_summary(rows, of_process, message)
        rows["probes"] = [{**key, "elapsed_s": sample["second"] - start, **sample} for sample in outcome.samples]
        return {table: frame_of(rows[table], TABLES[table]) for table in rows}

    def _write_part(self, table: str, run: Run, frame: pl.DataFrame) -> None:
        part = part_path(self.path, table, run.point, run.repetition)
        with writing(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            write_atomically(part, buffer.getvalue())

    def done(self) -> set[tuple[int, int]]:
        """The (point, repetition) pairs that are complete: every table has their part."""
        points = Dataset.open(self.path).points.filter(pl.col("status") == "done")
        keys = points.select("point", "repetition").iter_rows()
        return {key for key in keys if all(part_path(self.path, table, *key).is_file() for table in TABLES)}


def new_folder(runs_dir: Path, name: str) -> Path:
    """Make `runs_dir/NAME/UTC-TIME`. Raises StorageError."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    with writing(runs_dir):
        for suffix in ("", *(f"-{n}" for n in range(2, 100))):
            path = runs_dir / name / (stamp + suffix)
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            return path
    raise StorageError(f"{path}: too many runs began within one second; try again")


def _point_frame(run: Run, spec: Spec, outcome: Outcome) -> pl.DataFrame:
    configuration = run.configuration
    middleware, workload = configuration.system.middleware, configuration.workload
    schema = pl.Schema({**POINTS, **{name: factor_type(levels) for name, levels in spec.factors.items()}})
    row = {
        "point": run.point,
        "repetition": run.repetition,
        "status": outcome.status,
        "reason": outcome.reason,
        "clients": configuration.clients,
        "middlewares": configuration.middlewares,
        "stores": configuration.stores,
        "workers": middleware and middleware.workers,
        "start_unix_s": outcome.start_unix_s,
        "seconds": spec.measure.seconds,
        "warmup_s": spec.measure.warmup_s,
        "cooldown_s": spec.measure.cooldown_s,
        "think_ms": workload.think_ms if workload.rate is None else None,
        "rate": workload.rate,
        **{name: str(level) if schema[name] == pl.String else level for name, level in run.levels.items()},
    }
    return frame_of([row], schema)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: after a crash it is either complete or absent."""
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
