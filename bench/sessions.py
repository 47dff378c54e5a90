"""Real systems: where `knee find` sees the knee and the bottleneck, and what follows when the bottleneck is moved.

    python -m bench.sessions FOLDER [--seconds N] [--budget TIME] [NAME…]

Each session searches twice: the system as it is, and with its bottleneck moved. FOLDER keeps the searches: after an
interruption, the same command continues. The program renews the rows of the named sessions in
docs/reproductions/sessions.csv, and writes all rows to sessions.md and sessions.svg. Without --seconds and --budget, a
search takes at most BUDGET with runs of SECONDS. The session `nginx-oha` needs oha in PATH, and `redis-memtier`
memtier_benchmark; the others need Debian's programs alone.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from bench.postgresql import Cluster
from bench.programs import BenchError, environment, free_port
from knee.report.charts.clients import against_load
from knee.report.charts.vega import Axis, Spec
from knee.report.drawing import Drawing
from knee.stats.intervals import Interval, client_count, clients_between, number, quantity, ratio_interval

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproductions" / "sessions.md"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
SECONDS, BUDGET = "3", "60s"
TOKENS = shlex.join([sys.executable, str(Path(__file__).with_name("tokens.py"))])
DATABASE = "postgresql://knee@127.0.0.1:$port/postgres?sslmode=disable"


@dataclass(frozen=True)
class Setting:
    """A setting of the system by name. `values` stand in the commands and files as $NAME."""

    name: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Session:
    """A system, a load generator, and the setting that moves the bottleneck.

    system      the command that starts the system at $port; None for a PostgreSQL on processor $core, or on all
    programs    whose versions the page has
    files       of $folder, by name
    named       part of the bottleneck's name in the first setting; empty if Knee cannot tell it
    knees       the true knees of the two settings, if they are known
    watched     what `knee find --watch` takes, if it is not what listens at $port
    prepared    SQL that a PostgreSQL executes before the search
    """

    what: str
    system: str | None
    generator: str
    programs: tuple[str, ...]
    settings: tuple[Setting, Setting]
    named: str
    knees: tuple[float, float] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    watched: tuple[str, ...] = ()
    prepared: str = ""


NGINX = {
    "data": "".join(f"{n} squared is {n * n}\n" for n in range(3000)),
    "nginx.conf": """\
user root; daemon off; pid $folder/pid; error_log $folder/log; worker_processes $workers; events {}
http { access_log off; gzip on; gzip_comp_level 6; gzip_types *;
server { listen 127.0.0.1:$port; root $folder; } }
""",
}
SHARDS = {
    "start": """\
for port in $shards; do
    setpriv --pdeathsig TERM redis-server --bind 127.0.0.1 --port $$port --save '' --dir $folder &
    until redis-cli -p $$port ping; do sleep 0.05; done
done
exec nutcracker --conf-file $folder/nutcracker.yml --stats-addr 127.0.0.1 --stats-port $fourth
""",
    "nutcracker.yml": """\
shards:
  listen: 127.0.0.1:$port
  redis: true
  servers:
$servers
""",
}
COMPRESSED = "-H 'Accept-Encoding: gzip' http://127.0.0.1:$port/data"
SESSIONS = {
    "nginx-wrk": Session(
        "nginx compresses 77 kB for each request, on a new connection",
        "nginx -p $folder -c $folder/nginx.conf -e $folder/log",
        # A worker process may accept all connections that stay open, while the other is idle.
        f"wrk -t1 -c{{clients}} -d{{seconds}}s --latency -H 'Connection: close' {COMPRESSED}",
        ("nginx", "wrk"),
        (Setting("1 worker process", {"workers": "1"}), Setting("2 worker processes", {"workers": "2"})),
        "nginx thread",
        files=NGINX,
    ),
    "nginx-oha": Session(
        "the same with 4 worker processes",
        "taskset -c $cores nginx -p $folder -c $folder/nginx.conf -e $folder/log",
        f"oha --no-tui --output-format json -z {{seconds}}s -c {{clients}} {COMPRESSED}",
        ("nginx", "oha"),
        (
            Setting("pinned to processor 0", {"cores": "0", "workers": "4"}),
            Setting("on processors 0 and 1", {"cores": "0,1", "workers": "4"}),
        ),
        "CPU",
        files=NGINX,
    ),
    "redis-benchmark": Session(
        "Redis executes a script for each request",
        "redis-server --bind 127.0.0.1 --port $port --save '' --dir $folder",
        "redis-benchmark -p $port -c {clients} -n $requests --csv eval 'for i=1,$steps do end' 0",
        ("redis-server", "redis-benchmark"),
        (
            Setting("200,000 steps a script", {"steps": "200000", "requests": "2500"}),
            Setting("100,000 steps a script", {"steps": "100000", "requests": "5000"}),
        ),
        "redis-server thread",
    ),
    "redis-memtier": Session(
        "nutcracker shards keys over servers of Redis, which execute a script for each request",
        "sh $folder/start",
        "memtier_benchmark -s 127.0.0.1 -p $port -t 1 -c {clients} --test-time {seconds} --hide-histogram "
        "--json-out-file {output} --command \"eval 'for i=1,200000 do end' 1 __key__\" --command-key-pattern R",
        ("redis-server", "nutcracker", "memtier_benchmark"),
        (
            Setting("1 Redis", {"shards": "$second", "servers": "  - 127.0.0.1:$second:1"}),
            Setting(
                "2 Redis",
                {"shards": "$second $third", "servers": "  - 127.0.0.1:$second:1\n  - 127.0.0.1:$third:1"},
            ),
        ),
        "redis-server thread",
        files=SHARDS,
    ),
    "pgbench-select": Session(
        "PostgreSQL counts 20,000 rows of a series for each transaction",
        None,
        f"pgbench -n -c {{clients}} -j 1 -T {{seconds}} -f $folder/script.sql {DATABASE}",
        ("postgres", "pgbench"),
        (Setting("pinned to processor 0", {"core": "0"}), Setting("on all processors", {})),
        "CPU",
        files={"script.sql": "SELECT count(*) FROM generate_series(1, 20000);\n"},
    ),
    "pgbench-commit": Session(
        "PostgreSQL's transactions all update one row, which each locks until its commit is in the log",
        None,
        f"pgbench -n -c {{clients}} -j 1 -T {{seconds}} -f $folder/script.sql "
        f"'{DATABASE}&options=-csynchronous_commit%3D$commit'",
        ("postgres", "pgbench"),
        (Setting("synchronous_commit on", {"commit": "on"}), Setting("synchronous_commit off", {"commit": "off"})),
        "",
        files={"script.sql": "UPDATE counters SET n = n + 1;\n"},
        watched=("postgresql://127.0.0.1:$port/postgres", "port:$port"),
        prepared="CREATE TABLE counters (n bigint); INSERT INTO counters VALUES (0)",
    ),
    "tokens": Session(
        "a toy server streams 20 tokens of 5 ms a request; each slot serves a request, so the knee is at the slots",
        f"{TOKENS} serve $port $slots",
        f"{TOKENS} load http://127.0.0.1:$port/v1/completions --clients {{clients}} --seconds {{seconds}} "
        "--output {output}",
        (),
        (Setting("4 slots", {"slots": "4"}), Setting("8 slots", {"slots": "8"})),
        "",
        knees=(4, 8),
    ),
}

Answer = dict[str, Any]
"""The answer of `knee find --json`."""
Row = dict[str, str]
"""A measured figure. Its columns are COLUMNS."""
COLUMNS = ("session", "setting", "figure", "clients", "estimate", "low", "high", "text")


def measure(folder: Path, session: Session, setting: Setting, seconds: str, budget: str) -> Answer:
    """Search one setting. The folder keeps the search and its answer; what it has without an answer is removed."""
    kept = folder / "answer.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ports = {name: str(free_port()) for name in ("port", "second", "third", "fourth")}
    values = {"folder": str(folder), **ports, **{name: _filled(text, ports) for name, text in setting.values.items()}}
    with ExitStack() as started:
        if session.system is None:
            core = values.get("core")
            cluster = started.enter_context(Cluster(folder, durable=True, core=None if core is None else int(core)))
            values["port"] = str(cluster.port)
            if session.prepared:
                cluster.sql("postgres", session.prepared)
        for name, text in session.files.items():
            (folder / name).write_text(_filled(text, values))
        system = [] if session.system is None else ["--system", shlex.join(_words(session.system, values))]
        find = [sys.executable, "-m", "knee", "find", "--json", "--seconds", seconds, "--budget", budget, *system]
        ready = ["--ready", f"127.0.0.1:{values['port']}", "--runs-dir", str(folder)]
        ready += [f"--watch={_filled(each, values)}" for each in session.watched]
        words = _words(session.generator, values)
        paths = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        # With pytest's variables, Redis executes scripts four times as slowly.
        own = {"HOME": str(folder), "PATH": paths, "PYTHONPATH": str(ROOT / "python"), "PGUSER": "knee"}
        done = subprocess.run([*find, *ready, "--", *words], stdout=subprocess.PIPE, text=True, env=own)
    if done.returncode:
        raise BenchError(f"{shlex.join(words)}: knee find failed; its messages are above")
    kept.write_text(done.stdout)
    return dict(json.loads(done.stdout))


def _words(command: str, values: Mapping[str, str]) -> list[str]:
    return [_filled(word, values) for word in shlex.split(command)]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return Template(text).substitute(values)


def ratio(before: Answer, after: Answer) -> Interval:
    """Of the largest throughputs."""
    return ratio_interval(*(_interval(each["results"]["knees"][0]["throughput_max"]) for each in (after, before)))


def named(answer: Answer) -> str:
    """The bottleneck."""
    (found,) = answer["results"]["bottlenecks"] or [{"names": (), "status": "cannot tell"}]
    return " and ".join(found["names"]).replace("station ", "") or found["status"]


def rows_of(name: str, answers: Sequence[Answer]) -> list[Row]:
    """The figures of a session."""
    session, rows = SESSIONS[name], list[Row]()

    def add(setting: str, figure: str, found: Interval | None, clients: str = "", text: str = "") -> None:
        ends = (found.estimate, found.low, found.high) if found else (None, None, None)
        cells = ("" if end is None else f"{end:.5g}" for end in ends)
        rows.append(dict(zip(COLUMNS, (name, setting, figure, clients, *cells, text), strict=True)))

    about = json.loads((Path(answers[0]["folder"]) / "find.json").read_text())["options"]
    day = "-".join(re.findall(r"^(\d{4})(\d\d)(\d\d)", Path(answers[0]["folder"]).name)[0])
    limits = f"runs of {about['seconds']} s, at most {about['budget']} a search, {day}"
    add("", "search", None, text=", ".join([*map(_version, session.programs), limits]))
    for setting, answer in zip(session.settings, answers, strict=True):
        (knee,) = answer["results"]["knees"]
        add(setting.name, "knee", _interval(knee["clients"]), text=knee["status"])
        add(setting.name, "largest throughput", _interval(knee["throughput_max"]))
        add(setting.name, "bottleneck", None, text=named(answer))
        for level in knee["levels"]:
            add(setting.name, "throughput", _interval(level["throughput"]), str(level["clients"]))
    add(session.settings[1].name, "ratio", ratio(*answers))
    return rows


def _interval(found: Mapping[str, Any]) -> Interval:
    return Interval(**found)


def _version(program: str) -> str:
    """`wrk 4.1.0`: nginx has -v, and wrk fails after it."""
    flag = "-v" if program in ("nginx", "wrk") else "-V" if program == "nutcracker" else "--version"
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    done = subprocess.run([program, flag], capture_output=True, text=True, env=environment() | {"PATH": paths})
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return f"{program} {found[0] if found else ''}".strip()


def _read(row: Row) -> Interval:
    estimate, low, high = (float(row[end]) if row[end] else None for end in ("estimate", "low", "high"))
    assert estimate is not None
    return Interval(estimate, low, high, 0.95, 1)


ABOUT = """# Real systems, before and after their bottleneck is moved

`python -m bench.sessions` wrote this page, [its numbers](sessions.csv) and the figure. Each system runs on one machine
with two processors, beside its load generator. `knee find` searched it twice: as it is, and with its bottleneck moved.
The knee has its 95 % interval. The throughput is the mean over the runs of the plateau, with its 95 % interval
(Student's t). The ratio is that of the two throughputs. `bench/sessions.py` has the commands. Where no watched resource
is full, Knee cannot tell the bottleneck, and the second search alone shows it.

![Throughput against clients, before and after](sessions.svg)
"""
HEAD = ("session", "setting", "knee (clients)", "largest throughput (1/s)", "bottleneck", "ratio")


def page(rows: Iterable[Row]) -> str:
    """All rows as Markdown."""
    lines, notes = [f"| {' | '.join(HEAD)} |", "|:--|:--|--:|--:|:--|--:|"], list[str]()
    for name, some in groupby(rows, key=lambda row: row["session"]):
        own = {(row["setting"], row["figure"]): row for row in some}
        session = SESSIONS[name]
        notes.append(f"* `{name}`: {session.what} ({own['', 'search']['text']}).")
        for i, setting in enumerate(session.settings):
            knee, most, limit = (own[setting.name, each] for each in ("knee", "largest throughput", "bottleneck"))
            found = _read(knee)
            at = client_count(found.estimate) + ("" if found.low is None else f" ({clients_between(found)})")
            at += "" if knee["text"] == "found" else f", {knee['text']}"
            times = _read(own[setting.name, "ratio"]) if i else None
            shown = "" if times is None else number(times.estimate)
            if times is not None and times.low is not None and times.high is not None:
                shown += f" ({number(times.low)} to {number(times.high)})"
            cells = ("" if i else f"`{name}`", setting.name, at, quantity(_read(most)), limit["text"], shown)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([ABOUT, *notes, "", *lines]) + "\n"


def chart(name: str, rows: Sequence[Row]) -> Spec:
    """Throughput over clients, a curve for each setting."""
    values = [
        {"clients": int(row["clients"]), "series": row["setting"], "value": found.estimate}
        | {"low": found.low, "high": found.high}
        for row in rows
        if row["figure"] == "throughput"
        for found in (_read(row),)
    ]
    axis = Axis("clients", "clients", sorted({int(str(each["clients"])) for each in values}))
    choices = [setting.name for setting in SESSIONS[name].settings]
    drawn = against_load(values, "throughput (1/s)", series="setting", choices=choices, axis=axis)
    drawn["encoding"]["color"] |= {"title": None, "legend": {"orient": "bottom"}}
    return {"title": name, "width": 300, **drawn}


def write(rows: Sequence[Row], page_path: Path = PAGE) -> None:
    """Write the three files."""
    with page_path.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    page_path.write_text(page(rows))
    charts = [chart(name, list(some)) for name, some in groupby(rows, key=lambda row: row["session"])]
    whole: Spec = {"$schema": SCHEMA, "background": "white", "config": {"aria": False}, "columns": 2, "concat": charts}
    Drawing(whole | {"resolve": {"scale": {"color": "independent"}}}).save(page_path.with_suffix(".svg"))


def main(arguments: list[str]) -> None:
    """Measure what is missing, and renew the rows."""
    given = {"--seconds": SECONDS, "--budget": BUDGET}
    for flag in given.keys() & set(arguments):
        at = arguments.index(flag)
        given[flag] = arguments[at + 1]
        del arguments[at : at + 2]
    folder, names = Path(arguments[0]).resolve(), arguments[1:] or list(SESSIONS)
    table = PAGE.with_suffix(".csv")
    known = list(csv.DictReader(table.open())) if table.exists() else []
    for name in names:
        session = SESSIONS[name]
        answers = [
            measure(folder / f"{name}-{i}", session, setting, *given.values())
            for i, setting in enumerate(session.settings)
        ]
        known = [row for row in known if row["session"] != name] + rows_of(name, answers)
        known.sort(key=lambda row: list(SESSIONS).index(row["session"]))
        write(known)


if __name__ == "__main__":
    main(sys.argv[1:])
