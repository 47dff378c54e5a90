"""Processor times of runs: measured of real processes, and as evidence for the bottleneck."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from systems import wait_until

from knee.check import check, render_text, table
from knee.check.rules import findings_of
from knee.check.stations import stations_of
from knee.data.foreign import Result, read
from knee.data.search_folder import SearchFolder, outputs_of
from knee.data.usage import GENERATOR, Part, ProcessUse, Usage
from knee.errors import MeasurementsError, SpecError
from knee.find.template import Template
from knee.lab.watch import Cgroup, Meter, Tree, is_here, listening, parse, quota_of
from knee.verdict.bottleneck import Bottleneck

_SPIN = "while True: pass"
_BESIDE = "import threading, time; threading.Thread(target=time.sleep, args=(300,)).start()\n"


@pytest.fixture
def spinning() -> Iterator[subprocess.Popen[bytes]]:
    """A shell whose child has a busy and a sleeping thread."""
    shell = ["/bin/sh", "-c", f'"{sys.executable}" -c "{_BESIDE}{_SPIN}"; true']
    process = subprocess.Popen(shell, process_group=0)
    wait_until(lambda: _cpu_s(process.pid) > 0.2, "its child computes")
    yield process
    for each in (*psutil.Process(process.pid).children(), process):
        each.kill()
    process.wait()


def _cpu_s(pid: int) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in psutil.Process(pid).children())


def test_meter_of_a_busy_child_and_a_sleeper_has_their_times(spinning: subprocess.Popen[bytes]) -> None:
    sleeper = subprocess.Popen(["/bin/sleep", "300"])
    meter = Meter({"system": Tree((spinning.pid,)), GENERATOR: Tree((sleeper.pid,))}, 1.0)
    meter.start()
    time.sleep(1.1)
    usage = meter.stop()
    sleeper.kill()
    sleeper.wait()
    assert usage is not None and 0.3 < usage.seconds < 1.0 and usage.host_cores == psutil.cpu_count()
    system, generator = usage.parts
    assert usage.thread_busy(system, waits=True) > 0.97
    assert system.count == 2 and system.processes[0].name.startswith("python")
    assert system.processes[0].threads == 2
    assert 0 < system.cpu_s < usage.host_cpu_s * 1.5
    assert usage.thread_busy(generator, waits=False) < 0.05 and generator.processes[0].name == "sleep"


def test_meter_of_a_pinned_process_has_fewer_processors(spinning: subprocess.Popen[bytes]) -> None:
    first = min(os.sched_getaffinity(0))
    for each in (spinning.pid, *(each.pid for each in psutil.Process(spinning.pid).children())):
        os.sched_setaffinity(each, {first})
    meter = Meter({"system": Tree((spinning.pid,))}, 0.6)
    meter.start()
    time.sleep(0.6)
    usage = meter.stop()
    assert usage is not None and usage.parts[0].cores == 1


def test_quota_of_a_container_is_the_smallest_of_its_groups(tmp_path: Path) -> None:
    (tmp_path / "a.slice" / "b.scope").mkdir(parents=True)
    groups = "4:memory:/x\n0::/a.slice/b.scope\n"
    assert quota_of(groups, tmp_path) == math.inf
    (tmp_path / "a.slice" / "b.scope" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a.slice" / "cpu.max").write_text("150000 100000\n")
    assert quota_of(groups, tmp_path) == 1.5
    assert quota_of("", tmp_path) == math.inf


def test_run_that_is_too_short_has_no_usage() -> None:
    meter = Meter({}, 1.0)
    meter.start()
    assert meter.stop() is None


def test_watch_of_a_port_finds_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        own = psutil.Process()
        assert listening(port) == (own.pid,)
        watched = parse(f"port:{port}")
        assert own in watched.members()
    assert own.pid in [each.pid for each in parse(f"pid:{own.pid}").members()]


def test_watch_of_a_cgroup_finds_its_processes_and_their_time(tmp_path: Path) -> None:
    # The form of a group of version 2, with real processes.
    (tmp_path / "below").mkdir()
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "below" / "cgroup.procs").write_text(f"{os.getpid()}\n999999999\n")
    assert [each.pid for each in Cgroup(tmp_path).members()] == [os.getpid()]
    assert Cgroup(tmp_path).cpu_s() is None
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert Cgroup(tmp_path).cpu_s() == 2.5


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("pid:999999999", "--watch pid:999999999: no such process; start it first"),
        ("port:1", "--watch port:1: no process that this user may see listens there"),
        ("unit:no-such.service", "--watch unit:no-such.service: no such unit runs"),
        ("cgroup:/no/such", "--watch cgroup:/no/such: no such group below /sys/fs/cgroup"),
        ("nginx", "--watch nginx: expected pid:NUMBER, port:NUMBER, unit:NAME or cgroup:PATH"),
        ("pid:x", "expected pid:NUMBER"),
        ("pid:99999999999999999999999", "no such process"),
        ("unit:/etc/*", "expected pid:NUMBER"),
    ],
)
def test_watch_of_a_missing_target_is_refused(target: str, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        parse(target)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["wrk", "http://h:80/p?q={clients}"], ("h", 80)),
        (["wrk", "-c{clients}", "https://h.example/p"], ("h.example", 443)),
        (["x", "http://[::1]:8080/"], ("::1", 8080)),
        (["pgbench", "postgresql://me:secret@db:5432/x"], ("db", 5432)),
        (["memtier", "--server=127.0.0.1:11211"], ("127.0.0.1", 11211)),
        (["x", "localhost:6379"], ("localhost", 6379)),
        (["redis-x", "redis://h/0"], ("h", 6379)),
        (["docker", "-p", "8080:80", "-v", "/a:/b", "wrk", "http://h:81/"], ("h", 81)),
        (["x", "10:30", "http://[::1/", "a.b:99"], ("a.b", 99)),
        (["sh", "-c", "date +%H:%M; x 'a:b'"], None),
    ],
)
def test_template_has_the_place_of_the_system(words: list[str], place: tuple[str, int] | None) -> None:
    assert Template(tuple(words)).place == place


def test_host_names_of_this_machine_are_here() -> None:
    assert is_here("localhost") and is_here("127.0.0.1") and is_here("::1")
    assert not is_here("192.0.2.1") and not is_here("a..b")


def part(name: str, process: str, busy: float, cores: float = 4.0, threads: int = 1) -> Part:
    """A part whose only process has equal threads, in a run of a second."""
    return Part(name, "", busy, cores, 1, (ProcessUse(process, 1, busy, threads, busy / threads, 0.0, 9),))


def results(system: float, generator: float, others: float = 0.1, cores: float = 4.0, threads: int = 1) -> list[Result]:
    """Runs of one second on four processors, against five slots. The parts are as busy beyond the knee as given, and in
    proportion to throughput below."""
    found = []
    for clients in (1, 2, 3, 5, 10, 20, 40):
        for noise in (0.99, 1.0, 1.01):
            share = min(1.0, clients / 5)
            parts = (
                part("system", "nginx", share * system, cores, threads),
                part(GENERATOR, "wrk", share * generator, threads=threads),
            )
            usage = Usage(1.0, sum(each.cpu_s for each in parts) + others, 0.0, 4, parts)
            throughput = 100 * share * noise
            found.append(Result("wrk", throughput, 1000 * clients / throughput, clients=clients, usage=usage))
    return found


def bottleneck(some: list[Result]) -> Bottleneck:
    found = check(some).verdict
    assert found is not None
    return found.verdicts[0].bottleneck


@pytest.mark.parametrize(
    ("some", "status", "names"),
    [
        (results(0.99, 0.2), "found", ("station nginx thread",)),
        (results(0.2, 0.99), "load generator", ("station load generator thread",)),
        (results(0.2, 0.1), "cannot tell", ()),
        (results(0.9, 2.5, others=0.55, threads=4), "found", ("station host CPU",)),
        (results(0.3, 0.3, others=3.38), "cannot tell", ()),
        (results(0.5, 0.3, cores=0.5), "found", ("station nginx CPU",)),
    ],
)
def test_usage_names_the_bottleneck(some: list[Result], status: str, names: tuple[str, ...]) -> None:
    found = bottleneck(some)
    assert (found.status, found.names) == (status, names)


def test_text_of_a_check_says_why_the_knee_is_there() -> None:
    text = render_text(check(results(0.99, 0.2)))
    assert "Why      The bottleneck is station nginx thread (99% busy at" in text
    text = render_text(check(results(0.2, 0.1)))
    assert "Why      Cannot tell the bottleneck: no resource is near saturation" in text
    plain = [replace(each, usage=None) for each in results(0.99, 0.2)]
    assert "Why" not in render_text(check(plain)) and "utilization" not in table(plain)


@pytest.mark.parametrize(
    ("system", "generator", "others", "expected"),
    [
        (1.0, 2.0, 0.9, {"shared": "wrk took 50% of them", "others": "programs that are not watched took 22% of them"}),
        (3.7, 0.1, 0.1, {}),
        (1.0, 1.0, 0.1, {}),
    ],
)
def test_full_processors_name_their_other_users(
    system: float, generator: float, others: float, expected: dict[str, str]
) -> None:
    found = findings_of(results(system, generator, others)[-1])
    assert {each.kind: each.cause for each in found if each.kind in ("shared", "others")} == expected


@pytest.mark.parametrize(
    ("host_s", "system_s", "host", "thread"), [(1.0, 0.5, 0.25, 0.95), (3.9, 3.8, 0.975, 0.5), (3.9, 0.5, None, 0.95)]
)
def test_wait_of_a_thread_is_busy_time_unless_the_system_fills_the_processors(
    host_s: float, system_s: float, host: float | None, thread: float
) -> None:
    process = ProcessUse("nginx", 1, 0.5, 1, 0.5, 0.45, 9)
    usage = Usage(1.0, host_s, 0.0, 4, (Part("system", "", system_s, 4.0, 1, (process,)),))
    (cells,) = stations_of([Result("wrk", 1.0, 1.0, usage=usage)])
    assert (cells["utilization_host CPU"], cells["utilization_nginx thread"]) == (host, thread)


def test_part_named_like_a_generator_is_a_station_of_the_system() -> None:
    (result, *_) = results(0.5, 0.5)
    assert result.usage is not None
    client, load = part("system", "client", 0.5), result.usage.parts[1]
    (cells,) = stations_of([replace(result, usage=replace(result.usage, parts=(client, load)))])
    assert list(cells)[2:] == ["utilization_the system's client thread", "utilization_load generator thread"]


def test_run_without_samples_leaves_its_cells_empty() -> None:
    some = results(0.99, 0.2)
    header, first, second = table([replace(some[0], usage=None), some[1]]).splitlines()
    assert header.endswith("utilization_nginx thread,utilization_load generator thread")
    assert (first.endswith(",,,,") and second.endswith(",0.1980,0.0400")) or second.endswith(",0.198,0.04")
    found = bottleneck([replace(some[0], usage=None), *some[1:]])
    assert found.names == ("station nginx thread",)


def test_usage_of_a_kept_run_is_read_with_its_output(tmp_path: Path) -> None:
    usage = results(0.99, 0.2)[0].usage
    folder = SearchFolder.create(tmp_path, {})
    output = folder.unfinished_paths(4)[0]
    output.write_text("clients,throughput,response_ms\n4,50,80\n")
    kept = folder.keep(output, 4, 1, usage)
    assert [each.usage for each in read([outputs_of(folder.path)])[0]] == [usage]
    beside = kept.with_suffix(".cpu.json")
    for damage in ("", "[]", "{}", beside.read_text().replace('"cores": 4.0', '"cores": -1')):
        beside.write_text(damage)
        with pytest.raises(MeasurementsError, match=r"c4-r1\.cpu\.json: not the processor times of a run"):
            read([kept])
