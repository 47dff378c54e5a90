"""`knee find` with wrk, against nginx and a server with a known knee."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from command_line import knee
from json_schema import answered
from systems import answers, folder_of, is_gone, wait_until

from knee.check import check
from knee.data.outputs import SearchFolder, outputs_of
from knee.errors import KneeError, MeasurementsError, ProcessError, ProgramError
from knee.find.generator import Generator
from knee.generators.runner import System
from knee.lab.hosts.local import LocalHost
from knee.lab.programs import find_foreign
from knee.lab.watch import Tree, listening
from knee.spec.template import Template
from knee.verdict.bottleneck import Bottleneck

REPOSITORY = Path(__file__).resolve().parents[2]
SLOTS = f"{sys.executable} {REPOSITORY / 'bench' / 'slots.py'}"
NGINX = """\
daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 1; events {{}}
http {{ access_log off; limit_req_zone x zone=z:1m rate=80r/s;
server {{ listen 127.0.0.1:{port}; location / {{ limit_req zone=z; empty_gif; }} }} }}
"""
"""Answers one client that thinks for 20 ms, and refuses many requests of two."""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        for name in ("nginx", "wrk"):
            find_foreign(name)
    except ProgramError as error:
        pytest.fail(f"these tests need every program: {error}")


def wrk(port: int, *flags: str) -> list[str]:
    return ["--", "wrk", "-t2", "-c{clients}", "-d{seconds}s", *flags, f"http://127.0.0.1:{port}/"]


def test_find_ends_with_a_folder_that_all_commands_read(tmp_path: Path, port: int) -> None:
    # A quiet machine needs nine runs.
    precise = ["--precision", "50%", "--budget", "30s"]
    system = ["--seconds", "1", *precise, "--system", f"{SLOTS} {port} 4 20"]
    done = knee("find", *system, *wrk(port), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "number of connections must be >= threads" in done.stderr and "trying 2 clients" in done.stderr
    assert re.search(rf"knee: watches python\S* \(pid \d+\) at port {port}\n", done.stderr)
    folder = folder_of(tmp_path)
    assert list((folder / "scouts").glob("*.txt")) and not list((folder / "scouts").glob("*.json"))
    assert "X · R" in done.stdout and "Knee" in done.stdout and f"report: {folder.relative_to(tmp_path)}" in done.stdout
    assert "<title>wrk -t2 " in (folder / "report.html").read_text()
    runs = len(list(outputs_of(folder).glob("*.txt")))
    assert json.loads((folder / "find.json").read_text())["options"]["budget"] == "30s"
    checked = knee("check", "--json", str(folder), cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    answer = answered("check", checked.stdout)
    assert len(answer["results"]) == runs > 3
    # The slots only sleep.
    (found,) = answer["bottlenecks"]
    assert (found["status"], found["names"]) == ("cannot tell", [])
    hosts = {"station host CPU", "station load generator host"}
    system = f"station {Path(sys.executable).name} thread"
    assert {each["name"] for each in found["resources"]} - hosts == {"station load generator", system}
    diagnosed = answered("diagnose", knee("diagnose", "--json", str(folder), cwd=tmp_path).stdout)
    assert [each["bottleneck"]["names"] for each in diagnosed["configurations"]] == [found["names"]]
    (folder / "report.html").unlink()
    page = knee("report", str(folder), cwd=tmp_path)
    assert Path(page.stdout.strip()) == folder / "report.html"
    assert "<title>wrk -t2 " in (folder / "report.html").read_text()


def test_find_of_nginx_that_refuses_requests_answers_below_in_json(tmp_path: Path, port: int) -> None:
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, port=port))
    (tmp_path / "think.lua").write_text("function delay() return 20 end")
    nginx = f"{find_foreign('nginx')} -p {tmp_path} -c {tmp_path}/nginx.conf -e {tmp_path}/log"
    words = ["--", "wrk", "-t1", "-c{clients}", "-d{seconds}s", "-s", "think.lua", f"http://127.0.0.1:{port}/"]
    done = knee("find", "--json", "--seconds", "1", "--system", nginx, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "requests failed" in done.stderr and "the search stays at 1 client or fewer" in done.stderr
    assert "scout" in done.stderr
    answer = answered("find", done.stdout)
    assert "without an interval: more than 1 client failed" in answer["text"][-1]
    assert answer["folder"] == str(folder_of(tmp_path).relative_to(tmp_path)) and answer["scouts"] == [1]
    assert sorted(each.name for each in outputs_of(folder_of(tmp_path)).iterdir()) == [
        f"c1-r{n}.{kind}" for n in (1, 2, 3) for kind in ("cpu.json", "txt")
    ]


@pytest.mark.skipif("KNEE_SOAK" not in os.environ, reason="make soak searches for more than a minute")
def test_find_of_slots_finds_their_knee_and_goal(tmp_path: Path, port: int) -> None:
    # 8 slots of 40 ms behind 40 ms.
    system = ["--seconds", "2", "--precision", "10%", "--budget", "50s", "--system", f"{SLOTS} {port} 8 40 40"]
    done = knee("find", *system, *wrk(port), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(knee("check", "--json", str(folder_of(tmp_path)), cwd=tmp_path).stdout)["knees"]
    assert found["status"] == "found"
    assert found["clients"]["estimate"] == pytest.approx(16, rel=0.10)
    # N clients wait for N / 8 rounds of 40 ms.
    (tmp_path / "goal").mkdir()
    done = knee("find", "--slo", "p50 < 200 ms", *system, *wrk(port, "--latency"), cwd=tmp_path / "goal")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("p50 < 200 ms holds up to "))
    assert float(line.split()[7]) == pytest.approx(40, rel=0.10)


def test_find_of_a_failing_command_shows_its_last_lines(tmp_path: Path, port: int) -> None:
    done = knee("find", *wrk(port), cwd=tmp_path)
    assert done.returncode == 1
    assert "unable to connect to 127.0.0.1" in done.stderr and "check the command: wrk -t2 -c16 -d2s" in done.stderr
    assert done.stderr.splitlines()[-1] == "no run was finished"
    assert f"not watched: no process that this user may see listens at port {port}; add --watch" in done.stderr
    printing = [sys.executable, "-c", "print('{clients} clients'); raise SystemExit(3)"]
    done = knee("find", "--most", "1", "--", *printing, cwd=tmp_path)
    assert "exit code 3; last lines: 1 clients" in done.stderr
    assert "not watched: the command has no URL or HOST:PORT; add --watch" in done.stderr


def test_find_of_a_system_that_does_not_serve_is_refused(tmp_path: Path, port: int) -> None:
    done = knee("find", "--system", f"{sys.executable} -c raise(SystemExit(4))", *wrk(port), cwd=tmp_path)
    assert done.returncode == 1 and "system ended before it was ready: exit code 4" in done.stderr
    system = subprocess.Popen([*SLOTS.split(), str(port), "1", "1"])
    try:
        wait_until(lambda: "ended" not in str(system.poll()) and answers(port), "it answers")
        done = knee("find", "--system", f"{SLOTS} {port} 8 40", *wrk(port), cwd=tmp_path)
    finally:
        system.kill()
        system.wait()
    assert "answers before the system starts; stop that server" in done.stderr


@pytest.fixture
def host() -> Iterator[LocalHost]:
    host = LocalHost()
    yield host
    host.close(0)


def generator(host: LocalHost, tmp_path: Path, script: str, budget_s: float = 60.0) -> Generator:
    """A generator of one client, which is a script for a shell."""
    words = ["sh", "-c", script, "{clients}"]
    return Generator(host, Template.parse(words), SearchFolder.create(tmp_path, {}), 1, budget_s)


RESULT = "echo clients,throughput,response_ms; echo 1,50,20"


def test_generator_drops_the_run_in_which_the_system_ended(tmp_path: Path, host: LocalHost, port: int) -> None:
    server = f"import os, socket, time; s = socket.create_server(('127.0.0.1', {port}))\n"
    server += f"while not os.path.exists('{tmp_path}/end'): time.sleep(0.01)\nraise SystemExit(7)"
    system = System.parse(shlex.join([sys.executable, "-c", server]), f"127.0.0.1:{port}")
    runs = generator(host, tmp_path, RESULT)
    runs.system = system.start(host, runs.folder)
    assert runs.run(1, is_scout=False).throughput == 50
    (tmp_path / "end").touch()
    runs.system.wait(30)
    with pytest.raises(KneeError, match="the system ended: exit code 7"):
        runs.run(1, is_scout=False)
    assert len(runs.results) == len(list(outputs_of(runs.folder.path).glob("*.txt"))) == 1


def test_generator_with_fewer_clients_than_asked_names_least(tmp_path: Path, host: LocalHost) -> None:
    runs = generator(host, tmp_path, f"cat {REPOSITORY}/tests/data/foreign/wrk-c5.txt")
    with pytest.raises(MeasurementsError, match="4 of 5 clients ran, an equal share for each thread; add --least"):
        runs.run(5, is_scout=False)


def test_generator_that_hangs_ends_with_the_budget(tmp_path: Path, host: LocalHost) -> None:
    runs = generator(host, tmp_path, "sleep 1000", budget_s=1.5)
    with pytest.raises(ProcessError, match=r"sh did not end within \d s; check the command: sh -c 'sleep 1000' 1"):
        runs.run(1, is_scout=False)
    assert runs.elapsed_s < 10


LOOP = """\
import asyncio, sys, time
MS, PORT, CLIENTS, SECONDS = map(int, sys.argv[1:])
def compute():
    end_s = time.thread_time() + MS / 1000
    while time.thread_time() < end_s: pass
"""
"""The start of a program whose only thread computes for MS per request."""

BUSY_SERVER = f"""{LOOP}
async def serve(reader, writer):
    while await reader.readuntil(b"\\r\\n\\r\\n"):
        await asyncio.sleep(0.002)
        compute()
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
async def main():
    await (await asyncio.start_server(serve, "127.0.0.1", PORT)).serve_forever()
asyncio.run(main())
"""

BUSY_CLIENTS = f"""{LOOP}
async def client(end_s):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    times = []
    while (begun_s := time.time()) < end_s:
        writer.write(b"GET / HTTP/1.1\\r\\n\\r\\n")
        await reader.readuntil(b"ok\\n")
        compute()
        times.append(time.time() - begun_s)
    return times
async def main():
    begun_s = time.time()
    runs = [client(begun_s + SECONDS) for _ in range(CLIENTS)]
    times = sum(await asyncio.gather(*runs), [])
    print("clients,throughput,response_ms")
    print(CLIENTS, len(times) / (time.time() - begun_s), 1000 * sum(times) / len(times), sep=",")
asyncio.run(main())
"""


def _measured(runs: Generator, server: str, port: int, thread: str) -> Bottleneck:
    """The bottleneck after two runs at each of three loads; two of them keep a queue. A hypervisor may take more than
    3 % of the processor of the thread that limits: nothing is then full, and nothing named."""
    system = System.parse(server, f"127.0.0.1:{port}").start(runs.host, runs.folder)
    try:
        runs.system = system
        runs.watched["system"] = Tree(listening(port, ""))
        for clients in (1, 1, 12, 12, 48, 48):
            runs.run(clients, is_scout=False)
    finally:
        system.stop(5)
    verdict = check(runs.results).verdict
    assert verdict is not None
    found = verdict.verdicts[0].bottleneck
    (limit,) = (each for each in found.candidates if each.name == thread)
    assert limit.at_most.estimate > 0.7
    assert found.names == ((thread,) if limit.is_full else ())
    return found


@pytest.mark.alone
def test_system_that_computes_on_one_thread_is_named(tmp_path: Path, host: LocalHost, port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    words = Template.parse(["wrk", "-t1", "-c{clients}", "-d{seconds}s", url])
    runs = Generator(host, words, SearchFolder.create(tmp_path, {}), 1, 60)
    server = shlex.join([sys.executable, "-c", BUSY_SERVER, "5", str(port), "0", "0"])
    found = _measured(runs, server, port, f"station {Path(sys.executable).name} thread")
    assert found.status == ("found" if found.names else "cannot tell")


@pytest.mark.alone
def test_load_generator_that_computes_on_one_thread_is_named(tmp_path: Path, host: LocalHost, port: int) -> None:
    words = Template.parse([sys.executable, "-c", BUSY_CLIENTS, "5", str(port), "{clients}", "{seconds}"])
    # On a busy machine, this program may start so late that a run of 1 s has no steady part.
    runs = Generator(host, words, SearchFolder.create(tmp_path, {}), 2, 60)
    found = _measured(runs, f"{SLOTS} {port} 1000 20", port, "station load generator")
    assert found.status == ("load generator" if found.names else "cannot tell")


def test_find_that_is_interrupted_keeps_finished_runs(tmp_path: Path, port: int) -> None:
    words = [sys.executable, "-m", "knee", "find", "--seconds", "1", "--system", f"{SLOTS} {port} 4 20", *wrk(port)]
    finding = subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(list((tmp_path / "runs").glob("find/*/outputs/*.txt"))) >= 2, "two runs are finished")
        children: list[psutil.Process] = []

        def is_running() -> bool:
            children[:] = psutil.Process(finding.pid).children(recursive=True)
            return any(child.name() == "wrk" for child in children)

        wait_until(is_running, "another one runs")
        finding.send_signal(signal.SIGINT)
        began_s = time.monotonic()
        _, complaints = finding.communicate(timeout=60)
    finally:
        finding.kill()
    assert finding.returncode == 130 and time.monotonic() - began_s < 30
    assert "interrupted; finished runs are kept; read them with `knee check" in complaints
    assert len(children) == 2 and all(map(is_gone, children))
    folder = folder_of(tmp_path)
    assert knee("check", str(folder), cwd=tmp_path).returncode == 0
    assert len((folder / "table.csv").read_text().splitlines()) == 1 + len(list(outputs_of(folder).glob("*.txt")))
