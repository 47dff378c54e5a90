"""How near `knee find` comes to known knees, and in which share of a full sweep's time.

    python -m bench.find [SECONDS [FIRST STOP]]

Each system runs with wrk. The sweep measures 1, 2, 3, 4, 6, 8, … clients up to the largest load of the search, each
equally often, in blocks of random order. It ends when its interval is as narrow as that of the search must be, or after
TIMES_MAX times the search's time, marked by "<".
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from knee.data.foreign import Result
from knee.data.search_folder import SearchFolder
from knee.find.generator import GRACE_S, Generator, System
from knee.find.knees import KneeTarget, knee_of
from knee.find.search import REPETITIONS_MIN, Search
from knee.find.template import Template
from knee.lab.hosts.local import LocalHost
from knee.stats.intervals import client_count, clients_between

SECONDS, BUDGET_S, PRECISION, TIMES_MAX = 3, 3600.0, 0.05, 3
LOADS = sorted({1, *(share * 2**power for power in range(12) for share in (2, 3))})

SLOTS = f"{sys.executable} {Path(__file__).with_name('slots.py')} {{port}}"
NGINX = "nginx -p {folder} -c {folder}/nginx.conf -e {folder}/log"
THINKING = ("-s", "{folder}/think.lua")

CELLS: tuple[tuple[str, float, str, tuple[str, ...]], ...] = (
    ("6 slots, S 20 ms", 6, f"{SLOTS} 6 20", ()),
    ("8 slots, S 20 ms, Z 20 ms", 16, f"{SLOTS} 8 20 20", ()),
    ("16 slots, S 20 ms, Z 20 ms", 32, f"{SLOTS} 16 20 20", ()),
    ("32 slots, S 40 ms, Z 40 ms", 64, f"{SLOTS} 32 40 40", ()),
    ("8 slots, random S of 20 ms, Z 40 ms", 24, f"{SLOTS} 8 20 40 --random", ()),
    ("nginx, limit_req of 500/s, Z 50 ms", 25, NGINX, THINKING),
)
"""Name, N*, command of the system, and flags of wrk."""

FILES = {
    "think.lua": "function delay() return 50 end\n",
    "nginx.conf": """\
daemon off; pid {folder}/pid; error_log {folder}/log; events {{ worker_connections 4096; }}
http {{ access_log off; limit_req_zone x zone=z:1m rate=500r/s;
server {{ listen 127.0.0.1:{port}; location / {{ limit_req zone=z burst=9999; empty_gif; }} }} }}
""",
}


def sweep(generator: Generator, most: int, end_s: float) -> tuple[dict[int, list[Result]], bool]:
    """Measure every load equally often; returns whether the knee's interval is narrow enough before the end."""
    rng = random.Random(1)
    runs: dict[int, list[Result]] = {load: [] for load in LOADS if load <= most}
    while True:
        for load in rng.sample(list(runs), len(runs)):
            runs[load].append(generator.run(load, is_scout=False))
        clients = knee_of(runs).clients
        width = None if clients is None else clients.relative_half_width
        is_narrow = width is not None and width <= PRECISION
        if len(runs[1]) >= REPETITIONS_MIN and (is_narrow or generator.elapsed_s > end_s):
            return runs, is_narrow


def row(name: str, truth: float, system: str, flags: tuple[str, ...], seconds: int) -> str:
    """The knee as the search and the sweep find it, and their times."""
    with TemporaryDirectory() as directory:
        host = LocalHost()
        address = host.free_address("system")
        places = {"folder": directory, "port": address.rpartition(":")[2]}
        for file, text in FILES.items():
            Path(directory, file).write_text(text.format(**places) if "{" in text else text)
        words = ["wrk", "-t1", "-c{clients}", "-d{seconds}", *(flag.format(**places) for flag in flags)]
        folder = SearchFolder.create(Path(directory), {})
        generator = Generator(host, Template.parse([*words, f"http://{address}/"]), folder, seconds, BUDGET_S)
        try:
            System.parse(system.format(**places), address).start(host, folder)
            search = Search(KneeTarget(PRECISION), generator.run, print, random.Random(0))
            search.go()
            searched_s = generator.elapsed_s
            runs, is_narrow = sweep(generator, max(search.runs), (1 + TIMES_MAX) * searched_s)
            swept, swept_s = knee_of(runs).clients, generator.elapsed_s - searched_s
        finally:
            host.close(GRACE_S)
    found = knee_of(search.runs).clients
    assert found is not None and swept is not None
    knees = [f"{client_count(each.estimate)} ({clients_between(each)})" for each in (found, swept)]
    times = f"{searched_s:.0f} s / {swept_s:.0f} s {'=' if is_narrow else '<'} {searched_s / swept_s:.2f}"
    return f"| {name} | {truth:g} | {knees[0]} | {found.estimate / truth - 1:+.1%} | {knees[1]} | {times} |"


def main() -> None:
    """Print a row for each system."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    print("| system | N* | search (95% interval) | error | sweep | time |\n|---|---|---|---|---|---|")
    for cell in CELLS[slice(*map(int, sys.argv[2:]))] if sys.argv[2:] else CELLS:
        print(row(*cell, seconds), flush=True)


if __name__ == "__main__":
    main()
