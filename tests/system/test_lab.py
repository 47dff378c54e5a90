"""The lab against real servers: what it measures, and what it leaves behind when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
from json_schema import answered
from labs import knee, knee_run
from systems import is_gone, wait_until
from tests.browser import dom_of, unmarked, with_browser

from knee import spec
from knee.cli import live
from knee.data import Dataset, RunFolder
from knee.data.hdr import Histogram
from knee.data.observations import observations
from knee.errors import ProgramError
from knee.lab import programs, run
from knee.lab.deploy import memcached, stores
from knee.lab.deploy.deployment import Progress
from knee.lab.hosts.local import LocalHost
from knee.spec import Middleware, Store
from knee.spec.design import runs
from knee.verdict import words
from knee.verdict.health import warnings_of_folder

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
"""For runs that take a few seconds on an idle machine."""

EXPERIMENT = """\
[experiment]
name = "system-test"
[system]
load = { hosts = 2, clients = 4 }
middleware = { hosts = 2, workers = 2 }
store = { hosts = 2, memory_mb = 64 }
[workload]
set_get = "1:3"
value_bytes = 100
keys = 500
think_ms = 4
verify = true
[measure]
repetitions = 2
seconds = 3
warmup_s = 1
cooldown_s = 1
order = "given"
"""

NO_MIDDLEWARE = EXPERIMENT.replace("middleware = { hosts = 2, workers = 2 }\n", "")
LINKED = EXPERIMENT.replace("clients = 4 }", "clients = 4, link_mbit = 100 }")

SHORT = [f"measure.{one}" for one in ("repetitions=1", "seconds=1", "warmup_s=0", "cooldown_s=0")]
ONCE = [word for one in SHORT for word in ("--set", one)]
"""For tests that need one short repetition."""


def lasting(seconds: int) -> str:
    """The experiment with longer measurements, for tests that act in the middle of one."""
    return EXPERIMENT.replace("seconds = 3", f"seconds = {seconds}")


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        for name in ("knee-kv", "knee-proxy", "knee-load"):
            programs.find(name)
        programs.find_foreign("memcached")
    except ProgramError as error:
        pytest.fail(f"the system tests need every program: {error}")


class Lab:
    """`knee run` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def start(self, *arguments: str, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*wrapper, sys.executable, "-m", "knee", "run", "--no-report", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        return knee_run(self.folder, *arguments, **environment)

    def experiment(self, text: str) -> str:
        file = self.folder / "experiment.toml"
        file.write_text(text)
        return str(file)

    def dataset(self) -> Dataset:
        (path,) = (self.runs / "system-test").iterdir()
        return Dataset.open(path)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def running(lab: Lab) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a run and waits until its clients are at work; ends it after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        process = lab.start(lab.experiment(text))
        started.append(process)
        wait_for(lambda: bool(list(lab.runs.glob("*/*/points/*/load-0.jsonl"))), process)
        wait_for(lambda: '"window"' in next(lab.runs.glob("*/*/points/*/load-0.jsonl")).read_text(), process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, f"the lab ended early: {process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """The programs that the lab has started, each with its name in the run folder."""
    children = psutil.Process(process.pid).children(recursive=True)
    return {f"{child.name()}-{index}": child for index, child in enumerate(children)}


def assert_gone(processes: list[psutil.Process]) -> None:
    wait_until(lambda: all(map(is_gone, processes)), "they have ended", PATIENCE_S)


def test_late_clients_are_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "start_lead_s", lambda _: -5.0)
    # A slow machine needs more attempts.
    monkeypatch.setattr(run, "_STARTS_MAX", 10)
    experiment = spec.parse(NO_MIDDLEWARE, "x.toml", spec.parse_overrides(SHORT))
    folder = RunFolder.create(tmp_path, "x", NO_MIDDLEWARE)
    folder.write_manifest({})
    tally = run.Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1), lambda *_: None)
    assert (tally.done, tally.failed) == (1, [])


def test_finished_run_has_its_counts_percentiles_and_provenance(lab: Lab) -> None:
    code, said = lab.run(lab.experiment(LINKED), "--set", "workload.keys=600")
    assert code == 0, said
    assert said.count("link_mbit was not emulated") == 1
    dataset = lab.dataset()
    (warning,) = warnings_of_folder(dataset)
    assert words.warning(warning).startswith("link_mbit was not emulated")
    assert_counted_alike(dataset)
    assert_percentiles_are_those_printed(dataset)
    assert_has_provenance(dataset)


def assert_counted_alike(dataset: Dataset) -> None:
    """Two repetitions in which clients, middlewares and windows count the same requests."""
    assert dataset.points["status"].to_list() == ["done", "done"]
    per_role = dataset.totals.group_by("repetition", "role").agg(pl.col("count").sum())
    for (_,), counts in per_role.group_by("repetition"):
        by_role = dict(counts.select("role", "count").iter_rows())
        assert by_role["load"] > 100
        assert by_role["middleware"] == pytest.approx(by_role["load"], rel=0.005)
    # The windows add up to the whole.
    loaded = dataset.windows.filter(role="load")
    assert loaded["count"].sum() == dataset.totals.filter(role="load")["count"].sum()
    # 0.99 of the keys were populated; sets only add to them.
    gets = dataset.totals.filter(role="load", op="get")
    assert 0 <= gets["misses"].sum() <= 0.05 * gets["items"].sum()
    expected = {"host", "knee", "load-0", "load-1", "middleware-0", "middleware-1", "store-0", "store-1"}
    assert set(dataset.probes["target"]) == expected


def assert_percentiles_are_those_printed(dataset: Dataset) -> None:
    printed = [
        one
        for path in dataset.path.glob("points/*/*.jsonl")
        for line in path.read_text().splitlines()
        for one in json.loads(line).get("histograms", [])
    ]
    assert {one["stage"] for one in printed} == {"queueing", "service", "response"}
    for one in printed:
        histogram = Histogram.decode(one["hdr"])
        assert histogram.total == one["count"]
        for name, percentile in {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9, "max": 100}.items():
            assert histogram.percentile(percentile) == one[name], (one["op"], one["stage"], name)
        assert histogram.mean == pytest.approx(one["mean"], rel=0.001)


def assert_has_provenance(dataset: Dataset) -> None:
    assert (dataset.path / "experiment.toml").read_text() == LINKED
    manifest = dataset.manifest
    assert manifest["overrides"] == {"workload.keys": 600}
    assert manifest["links_emulated"] is False
    assert manifest["host"]["kernel"] and manifest["programs"]["knee-kv"]["version"]
    started = manifest["commands"]["0-r1"]
    assert {"store-1", "middleware-1", "load-1", "populate-1"} <= set(started)
    assert "600" in started["load-0"]
    (folder,) = (path.parent for path in dataset.path.glob("points/*/load-0.jsonl") if path.parent.name.endswith("r1"))
    assert sorted(path.name for path in folder.glob("*.jsonl")) == sorted(f"{name}.jsonl" for name in started)


def test_store_elsewhere_outlives_a_run_under_nohup(lab: Lab) -> None:
    host = LocalHost()
    try:
        command = stores.store("store", Store(kind="memcached"), host.free_address("store-0"), 100)
        store = host.start(command, lab.folder / "lines", lab.folder / "log", lambda *_: None)
        address = store.wait_ready(PATIENCE_S)
        text = NO_MIDDLEWARE.replace("hosts = 2, memory_mb = 64", f'address = ["{address}"]')
        with lab.start(lab.experiment(text), *ONCE, wrapper=("sh", "-c", 'trap "" HUP; exec "$@"', "sh")) as process:
            wait_for(lambda: bool(list(lab.runs.glob("*/*/points/*/load-0.jsonl"))), process)
            process.send_signal(signal.SIGHUP)
            _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert store.poll() is None
    finally:
        host.close(5)
    dataset = lab.dataset()
    assert set(dataset.windows["role"]) == {"load"}
    assert dataset.points["stores"].to_list() == [1]


def test_a_middleware_that_already_runs_elsewhere(lab: Lab) -> None:
    """The lab does not know the stores behind it, and populates them through it."""
    host = LocalHost()
    try:
        store = host.start(
            stores.store("store", Store(), host.free_address("store-0"), 100),
            lab.folder / "store.lines",
            lab.folder / "store.log",
            lambda *_: None,
        )
        address = store.wait_ready(PATIENCE_S)
        assert address is not None
        middleware = host.start(
            memcached.middleware("middleware", Middleware(workers=2), "127.0.0.1:0", [address], clients=10),
            lab.folder / "middleware.lines",
            lab.folder / "middleware.log",
            lambda *_: None,
        )
        address = middleware.wait_ready(PATIENCE_S)
        text = NO_MIDDLEWARE.replace(
            "store = { hosts = 2, memory_mb = 64 }", f'middleware = {{ address = ["{address}"] }}'
        )
        code, said = lab.run(lab.experiment(text), *ONCE)
        assert code == 0, said
        assert (store.poll(), middleware.poll()) == (None, None)
    finally:
        host.close(5)
    dataset = lab.dataset()
    assert set(dataset.windows["role"]) == {"load"}
    assert dataset.points.select("middlewares", "stores").rows() == [(1, 0)]
    gets = dataset.totals.filter(op="get")
    assert gets["hits"].sum() > 0 and gets["misses"].sum() <= 0.05 * gets["items"].sum()


# The rate is met only where nothing else keeps the processors busy.
@pytest.mark.alone
def test_an_open_loop_on_memcached_has_its_rate(lab: Lab) -> None:
    text = NO_MIDDLEWARE.replace("memory_mb = 64", 'kind = "memcached", memory_mb = 64')
    text = text.replace("think_ms = 4", 'arrivals = "constant"')
    code, said = lab.run(lab.experiment(text), "--set", "workload.rate=[200, 400]", *ONCE)
    assert code == 0, said
    dataset = lab.dataset()
    assert dataset.points["think_ms"].to_list() == [None] * 2
    seconds = dataset.spec.measure.seconds
    for (point,), totals in dataset.totals.filter(role="load").group_by("point"):
        # Each of the eight clients may have one more or one less.
        assert totals["count"].sum() == pytest.approx((200, 400)[int(str(point))] * seconds, abs=8)


def test_a_store_that_is_not_there_fails_every_run_and_says_so(lab: Lab) -> None:
    host = LocalHost()
    try:
        address = host.free_address("store-0")
        text = NO_MIDDLEWARE.replace("hosts = 2, memory_mb = 64", f'address = ["{address}"]')
        code, said = lab.run(lab.experiment(text))
    finally:
        host.close(0)
    assert code == 1
    assert address in said
    assert lab.dataset().points["status"].to_list() == ["failed", "failed"]


def test_a_server_that_dies_fails_its_run_only(lab: Lab, running: Callable[[str], subprocess.Popen[str]]) -> None:
    process = running(lasting(4))
    store = next(child for child in children_of(process).values() if child.name() == "knee-kv")
    store.kill()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    dataset = lab.dataset()
    assert dataset.points.select("repetition", "status").rows() == [(1, "failed"), (2, "done")]
    assert "ended during the run: killed by SIGKILL" in said and "killed by SIGKILL" in dataset.points["reason"][0]
    # It is repeated with a store that does not start.
    (lab.folder / "bin").mkdir()
    for name in ("knee-load", "knee-proxy"):
        (lab.folder / "bin" / name).symlink_to(programs.find(name))
    (lab.folder / "bin" / "knee-kv").symlink_to("/bin/false")
    code, said = lab.run("--resume", str(dataset.path), KNEE_BIN_DIR=str(lab.folder / "bin"))
    assert code == 1
    assert "1 of 1 measurement failed" in said
    assert "resumed at" in said and "different values of programs" in said


def test_an_interrupted_run_stops_everything(lab: Lab, running: Callable[[str], subprocess.Popen[str]]) -> None:
    process = running(lasting(600))
    code, said = lab.run("--resume", str(lab.dataset().path))
    assert (code, "another `knee run` uses this folder" in said) == (2, True), said
    children = list(children_of(process).values())
    assert len(children) == 6
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert not any(child.is_running() for child in children)
    dataset = lab.dataset()
    assert f"knee run --resume {dataset.path.relative_to(lab.folder)}" in said
    assert "Traceback" not in said
    assert dataset.points.select("repetition", "status").rows() == [(1, "interrupted")]
    assert not RunFolder(dataset.path).done()


def test_nothing_outlives_a_lab_that_is_killed(lab: Lab, running: Callable[[str], subprocess.Popen[str]]) -> None:
    # memcached is tied to the lab by setpriv, our own programs by a flag.
    process = running(lasting(600).replace("memory_mb", 'kind = "memcached", memory_mb'))
    children = list(children_of(process).values())
    assert len(children) == 6
    process.kill()
    process.communicate()
    assert_gone(children)


def test_a_disk_that_fills_up_keeps_what_was_measured(lab: Lab) -> None:
    """On a file system of the size of a few runs, in a mount namespace of its own.

    Where that is not allowed, as in many containers, files may not grow as long as the manifest's would after a
    few runs.
    """
    script = 'mount -t tmpfs -o size=300k none runs && "$@"; code=$?; cp -r runs kept; exit $code'
    wrapper: tuple[str, ...] = ("unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    expected = "No space left on device; make room, or choose another place with --runs-dir"
    longer: tuple[str, ...] = ()
    lab.runs.mkdir()
    may_mount = not subprocess.run(
        [*wrapper[:3], "mount", "-t", "tmpfs", "none", lab.runs], check=False, capture_output=True
    ).returncode
    if not may_mount:
        wrapper, expected = ("prlimit", "--fsize=100000"), "File too large; raise the limit"
        longer = ("--set", "experiment.question=" + 85_000 * "?")
    short = [*ONCE, "--set", "measure.repetitions=20"]
    with lab.start(lab.experiment(EXPERIMENT), *short, *longer, wrapper=wrapper) as process:
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert expected in said
    assert "Traceback" not in said
    if may_mount:
        shutil.rmtree(lab.runs)
        (lab.folder / "kept").rename(lab.runs)
    dataset = lab.dataset()
    done = dataset.points.filter(status="done").height
    assert done >= 1
    assert dataset.windows.select("point", "repetition").n_unique() == done
    json.loads((dataset.path / "manifest.json").read_text())


@pytest.mark.parametrize("protocol", ["memcached", "kv"])
def test_ramp_measures_each_number_of_clients_in_one_run(lab: Lab, protocol: str) -> None:
    file = lab.experiment(
        f"""\
[experiment]
name = "system-test"
[system]
load = {{ hosts = 2, threads = 2 }}
store = {{ hosts = 1 }}
[workload]
protocol = "{protocol}"
keys = 100
think_ms = 200
[factors]
"load.clients" = [2, 4]
[measure]
ramp = true
repetitions = 1
seconds = 3
warmup_s = 1
cooldown_s = 0
"""
    )
    code, said = lab.run(file)
    assert code == 0, said
    assert "1/1" in said and "joined within one run" in said
    few, many = observations(lab.dataset()).sort("clients")["throughput"]
    # A client makes five requests a second at most.
    assert few <= 11 and 13 < many <= 21, (few, many)


def test_run_whose_point_misses_a_threshold_exits_with_3(lab: Lab) -> None:
    short = [f"measure.{one}" for one in ("seconds=1", "warmup_s=0", "cooldown_s=0")]
    limits = [f"thresholds.{one}" for one in ("throughput=1e9", "response_ms=1000", "error_share=0")]
    changes = [word for one in (*short, *limits) for word in ("--set", one)]
    code, printed, said = knee(lab.folder, "run", "--json", lab.experiment(NO_MIDDLEWARE), *changes)
    assert code == 3, said
    assert "system-test: 2 measurements, at least" in said
    answer = answered("run", printed)
    assert {one["quantity"]: one["misses"] for one in answer["thresholds"]} == {
        "throughput": True,
        "response_ms": False,
        "error_share": False,
    }
    assert "misses throughput" in unmarked((lab.folder / answer["report"]).read_text())
    code, printed, _ = knee(lab.folder, "diagnose", str(lab.folder / answer["run"]))
    assert code == 0
    assert "The only point misses throughput ≥ 1,000,000,000 requests/s: 4 clients (" in printed
    assert "Every measured point keeps response_ms ≤ 1,000 and error_share ≤ 0." in printed


def test_file_of_init_runs_as_it_is(lab: Lab) -> None:
    flags = ["--kind", "cache", "--clients", "2", "--workers", "1,2", "--seconds", "1"]
    assert knee(lab.folder, "init", "system-test.toml", *flags)[0] == 0
    code, said = lab.run("system-test.toml", "--set", "measure.repetitions=1", "--set", "workload.think_ms=20")
    assert code == 0, said
    assert observations(lab.dataset())["workers"].to_list() == [1, 2]


@with_browser
def test_page_is_drawn_between_measurements(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0)
    monkeypatch.setattr(live, "SHARE_MAX", 1e9)
    drawn, write = lab.folder / "drawn.html", live.write_report

    def write_between(*arguments: Any) -> None:
        assert not psutil.Process().children(recursive=True), "no process of the lab may run"
        write(*arguments)
        shutil.copy(arguments[1], drawn)

    monkeypatch.setattr(live, "write_report", write_between)
    text = NO_MIDDLEWARE + '[factors]\n"load.clients" = [2, 4]\n'
    code, _, said = knee(lab.folder, "run", lab.experiment(text), *ONCE)
    assert code == 0, said
    during, after = (dom_of(page.read_text(), lab.folder) for page in (drawn, lab.dataset().report_path))
    assert "In progress: 1 of 2 runs." in during and "data-refresh-s" in during
    assert not [text for text in ("In progress", "data-refresh-s", "location.reload") if text in after]
    for page in (during, after):
        assert not re.findall(r">This chart could not be drawn[^<]*", page)
        assert re.search(r'data-chart="percentiles"[^>]*>.*?<svg', page)
