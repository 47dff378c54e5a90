"""Reading a run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from knee.data.columns import POINTS, PROBES, STATIONS, SUMMARIES, TOTALS, WINDOWS, factor_type
from knee.errors import DatasetError
from knee.spec import Spec, parse
from knee.spec.applicable import inapplicable
from knee.spec.tables import field_path, settings

EXPERIMENT = "experiment.toml"
MANIFEST = "manifest.json"
REPORT = "report.html"


def is_run_folder(path: Path) -> bool:
    """Whether a folder is a run folder, complete or not."""
    return (path / MANIFEST).is_file()


def run_folders(path: Path) -> list[Path]:
    """The run folders in a folder, in the order of their names, which are times; otherwise the path itself."""
    found = [] if is_run_folder(path) or not path.is_dir() else sorted(filter(is_run_folder, path.iterdir()))
    return found or [path]


def machines(cluster: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The machine of each host of a cluster, from its record in a manifest."""
    workers = cluster.get("workers", {})
    return {host: workers.get(worker, {}).get("host", {}) for host, worker in cluster.get("hosts", {}).items()}


def resuming(path: Path, manifest: Mapping[str, Any]) -> str:
    """The command that makes the missing runs of a folder, with the scheduler of its last workers."""
    parts = [manifest, *manifest.get("resumed", ())]
    schedulers = [at for part in parts if (at := part.get("cluster", {}).get("scheduler"))]
    return f"`knee run --resume {path}{f' --cluster {schedulers[-1]}' if schedulers else ''}`"


class Dataset:
    """The measurements of a run, as frames with the columns of :mod:`knee.data.columns`. Each frame is read at first
    access.

    name, question   name and question of the experiment
    spec             the experiment as it ran, with overrides
    manifest         provenance of the numbers
    factors          dotted names; each is a column of `points`
    computed         results of functions of the dataset (:mod:`knee.data.once`)
    """

    def __init__(self, path: Path, spec: Spec, manifest: dict[str, Any]) -> None:
        self.path = path
        self.spec = spec
        self.manifest = manifest
        self.name = spec.experiment.name
        self.question = spec.experiment.question
        self.factors = list(spec.factors)
        self.computed: dict[Any, Any] = {}

    @classmethod
    def open(cls, path: Path | str) -> Dataset:
        """Read a run folder. Raises DatasetError if the path is not a run folder."""
        path = Path(path)
        if not path.is_dir():
            raise DatasetError(f"{path}: no such run folder")
        try:
            text = (path / EXPERIMENT).read_text(encoding="utf-8")
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DatasetError(f"{path}: not a run folder: it has no {Path(error.filename).name}") from error
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from error
        if not isinstance(manifest, dict) or not isinstance(manifest.get("overrides", {}), dict):
            raise DatasetError(f"{path / MANIFEST}: not a manifest of a run")
        spec = parse(text, str(path / EXPERIMENT), manifest.get("overrides", {}))
        return cls(path, spec, manifest)

    @cached_property
    def points(self) -> pl.DataFrame:
        """See POINTS; followed by one column per factor."""
        factors = {name: factor_type(levels) for name, levels in self.spec.factors.items()}
        return self._table("points", pl.Schema({**POINTS, **factors}))

    @property
    def has_machines(self) -> bool:
        """Whether the hosts were on several machines."""
        parts = [self.manifest, *self.manifest.get("resumed", ())]
        workers = [each for part in parts for each in part.get("cluster", {}).get("workers", {}).values()]
        return len({each.get("boot", each["address"]) for each in workers}) > 1

    def setting(self, name: str) -> pl.Expr:
        """A setting at each point: the level of its factor, or the value in the experiment file; null without its
        tier."""
        if name in self.factors:
            return pl.col(name)
        value: object = self.spec.base
        for part in field_path(name):
            value = getattr(value, part, None)
        return pl.lit(value).alias(name)

    @property
    def constant(self) -> dict[str, Any]:
        """The settings with one value at all points, by dotted name; None if a setting has no value. Defaults are
        included only for settings that apply to every point.
        """
        factors = self.spec.factors
        points = [self.spec.at({name: level}) for name, levels in factors.items() for level in levels]
        beside = {name for name, levels in factors.items() if len(levels) > 1}
        beside = beside.union(*map(inapplicable, points or [self.spec.base]))
        return {name: value for name, value in settings(self.spec.base).items() if name not in beside}

    windows = cached_property[pl.DataFrame](lambda self: self._table("windows", WINDOWS))
    stations = cached_property[pl.DataFrame](lambda self: self._table("stations", STATIONS))
    probes = cached_property[pl.DataFrame](lambda self: self._table("probes", PROBES))
    summaries = cached_property[pl.DataFrame](lambda self: self._table("summaries", SUMMARIES))
    totals = cached_property[pl.DataFrame](lambda self: self._table("totals", TOTALS))

    @property
    def why_empty(self) -> str | None:
        """Why no run is complete, and the remedy; None if a run is complete."""
        if (self.points["status"] == "done").any():
            return None
        resume = resuming(self.path, self.manifest)
        if self.points.is_empty():
            return f"no run is complete: no run has ended; {resume} makes them"
        # A failed run has a reason, an interrupted one does not. Runs are not in the order of points.
        failed = self.points.filter(pl.col("status") == "failed")
        if failed.is_empty():
            return f"no run is complete: the first was interrupted; {resume} repeats them"
        which = "the first" if failed.height == self.points.height else "one"
        return f"no run is complete: {which} failed: {failed['reason'][0]}; {resume} repeats them"

    @property
    def experiment_text(self) -> str | None:
        """The text of the experiment file; None without one."""
        file = self.path / EXPERIMENT
        return file.read_text(encoding="utf-8") if file.is_file() else None

    @property
    def report_path(self) -> Path:
        return self.path / REPORT

    @staticmethod
    def logs_of(point: int, repetition: int) -> str:
        """Path of a run's lines and logs, relative to the folder."""
        return f"points/{run_name(point, repetition)}"

    def _table(self, table: str, schema: pl.Schema) -> pl.DataFrame:
        """The parts of a table in the order of their keys: all parts of `points`, for other tables the parts of
        complete runs."""
        if table == "points":
            parts = sorted(part_folder(self.path, table).glob("*.parquet"))
        else:
            done = self.points.filter(pl.col("status") == "done").select("point", "repetition")
            parts = [part_path(self.path, table, *key) for key in done.iter_rows()]
        if not parts:
            return schema.to_frame()
        frames = [self._part(part, schema) for part in parts]
        return pl.concat(frames).sort("point", "repetition", maintain_order=True)

    def _part(self, part: Path, schema: pl.Schema) -> pl.DataFrame:
        try:
            frame = pl.read_parquet(part)
            needed = {"point", "repetition", "status", *self.factors} & set(schema)
            if missing := needed - set(frame.columns):
                raise DatasetError(f"{part}: not a part of this run's tables: it lacks column {min(missing)}")
            if frame.schema == schema:
                return frame
            # Older versions wrote fewer columns; the missing ones are null.
            absent = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
            return frame.with_columns(absent).select(list(schema)).cast(schema)
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise DatasetError(
                f"{part}: cannot be read: {reason}; {resuming(self.path, self.manifest)} measures this run again after "
                "the file is removed"
            ) from error


def part_path(run: Path, table: str, point: int, repetition: int) -> Path:
    return part_folder(run, table) / f"{run_name(point, repetition)}.parquet"


def run_name(point: int, repetition: int) -> str:
    """Name of a run within its folder."""
    return f"{point:03d}-r{repetition}"


def part_folder(run: Path, table: str) -> Path:
    return run / "tables" / table
