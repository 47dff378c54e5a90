"""Processor times of runs: measured of real processes, and as evidence for the bottleneck."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from systems import wait_until

from knee.check import check, render_text, table
from knee.check.rules import findings_of
from knee.check.stations import stations_of
from knee.data.foreign import Result, read
from knee.data.outputs import SearchFolder, outputs_of
from knee.data.usage import GENERATOR, Part, ProcessUse, Station, Usage
from knee.errors import MeasurementsError, SpecError
from knee.lab import watch
from knee.lab.watch import Cgroup, Meter, Tree, Watched, addresses_here, at, host_cores, listening, parse, quota_of
from knee.spec.template import Template
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


def tree(*pids: int) -> Tree:
    return Tree(tuple(map(psutil.Process, pids)))


def measured(parts: dict[str, Watched], seconds: float) -> Usage:
    meter = Meter(parts, seconds)
    meter.start()
    time.sleep(seconds)
    usage = meter.stop()
    assert usage is not None
    return usage


def test_meter_of_a_busy_child_and_a_sleeper_has_their_times(spinning: subprocess.Popen[bytes]) -> None:
    sleeper = subprocess.Popen(["/bin/sleep", "300"])
    try:
        usage = measured({"system": tree(spinning.pid), GENERATOR: tree(sleeper.pid)}, 1.1)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert 0.2 < usage.seconds < 1.0 and usage.host_cores in (None, psutil.cpu_count())
    system, generator = usage.parts
    busiest = system.processes[0]
    assert 0 < busiest.thread_cpu_s < 1.1 * usage.seconds
    assert system.count == 2 and busiest.name.startswith("python") and busiest.threads == 2
    assert 0 < system.cpu_s < usage.host_cpu_s * 1.5
    assert usage.thread_busy(generator) < 0.05 and generator.processes[0].name == "sleep"


@contextmanager
def pinned(*pids: int) -> Iterator[None]:
    """Processes with the first of their processors only; 0 is this thread."""
    allowed = os.sched_getaffinity(0)
    try:
        for pid in pids:
            os.sched_setaffinity(pid, {min(allowed)})
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def test_process_that_waits_for_its_only_processor_is_not_full(spinning: subprocess.Popen[bytes]) -> None:
    beside = subprocess.Popen([sys.executable, "-c", _SPIN])
    try:
        # The shell, which only sleeps, may use all.
        with pinned(beside.pid, *(each.pid for each in psutil.Process(spinning.pid).children())):
            usage = measured({"system": tree(spinning.pid)}, 1.1)
    finally:
        beside.kill()
        beside.wait()
    assert usage.parts[0].cores == 1
    assert 0.1 < usage.thread_busy(usage.parts[0]) < 0.9


def test_part_that_exceeds_its_processors_has_an_unknown_number() -> None:
    process, thread = psutil.Process(), watch.Thread(0.0, 0.0, 0.0)
    first = {process: watch._Process("nginx", 0.0, (0.5, None), {1: thread}, {1: {0}})}
    busy = watch.Thread(0.9, 0.0, 0.0)
    last = {process: watch._Process("nginx", 0.9, (0.5, None), {1: busy}, {1: {0}})}
    assert watch._part("system", [first, last], 1.0).cores is None
    assert watch._part("system", [first, last], 1.9).cores == 0.5


def test_part_with_equal_quotas_of_two_groups_has_an_unknown_number() -> None:
    some = ((psutil.Process(), "a"), (psutil.Process(os.getppid()), "b"))

    def state(cpu_s: float) -> dict[psutil.Process, watch._Process]:
        threads = {1: watch.Thread(cpu_s, 0.0, 0.0)}
        return {own: watch._Process("nginx", cpu_s, (0.5, Path(group)), threads, {1: {0}}) for own, group in some}

    assert watch._part("system", [state(0.0), state(0.25)], 1.0).cores is None


def test_process_counts_from_its_first_sample() -> None:
    process = psutil.Process()
    late = {process: watch._Process("nginx", 90.0, (1.0, None), {1: watch.Thread(90.0, 0.0, 0.0)}, {1: {0}})}
    assert watch._part("system", [{}, late, late], 1.0).processes[0].thread_cpu_s == 0


def test_knee_with_fewer_processors_knows_no_machine() -> None:
    if (psutil.cpu_count() or 1) > 1:
        with pinned(0):
            assert host_cores() is None
    some = [
        replace(each, usage=replace(each.usage, host_cores=None)) for each in results(0.5, 3.4, threads=4) if each.usage
    ]
    assert bottleneck(some).status == "cannot tell" and "host" not in table(some)
    assert "Knee may use only some of them" in {each.cause for each in findings_of(some[-1])}


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("4:memory:/x\n0::/a.slice/b.scope\n", {"b.scope/cpu.max": "max 100000", "cpu.max": "150000 100000"}),
        ("3:cpu,cpuacct:/a.slice/b.scope\n0::/\n", {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}),
    ],
)
def test_quota_is_the_smallest_of_both_versions_groups(tmp_path: Path, groups: str, files: dict[str, str]) -> None:
    top = tmp_path / ("cpu/a.slice" if "cpuacct" in groups else "a.slice")
    (top / "b.scope").mkdir(parents=True)
    assert quota_of(groups, tmp_path) == (math.inf, None)
    for name, text in files.items():
        (top / name).write_text(f"{text}\n")
    assert quota_of(groups, tmp_path) == (1.5, top)
    assert quota_of("", tmp_path) == (math.inf, None)


def test_process_of_two_parts_counts_for_the_first(spinning: subprocess.Popen[bytes]) -> None:
    class Both:
        def members(self) -> list[psutil.Process]:
            return [*tree(spinning.pid).members(), psutil.Process()]

    usage = measured({GENERATOR: tree(spinning.pid), "system": Both()}, 0.8)
    assert [part.count for part in usage.parts] == [2, 0]


def test_error_of_the_sampler_is_raised_at_its_end() -> None:
    class Broken:
        def members(self) -> list[psutil.Process]:
            raise RuntimeError("broken")

    meter = Meter({"system": Broken()}, 1.0)
    meter.start()
    time.sleep(0.3)
    with pytest.raises(RuntimeError, match="broken"):
        meter.stop()


def test_run_that_is_too_short_has_no_usage() -> None:
    meter = Meter({}, 1.0)
    meter.start()
    assert meter.stop() is None


def test_run_that_is_mostly_start_and_end_has_no_usage() -> None:
    meter = Meter({}, 0.6)
    meter.start()
    time.sleep(1.3)
    assert meter.stop() is None


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[..., tuple[psutil.Process, int]]]:
    """Starts a process of a name that listens at a free port of an address."""
    with ExitStack() as ended:

        def start(name: str = "toy", address: str = "127.0.0.1") -> tuple[psutil.Process, int]:
            program = tmp_path / name
            if not program.exists():
                program.symlink_to(Path(sys.executable).resolve())
            code = f"import socket; s = socket.create_server(('{address}', 0)); print(s.getsockname()[1]); input()"
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = ended.enter_context(subprocess.Popen([program, "-uc", code], text=True, **pipes))
            ended.callback(process.kill)
            return psutil.Process(process.pid), int(process.stdout.readline())

        yield start


Listen = Callable[..., tuple[psutil.Process, int]]


def test_listener_matches_only_at_the_address(listen: Listen) -> None:
    process, port = listen()
    assert listening(port, "") == listening(port, "", {"127.0.0.1", "::1"}) == (process,)
    assert listening(port, "", {"127.0.0.2"}) == ()
    assert parse(f"port:{port}").members() == parse(f"pid:{process.pid}").members() == [process]
    assert str(at("localhost", port)) == f"toy (pid {process.pid})"
    started, _ = listen("script")
    assert at("127.0.0.1", port, started.pid).roots == (started, process)
    process, port = listen("toy", "0.0.0.0")
    assert listening(port, "", {"127.0.0.2"}) == (process,)


def test_name_that_the_kernel_cut_is_text(listen: Listen) -> None:
    process, _ = listen("a" * 14 + "é")
    usage = measured({"system": Tree((process,))}, 0.8)
    assert usage.parts[0].processes[0].name == "a" * 14 + "?"
    assert "utilization_aaaaaaaaaaaaaa? thread" in table([Result("wrk", 1.0, 1.0, clients=1, usage=usage)])


def test_listener_that_only_forwards_is_refused(listen: Listen) -> None:
    process, port = listen("docker-proxy")
    forwards = f"port {port}: docker-proxy only forwards; add "
    for refused, remedy in (
        (lambda: parse(f"port:{port}"), "--watch cgroup:PATH"),
        (lambda: at("127.0.0.1", port, process.pid, remedy="add --watch {}"), "--watch cgroup:PATH"),
        (lambda: at("127.0.0.1", port, process.pid), 'system.watch = ["cgroup:PATH"]'),
    ):
        with pytest.raises(SpecError, match=re.escape(forwards + remedy)):
            refused()


def test_target_that_contains_knee_is_refused() -> None:
    for pid in (os.getpid(), os.getppid()):
        with pytest.raises(SpecError, match=f"--watch pid:{pid}: contains Knee itself"):
            parse(f"pid:{pid}")
    with socket.create_server(("127.0.0.1", 0)) as own, pytest.raises(SpecError, match="contains Knee itself"):
        at("127.0.0.1", own.getsockname()[1])


def test_root_whose_id_is_reused_is_no_member() -> None:
    root = psutil.Process()
    root._ident = (root.pid, 0.0)
    assert Tree((root,)).members() == []


def test_watch_of_a_cgroup_finds_its_processes(tmp_path: Path) -> None:
    # The form of a group of version 2, with real processes.
    (tmp_path / "below").mkdir()
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "below" / "cgroup.procs").write_text(f"{os.getpid()}\n999999999\n")
    assert [each.pid for each in Cgroup(tmp_path).members()] == [os.getpid()]


def test_groups_that_end_while_they_are_read_are_left_out(tmp_path: Path) -> None:
    ended = threading.Event()

    def churn() -> None:
        groups = [tmp_path / str(number) for number in range(20)]
        while not ended.is_set():
            for group in groups:
                group.mkdir()
            for group in groups:
                group.rmdir()

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        assert not any(Cgroup(tmp_path).members() for _ in range(300))
    finally:
        ended.set()
        churning.join()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("pid:999999999", "--watch pid:999999999: no such process; start it first"),
        ("port:1", "--watch port:1: no process that this user may see listens there"),
        ("unit:no-such.service", "--watch unit:no-such.service: no such unit runs"),
        ("cgroup:/no/such", "--watch cgroup:/no/such: no such group below /sys/fs/cgroup"),
        ("nginx", "--watch nginx: expected pid:NUMBER, port:NUMBER, unit:NAME, cgroup:PATH or a URL"),
        ("redis:/u:s3cret@h:1", "--watch: expected pid:NUMBER"),
        ("http:/h/m?token=s3cret", "--watch: expected pid:NUMBER"),
        ("pid:x", "expected pid:NUMBER"),
        ("pid:99999999999999999999999", "no such process"),
        ("unit:/etc/*", "expected pid:NUMBER"),
        ("unit:.", "expected pid:NUMBER"),
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
        (["wrk", "-HReferer: http://x/", "http://h:81/"], ("h", 81)),
    ],
)
def test_template_has_the_place_of_the_system(words: list[str], place: tuple[str, int] | None) -> None:
    assert Template(tuple(words)).place == place


def test_host_names_of_this_machine_are_here() -> None:
    assert addresses_here("127.0.0.1") == {"127.0.0.1"} <= addresses_here("localhost") | addresses_here("127.0.0.1")
    assert addresses_here("::1") and not addresses_here("192.0.2.1") and not addresses_here("a..b")


def part(name: str, process: str, busy: float, cores: float | None = 4.0, threads: int = 1) -> Part:
    """A part whose only process has equal threads, in a run of a second."""
    return Part(name, busy, cores, 1, (ProcessUse(process, 1, busy, threads, busy / threads),))


def results(
    system: float, generator: float, others: float = 0.1, irq: float = 0.0, cores: float = 4.0, threads: int = 1
) -> list[Result]:
    """Runs of one second on four processors, against five slots. The parts are as busy beyond the knee as given, and in
    proportion to throughput below; interrupts and other programs always."""
    found = []
    for clients in (1, 2, 3, 5, 10, 20, 40):
        for noise in (0.99, 1.0, 1.01):
            share = min(1.0, clients / 5)
            parts = (
                part("system", "nginx", share * system, cores, threads),
                part(GENERATOR, "wrk", share * generator, threads=threads),
            )
            usage = Usage(1.0, sum(each.cpu_s for each in parts) + others, irq, 0.0, 4, parts)
            throughput = 100 * share * noise
            found.append(Result("wrk", throughput, 1000 * clients / throughput, clients=clients, usage=usage))
    return found


def remote(generator: float, others: float = 0.0) -> list[Result]:
    """Runs of four threads without a part of the system."""
    some = results(0.0, generator, others, threads=4)
    return [replace(each, usage=replace(each.usage, parts=each.usage.parts[1:])) for each in some if each.usage]


def reported(busy: float) -> list[Result]:
    """Runs against a server that reports its own use."""
    stations = [
        (Station("--watch redis://h:1", "redis main thread", 1.0, min(1.0, each.clients / 5) * busy, 0.0, 1),)
        for each in remote(0.2)
        if each.clients
    ]
    return [
        replace(each, usage=replace(each.usage, stations=own))
        for each, own in zip(remote(0.2), stations, strict=True)
        if each.usage
    ]


def bottleneck(some: list[Result]) -> Bottleneck:
    found = check(some).verdict
    assert found is not None
    return found.verdicts[0].bottleneck


@pytest.mark.parametrize(
    ("some", "status", "names"),
    [
        (results(0.99, 0.2), "found", ("station nginx thread",)),
        (results(0.2, 0.99), "load generator", ("station load generator",)),
        (results(0.2, 0.1), "cannot tell", ()),
        (results(2.5, 0.9, others=0.55, threads=4), "found", ("station host CPU",)),
        (results(0.9, 2.5, others=0.55, threads=4), "load generator", ("station load generator host",)),
        (results(2.0, 0.9, others=0.05, irq=1.0, threads=4), "found", ("station host CPU",)),
        (results(0.3, 0.3, others=3.38), "cannot tell", ()),
        (results(0.5, 0.3, cores=0.5), "found", ("station nginx CPU",)),
        (remote(3.96), "load generator", ("station load generator",)),
        (remote(2.0, others=1.95), "cannot tell", ()),
        (reported(0.99), "found", ("station redis main thread",)),
        (reported(0.6), "cannot tell", ()),
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


def test_share_of_other_programs_is_of_the_time_that_was_not_stolen() -> None:
    usage = Usage(1.0, 1.8, 0.0, 2.0, 4, (part("system", "nginx", 1.0),))
    assert usage.host_busy == 0.9 and usage.others == 0.4


def test_station_has_the_name_of_the_busiest_thread() -> None:
    pool = ProcessUse("pool", 1, 3.0, 30, 0.1)
    writer = ProcessUse("writer", 2, 0.99, 1, 0.99)
    system = Part("system", 3.99, 4.0, 2, (writer, pool))
    (cells,) = stations_of([Result("wrk", 1.0, 1.0, usage=Usage(1.0, 4.0, 0.0, 0.0, 4, (system,)))])
    assert cells["utilization_writer thread"] == 0.99


def test_part_named_like_a_generator_is_a_station_of_the_system() -> None:
    (result, *_) = results(0.5, 0.5)
    assert result.usage is not None
    client, load = part("system", "client", 0.5), result.usage.parts[1]
    (cells,) = stations_of([replace(result, usage=replace(result.usage, parts=(client, load)))])
    assert list(cells)[2:] == ["utilization_the system's client thread", "utilization_load generator"]


def test_run_without_samples_leaves_its_cells_empty() -> None:
    some = results(0.99, 0.2)
    header, first, second = table([replace(some[0], usage=None), some[1]]).splitlines()
    assert header.endswith("utilization_nginx thread,utilization_load generator")
    assert first.endswith(",,,,") and second.endswith(",0.198,0.04")
    found = bottleneck([replace(some[0], usage=None), *some[1:]])
    assert found.names == ("station nginx thread",)


def test_usage_of_a_kept_run_is_read_with_its_output(tmp_path: Path) -> None:
    usage = results(0.99, 0.2)[0].usage
    folder = SearchFolder.create(tmp_path, {})
    output = folder.unfinished_paths("c4")[0]
    output.write_text("clients,throughput,response_ms\n4,50,80\n")
    kept = folder.keep(output, "c4", "c4-r1", usage)
    assert [each.usage for each in read([outputs_of(folder.path)])[0]] == [usage]
    beside = kept.with_suffix(".cpu.json")
    text = beside.read_text()
    no_number = text.replace('"host_cpu_s": ', '"host_cpu_s": NaN, "host_irq_s": ')
    for damage in ("", "[]", "{}", no_number, text.replace('"cores": 4.0', '"cores": -1')):
        beside.write_text(damage)
        with pytest.raises(MeasurementsError, match=r"c4-r1\.cpu\.json: not the processor times of a run"):
            read([kept])
