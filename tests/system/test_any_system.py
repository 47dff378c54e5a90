"""`knee run` with other load generators, against other servers."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest
from command_line import knee
from json_schema import answered
from systems import is_gone, wait_until

from knee import spec
from knee.data import RunFolder
from knee.errors import ProcessError
from knee.find.scouts import Scouts
from knee.generators.lab import CommandLab
from knee.lab.deploy.deployment import Progress
from knee.lab.hosts.local import LocalHost
from knee.lab.watch import listening
from knee.spec.design import Run, runs

REPOSITORY = Path(__file__).resolve().parents[2]
SLOTS = f"{sys.executable} {REPOSITORY / 'bench' / 'slots.py'}"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}

EXPERIMENT = """\
[experiment]
name = "any"
question = "Does it matter?"
[system]
{system}
[system.load]
clients = 1
command = "wrk -t1 -c{{clients}} -d{{seconds}}s --latency http://127.0.0.1:{port}/"
[factors]
{factors}
[measure]
repetitions = {repetitions}
seconds = 1
"""


def written(folder: Path, port: int, system: str = "", factors: str = "", repetitions: int = 1) -> Path:
    file = folder / "any.toml"
    file.write_text(EXPERIMENT.format(system=system, factors=factors, port=port, repetitions=repetitions))
    return file


def folder_of(cwd: Path) -> Path:
    (found,) = (cwd / "runs" / "any").glob("[!.]*")
    return found


def rows_of(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))


def test_run_of_two_systems_ends_with_a_folder_that_all_commands_read(tmp_path: Path, port: int) -> None:
    few, many = f"{SLOTS} {port} 2 20", f"{SLOTS} {port} 8 20"
    factors = f'"load.clients" = [1, 4, 16]\n"system.command" = ["{few}", "{many}"]'
    done = knee("run", str(written(tmp_path, port, factors=factors)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # A busy machine contradicts itself.
    assert re.search(r"6 (results|files)", done.stdout) and "Knee " in done.stdout and "6/6  load." in done.stderr
    folder = folder_of(tmp_path)
    assert f"report: {folder.relative_to(tmp_path)}/report.html" in done.stdout
    rows = rows_of(folder)
    assert sorted((int(row["clients"]), row["system.command"], row["repetition"]) for row in rows) == sorted(
        (clients, system, "1") for clients in (1, 4, 16) for system in (few, many)
    )
    assert sorted(row["run_order"] for row in rows) == ["1", "2", "3", "4", "5", "6"]
    assert {"p99_ms", "utilization_load generator", f"utilization_{Path(sys.executable).name} thread"} <= {*rows[0]}
    # Two slots answer 100 requests/s, eight four times as many.
    most = {row["system.command"]: float(row["throughput"]) for row in rows if row["clients"] == "16"}
    assert most[few] < 105 and 200 < most[many] < 420
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["commands"]["0-r1"]["wrk"][-1] == f"http://127.0.0.1:{port}/"
    programs = manifest["programs"]
    assert programs.keys() == {"wrk", sys.executable} and programs["wrk"]["path"] == shutil.which("wrk")
    assert programs["wrk"]["bytes"] == Path(programs["wrk"]["path"]).stat().st_size
    assert manifest["commands"]["0-r1"]["system"][-3:] == [str(port), "2", "20"]
    assert len(answered("check", knee("check", "--json", str(folder), cwd=tmp_path).stdout)["results"]) == 6
    for command in ("laws", "diagnose", "factorial", "report"):
        answered(command, knee(command, "--json", str(folder), cwd=tmp_path).stdout)
    predicted = knee("predict", str(folder), "--set", "clients=8", cwd=tmp_path)
    assert "think_ms" not in predicted.stderr
    assert predicted.returncode == 0 and f"system.command = {few}" in predicted.stdout
    compared = knee("compare", "--between", "system.command", str(folder), cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    page = (folder / "report.html").read_text()
    assert "<title>any" in page and "Does it matter?" in page


def test_scouts_of_a_command_enclose_its_knee(tmp_path: Path, port: int) -> None:
    # Two slots answer one request each at a time.
    file, lines = written(tmp_path, port, f'command = "{SLOTS} {port} 2 20"', '"load.clients" = "auto"'), list[str]()
    experiment = spec.load(file)
    folder = RunFolder.create(tmp_path, "any", spec.read(file))
    scouts = Scouts(experiment, 0, folder, LocalHost(), lines.append)
    levels = scouts.levels()
    assert levels[0] < 2 < levels[-1] and scouts.reasons[0].startswith("a knee near")
    clients = scouts.done["load.clients"]
    assert len(lines) == len(clients) == len(list(folder.path.glob("scouts/outputs/*.txt"))) >= 3
    assert not list(folder.path.rglob("table.csv"))


DIES = """\
import asyncio, os, sys
sys.path.insert(0, {bench!r})
import slots
serve, connections = slots.Slots.serve, 0
async def counting(*arguments):
    global connections
    connections += 1
    if connections > 20:
        os._exit(3)
    await serve(*arguments)
    connections -= 1
slots.Slots.serve = counting
asyncio.run(slots.main())
"""


def test_scouts_suit_three_threads_and_stay_below_the_end_of_the_system(tmp_path: Path, port: int) -> None:
    (tmp_path / "dies.py").write_text(DIES.format(bench=str(REPOSITORY / "bench")))
    system = f'command = "{sys.executable} {tmp_path}/dies.py {port} 8 20"'
    file, lines = written(tmp_path, port, system, '"load.clients" = "auto"'), list[str]()
    file.write_text(file.read_text().replace("wrk -t1", "wrk -t3"))
    scouts = Scouts(spec.load(file), 0, RunFolder.create(tmp_path, "any", spec.read(file)), LocalHost(), lines.append)
    levels = scouts.levels()
    assert max(levels) == 12 and all(level % 3 == 0 for level in levels)
    assert scouts.done["load.clients"] == [3, 6, 12]
    assert any("3 of 4 clients ran" in line and line.endswith("trying 3 clients") for line in lines)
    assert "the system ended: " in lines[-1] and lines[-1].endswith("stays at 12 clients or fewer")
    assert scouts.reasons[-1] == "failures with more than 12 clients"


def test_run_whose_command_or_system_fails_names_both(tmp_path: Path, port: int) -> None:
    fails = f'"system.command" = ["{sys.executable} -c raise(SystemExit(4))", "{SLOTS} {port} 1 5"]'
    done = knee("run", str(written(tmp_path, port, factors=fails)), cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "system ended before it was ready: exit code 4" in done.stderr and "1 of 2 measurements failed" in done.stderr
    )
    folder = folder_of(tmp_path)
    assert len(rows_of(folder)) == 1
    (reason,) = json.loads((folder / "manifest.json").read_text())["failures"].values()
    assert reason in done.stderr
    for command in ("check", "diagnose", "report"):
        read = knee(command, str(folder), cwd=tmp_path)
        assert read.stderr.count(f"knee: 1 of 2 runs failed: {reason}; `knee run --resume {folder}` repeats") == 1
    assert "exit code 4" in (folder / "report.html").read_text()
    file = written(tmp_path, port)
    done = knee(
        "run", "--runs-dir", "none", str(file), "--set", "load.command=wrk -c{clients} --nonsense", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "wrk: exit code 1; last lines: " in done.stderr and "check the command: wrk -c1 --nonsense" in done.stderr
    missing = knee("run", str(file), "--set", "load.command=nonsense {clients}", cwd=tmp_path)
    assert missing.returncode == 2 and "nonsense is not installed" in missing.stderr
    (folder,) = (tmp_path / "none" / "any").glob("[!.]*")
    missing = knee("run", str(file), "--set", "load.command=./wrkk -c{clients} http://x/", cwd=tmp_path)
    assert missing.returncode == 2 and "./wrkk: no such program, or it may not be executed" in missing.stderr
    read = knee("laws", str(folder), cwd=tmp_path)
    assert read.returncode == 2 and "no run is complete; 1 of 1 run failed: wrk: exit code 1" in read.stderr


def test_system_that_already_runs_is_watched_by_its_port(tmp_path: Path, port: int) -> None:
    system = subprocess.Popen([*SLOTS.split(), str(port), "4", "20"])
    try:
        wait_until(lambda: bool(listening(port, "")), "it listens")
        done = knee("run", str(written(tmp_path, port, f'watch = ["port:{port}"]')), cwd=tmp_path)
    finally:
        system.kill()
        system.wait()
    assert done.returncode == 0, done.stderr
    (row,) = rows_of(folder_of(tmp_path))
    # A busy machine may start the generator too late to watch its server.
    assert f"utilization_{Path(sys.executable).name} thread" in row or "processor times are unknown" in done.stderr
    again = knee("run", "--runs-dir", "none", "any.toml", cwd=tmp_path)
    assert again.returncode == 1 and f"system.watch port:{port}: no process" in again.stderr


def test_system_beside_a_server_that_refuses_is_not_measured(tmp_path: Path, port: int) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

    with HTTPServer(("127.0.0.1", port), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            file = written(tmp_path, port, f'command = "{SLOTS} {port} 1 5"')
            done = knee("run", str(file), cwd=tmp_path)
        finally:
            server.shutdown()
    assert done.returncode == 1
    assert f"http://127.0.0.1:{port}/: answers before the system starts; stop that server" in done.stderr


def test_run_that_is_interrupted_resumes_with_its_file_alone(tmp_path: Path, port: int) -> None:
    file = written(tmp_path, port, f'command = "{SLOTS} {port} 4 5"', '"load.clients" = [1, 2, 4]')
    words = [sys.executable, "-m", "knee", "run", "--no-report", str(file)]
    running = subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: bool(list((tmp_path / "runs").glob("any/*/outputs/*.txt"))), "a run is finished")
        children: list[psutil.Process] = []

        def is_running() -> bool:
            children[:] = psutil.Process(running.pid).children(recursive=True)
            return any(child.name() == "wrk" for child in children)

        wait_until(is_running, "another one runs")
        running.send_signal(signal.SIGINT)
        _, complaints = running.communicate(timeout=60)
    finally:
        running.kill()
    folder = folder_of(tmp_path)
    assert running.returncode == 130 and all(map(is_gone, children))
    assert f"continue with `knee run --resume {folder.relative_to(tmp_path)}`" in complaints
    before = {row["clients"]: row["throughput"] for row in rows_of(folder)}
    assert 1 <= len(before) < 3
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "experiment.toml").write_text(file.read_text().replace("4 5", "8 5"))
    refused = knee("run", "--resume", str(other), cwd=tmp_path)
    assert refused.returncode == 2 and "changed after the run began" in refused.stderr
    resumed = knee("run", "--resume", str(folder), cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    after = {row["clients"]: row["throughput"] for row in rows_of(folder)}
    assert len(after) == 3 and before.items() <= after.items()
    assert re.search(r"3 (results|files)", resumed.stdout)
    # A lab that is killed leaves its last output without a table.
    killed = tmp_path / "killed"
    shutil.copytree(folder, killed)
    (killed / "table.csv").unlink()
    assert knee("run", "--no-report", "--resume", str(killed), cwd=tmp_path).returncode == 0
    assert (killed / "table.csv").read_text() == (folder / "table.csv").read_text()


def test_cleanup_that_fails_hides_no_interrupt(tmp_path: Path, port: int) -> None:
    class Failing(LocalHost):
        def close(self, grace_s: float) -> None:
            super().close(grace_s)
            raise ProcessError("a child still prints")

    interrupts = {"load.command": "sh -c 'sleep 0.3; kill -INT $PPID; exec sleep 60' {clients}"}
    text = spec.read(written(tmp_path, port, factors='"load.clients" = [1, 2]'))
    experiment = spec.parse(text, "any.toml", interrupts)
    folder = RunFolder.create(tmp_path, "any", text)
    folder.write_manifest({"overrides": interrupts})
    lab = CommandLab(experiment, folder, Failing(), Progress(), lambda _: None)
    calls = list[tuple[Run, int, str | None]]()
    plan = runs(experiment, 0)
    with pytest.raises(KeyboardInterrupt) as ended:
        lab.make(plan, lambda run, started, reason: calls.append((run, len(started), reason)))
    assert ended.value.args == ("a child still prints",)
    assert calls == [(plan[0], 0, None), (plan[0], 1, None)]
    assert not folder.scratch_path.exists()


KINDS = """\
[experiment]
name = "any"
[system]
load = {{ {load} }}
store = {{ {store} }}
[workload]
{workload}
[measure]
repetitions = 1
seconds = 1
"""


@pytest.mark.parametrize(
    ("load", "store", "workload", "column"),
    [
        ('kind = "wrk", clients = 2', 'kind = "nginx", threads = 2', "value_bytes = 100", "nginx thread"),
        ('command = "wrk -t1 -c{clients} -d{seconds}s {url}", clients = 1', 'kind = "nginx"', "", "nginx thread"),
        (
            'kind = "redis-benchmark", clients = 2',
            'kind = "redis", durability = "always"',
            'value_bytes = 10\nkeys = 100\nset_get = "1:0"',
            "redis-server thread",
        ),
        (
            'kind = "pgbench", script = "s.sql", clients = 2',
            'kind = "postgresql", memory_mb = 16, durability = "none"',
            'scale = 1\nprepare = "p.sql"',
            "postgres thread",
        ),
    ],
)
def test_kind_starts_its_server_and_generator(
    tmp_path: Path, load: str, store: str, workload: str, column: str
) -> None:
    statements = "SELECT sum(abalance) FROM pgbench_accounts, one WHERE aid < n; SELECT pg_sleep(0.01); -- µ"
    (tmp_path / "s.sql").write_text(statements)
    (tmp_path / "p.sql").write_text("CREATE TABLE one AS SELECT 9 AS n;")
    (tmp_path / "any.toml").write_text(KINDS.format(load=load, store=store, workload=workload))
    done = knee("run", "any.toml", "--set", "thresholds.response_ms=0.0001", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # One run has no interval.
    assert "Cannot tell whether the only point keeps response_ms" in done.stdout
    folder = folder_of(tmp_path)
    (row,) = rows_of(folder)
    assert row["clients"] == load[-1] and float(row["throughput"]) > 0
    # A busy machine may start the generator too late to watch its server.
    assert f"utilization_{column}" in row or "processor times are unknown" in done.stderr
    assert [path.name for path in (tmp_path / "runs" / "any").iterdir()] == [folder.name]
    if "script" not in load:
        return
    # Another working directory has no s.sql, and one that is edited later is not what the folder measured.
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["files"]["s.sql"] == statements
    assert not any("s.sql" in words for words in manifest["commands"]["0-r1"].values())
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere / "again")
    next((elsewhere / "again" / "outputs").glob("*.txt")).unlink()
    again = knee("run", "--no-report", "--resume", "again", cwd=elsewhere)
    assert again.returncode == 0 and len(rows_of(elsewhere / "again")) == 1, again.stderr


def test_redis_that_cannot_be_filled_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "redis-server"
    server.write_text(f'#!/bin/sh\nexec {shutil.which("redis-server")} "$@" --maxmemory 100kb\n')
    server.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    load, store = 'kind = "redis-benchmark", clients = 1', 'kind = "redis"'
    (tmp_path / "any.toml").write_text(KINDS.format(load=load, store=store, workload='keys = 9000\nset_get = "0:1"'))
    done = knee("run", "any.toml", cwd=tmp_path)
    assert done.returncode == 1
    assert "fill: exit code 1; last lines: " in done.stderr and "used memory > 'maxmemory'" in done.stderr
