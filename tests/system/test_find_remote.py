"""`knee find` with servers that report their own use: Redis, memcached, PostgreSQL, node_exporter, and a process."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from subprocess import DEVNULL, Popen
from threading import Thread
from urllib.request import urlopen

import psutil
import pytest
from bench.postgresql import USER, Cluster
from command_line import knee
from databases import Database
from systems import Running, Systems, converse, folder_of, free_port, wait_until

from knee.check import check
from knee.check.stations import stations_of
from knee.data.foreign import Result
from knee.data.outputs import SearchFolder
from knee.data.usage import Station, Usage
from knee.errors import SpecError
from knee.find.generator import Generator
from knee.lab.hosts.dialogue import Dialogue
from knee.lab.hosts.local import LocalHost
from knee.lab.programs import find_foreign
from knee.lab.remote import Remote, Sampler
from knee.lab.waits import Waits, _blocked
from knee.lab.watch import Meter
from knee.spec.template import Template
from knee.verdict.bottleneck import Bottleneck

SPIN = "local b = redis.call('time') repeat local t = redis.call('time') until (t[1]-b[1])*1e6+t[2]-b[2] > ARGV[1]*1000"
"""Computes for this number of milliseconds."""
CLIENTS = f"""\
import asyncio, sys, time
PORT, CLIENTS, SECONDS = map(int, sys.argv[1:])
SPIN = {SPIN!r}
async def client(end_s):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    times = []
    while (begun_s := time.time()) < end_s:
        writer.write(f"*4\\r\\n$4\\r\\nEVAL\\r\\n${{len(SPIN)}}\\r\\n{{SPIN}}\\r\\n$1\\r\\n0\\r\\n$1\\r\\n5\\r\\n".encode())
        await reader.readuntil(b"\\r\\n")
        await asyncio.sleep(0.002)
        times.append(time.time() - begun_s)
    return times
async def main():
    begun_s = time.time()
    times = sum(await asyncio.gather(*(client(begun_s + SECONDS) for _ in range(CLIENTS))), [])
    print("clients,throughput,response_ms")
    print(CLIENTS, len(times) / (time.time() - begun_s), 1000 * sum(times) / len(times), sep=",")
asyncio.run(main())
"""
SERVICE = """\
import sys, threading, time
from wsgiref.simple_server import WSGIRequestHandler, make_server
from prometheus_client import Gauge, make_wsgi_app
WSGIRequestHandler.log_message = lambda *_: None
Gauge("go_sched_gomaxprocs_threads", "its threads").set(threading.active_count())
metrics = make_wsgi_app()
def serve(environ, start):
    if environ["PATH_INFO"] == "/metrics":
        return metrics(environ, start)
    end_s = time.thread_time() + 0.3
    while time.thread_time() < end_s: pass
    start("200 OK", [])
    return [b"ok"]
make_server("127.0.0.1", int(sys.argv[1]), serve).serve_forever()
"""
"""A service of one thread, which computes for 0.3 s a request."""


def command(*words: str) -> bytes:
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)])


@pytest.fixture
def start(systems: Systems) -> Callable[..., Running]:
    """Starts a program that listens at a port."""
    return systems._start


@pytest.fixture
def redis(start: Callable[..., Running], tmp_path: Path) -> Callable[..., Running]:
    """Starts a Redis in memory."""

    def started(*flags: str, port: int | None = None) -> Running:
        port = port or free_port()
        own = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path)]
        return start([str(find_foreign("redis-server")), *own, *flags], port)

    return started


def test_redis_reports_the_time_of_its_main_thread(redis: Callable[..., Running]) -> None:
    server = redis()
    target = Remote.parse(f"redis://{server.endpoint}")
    (before,) = target.read()
    assert converse(server.address, command("EVAL", SPIN, "0", "300") + b"QUIT\r\n").endswith(b"+OK\r\n")
    (after,) = target.read()
    assert (after.name, after.servers) == ("redis main thread", 1)
    assert 0.3 <= after.time_s - before.time_s < 10
    # A hypervisor, or other programs, may take much of the processor.
    assert 0.02 < after.busy_s - before.busy_s < after.time_s - before.time_s


def test_redis_with_a_password_reads_it_from_the_environment(
    redis: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis("--requirepass", "s3 cret")
    target = Remote.parse(f"redis://{server.endpoint}")
    with pytest.raises(SpecError, match=f"--watch redis://{server.endpoint}: .*NOAUTH.*; "):
        target.read()
    monkeypatch.setenv("REDISCLI_AUTH", "s3 cret")
    assert target.read()[0].busy_s > 0
    monkeypatch.setenv("REDISCLI_AUTH", "wr0ng")
    with pytest.raises(SpecError, match="WRONGPASS") as refused:
        target.read()
    assert "wr0ng" not in str(refused.value)


def test_redis_without_a_password_answers_beside_a_refused_one(
    redis: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis()
    monkeypatch.setenv("REDISCLI_AUTH", "s3cret")
    assert b"-ERR" in converse(server.address, command("AUTH", "s3cret") + b"QUIT\r\n")
    assert Remote.parse(f"redis://{server.endpoint}").read()[0].busy_s > 0


def test_memcached_reports_the_time_of_its_process(systems: Systems) -> None:
    server = systems.memcached(None, "-t", "3")
    target = Remote.parse(f"memcached://{server.endpoint}")
    converse(server.address, b"set k 0 0 1\r\nx\r\n" + b"get k\r\n" * 50_000 + b"quit\r\n")
    (read,) = target.read()
    assert (read.name, read.servers) == ("memcached threads", 3)
    assert 0 < read.busy_s == pytest.approx(sum(psutil.Process(server.pid).cpu_times()[:2]), abs=0.03)


@contextmanager
def relayed(url: str, change: Callable[[str], str]) -> Iterator[str]:
    """The host and port of a server that answers like another one, with a change."""

    class Relay(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with urlopen(url) as answer:
                self.wfile.write(change(answer.read().decode()).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Relay) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_node_exporter_reports_its_machine(start: Callable[..., Running]) -> None:
    port = free_port()
    only = ["--collector.disable-defaults", "--collector.cpu", "--collector.stat"]
    program = str(find_foreign("prometheus-node-exporter"))
    start([program, f"--web.listen-address=127.0.0.1:{port}", *only], port)
    url = f"http://127.0.0.1:{port}/metrics"
    with pytest.raises(SpecError, match=f"--watch {url}: .*this machine.*port:NUMBER"):
        Remote.parse(url).read()
    another = partial(re.sub, r"(?m)^(node_boot_time_seconds) .*", r"\1 1e9")
    with relayed(url, another) as place:
        target = Remote.parse(f"http://{place}/metrics")
        (before,), host, began_s = target.read(), psutil.cpu_times(), time.monotonic()
        end_s = time.process_time() + 0.4
        while time.process_time() < end_s:
            pass
        (after,), later, elapsed_s = target.read(), psutil.cpu_times(), time.monotonic() - began_s
    assert (after.name, after.servers) == ("127.0.0.1 CPU", psutil.cpu_count())
    used_s = sum(getattr(later, mode) - getattr(host, mode) for mode in ("user", "nice", "system", "irq", "softirq"))
    assert after.busy_s - before.busy_s == pytest.approx(used_s, abs=0.15)
    assert after.steal_s - before.steal_s == pytest.approx(later.steal - host.steal, abs=0.1)
    assert after.time_s - before.time_s == pytest.approx(elapsed_s, rel=0.1, abs=0.1)


def test_exporter_of_one_process_needs_its_threads(start: Callable[..., Running]) -> None:
    port = free_port()
    start([sys.executable, "-c", SERVICE, str(port)], port)
    target = Remote.parse(f"http://127.0.0.1:{port}/metrics")
    (before,) = target.read()
    urlopen(f"http://127.0.0.1:{port}/").close()
    (after,) = target.read()
    assert (after.name, after.servers) == ("127.0.0.1 process", 1)
    assert 0.29 <= after.busy_s - before.busy_s <= after.time_s - before.time_s + 0.02
    without = partial(re.sub, r"(?m)^go_sched_gomaxprocs_threads .*\n", "process_threads 20\n")
    with (
        relayed(target.address, without) as place,
        pytest.raises(SpecError, match="neither node_cpu_seconds_total nor go_sched"),
    ):
        Remote.parse(f"http://{place}/metrics").read()


@pytest.mark.parametrize(
    ("metrics", "cause"),
    [
        (
            "process_cpu_seconds_total{instance='a'} 1\nprocess_cpu_seconds_total{instance='b'} 2\n"
            "go_sched_gomaxprocs_threads 4\n",
            "of several processes",
        ),
        (
            "node_cpu_seconds_total{cpu='0',mode='idle'} 1\nnode_boot_time_seconds{instance='a'} 1\n"
            "node_boot_time_seconds{instance='b'} 2\n",
            "of several machines",
        ),
        (
            "node_cpu_seconds_total{cpu='0',instance='a',mode='idle'} 1\n"
            "node_cpu_seconds_total{cpu='0',instance='b',mode='idle'} 2\n",
            "of several machines",
        ),
    ],
)
def test_metrics_of_several_are_refused(metrics: str, cause: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    file.write_text(metrics.replace("'", '"'))
    with (
        relayed(file.as_uri(), str) as place,
        pytest.raises(SpecError, match=f"no processor times in its answer .{cause}."),
    ):
        Remote.parse(f"http://{place}/metrics").read()


def test_exporter_without_its_boot_time_reports_its_machine(tmp_path: Path) -> None:
    file = tmp_path / "metrics"
    file.write_text("".join(f'node_cpu_seconds_total{{cpu="{cpu}",mode="user"}} 2\n' for cpu in (0, 1)))
    with relayed(file.as_uri(), str) as place:
        (read,) = Remote.parse(f"http://{place}/metrics").read()
    assert (read.time_s, read.busy_s, read.servers) == (2, 4, 2)


LINK = """\
node_network_address_assign_type{{device="{device}"}} {assigned}
node_network_protocol_type{{device="{device}"}} {protocol}
node_network_speed_bytes{{device="{device}"}} {speed}
node_network_receive_bytes_total{{device="{device}"}} {received}
node_network_receive_packets_total{{device="{device}"}} {packets}
node_network_transmit_bytes_total{{device="{device}"}} {sent}
node_network_transmit_packets_total{{device="{device}"}} {packets}
"""


def test_link_of_another_machine_is_as_busy_as_its_busier_direction(tmp_path: Path) -> None:
    cards = [
        {"device": device, "assigned": assigned, "protocol": protocol, "speed": speed}
        for device, assigned, protocol, speed in (
            ("eth0", 0, 1, 125_000_000),
            # A virtual machine's card without a speed, one end of a virtual pair, and a tunnel.
            ("eth1", 0, 1, -125_000),
            ("veth2", 3, 1, 1_250_000_000),
            ("tun3", 0, 65534, 1_250_000),
            # A virtual machine's card that is faster than it states.
            ("eth4", 0, 1, 95_000_000),
        )
    ]
    file = tmp_path / "metrics"

    def count(**counters: float) -> None:
        processor = f'node_cpu_seconds_total{{cpu="0",mode="idle"}} {counters["time_s"]}\n'
        file.write_text(processor + "".join(LINK.format(**card, **counters) for card in cards))

    count(time_s=500, received=7e9, sent=9e9, packets=1e6)
    with relayed(file.as_uri(), str) as place:
        sampler = Sampler("x", Remote.parse(f"http://{place}/metrics"), 1.0)
        began_s = time.monotonic()
        sampler.start()
        wait_until(lambda: len(sampler._readings) == 1, "a reading")
        count(time_s=501, received=7e9 + 25e6, sent=9.1e9, packets=1.1e6)
        wait_until(lambda: len(sampler._readings) > 2, "a later one")
        found = {station.name: station.busy for station in sampler.stop(began_s, time.monotonic())}
    assert found == {"127.0.0.1 CPU": 0, "127.0.0.1 link eth0": pytest.approx((100e6 + 24 * 100e3) / 125e6)}


def with_environment(database: Database, patch: pytest.MonkeyPatch) -> Database:
    """A database; the environment becomes that of its superuser."""
    host, port = database.address.split(":")
    for name, value in (("HOST", host), ("PORT", port), ("USER", USER), ("DATABASE", database.name)):
        patch.setenv(f"PG{name}", value)
    patch.setenv("PGPASSFILE", str(database.pgpass))
    return database


@pytest.fixture
def watched(elsewhere: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database, and the environment of its superuser."""
    return with_environment(elsewhere, monkeypatch)


@contextmanager
def pgbench(database: Database, path: Path, script: str, clients: int) -> Iterator[None]:
    """A pgbench with clients that are all connected."""
    file = path / "script.sql"
    file.write_text(script)
    program = str(find_foreign("pgbench", "postgresql-contrib"))
    words = [program, "--no-vacuum", "--client", str(clients), "--time", "60", "--file", str(file)]
    connected = f"SELECT count(*) = {clients} FROM pg_stat_activity WHERE application_name = 'pgbench'"
    with Popen(words, stdout=DEVNULL) as running:
        try:
            wait_until(lambda: database.sql(connected, USER) == "t", "sessions")
            yield
        finally:
            running.kill()
    wait_until(lambda: database.sql(connected.replace(f" {clients} ", " 0 "), USER) == "t", "no session")


def watched_for(database: Database, seconds: float, clients: int = 0) -> tuple[Station, ...]:
    """PostgreSQL's stations over some seconds; over further ones if a busy machine left too little time for answers."""
    remote = replace(Remote.parse(f"postgresql://{database.address}/{database.name}"), clients=clients)
    for _ in range(20):
        sampler = Sampler("x", remote, seconds)
        began_s = time.monotonic()
        sampler.start()
        time.sleep(seconds)
        if stations := sampler.stop(began_s, time.monotonic()):
            return stations
    pytest.fail("PostgreSQL never answered for a third of the time")


def results(database: Database, path: Path, script: str, done: str, seconds: float, *loads: int) -> list[Result]:
    """Two runs of each load, with PostgreSQL's stations. `done` is SQL for the number of transactions."""

    def state() -> tuple[float, float]:
        now, count = database.sql(f"SELECT extract(epoch FROM clock_timestamp()), ({done})", USER).split("|")
        return float(now), float(count)

    found = []
    for clients in loads:
        with pgbench(database, path, script, clients):
            for _ in range(2):
                (began_s, before), stations, (ended_s, after) = state(), watched_for(database, seconds), state()
                rate = (after - before) / (ended_s - began_s)
                usage = Usage(1.0, 0.0, 0.0, 0.0, None, (), stations)
                found.append(Result("pgbench", rate, 1000 * clients / rate, clients=clients, usage=usage))
    return found


def shares(stations: Sequence[Station]) -> dict[str, float]:
    return {each.name: each.busy for each in stations}


def bottleneck(results: Sequence[Result]) -> Bottleneck:
    verdict = check(results).verdict
    assert verdict is not None
    return verdict.verdicts[0].bottleneck


@pytest.mark.alone
def test_row_that_all_transactions_update_is_named(watched: Database, tmp_path: Path) -> None:
    watched.sql("CREATE TABLE hot AS SELECT 0 AS n", USER)
    script = "SELECT pg_sleep(0.08);\nBEGIN;\nUPDATE hot SET n = n + 1;\nSELECT pg_sleep(0.04);\nEND;\n"
    runs = results(watched, tmp_path, script, "SELECT n FROM hot", 0.8, 1, 4, 14)
    assert runs[0].usage is not None
    assert shares(runs[0].usage.stations)["postgresql row lock"] == 0
    found = bottleneck(runs)
    (limit,) = (each for each in found.candidates if each.name == "station postgresql row lock")
    # Between two transactions, sessions that wake may wait for a processor.
    assert limit.at_most.estimate > 0.8
    assert found.names == ((limit.name,) if limit.is_full else ())


def test_rows_of_several_leave_a_lock_free_at_times(watched: Database, tmp_path: Path) -> None:
    watched.sql("CREATE TABLE warm AS SELECT id, 0 AS n FROM generate_series(1, 4) AS id", USER)
    script = "\\set id random(1, 4)\nBEGIN;\nUPDATE warm SET n = n + 1 WHERE id = :id;\nSELECT pg_sleep(0.01);\nEND;\n"
    with pgbench(watched, tmp_path, script, 12):
        wait_until(lambda: "Lock" in watched.sql("SELECT wait_event_type FROM pg_stat_activity", USER), "a lock")
        assert shares(watched_for(watched, 1.0))["postgresql row lock"] < 0.9


def test_reads_keep_neither_lock_nor_log_busy(watched: Database, tmp_path: Path) -> None:
    with pgbench(watched, tmp_path, "SELECT pg_sleep(0.01);\n", 8):
        assert shares(watched_for(watched, 0.5)) == {"postgresql WAL": 0, "postgresql row lock": 0}


COMMIT = "INSERT INTO log VALUES ('x');\n"


def test_clients_that_wait_for_connections_leave_the_log_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(tmp_path, durable=True) as cluster:
        database = with_environment(Database(cluster.address, "postgres", tmp_path / "none"), monkeypatch)
        database.sql("CREATE TABLE log (line text)", USER)
        with pgbench(database, tmp_path, COMMIT, 3):
            # On a busy machine, most sessions may wait for a processor at every look.
            watches = (shares(watched_for(database, 0.6, 3))["postgresql WAL"] for _ in range(20))
            alone = next(filter(None, watches), 0.0)
            pooled = shares(watched_for(database, 0.6, 6))["postgresql WAL"]
    # With more connections, a sync serves more commits: the log does not limit throughput.
    assert alone > 0 and pooled == 0


def test_commits_keep_the_log_busy_and_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(tmp_path, durable=True) as cluster:
        database = with_environment(Database(cluster.address, "postgres", tmp_path / "none"), monkeypatch)
        database.sql("CREATE TABLE log (line text)", USER)
        runs = results(database, tmp_path, COMMIT, "SELECT count(*) FROM log", 0.4, 1, 3, 12)
    found = [shares(run.usage.stations) for run in runs if run.usage is not None]
    assert all(run["postgresql row lock"] == 0 for run in found)
    assert max(run["postgresql WAL"] for run in found) > 0.05
    # Commits share a sync, so the log limits throughput only if most sessions are always there.
    assert set(bottleneck(runs).names) <= {"station postgresql WAL"}


@pytest.mark.parametrize(
    ("holders", "count"),
    [
        ({}, 0),
        # 2 and 4 wait for 3, and 1 behind 2.
        ({"1": "2", "2": "3", "4": "3", "5": "6"}, 3),
        # The answers of PostgreSQL are not of one moment.
        ({"1": "2", "2": "1"}, 1),
    ],
)
def test_sessions_behind_others_wait_for_one_transaction(holders: dict[str, str], count: int) -> None:
    assert _blocked(holders) == count


def test_connection_that_ends_early_shows_no_run(watched: Database) -> None:
    sampler = Sampler("x", Remote.parse(f"postgresql://{watched.address}/{watched.name}"), 1.0)
    sampler.start()
    wait_until(lambda: len(sampler._readings) > 1, "readings")
    ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'knee'"
    assert watched.sql(ended, USER) == "1"
    sampler.end()
    first_s, last_s = sampler._readings[0][0], sampler._readings[-1][0]
    assert len(sampler.stop(first_s, last_s)) == 2
    assert sampler.stop(first_s, first_s + 4 * (last_s - first_s)) == ()


def test_late_answer_is_not_of_the_next_line() -> None:
    slow = "import time\nwhile line := input():\n    time.sleep(0.5)\n    print(line, flush=True)"
    with Dialogue([sys.executable, "-c", slow], {}, 0.2) as dialogue:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
            dialogue.ask("first")
        time.sleep(0.5)
        with pytest.raises(ConnectionError):
            dialogue.ask("second")


def test_own_settings_are_of_the_connection(watched: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1MB")
    own = "SELECT string_agg(concat_ws(' ', name, setting, source), ',' ORDER BY name) FROM pg_settings"
    names = "('application_name', 'statement_timeout', 'work_mem')"
    with Waits(f"postgresql://{watched.address}/{watched.name}", 0) as waits:
        waits.read()
        found = waits.ask(f"{own} WHERE name IN {names};")
    # A pool of connections gives what a client has SET to its other clients.
    assert found == "application_name knee client,statement_timeout 2000 client,work_mem 1024 client"


def test_user_that_sees_no_waits_is_refused(watched: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGUSER", "bench")
    address = f"postgresql://{watched.address}/{watched.name}"
    with pytest.raises(SpecError, match=f"--watch {address}: .* GRANT pg_monitor TO it"):
        Remote.parse(address).read()
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    with pytest.raises(SpecError, match=f"--watch {address}: .*no password supplied"):
        Remote.parse(address).read()


@pytest.mark.parametrize("place", ["h/d", "h:5432/d", "[::1]:5432/d", "%2Frun%2Fpostgresql/postgres"])
def test_address_of_a_database_is_known(place: str) -> None:
    assert Remote.parse(f"postgresql://{place}").address == f"postgresql://{place}"


@pytest.mark.parametrize(
    "address",
    [
        "redis://me:s3cret@h:1",
        "http://h:1/m?token=s3cret",
        "http://s3cret@h/",
        "redis://h/s3cret",
        "s3cret://h:1",
        "postgresql://me:s3cret@h/d",
    ],
)
def test_address_that_may_have_a_secret_is_refused_without_it(address: str) -> None:
    with pytest.raises(SpecError, match="--watch: expected redis://HOST:PORT") as refused:
        Remote.parse(address)
    assert "s3cret" not in str(refused.value)


def test_target_that_does_not_answer_is_refused_before_the_search(tmp_path: Path) -> None:
    address = f"memcached://127.0.0.1:{free_port()}"
    done = knee("find", "--watch", address, "--", sys.executable, "{clients}", cwd=tmp_path)
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert f"--watch {address}: [Errno 111] Connection refused; start it first, or correct the address" in done.stderr


def test_target_that_vanishes_loses_its_station_with_one_warning(tmp_path: Path, systems: Systems) -> None:
    server = systems.memcached(None, "-t", "1")
    target = f"--watch memcached://{server.endpoint}"
    # Each scout lasts as long as a run here.
    script = f"[ $(ls runs/find/*/outputs/*.txt | wc -l) -ge 2 ] && kill {server.pid}; sleep 1\n"
    script += "echo clients,throughput,response_ms; echo {clients},50,$(({clients} * 20))"
    options = ["--seconds", "1", "--most", "4", "--budget", "9s", *target.split()]
    done = knee("find", *options, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"{target}: a run has no usable answers: silent, restarted") == 1
    files = sorted(folder_of(tmp_path).glob("outputs/*.cpu.json"), key=lambda file: file.stat().st_mtime)
    stations = [json.loads(file.read_text())["stations"] for file in files]
    assert [len(each) for each in stations] == [1, 1] + [0] * (len(files) - 2) and len(files) > 3
    assert stations[0][0]["name"] == "memcached threads" and 0 <= stations[0][0]["busy_s"] < 0.5
    assert "servers_memcached threads" in (folder_of(tmp_path) / "table.csv").read_text()


def test_restarted_server_has_no_station(redis: Callable[..., Running]) -> None:
    server = redis()
    for _ in range(3):
        converse(server.address, command("EVAL", SPIN, "0", "100") + b"QUIT\r\n")
    sampler = Sampler("x", Remote.parse(f"redis://{server.endpoint}"), 1.0)
    began_s = time.monotonic()
    sampler.start()
    wait_until(lambda: len(sampler._readings) == 1, "a reading")
    server.kill()
    redis(port=server.port)
    wait_until(lambda: len(sampler._readings) > 1, "another one")
    assert sampler.stop(began_s, time.monotonic()) == ()


def test_server_that_hangs_delays_no_other_sampler_at_the_end() -> None:
    asked_s: list[float] = []

    class Empty(BaseRequestHandler):
        def handle(self) -> None:
            asked_s.append(time.monotonic())

    with socket.create_server(("127.0.0.1", 0)) as silent, TCPServer(("127.0.0.1", 0), Empty) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            ports = [silent.getsockname()[1], server.server_address[1]]
            remotes = {str(port): Remote.parse(f"memcached://127.0.0.1:{port}") for port in ports}
            meter = Meter({}, 1.0, remotes)
            meter.start()
            connection, _ = silent.accept()
            with connection:
                wait_until(lambda: len(asked_s) > 0, "a question")
                stop_s = time.monotonic()
                meter.stop()
                assert time.monotonic() - stop_s > 1, "the silent server was waited for"
        finally:
            server.shutdown()
            thread.join()
    # A question may be under way.
    assert sum(each > stop_s for each in asked_s) <= 1


@pytest.mark.alone
def test_redis_that_computes_is_named_by_its_own_times(tmp_path: Path, redis: Callable[..., Running]) -> None:
    server, host = redis(), LocalHost()
    words = Template.parse([sys.executable, "-c", CLIENTS, str(server.port), "{clients}", "{seconds}"])
    remotes = {"--watch redis": Remote.parse(f"redis://{server.endpoint}")}
    runs = Generator(host, words, SearchFolder.create(tmp_path, {}), 2, 60, remotes=remotes)
    try:
        for clients in (1, 1, 8, 8, 24, 24):
            runs.run(clients, is_scout=False)
    finally:
        host.close(0)
    verdict = check(runs.results).verdict
    assert verdict is not None
    found = verdict.verdicts[0].bottleneck
    (limit,) = (each for each in found.candidates if each.name == "station redis main thread")
    # Other programs, or a hypervisor, may take much of its processor.
    assert limit.at_most.estimate > 0.1
    assert (limit.name in found.names) == limit.is_full


def test_stations_of_two_servers_have_different_names() -> None:
    stations = tuple(
        Station(watched, name, 2.0, busy_s, 0.5, 2)
        for watched, name, busy_s in (
            ("a", "redis main thread", 3.5),
            ("b", "redis main thread", 0.7),
            ("c", "client CPU", 1),
        )
    )
    result = Result("wrk", 1.0, 1.0, clients=1, usage=Usage(2.0, 0.0, 0.0, 0.0, 4, (), stations))
    (cells,) = stations_of([result])
    assert cells == {
        "utilization_redis main thread": 1.0,
        "servers_redis main thread": 2,
        "utilization_redis main thread (b)": 0.2,
        "servers_redis main thread (b)": 2,
        "utilization_the system's client CPU": 0.2857,
        "servers_the system's client CPU": 2,
    }
