"""A private PostgreSQL cluster, pgbench on it, and what its processes use."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.cpu import TICKS_PER_S, CpuTime
from bench.programs import BenchError, Program, Server, environment, find_program, free_port
from knee.errors import ProgramError
from knee.lab.programs import find_postgresql

CONNECTIONS_MAX = 200
# Connecting and preparing is no part of a request.
CONNECTED_S = 0.4
SLACK_S = 60.0
# pgbench continues for this time after the second reading of CPU times, because its sessions end with it.
STILL_THERE_S = 1
READINGS_MAX = 100
USER = "knee"


class Cluster(Server):
    """A private PostgreSQL in an empty directory. `durable`: commits wait for the disk (`fsync`)."""

    def __init__(self, directory: Path, *, durable: bool, core: int | None = None) -> None:
        """On one core, or on all. Raises BenchError when PostgreSQL is not installed or does not start."""
        self._data = directory / "data"
        _run([*_as_nobody_in_particular(), _program("initdb"), "--pgdata", str(self._data), *_INITDB])
        port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": str(CONNECTIONS_MAX),
            "shared_buffers": "512MB",
            # No checkpoint in the middle of one contestant's turn.
            "max_wal_size": "16GB",
            "checkpoint_timeout": "1h",
            # knee-queue would have none of `synchronous_commit = off`.
            "fsync": "on" if durable else "off",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [*_as_nobody_in_particular(), _program("postgres"), "-D", str(self._data), *flags]
        super().__init__(command, core, port, announces=False)
        self._await_answer()

    def stop(self) -> str:
        """Ends PostgreSQL without writing its memory to the disk."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
        return super().stop()

    def url(self, database: str) -> str:
        """The address of a database, for the middleware and PostgreSQL's own programs."""
        return f"postgresql://{USER}@{self.address}/{database}?sslmode=disable"

    def sql(self, database: str, text: str) -> str:
        """The answer to some SQL. Raises BenchError if it fails."""
        flags = ["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1"]
        return _run([_program("psql"), *flags, "--dbname", self.url(database)], text)

    def create(self, database: str) -> None:
        """Creates an empty database."""
        self.sql("postgres", f"CREATE DATABASE {database}")

    def cpu_s(self) -> float:
        """The CPU time of all its processes, including ended ones, exact to some ticks of the clock.

        Raises BenchError if sessions begin and end all the time.
        """
        for _ in range(READINGS_MAX):
            children = self._children()
            total_s = 0.0
            for child in children:
                with suppress(ProcessLookupError):
                    total_s += CpuTime.of(child).total_s
            # Read ended processes after running ones. A process that ends in between is then counted twice, and the
            # changed list shows this. In the other order it would not be counted at all.
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            total_s += CpuTime.of(self.pid).total_s + (int(fields[13]) + int(fields[14])) / TICKS_PER_S
            if self._children() == children:
                return total_s
        raise BenchError("PostgreSQL's sessions begin and end too fast to tell what they use")

    def _children(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def _await_answer(self) -> None:
        """PostgreSQL opens its port before it lets clients in."""
        asks = [_program("pg_isready"), "-q", "-d", self.url("postgres")]
        for _ in range(500):
            if subprocess.run(asks, env=environment()).returncode == 0:
                return
            time.sleep(0.02)
        raise BenchError(f"PostgreSQL does not answer: {self.messages()}")


@dataclass(frozen=True)
class Stretch:
    """A stretch of load: requests per second, and CPU times per request of the middleware and of PostgreSQL."""

    per_second: float
    middleware_us: float
    postgresql_us: float


@dataclass(frozen=True)
class Script:
    """A script of pgbench in a database, with its number of requests and the settings of its session."""

    database: str
    file: Path
    requests: int
    session: str = ""


def metered(cluster: Cluster, middleware: Program | None, load: Callable[[], float], seconds: float) -> Stretch:
    """Measures a load that has just started, and lasts at least `seconds`.

    `load` waits for the end of the load, and returns its requests per second.
    """
    time.sleep(CONNECTED_S)
    began, postgresql_s, middleware_s = time.monotonic(), cluster.cpu_s(), _cpu_s(middleware)
    time.sleep(max(0.1, seconds - CONNECTED_S))
    elapsed_s = time.monotonic() - began
    postgresql_s, middleware_s = cluster.cpu_s() - postgresql_s, _cpu_s(middleware) - middleware_s
    per_second = load()
    requests = per_second * elapsed_s
    return Stretch(per_second, middleware_s / requests * 1e6, postgresql_s / requests * 1e6)


def pgbench(cluster: Cluster, script: Script, connections: int, seconds: float, *flags: str) -> Program:
    """Debian's pgbench, one connection for each client, for whole seconds."""
    session = ["env", f"PGOPTIONS={script.session}"]
    command = [
        *(_program("pgbench"), "--no-vacuum", "--protocol", "prepared", "--file", str(script.file)),
        *("--client", str(connections), "--jobs", "1", "--time", str(math.ceil(seconds)), *flags),
    ]
    return Program([*session, *command, cluster.url(script.database)], None)


def pgbench_stretch(cluster: Cluster, script: Script, connections: int, seconds: float) -> Stretch:
    """Repeats the script. Raises BenchError if it failed once."""
    whole_s = math.ceil(seconds)
    with pgbench(cluster, script, connections, whole_s + STILL_THERE_S) as program:

        def per_second() -> float:
            output = program.read_to_end(whole_s + SLACK_S)
            rate = re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)
            failed = re.search(r"^number of failed transactions: ([1-9]\d*)", output, re.MULTILINE)
            if program.process.returncode != 0 or rate is None or failed:
                raise BenchError(f"pgbench has failed, or nothing was done in time: {program.messages()}")
            return float(rate[1]) * script.requests

        return metered(cluster, None, per_second, whole_s)


def migrated(cluster: Cluster, database: str, programs: Path | None) -> None:
    """A new database with our schema."""
    cluster.create(database)
    _run([find_program("knee-queue", programs), "migrate", "--database", cluster.url(database)])


_INITDB = ("--username", USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")


def _cpu_s(program: Program | None) -> float:
    return 0.0 if program is None else CpuTime.of(program.pid).total_s


def _program(name: str) -> str:
    try:
        return str(find_postgresql(name))
    except ProgramError as error:
        raise BenchError(str(error)) from error


def _run(command: Sequence[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        raise BenchError(f"{Path(command[0]).name} has failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _as_nobody_in_particular() -> list[str]:
    """PostgreSQL refuses to run as root; in a user namespace root is another user. The files stay root's."""
    return ["unshare", "--user", "--map-user=1", "--map-group=1", "--"] if os.geteuid() == 0 else []
