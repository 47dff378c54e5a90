"""What a comparison says of puts beside scans, and what it leaves behind, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from bench.cells import CELLS
from bench.cpu import CpuTime
from bench.cpu_table import CpuTable
from bench.programs import Server
from bench.queue_table import script_of_pgmq
from bench.samples import Sample
from bench.scan_table import ALONE, SCANNED, PutTimes, verdict_of
from bench.table import Row
from systems import is_gone, wait_until

PATIENCE_S = 300.0


def row(pairs: int, late_alone: int = 0, late_scanned: int = 0) -> Row:
    """The last stretches are those in which the load generator was late."""
    samples = {
        name: [PutTimes(100.0, p99_us, late=number >= pairs - late) for number in range(pairs)]
        for name, p99_us, late in ((ALONE, 1000.0, late_alone), (SCANNED, 1200.0, late_scanned))
    }
    return Row("in memory", samples)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (row(9), "yes (1.20 in 9 of 9 pairs)"),
        (row(9, late_alone=3, late_scanned=4), "yes (1.20 in 5 of 9 pairs)"),
        (row(15, 8, 9), "cannot tell, as the load generator was late in all but 6 of 15 pairs"),
        (row(4), "cannot tell, as the load generator was late in all but 4 of 4 pairs"),
        # The worst stretches are those that would be left out.
        (row(15, 0, 5), "cannot tell, as the load generator was late in 5 of 15 stretches during scans and 0 alone"),
    ],
)
def test_puts_beside_scans_are_judged_only_where_the_pairs_tell(measured: Row, expected: str) -> None:
    assert verdict_of(measured) == expected


def sample(cpu_s: float, waited_s: float = 0.0) -> Sample:
    return Sample(1000, 1.0, CpuTime(cpu_s, waited_s, 3, 1), 0.5)


def test_a_cell_is_won_by_the_median_of_the_rounds() -> None:
    names = ("knee-kv", "memcached", "floor")
    table = CpuTable("ours", names, "store", "driver", [], {"knee-kv": 3, "memcached": 1, "floor": 3})
    won = {"knee-kv": [sample(0.2), sample(0.3), sample(0.9)], "memcached": 3 * [sample(0.4)], "floor": 3 * [sample(1)]}
    lost = {"knee-kv": 3 * [sample(0.5, 0.1)], "memcached": 3 * [sample(0.4)], "floor": 3 * [sample(1)]}
    sets = [cell for cell in CELLS if cell.operation == "set"][:2]
    table.rows = [table.row(sets[0], won), table.row(sets[1], lost), table.row(CELLS[0], {"knee-kv": lost["knee-kv"]})]
    assert table.result == f"ours: less CPU per request than memcached: no, 1 of 2 cells; not in {sets[1].name}"
    header, first, per_store, *_ = table.text.splitlines()[3:]
    assert header.split()[:3] == ["cell", "knee-kv", "µs"]
    assert "300.00" in first and "0.75" in first and "0.50 to 2.25" in first and first.endswith("yes")
    # A set of three requests to stores, beside one of the peer's.
    assert per_store.split()[-5:] == ["100.00", "400.00", "333.33", "0.25", "0.30"]
    assert "in 2 of 3 cells, at worst for 10% of the time (knee-kv" in table.text
    assert table.content["rows"][0]["ratios"]["memcached"]["median"] == pytest.approx(0.75)


def test_pgmq_is_asked_for_no_more_than_it_needs(tmp_path: Path) -> None:
    *begin, send, pop = script_of_pgmq(tmp_path).file.read_text().splitlines()
    assert "pgmq.send" in send and "pgmq.pop" in pop
    for line in begin:
        name = line.split()[1]
        assert line.startswith("\\set ") and f":{name}" in send + pop


def other(repository: Path, script: str) -> subprocess.Popen[str]:
    """A process with a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=repository, text=True, stdout=subprocess.PIPE, start_new_session=True
    )


def test_spinner_ends_with_a_killed_comparison(repository: Path) -> None:
    script = """
import os, time
from bench.programs import spinner
print(spinner(min(os.sched_getaffinity(0)), None).pid, flush=True)
time.sleep(600)
"""
    with other(repository, script) as comparison:
        assert comparison.stdout is not None
        spins = psutil.Process(int(comparison.stdout.readline()))
        assert spins.is_running()
        comparison.kill()
    # It has what others leave of a processor, which may be little.
    wait_until(lambda: is_gone(spins), "it has noticed", PATIENCE_S)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel does not group processes by session")
def test_the_session_and_the_process_get_their_niceness_back(repository: Path) -> None:
    script = """
import os
from pathlib import Path
from bench.programs import before_others
session = Path("/proc/self/autogroup")
session.write_text("5")
os.setpriority(os.PRIO_PROCESS, 0, max(3, os.getpriority(os.PRIO_PROCESS, 0)))
before = os.getpriority(os.PRIO_PROCESS, 0), session.read_text()
with before_others() as allowed:
    within = os.getpriority(os.PRIO_PROCESS, 0), session.read_text()
print(allowed == (within[0] < 0 and "nice -15" in within[1]))
print(before == (os.getpriority(os.PRIO_PROCESS, 0), session.read_text()))
"""
    output, _ = other(repository, script).communicate(timeout=PATIENCE_S)
    assert output.split() == ["True", "True"]


def test_starting_server_ends_with_its_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Server) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(Server, "_await", interrupted)
    with pytest.raises(SystemExit):
        Server(["sleep", "600"], None, 1, announces=False)
    children = psutil.Process().children
    wait_until(lambda: all(child.name() != "sleep" for child in children()), "the server has ended", PATIENCE_S)
