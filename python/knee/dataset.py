"""The run folder: the only owner of its file names and of the tables' columns.

    runs/NAME/UTC-TIME/
        experiment.toml               the experiment file, verbatim
        manifest.json                 where the numbers come from: versions, machine, seed, commands
        points/POINT-rREP/            one folder per point and repetition
            PROCESS.jsonl             what the process printed, line by line as it came
            PROCESS.log               its standard error
        tables/TABLE/POINT-rREP.parquet
        report.html

A part of a table is written when its point is over, under a name that appears atomically; the part of
`points` comes last and is what makes the point count. So an interruption loses at most the point that was
running, and two tables never disagree about which points there are.

Windows are kept whole: warm-up and cool-down are trimmed on read, by :mod:`knee.trim`.

All times ending in `_ns` are nanoseconds, `_s` seconds, `second` and `*_unix_s` seconds of the Unix epoch.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from knee.design import Run
from knee.errors import DatasetError, StorageError
from knee.spec import Level, Spec, parse

_RUN: dict[str, pl.DataType] = {"point": pl.Int64(), "repetition": pl.Int64()}
_PROCESS: dict[str, pl.DataType] = {**_RUN, "role": pl.String(), "process": pl.String()}
_COUNTS: dict[str, pl.DataType] = {
    "count": pl.Int64(),
    "errors": pl.Int64(),
    "items": pl.Int64(),
    "hits": pl.Int64(),
    "misses": pl.Int64(),
    "bytes_in": pl.Int64(),
    "bytes_out": pl.Int64(),
    "queueing_sum_ns": pl.Int64(),
    "service_sum_ns": pl.Int64(),
    "response_sum_ns": pl.Int64(),
}

POINTS = pl.Schema(
    {
        **_RUN,
        "status": pl.String(),
        "reason": pl.String(),
        "clients": pl.Int64(),
        "middlewares": pl.Int64(),
        "stores": pl.Int64(),
        "workers": pl.Int64(),
        "start_unix_s": pl.Int64(),
        "seconds": pl.Int64(),
        "warmup_s": pl.Int64(),
        "cooldown_s": pl.Int64(),
        "think_ms": pl.Float64(),
        "rate": pl.Float64(),
    }
)
"""One row per point and repetition that was run; after these columns, one per factor under its dotted name.

point        number of the grid's point, from 0, the same in every repetition
repetition   from 1
status       "done", "failed" or "interrupted"
reason       why it failed, null otherwise
clients      virtual clients (connections) over all load hosts
middlewares  number of middlewares, 0 when clients talk to the stores directly
workers      worker slots of each middleware; null when there is none or it is pipelined
start_unix_s the agreed start second; null when the point failed before it
think_ms     mean think time of a closed loop; null in an open loop
rate         requests per second over all load hosts in an open loop; null in a closed loop
"""

WINDOWS = pl.Schema(
    {
        **_PROCESS,
        "second": pl.Int64(),
        "elapsed_s": pl.Float64(),
        "seconds": pl.Float64(),
        "op": pl.String(),
        **_COUNTS,
        "response": pl.String(),
    }
)
"""One row per process, wall-clock second and operation that occurred in it.

role      "load", "middleware" or "store"
process   "load-0", "middleware-1", "store-2", …
elapsed_s second − the point's start second: 0 is the first second of the measurement, negative is before it
seconds   the part of the second that the window covers
op        "set", "get", "multiget", "delete", "other"
response  the window's histogram (:mod:`knee.hdr`), service time for a store; null where absent
Sums of stages that the role does not know are null.
"""

STATIONS = pl.Schema(
    {
        **_PROCESS,
        "second": pl.Int64(),
        "elapsed_s": pl.Float64(),
        "seconds": pl.Float64(),
        "queue_length_mean": pl.Float64(),
        "queue_length_end": pl.Int64(),
        "queue_length_max": pl.Int64(),
        "workers": pl.Int64(),
        "workers_busy_s": pl.Float64(),
        "threads": pl.Int64(),
        "threads_cpu_s": pl.Float64(),
        "thread_cpu_max_s": pl.Float64(),
        "connections": pl.Int64(),
        "in_flight": pl.Int64(),
        "late_sends": pl.Int64(),
        "late_max_ns": pl.Int64(),
        "wrong_values": pl.Int64(),
        "reconnects": pl.Int64(),
        "memory_bytes": pl.Int64(),
        "items_stored": pl.Int64(),
        "evictions": pl.Int64(),
    }
)
"""One row per process and wall-clock second: the state of the process as a service station.

threads_cpu_s is the sum over the process's threads within the window, thread_cpu_max_s the busiest one's.
Columns that the role does not print are null. Foreign programs (memcached) print nothing: see PROBES.
"""

PROBES = pl.Schema(
    {
        **_RUN,
        "second": pl.Int64(),
        "elapsed_s": pl.Float64(),
        "seconds": pl.Float64(),
        "target": pl.String(),
        "cpu_user_s": pl.Float64(),
        "cpu_system_s": pl.Float64(),
        "cpu_count": pl.Int64(),
        "thread_cpu_max_s": pl.Float64(),
        "rss_bytes": pl.Int64(),
        "net_lo_bytes": pl.Int64(),
        "net_rx_bytes": pl.Int64(),
        "net_tx_bytes": pl.Int64(),
        "disk_read_bytes": pl.Int64(),
        "disk_write_bytes": pl.Int64(),
    }
)
"""One row per sample (about a second) and target, seen from outside by :mod:`knee.probe`.

target      "host", or the name of a process as in WINDOWS ("store-0"), or "knee" for the lab itself
seconds     length of the sample; CPU seconds and bytes are those used within it
cpu_count   CPUs of the host (the capacity is cpu_count · seconds); for a process the number of its threads
thread_cpu_max_s  CPU seconds of the process's busiest thread; null for the host
rss_bytes   memory of the process; for the host the memory in use
net_*       host only: bytes through the loopback interface (sent, which is also what is received there),
            and received and sent over all the others
"""

SUMMARIES = pl.Schema(
    {
        **_PROCESS,
        "started_unix_s": pl.Float64(),
        "ended_unix_s": pl.Float64(),
        "seconds": pl.Float64(),
        "clients": pl.Int64(),
        "bottleneck_reason": pl.String(),
        "bottleneck_detail": pl.String(),
        "late_sends": pl.Int64(),
        "late_max_ns": pl.Int64(),
        "wrong_values": pl.Int64(),
        "reconnects": pl.Int64(),
        "evictions": pl.Int64(),
        "servers_ejected": pl.Int64(),
        "servers_errors": pl.Int64(),
    }
)
"""One row per process that printed its summary: the whole life of the process, nothing trimmed.

bottleneck_* load only: why the generator was itself the limit ("cpu" or "late"), null when it was not
servers_*    middleware only: how often servers were taken out, and errors on them, over all its servers
"""

TOTALS = pl.Schema(
    {
        **_PROCESS,
        "op": pl.String(),
        **_COUNTS,
        "queueing": pl.String(),
        "service": pl.String(),
        "response": pl.String(),
    }
)
"""One row per process and operation over the process's whole life; the last three are histograms."""

TABLES = {
    "points": POINTS,
    "windows": WINDOWS,
    "stations": STATIONS,
    "probes": PROBES,
    "summaries": SUMMARIES,
    "totals": TOTALS,
}

_EXPERIMENT = "experiment.toml"
_MANIFEST = "manifest.json"
_REPORT = "report.html"


def factor_type(levels: tuple[Level, ...]) -> pl.DataType:
    """The column type of a factor: that of its levels, text when they are of several types."""
    types = {type(level) for level in levels}
    if types == {bool}:
        return pl.Boolean()
    if types == {int}:
        return pl.Int64()
    if types <= {int, float}:
        return pl.Float64()
    return pl.String()


class Dataset:
    """What a run measured, as frames with the columns above. Frames are read when first asked for.

    name, question   the experiment's
    spec             the experiment as it was run, overrides included
    manifest         where the numbers come from
    factors          dotted names; each is a column of `points`
    warnings         what a reader has to know before trusting the numbers
    """

    def __init__(self, path: Path, spec: Spec, manifest: dict[str, Any]) -> None:
        self.path = path
        self.spec = spec
        self.manifest = manifest
        self.name = spec.experiment.name
        self.question = spec.experiment.question
        self.factors = list(spec.factors)

    @classmethod
    def open(cls, path: Path | str) -> Dataset:
        """Read a run folder. Raises DatasetError when it is none."""
        path = Path(path)
        if not path.is_dir():
            raise DatasetError(f"{path}: there is no such run folder")
        try:
            text = (path / _EXPERIMENT).read_text(encoding="utf-8")
            manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DatasetError(f"{path}: not a run folder: it has no {Path(error.filename).name}") from error
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from error
        spec = parse(text, str(path / _EXPERIMENT), manifest.get("overrides", {}))
        return cls(path, spec, manifest)

    @cached_property
    def points(self) -> pl.DataFrame:
        """See POINTS; followed by one column per factor."""
        factors = {name: factor_type(levels) for name, levels in self.spec.factors.items()}
        return self._table("points", pl.Schema({**POINTS, **factors}))

    @cached_property
    def windows(self) -> pl.DataFrame:
        """See WINDOWS."""
        return self._table("windows", WINDOWS)

    @cached_property
    def stations(self) -> pl.DataFrame:
        """See STATIONS."""
        return self._table("stations", STATIONS)

    @cached_property
    def probes(self) -> pl.DataFrame:
        """See PROBES."""
        return self._table("probes", PROBES)

    @cached_property
    def summaries(self) -> pl.DataFrame:
        """See SUMMARIES."""
        return self._table("summaries", SUMMARIES)

    @cached_property
    def totals(self) -> pl.DataFrame:
        """See TOTALS."""
        return self._table("totals", TOTALS)

    @property
    def report_path(self) -> Path:
        """Where the report belongs."""
        return self.path / _REPORT

    @cached_property
    def warnings(self) -> list[str]:
        """One sentence each, cause and remedy."""
        found = [str(note) for note in self.manifest.get("notes", [])]
        planned = self.spec.measure.repetitions * math.prod(len(levels) for levels in self.spec.factors.values())
        done = self.points.filter(pl.col("status") == "done").height
        if done < planned:
            found.append(f"{done} of {planned} runs are complete; `knee run --resume {self.path}` makes the others")
        summaries = self.summaries
        limited = summaries.filter(pl.col("bottleneck_reason").is_not_null())
        if limited.height:
            runs = limited.select("point", "repetition").n_unique()
            found.append(
                f"in {runs} runs the load generator said that it was itself the limit "
                f"({limited['bottleneck_detail'][0]}); give it more threads or hosts"
            )
        if wrong := summaries["wrong_values"].sum():
            found.append(f"{wrong} values that clients read were not those that had been written")
        if ejected := summaries["servers_ejected"].sum():
            found.append(f"middlewares took a store out {ejected} times: see their logs")
        return found

    def _table(self, table: str, schema: pl.Schema) -> pl.DataFrame:
        """The parts of a table that belong to points that count, in the order of their keys."""
        parts = []
        for finished in sorted(_part_folder(self.path, "points").glob("*.parquet")):
            part = _part_folder(self.path, table) / finished.name
            try:
                parts.append(pl.read_parquet(part))
            except FileNotFoundError:
                continue
            except (OSError, pl.exceptions.PolarsError) as error:
                raise DatasetError(f"{part}: cannot be read: {error}") from error
        if not parts:
            return schema.to_frame()
        return pl.concat(parts).select(list(schema)).cast(schema).sort("point", "repetition", maintain_order=True)


def _part_folder(run: Path, table: str) -> Path:
    return run / "tables" / table


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    status        "done", "failed" or "interrupted"
    start_unix_s  the agreed start second, if it came to that
    processes     names and roles of the processes whose lines are in the run's folder
    samples       what the probe saw
    """

    status: str
    reason: str | None = None
    start_unix_s: int | None = None
    processes: Mapping[str, str] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()


class RunFolder:
    """The writing side of a run folder. Every failure to write is a StorageError that says what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, runs_dir: Path, name: str, text: str) -> RunFolder:
        """Make `runs_dir/NAME/UTC-TIME` with the experiment's text in it."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        with writing(runs_dir):
            for suffix in ("", *(f"-{n}" for n in range(2, 100))):
                path = runs_dir / name / (stamp + suffix)
                try:
                    path.mkdir(parents=True)
                except FileExistsError:
                    continue
                break
            folder = cls(path)
            _write_atomically(path / _EXPERIMENT, text.encode())
        return folder

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        with writing(self.path):
            _write_atomically(self.path / _MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())

    def point_folder(self, run: Run) -> Path:
        """An empty folder for a run's lines and logs; what an earlier attempt left there is removed."""
        folder = self.path / "points" / _run_name(run)
        with writing(folder):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
        return folder

    def lines_path(self, run: Run, process: str) -> Path:
        """Where a process's JSON lines go."""
        return self.path / "points" / _run_name(run) / f"{process}.jsonl"

    def log_path(self, run: Run, process: str) -> Path:
        """Where a process's standard error goes."""
        return self.path / "points" / _run_name(run) / f"{process}.log"

    def record(self, run: Run, spec: Spec, outcome: Outcome) -> None:
        """Add a run to the tables; `points` goes last and makes the run count.

        Of a run that is not done only the row in `points` is written: its lines stay in its folder, but a
        partial measurement must not look like a whole one.
        """
        if outcome.status == "done":
            for table, frame in self._measured(run, outcome).items():
                self._write_part(table, run, frame)
        self._write_part("points", run, _point_frame(run, spec, outcome))

    def _measured(self, run: Run, outcome: Outcome) -> dict[str, pl.DataFrame]:
        rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES if table != "points"}
        start = outcome.start_unix_s or 0
        key = {"point": run.point, "repetition": run.repetition}
        for process, role in outcome.processes.items():
            of_process = {**key, "role": role, "process": process}
            for message in _messages(self.lines_path(run, process)):
                if message.get("type") == "window":
                    _add_window(rows, of_process, message, start)
                elif message.get("type") == "summary":
                    _add_summary(rows, of_process, message)
        rows["probes"] = [{**key, "elapsed_s": sample["second"] - start, **sample} for sample in outcome.samples]
        return {table: _frame(rows[table], TABLES[table]) for table in rows}

    def _write_part(self, table: str, run: Run, frame: pl.DataFrame) -> None:
        part = _part_folder(self.path, table) / f"{_run_name(run)}.parquet"
        with writing(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            _write_atomically(part, buffer.getvalue())

    def done(self) -> set[tuple[int, int]]:
        """The (point, repetition) pairs that need not be run again."""
        points = Dataset.open(self.path).points.filter(pl.col("status") == "done")
        return set(points.select("point", "repetition").iter_rows())


def _messages(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a file. Raises DatasetError at a line that is none."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise DatasetError(f"{path}:{number}: not a JSON line: {error}") from error


def _add_window(
    rows: dict[str, list[dict[str, Any]]], of_process: dict[str, Any], window: dict[str, Any], start_unix_s: int
) -> None:
    when = {
        "second": window["second"],
        "elapsed_s": float(window["second"] - start_unix_s),
        "seconds": window["seconds"],
    }
    for op, counts in window.get("ops", {}).items():
        rows["windows"].append({**of_process, **when, "op": op, **_known(counts, WINDOWS)})
    station = {**of_process, **when, **_known(window, STATIONS)}
    used = [thread["cpu_s"] for thread in window.get("threads", [])]
    station.update(
        threads=len(used) if used else None,
        threads_cpu_s=sum(used) if used else None,
        thread_cpu_max_s=max(used, default=None),
    )
    rows["stations"].append(station)


def _add_summary(rows: dict[str, list[dict[str, Any]]], of_process: dict[str, Any], summary: dict[str, Any]) -> None:
    servers = summary.get("servers")
    bottleneck = summary.get("bottleneck") or {}
    rows["summaries"].append(
        {
            **of_process,
            **_known(summary, SUMMARIES),
            "bottleneck_reason": bottleneck.get("reason"),
            "bottleneck_detail": bottleneck.get("detail"),
            "servers_ejected": servers and sum(server["ejected"] for server in servers),
            "servers_errors": servers and sum(server["errors"] for server in servers),
        }
    )
    histograms: dict[str, dict[str, str]] = {}
    for one in summary.get("histograms", []):
        histograms.setdefault(one["op"], {})[one["stage"]] = one["hdr"]
    for op, counts in summary.get("ops", {}).items():
        rows["totals"].append({**of_process, "op": op, **_known(counts, TOTALS), **histograms.get(op, {})})


def _known(fields: Mapping[str, Any], schema: pl.Schema) -> dict[str, Any]:
    """The fields that are columns: a reader ignores what it does not know."""
    return {name: value for name, value in fields.items() if name in schema}


def _frame(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame([[row.get(name) for row in rows] for name in schema], schema=schema, strict=False)


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
    return _frame([row], schema)


def _run_name(run: Run) -> str:
    return f"{run.point:03d}-r{run.repetition}"


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there either whole or not at all, also after a crash."""
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


_REMEDIES = {
    errno.ENOSPC: "make room, or choose another place with --runs-dir",
    errno.EDQUOT: "make room, or choose another place with --runs-dir",
    errno.EROFS: "choose a writable place with --runs-dir",
    errno.EACCES: "choose a writable place with --runs-dir",
    errno.EPERM: "choose a writable place with --runs-dir",
    errno.ENOTDIR: "choose another place with --runs-dir",
}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write below `path` into a StorageError that says what to do about it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = _REMEDIES.get(error.errno or 0, "see whether the disk is well")
        raise StorageError(f"{error.filename or path}: cannot be written: {reason}; {remedy}") from error
