"""How near `knee find` comes to known knees, and in which share of a full sweep's time.

    python -m bench.find [SECONDS [FIRST STOP]]

Each system runs with wrk. The sweep measures 1, 2, 3, 4, 6, 8, … clients up to BEYOND times N*, each equally often, in
blocks of random order. Search and sweep take turns, so that both see the same noise. Each ends when its interval is
narrow enough; the sweep at the latest after TIMES_MAX times the search's time, marked by "<".
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from knee.data.foreign import Result
from knee.data.outputs import SearchFolder
from knee.find.generator import Generator
from knee.find.knees import BEYOND, KneeTarget, knee_of
from knee.find.search import REPETITIONS_MIN, Search
from knee.generators.runner import GRACE_S, System
from knee.lab.hosts.local import LocalHost
from knee.spec.template import Template
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


@dataclass
class Sweep:
    """Measures every load equally often, in blocks of random order, until the knee's interval is narrow enough."""

    generator: Generator
    loads: list[int]
    spent_s: float = 0.0
    is_narrow: bool = False
    runs: dict[int, list[Result]] = field(default_factory=lambda: defaultdict(list))
    _rng: random.Random = field(default_factory=lambda: random.Random(1))
    _block: list[int] = field(default_factory=list)

    def go(self, until_s: float) -> None:
        """Measure until the sweep has taken this time, or its interval is narrow enough."""
        while self.spent_s < until_s and not self.is_narrow:
            self._block = self._block or self._rng.sample(self.loads, len(self.loads))
            load, began_s = self._block.pop(), self.generator.elapsed_s
            self.runs[load].append(self.generator.run(load, is_scout=False))
            self.spent_s += self.generator.elapsed_s - began_s
            if not self._block and len(self.runs[load]) >= REPETITIONS_MIN:
                self.is_narrow = KneeTarget(PRECISION).is_precise(knee_of(self.runs))


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
            sweep = Sweep(generator, [load for load in LOADS if load <= BEYOND * truth])
            searched_s = 0.0

            def measure(load: int, is_scout: bool) -> Result:
                nonlocal searched_s
                began_s = generator.elapsed_s
                result = generator.run(load, is_scout)
                searched_s += generator.elapsed_s - began_s
                sweep.go(searched_s)
                return result

            search = Search(KneeTarget(PRECISION), measure, print, random.Random(0))
            search.go()
            sweep.go(TIMES_MAX * searched_s)
        finally:
            host.close(GRACE_S)
    found, swept = knee_of(search.runs).clients, knee_of(sweep.runs).clients
    assert found is not None and swept is not None
    knees = [f"{client_count(each.estimate)} ({clients_between(each)})" for each in (found, swept)]
    swept_s = sweep.spent_s
    times = f"{searched_s:.0f} s / {swept_s:.0f} s {'=' if sweep.is_narrow else '<'} {searched_s / swept_s:.2f}"
    return f"| {name} | {truth:g} | {knees[0]} | {found.estimate / truth - 1:+.1%} | {knees[1]} | {times} |"


def main() -> None:
    """Print a row for each system."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    print("| system | N* | search (95% interval) | error | sweep | time |\n|---|---|---|---|---|---|")
    for cell in CELLS[slice(*map(int, sys.argv[2:]))] if sys.argv[2:] else CELLS:
        print(row(*cell, seconds), flush=True)


if __name__ == "__main__":
    main()
