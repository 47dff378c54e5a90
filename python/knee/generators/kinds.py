"""Servers that Knee starts itself for other load generators, and the commands of the generators' kinds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import CONNECTIONS_SPARE, Command, File, tied
from knee.lab.deploy import postgresql
from knee.lab.hosts import Process
from knee.lab.hosts.local import LocalHost
from knee.lab.scratch import Scratch
from knee.spec import Configuration, Store
from knee.spec.foreign import SETS
from knee.spec.template import Template, words_of

COMMANDS = {
    "wrk": "wrk -t{threads} -c{clients} -d{seconds}s --latency {url}",
    "redis-benchmark": "redis-benchmark -h {host} -p {port} -c {clients} -n {requests} -d {value_bytes} -r {keys} "
    "-t {operation} --csv",
    "pgbench": "pgbench -n -f {script} -c {clients} -j {threads} -T {seconds} -P 1 {url}",
}
"""The commands of `load.kind`."""

_NAME = "store-0"
_READY_S = 30.0
_PREPARED_S = 600.0
"""Time limit for filling a server."""

_FILL = "for i = 0, ARGV[1] - 1 do redis.call('SET', string.format('key:%012d', i), string.rep('x', ARGV[2])) end"
"""redis-benchmark -r draws these keys."""

_NGINX = """\
daemon off;
{user}pid "{folder}/pid";
error_log stderr;
worker_processes {threads};
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path "{folder}/body";
    proxy_temp_path "{folder}/proxy";
    fastcgi_temp_path "{folder}/fastcgi";
    uwsgi_temp_path "{folder}/uwsgi";
    scgi_temp_path "{folder}/scgi";
    server {{
        listen {address};
        root "{folder}";
        index value.txt;
    }}
}}
"""


@dataclass(frozen=True)
class Started:
    """A server that is ready: its process, the values of placeholders, and the environment of its clients."""

    process: Process
    values: Mapping[str, str]
    like: Command = field(default_factory=lambda: Command("load", "load", ()))


@dataclass(frozen=True)
class Starter:
    """Starts the server of a point, and fills it.

    begin  starts a command of a process
    texts  texts of the SQL files, by the path in the experiment
    """

    host: LocalHost
    room: Scratch
    texts: Mapping[str, str]
    begin: Callable[[Command], Process]

    def start(self, point: Configuration, store: Store) -> Started:
        """Raises ProcessError if the server does not get ready, or cannot be filled."""
        folder = self.room.data_path(_NAME)
        address = self.host.free_address(_NAME)
        if store.kind == "postgresql":
            return self._start_postgresql(point, store, address)
        folder.mkdir()
        if store.kind == "nginx":
            process = self._ready(nginx(point, store, address, self.room))
            return Started(process, _values(address, f"http://{address}/"))
        process = self._ready(redis(store, address, self.room))
        host, _, port = address.rpartition(":")
        workload = point.workload
        # Without -e, it ends with 0 after an error.
        filling = ["redis-cli", "-e", "-h", host, "-p", port, "EVAL", _FILL, "0"]
        argv = (*tied(), *filling, str(workload.keys), str(workload.value_bytes))
        self._finish(Command("fill", "prepare", argv))
        return Started(process, _values(address, f"redis://{address}"))

    def _start_postgresql(self, point: Configuration, store: Store, address: str) -> Started:
        cluster = postgresql.Cluster(self.room.data_path(_NAME), self.room.password)
        self._finish(postgresql.initdb("initdb", cluster))
        process = self._ready(postgresql.postgresql(_NAME, store, cluster, address, point.clients))
        url, pgpass = postgresql.own_url(address), self.room.pgpass
        environment = (("PGPASSFILE", str(pgpass.path)),)
        like = Command("load", "load", (), environment=environment, own_database=True, files=(pgpass,))
        if point.workload.scale is not None:
            pgbench = str(programs.find_postgresql("pgbench"))
            argv = (*tied(), pgbench, "-i", "-q", "-s", str(point.workload.scale), url)
            self._finish(replace(like, process="fill", argv=argv))
        if point.workload.prepare is not None:
            file = self.room.script("prepare", self.texts[point.workload.prepare])
            self._finish(postgresql.script("prepare", url, pgpass, file))
        values = _values(address, url)
        if (script := point.system.load.script) is not None:
            file = self.room.script("load", self.texts[script])
            like, values = replace(like, files=(pgpass, file)), {**values, "script": str(file.path)}
        return Started(process, values, like)

    def _ready(self, command: Command) -> Process:
        process = self.begin(command)
        process.wait_ready(_READY_S)
        return process

    def _finish(self, command: Command) -> None:
        process = self.begin(command)
        if process.wait(_PREPARED_S):
            raise ProcessError(f"{command.process}: {process.describe()}")


def template_of(point: Configuration) -> Template:
    """The command of a point's load generator."""
    load = point.system.load
    words = words_of(load.command or COMMANDS[load.kind])
    # With any number of threads, redis-benchmark takes locks.
    if load.command is None and load.kind == "redis-benchmark" and load.threads > 1:
        words = (*words, "--threads", "{threads}")
    return Template.parse(words)


def values_of(point: Configuration) -> dict[str, str]:
    """The values of placeholders in COMMANDS that do not depend on the server."""
    load, workload = point.system.load, point.workload
    return {
        "threads": str(load.threads),
        "value_bytes": str(workload.value_bytes),
        "keys": str(workload.keys),
        "operation": "set" if workload.set_get == SETS else "get",
    }


def _values(address: str, url: str) -> dict[str, str]:
    host, _, port = address.rpartition(":")
    return {"url": url, "host": host, "port": port}


def nginx(point: Configuration, store: Store, address: str, room: Scratch) -> Command:
    """nginx with a worker process for each thread of the store. It serves one file of the value's size."""
    folder = room.data_path(_NAME).resolve()
    # Only root may choose the user of the worker processes, which read the file.
    user = "user root;\n" if os.geteuid() == 0 else ""
    connections = point.clients + CONNECTIONS_SPARE
    text = _NGINX.format(folder=folder, user=user, threads=store.threads, connections=connections, address=address)
    files = (File(folder / "nginx.conf", text), File(folder / "value.txt", "x" * int(point.workload.value_bytes)))
    path = str(programs.find_foreign("nginx"))
    argv = (*tied(), path, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf"))
    return Command(_NAME, "store", argv, serves=f"http://{address}/", asks="http", is_family=True, files=files)


def redis(store: Store, address: str, room: Scratch) -> Command:
    """redis-server; its threads are those of its sockets. Without durability it writes no file."""
    host, _, port = address.rpartition(":")
    syncs = {"always": "always", "none": "no"}.get(store.durability or "")
    argv = [
        *tied(),
        str(programs.find_foreign("redis-server")),
        *("--bind", host, "--port", port, "--dir", str(room.data_path(_NAME)), "--save", ""),
        *(("--appendonly", "yes", "--appendfsync", syncs) if syncs else ("--appendonly", "no")),
        *(("--io-threads", str(store.threads), "--io-threads-do-reads", "yes") if store.threads > 1 else ()),
    ]
    return Command(_NAME, "store", tuple(argv), serves=address, asks="connection")
