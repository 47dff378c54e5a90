"""Run folders: literal lines in, frames out."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import specs
from specs import changed

from knee import spec
from knee.data import POINTS, TABLES, Dataset, Outcome, RunFolder
from knee.data.columns import factor_type
from knee.data.hdr import Histogram
from knee.data.lines import Rows, add_window
from knee.errors import DatasetError, StorageError
from knee.spec.design import Run, runs
from knee.storage import writing
from knee.verdict import words
from knee.verdict.health import Ejected, Incomplete, Unsent, WrongAnswers, warnings_of_folder

EXPERIMENT = """\
[experiment]
name = "two-points"
question = "Does it write what it reads?"
[system]
load = {}
middleware = { workers = 8 }
store = { hosts = 2 }
[factors]
"load.clients" = [4, 8]
[measure]
repetitions = 1
seconds = 3
warmup_s = 1
cooldown_s = 1
order = "given"
"""

READY = (
    '{"type":"ready","role":"middleware","program":"knee-proxy","version":"0.1.0","pid":1,"listen":"127.0.0.1:11211"}'
)
WINDOW = (
    '{"type":"window","role":"middleware","second":1700000001,"seconds":1.0,'
    '"ops":{"set":{"count":812,"errors":1,"items":812,"hits":0,"misses":0,"bytes_in":3390000,"bytes_out":6496,'
    '"queueing_sum_ns":5,"service_sum_ns":6,"response_sum_ns":12,"response":"HISTFAAAA"},'
    '"get":{"count":3,"errors":0,"items":3,"hits":2,"misses":1,"bytes_in":30,"bytes_out":60,'
    '"queueing_sum_ns":1,"service_sum_ns":2,"response_sum_ns":4}},'
    '"queue_length_mean":1.25,"queue_length_end":1,"queue_length_max":4,"workers":8,"workers_busy_s":6.93,'
    '"threads":[{"name":"net-0","cpu_s":0.25},{"name":"net-1","cpu_s":0.5}],"connections":96,"unknown_to_us":1,'
    '"servers":[{"address":"127.0.0.1:1","requests":400,"bytes":4100},'
    '{"address":"127.0.0.1:2","requests":412,"bytes":4200}]}'
)
SUMMARY = (
    '{"type":"summary","role":"middleware","started_unix_s":1699999999.5,"ended_unix_s":1700000004.5,"seconds":5.0,'
    '"ops":{"set":{"count":812,"errors":1,"items":812,"hits":0,"misses":0,"bytes_in":3390000,"bytes_out":6496,'
    '"queueing_sum_ns":5,"service_sum_ns":6,"response_sum_ns":12}},'
    '"histograms":[{"op":"set","stage":"queueing","unit":"ns","count":812,"mean":1,"hdr":"Q"},'
    '{"op":"set","stage":"response","unit":"ns","count":812,"mean":1,"hdr":"R"}],'
    '"servers":[{"address":"127.0.0.1:1","requests":400,"errors":2,"ejected":1,"up":true},'
    '{"address":"127.0.0.1:2","requests":412,"errors":0,"ejected":0,"up":true}]}'
)
START = 1_700_000_000
SAMPLE = {"second": 1700000000, "seconds": 1.0, "target": "host", "cpu_user_s": 0.5, "cpu_count": 2}
DONE = Outcome("done", None, 1700000000, {"middleware-0": "middleware"}, [SAMPLE])


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path, "two-points", EXPERIMENT)
    folder.write_manifest({"seed": 1, "overrides": {}, "notes": ["a note"]})
    return folder


@pytest.fixture
def experiment() -> spec.Spec:
    return spec.parse(EXPERIMENT, "x.toml")


def measured(folder: RunFolder, experiment: spec.Spec, run: Run) -> None:
    recorded(folder, experiment, "middleware-0", READY, WINDOW, SUMMARY, run=run)


def recorded(
    folder: RunFolder, experiment: spec.Spec, process: str, *lines: str | dict[str, Any], run: Run | None = None
) -> Dataset:
    """The dataset after a run, the first by default, whose process printed these lines."""
    run = run or runs(experiment, seed=1)[0]
    folder.point_folder(run)
    text = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    folder.lines_path(run, process).write_text("\n".join([*text, ""]))
    folder.record(run, experiment, replace(DONE, processes={process: process.partition("-")[0]}))
    return Dataset.open(folder.path)


@pytest.mark.parametrize(
    ("threads", "served"),
    [
        # A server without a gRPC front, one with an idle memcached front, and an empty line.
        ([("net-0", 0.25), ("net-1", 0.5)], (2, 0.75, 0.5, None)),
        ([("net-0", 0.01), ("grpc-0", 0.5), ("grpc-1", 0.75), ("grpc-beside", 1.5)], (2, 1.25, 0.75, 1.5)),
        ([("grpc-0", 0.98), ("grpc-beside", 0.0)], (1, 0.98, 0.98, 0.0)),
        # The busiest thread may be of another kind, which has more of them; what runs beside is no thread.
        ([("grpc-0", 0.5), ("net-0", 0.875), ("net-1", 0.0), ("grpc-beside", 1.5)], (1, 0.5, 0.875, 1.5)),
        # Of one with two runtimes.
        ([("net-0", 0.5), ("grpc-beside", 0.25), ("admin-beside", 0.5)], (1, 0.5, 0.5, 0.75)),
        ([], (None, None, None, None)),
    ],
)
def test_the_threads_of_a_station_are_those_that_serve(
    threads: list[tuple[str, float]], served: tuple[int | None, ...]
) -> None:
    rows: Rows = {"stations": [], "windows": []}
    said = [{"name": name, "cpu_s": cpu_s} for name, cpu_s in threads]
    add_window(rows, {}, {"second": 11, "seconds": 1.0, "threads": said}, 10)
    (station,) = rows["stations"]
    assert tuple(station[name] for name in ("threads", "threads_cpu_s", "thread_cpu_max_s", "beside_cpu_s")) == served


def test_lines_become_rows_of_every_table(folder: RunFolder, experiment: spec.Spec) -> None:
    measured(folder, experiment, runs(experiment, seed=1)[1])
    dataset = Dataset.open(folder.path)

    assert dataset.points.row(0, named=True) == {
        "point": 1,
        "repetition": 1,
        "status": "done",
        "reason": None,
        "clients": 8,
        "middlewares": 1,
        "stores": 2,
        "workers": 8,
        "start_unix_s": 1700000000,
        "seconds": 3,
        "warmup_s": 1,
        "cooldown_s": 1,
        "think_ms": 0.0,
        "rate": None,
        "load.clients": 8,
    }
    window = dataset.windows.filter(op="set").row(0, named=True)
    assert (window["role"], window["process"], window["elapsed_s"]) == ("middleware", "middleware-0", 1.0)
    assert (window["count"], window["errors"], window["response"]) == (812, 1, "HISTFAAAA")
    assert dataset.windows.filter(op="get")["response"].to_list() == [None]
    station = dataset.stations.row(0, named=True)
    assert (station["queue_length_mean"], station["workers_busy_s"], station["connections"]) == (1.25, 6.93, 96)
    assert (station["threads"], station["threads_cpu_s"], station["thread_cpu_max_s"]) == (2, 0.75, 0.5)
    assert (station["servers_requests"], station["servers_bytes"]) == ([400, 412], [4100, 4200])
    assert station["late_sends"] is None
    summary = dataset.summaries.row(0, named=True)
    assert (summary["servers_ejected"], summary["servers_errors"], summary["bottleneck_reason"]) == (1, 2, None)
    total = dataset.totals.row(0, named=True)
    assert (total["count"], total["queueing"], total["service"], total["response"]) == (812, "Q", None, "R")
    probe = dataset.probes.row(0, named=True)
    assert (probe["target"], probe["elapsed_s"], probe["cpu_user_s"], probe["rss_bytes"]) == ("host", 0.0, 0.5, None)


def test_of_messages_the_wait_for_a_connection_is_kept(folder: RunFolder, experiment: spec.Spec) -> None:
    reported = '"queueing_sum_ns":5,"connection_sum_ns":4,"service_sum_ns":6'
    histogram = '"histograms":[{"op":"set","stage":"connection","unit":"ns","count":812,"mean":1,"hdr":"C"},'
    lines = (READY, WINDOW, SUMMARY.replace('"histograms":[', histogram))
    lines = (line.replace('"queueing_sum_ns":5,"service_sum_ns":6', reported) for line in lines)
    dataset = recorded(folder, experiment, "middleware-0", *lines)
    assert dict(dataset.windows.select("op", "connection_sum_ns").iter_rows()) == {"set": 4, "get": None}
    assert dataset.totals.select("connection_sum_ns", "connection").row(0) == (4, "C")


def test_every_frame_has_the_columns_that_are_written_down(folder: RunFolder, experiment: spec.Spec) -> None:
    def schemas() -> dict[str, pl.Schema]:
        dataset = Dataset.open(folder.path)
        return {name: getattr(dataset, name).schema for name in TABLES}

    expected = {**TABLES, "points": pl.Schema({**POINTS, "load.clients": pl.Int64()})}
    assert schemas() == expected, "of an empty run"
    measured(folder, experiment, runs(experiment, seed=1)[0])
    assert schemas() == expected


def test_a_run_counts_only_once_it_is_in_the_points_table(folder: RunFolder, experiment: spec.Spec) -> None:
    first, second = runs(experiment, seed=1)
    measured(folder, experiment, first)
    measured(folder, experiment, second)
    (folder.path / "tables" / "points" / "001-r1.parquet").unlink()
    assert Dataset.open(folder.path).windows["point"].unique().to_list() == [0]
    assert folder.done() == {(0, 1)}


def test_tables_of_an_interrupted_run_are_not_read(folder: RunFolder, experiment: spec.Spec) -> None:
    run = runs(experiment, seed=1)[0]
    measured(folder, experiment, run)
    folder.record(run, experiment, Outcome("interrupted", "interrupted"))
    dataset = Dataset.open(folder.path)
    assert dataset.points["status"].to_list() == ["interrupted"]
    assert dataset.windows.is_empty() and dataset.summaries.is_empty()


def test_run_with_damaged_tables_is_named_and_repeated(folder: RunFolder, experiment: spec.Spec) -> None:
    first, second = runs(experiment, seed=1)
    measured(folder, experiment, first)
    measured(folder, experiment, second)
    part = folder.path / "tables" / "windows" / "001-r1.parquet"
    whole = part.read_bytes()
    for length in range(0, len(whole), len(whole) // 10):
        part.write_bytes(whole[:length])
        with pytest.raises(DatasetError, match=r"windows/001-r1\.parquet: cannot be read: .*--resume"):
            _ = Dataset.open(folder.path).windows
    part.unlink()
    with pytest.raises(DatasetError, match=r"windows/001-r1\.parquet: cannot be read: No such file"):
        _ = Dataset.open(folder.path).windows
    assert folder.done() == {(0, 1)}


def test_a_folder_of_a_version_that_wrote_fewer_columns_is_read(folder: RunFolder, experiment: spec.Spec) -> None:
    measured(folder, experiment, runs(experiment, seed=1)[0])
    part = folder.path / "tables" / "stations" / "000-r1.parquet"
    pl.read_parquet(part).drop("thinks", "think_sum_ns").with_columns(forgotten=pl.lit(1)).write_parquet(part)
    stations = Dataset.open(folder.path).stations
    assert stations.schema == TABLES["stations"]
    assert stations["thinks"].to_list() == [None]
    points = folder.path / "tables" / "points" / "000-r1.parquet"
    pl.read_parquet(points).drop("load.clients").write_parquet(points)
    with pytest.raises(DatasetError, match=r"000-r1\.parquet: .* it lacks column load\.clients"):
        _ = Dataset.open(folder.path).points


def test_an_experiment_that_was_changed_cannot_go_on(folder: RunFolder) -> None:
    manifest = folder.fingerprint()
    folder.check_fingerprint(manifest)
    folder.check_fingerprint({})  # of a version that kept none
    (folder.path / "experiment.toml").write_text(EXPERIMENT.replace("[4, 8]", "[2, 4, 8]"))
    with pytest.raises(DatasetError, match=r"experiment\.toml: changed after the run began"):
        folder.check_fingerprint(manifest)


def test_two_labs_do_not_work_in_one_folder(folder: RunFolder) -> None:
    folder.lock()
    with pytest.raises(DatasetError, match="another `knee run` uses this folder"):
        RunFolder(folder.path).lock()


def test_repeated_run_replaces_a_partial_one(folder: RunFolder, experiment: spec.Spec) -> None:
    run = runs(experiment, seed=1)[0]
    folder.point_folder(run)
    folder.lines_path(run, "middleware-0").write_text(WINDOW[:100])
    folder.record(run, experiment, Outcome("failed", "store-0 ended", processes=DONE.processes))
    dataset = Dataset.open(folder.path)
    assert dataset.points.select("status", "reason").row(0) == ("failed", "store-0 ended")
    assert dataset.windows.is_empty()
    assert folder.done() == set()
    measured(folder, experiment, run)
    assert Dataset.open(folder.path).points["status"].to_list() == ["done"]


def test_a_line_that_is_none_is_named(folder: RunFolder, experiment: spec.Spec) -> None:
    for line, kind in (("thread 'main' panicked", "JSON line"), ("[1]", "JSON object")):
        with pytest.raises(DatasetError, match=rf"middleware-0\.jsonl:2: not a {kind}"):
            recorded(folder, experiment, "middleware-0", READY, line)


def test_missing_runs_and_wrong_values_give_warnings(folder: RunFolder, experiment: spec.Spec) -> None:
    summary = {"type": "summary", "seconds": 3.0, "wrong_values": 2, "losses": 3, "reconnects": 1}
    dataset = recorded(folder, experiment, "load-0", summary)
    assert dataset.summaries.select("losses", "reconnects").row(0) == (3, 1)
    note, missing, wrong = warnings_of_folder(dataset)
    assert words.warning(note) == "A note."
    assert missing == Incomplete(1, 2, f"`knee run --resume {folder.path}`")
    assert wrong == WrongAnswers(2, of_messages=False)


def test_unsent_requests_give_a_warning(folder: RunFolder, experiment: spec.Spec) -> None:
    dataset = recorded(folder, experiment, "load-0", {"type": "summary", "seconds": 3.0, "unsent": 7})
    warning = warnings_of_folder(dataset)[-1]
    assert warning == Unsent(7, cut_off=False)
    assert words.warning(warning).endswith("If no resource of the system was full, use more clients.")


def test_wrong_answers_of_a_queue_are_messages(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("{ hosts = 2 }", '{ kind = "null" }\n[workload]\nprotocol = "queue"\nverify = true')
    experiment = spec.parse(text, "x.toml")
    folder = RunFolder.create(tmp_path, "two-points", text)
    folder.write_manifest({"seed": 1, "overrides": {}})
    dataset = recorded(folder, experiment, "load-0", {"type": "summary", "seconds": 3.0, "wrong_values": 2})
    assert warnings_of_folder(dataset)[-1] == WrongAnswers(2, of_messages=True)


@pytest.mark.parametrize("manifest", [None, "{", "[]", '{"overrides": []}'])
def test_path_without_a_run_folder_is_refused(folder: RunFolder, tmp_path: Path, manifest: str | None) -> None:
    file = folder.path / "manifest.json"
    file.unlink() if manifest is None else file.write_text(manifest)
    for path in (folder.path, tmp_path, tmp_path / "absent"):
        with pytest.raises(DatasetError, match=str(path)):
            Dataset.open(path)


def test_two_runs_within_a_second_get_folders_of_their_own(tmp_path: Path) -> None:
    paths = {RunFolder.create(tmp_path, "x", EXPERIMENT).path for _ in range(3)}
    assert len(paths) == 3
    assert {(path / "experiment.toml").read_text() for path in paths} == {EXPERIMENT}


def test_failure_to_write_names_a_remedy() -> None:
    remedies = {
        errno.ENOSPC: "No space left on device; make room",
        errno.EFBIG: "File too large; raise the limit of a file's size",
    }
    for number, remedy in remedies.items():
        with pytest.raises(StorageError, match=f"runs/x: cannot be written: {remedy}"), writing(Path("runs/x")):
            raise OSError(number, os.strerror(number))
    with pytest.raises(StorageError, match=r"/proc/none.*cannot be written: .*(choose|make its directory)"):
        RunFolder.create(Path("/proc/none"), "x", EXPERIMENT)


def test_full_disk_leaves_old_file_readable(folder: RunFolder, experiment: spec.Spec) -> None:
    first, second = runs(experiment, seed=1)
    measured(folder, experiment, first)
    tables = folder.path / "tables"
    for table in tables.iterdir():
        table.chmod(0o500)
    try:
        if os.access(tables / "points", os.W_OK):
            # Root writes everywhere; a device that is always full takes the folder's place.
            (tables / "windows" / "001-r1.parquet.partial").symlink_to("/dev/full")
        with pytest.raises(StorageError):
            measured(folder, experiment, second)
    finally:
        for table in tables.iterdir():
            table.chmod(0o700)
    assert folder.done() == {(0, 1)}
    assert Dataset.open(folder.path).windows["point"].unique().to_list() == [0]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((1, 2), pl.Int64()),
        ((1, 2.5), pl.Float64()),
        ((True, False), pl.Boolean()),
        (("whole", "sharded"), pl.String()),
        ((4096, "exponential:4096"), pl.String()),
    ],
)
def test_a_factors_column_has_the_type_of_its_levels(levels: tuple[spec.Level, ...], expected: pl.DataType) -> None:
    assert factor_type(levels) == expected


@pytest.mark.parametrize(
    ("text", "overrides", "said", "unsaid"),
    [
        (
            specs.MESSAGES,
            [],
            {"workload.characters": 2000, "workload.receivers": "any", "workload.rate": None, "store.cpus": None},
            "workload.mix workload.set_get workload.multiget workload.value_bytes workload.keys workload.key_choice "
            "workload.bulk_keys workload.level workload.arrivals workload.graph middleware.multiget "
            "middleware.pipelined middleware.connections store.threads store.trace store.user",
        ),
        (
            specs.MESSAGES,
            ["workload.rate=[100, 200]"],
            {"workload.arrivals": "poisson", "workload.loop": "send-list-read-remove"},
            "workload.think_ms workload.think workload.rate",
        ),
        # A given value is kept, though it means little there.
        (specs.MESSAGES, ["workload.arrivals=constant"], {"workload.arrivals": "constant"}, "workload.mix"),
        (specs.MESSAGES, ["workload.rate=100", "workload.think_ms=0"], {"workload.think_ms": 0.0}, "workload.think"),
        (
            specs.VERSIONED,
            [],
            {"workload.mix": "read:3,bulk_put:1", "workload.scan_keys": 100, "store.threads": 1},
            "workload.set_get workload.multiget workload.pipeline workload.level middleware.hosts store.indexes",
        ),
        (specs.GRAPH, ["workload.keys=500"], {"workload.keys": 500, "workload.graph.users": 900}, "workload.populated"),
        (changed(specs.GRAPH, "keys = 1000\n", ""), [], {"workload.graph.users": 900}, "workload.keys"),
        (
            specs.CACHE,
            [],
            {"middleware.multiget": "whole", "workload.think_ms": 0.0, "store.memory_mb": 1024},
            "workload.mix workload.loop middleware.combine store.trace store.durability",
        ),
        # Only one of its kinds has a trace.
        (
            specs.CACHE,
            ['store.kind=["knee-kv", "memcached"]'],
            {"store.memory_mb": 1024},
            "store.trace store.kind store.indexes",
        ),
        # It is unknown how the stores were started.
        (
            changed(specs.CACHE, 'store = { hosts = 3, kind = "memcached" }', 'store = { address = ["h:1", "h:2"] }'),
            [],
            {"store.address": ("h:1", "h:2"), "middleware.threads": 1},
            "store.hosts store.kind store.threads store.memory_mb",
        ),
    ],
)
def test_defaults_that_apply_are_constant(
    text: str, overrides: list[str], said: dict[str, object], unsaid: str
) -> None:
    constant = Dataset(Path("x"), specs.read(text, *overrides), {}).constant
    assert said.items() <= constant.items()
    assert set(unsaid.split()).isdisjoint(constant)


def test_steps_of_a_ramp_are_separate_runs(folder: RunFolder) -> None:
    ramp = spec.parse(EXPERIMENT + "ramp = true\n", "x.toml")
    (run,) = runs(ramp, seed=1)
    folder.point_folder(run)
    counts = {"count": 5, "errors": 0, "items": 5, "hits": 0, "misses": 0, "bytes_in": 1, "bytes_out": 1}
    hdr = Histogram(np.array([0, 5])).encode()
    window = {"type": "window", "role": "load", "seconds": 1.0, "late_sends": 1}
    lines = [
        window | {"second": START + second, "ops": {"get": counts | {"response_sum_ns": 5, "response": hdr}}}
        for second in range(6)
    ]
    whole = {"type": "summary", "role": "load", "clients": 8, "seconds": 6.0, "late_sends": 6, "unsent": 0}
    summary = whole | {"ops": {"get": counts | {"count": 30}}, "histograms": [{"op": "get", "stage": "response"}]}
    folder.lines_path(run, "load-0").write_text("".join(json.dumps(line) + "\n" for line in [*lines, summary]))
    samples = [SAMPLE | {"second": START + second} for second in range(6)]
    folder.record(run, ramp, Outcome("done", None, START, {"load-0": "load"}, samples))
    dataset = Dataset.open(folder.path)
    assert dataset.points.select("clients", "start_unix_s").rows() == [(4, START), (8, START + 3)]
    for table in (dataset.windows, dataset.probes):
        assert table.select("point", "elapsed_s").rows() == [(point, second) for point in (0, 1) for second in range(3)]
    assert dataset.totals["count"].to_list() == [15, 15]
    assert [Histogram.decode(text).total for text in dataset.totals["response"]] == [15, 15]
    assert dataset.summaries.select("clients", "late_sends", "seconds").rows() == [(4, 3, 3.0), (8, 3, 3.0)]
    assert folder.done() == {(0, 1), (1, 1)}


def test_step_of_a_ramp_has_the_ejections_of_its_seconds(folder: RunFolder) -> None:
    ramp = spec.parse(EXPERIMENT + "ramp = true\n", "x.toml")
    window = json.loads(WINDOW) | {"ops": {}}
    first, second = window["servers"]
    steady = [one | {"ejected": 0, "errors": 0} for one in (first, second)]
    out = [first | {"ejected": 0, "errors": 1}, second | {"ejected": 1, "errors": 1}]
    lines = [window | {"second": START + at, "servers": out if at > 3 else steady} for at in range(6)]
    dataset = recorded(folder, ramp, "middleware-0", *lines, SUMMARY)
    assert dataset.summaries.select("servers_ejected", "servers_errors").rows() == [(0, 0), (2, 4)]
    assert Ejected(2) in warnings_of_folder(dataset)
