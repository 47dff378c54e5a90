"""How near `knee machine` comes to mbw, sysbench, fio and iperf3.

    python -m bench.machine [FOLDER [PAIRS]]

Each pair measures with Knee and with the judge, in turns of who begins. A disk's speed changes within seconds, so its
pairs have several slices of each. FOLDER, by default the current one, is on the
disk to measure. The judges are the Debian packages of these names. The table shows medians, and the median and the
range of the pairs' ratios, Knee's value over the judge's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from bench.programs import BenchError, Program, before_others, free_port
from knee import _kernels
from knee.machine.disk import BLOCK_BYTES, PAGE_BYTES, DiskFile
from knee.machine.sizes import MIB
from knee.stats.intervals import number

SECONDS, PAIRS, TOLERANCE = 1.0, 5, 0.10
SLICES = 3
SLICE = f"{1000 * SECONDS / SLICES:.0f}ms"
PAUSE_S = 0.3
"""Rest of the disk before each measurement: a throttled one would else prefer the judge, which takes time to start."""
ARRAY_BYTES, FILE_BYTES = 256 * MIB, 256 * MIB


class Match(NamedTuple):
    """A quantity, Knee's measurement and the judge's, and the unit of both as a factor and a name."""

    name: str
    judge: str
    ours: Callable[[], float]
    theirs: Callable[[], float]
    factor: float
    unit: str
    slices: int = 1


def output(*command: str) -> str:
    """What a judge prints. Raises BenchError if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError:
        raise BenchError(f"{command[0]} is not installed: apt-get install {command[0]}") from None
    except subprocess.CalledProcessError as error:
        raise BenchError(f"{command[0]}: {(error.stderr or error.stdout).strip()[-500:]}") from None
    return done.stdout


def found(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    if match is None:
        raise BenchError(f"no {pattern} in: {text[-500:]}")
    return float(match[1])


def mbw() -> float:
    """Copied bytes per second between two arrays, by memcpy."""
    text = output("mbw", "-t0", "-n", "10", str(ARRAY_BYTES // MIB))
    return MIB * found(r"AVG.*Copy: ([\d.]+) MiB/s", text)


def sysbench(operation: str) -> float:
    """Bytes per second over one array, in order, by one thread."""
    options = (f"--memory-block-size={ARRAY_BYTES}", "--memory-total-size=1000G", f"--memory-oper={operation}")
    text = output("sysbench", "memory", *options, "--threads=1", f"--time={SECONDS:g}", "run")
    return MIB * found(r"\(([\d.]+) MiB/sec\)", text)


def fio(file: Path, block_bytes: int, mode: str, direct: bool, synced: bool) -> float:
    """Requests of 4 KiB, or bytes, per second; one request at a time."""
    options = {
        "name": "judge", "filename": file, "size": FILE_BYTES, "rw": mode, "bs": block_bytes, "ioengine": "psync",
        "direct": int(direct), "fdatasync": int(synced), "runtime": SLICE, "time_based": 1, "norandommap": 1,
        "invalidate": 0, "thread": 1, "output-format": "json",
    }  # fmt: skip
    job = json.loads(output("fio", *(f"--{name}={value}" for name, value in options.items())))["jobs"][0]
    per_s = float(job["read" if mode.endswith("read") else "write"]["iops"])
    return per_s * block_bytes if block_bytes > PAGE_BYTES else per_s


def iperf3() -> float:
    """Received bytes per second of one connection over the loopback interface."""
    port = str(free_port())
    with Program(["iperf3", "--server", "--one-off", "--forceflush", "--port", port], None) as server:
        server.await_line()
        time.sleep(0.2)
        text = output("iperf3", "--client", "127.0.0.1", "--port", port, "--time", f"{SECONDS:g}", "--json")
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 8


def memory(column: int, size_bytes: int) -> float:
    return _kernels.memory(size_bytes, SECONDS / 4, 1)[column]


def matches(file: DiskFile, path: Path) -> list[Match]:
    """All quantities with a judge. Knee and fio use the same file."""
    gigabytes, megabytes, each = (1e-9, "GB/s"), (1e-6, "MB/s"), (1.0, "1/s")
    compared = [
        Match("memory copy", "mbw", partial(memory, 3, 2 * ARRAY_BYTES), mbw, *gigabytes),
        Match("memory read", "sysbench", partial(memory, 1, ARRAY_BYTES), partial(sysbench, "read"), *gigabytes),
        Match("memory write", "sysbench", partial(memory, 2, ARRAY_BYTES), partial(sysbench, "write"), *gigabytes),
        Match("loopback", "iperf3", partial(_kernels.loopback_bytes_per_s, SECONDS), iperf3, *gigabytes),
    ]
    for name, figure, mode, direct, synced in (
        ("random reads of 4 KiB", "disk_random_read_per_s", "randread", True, False),
        ("random writes of 4 KiB", "disk_random_write_per_s", "randwrite", True, False),
        ("random writes of 4 KiB, synced", "disk_random_synced_write_per_s", "randwrite", True, True),
        ("writes of 4 KiB in order, synced", "disk_sync_per_s", "write", False, True),
        ("reads of 1 MiB", "disk_read_bytes_per_s", "read", True, False),
        ("writes of 1 MiB", "disk_write_bytes_per_s", "write", True, False),
        ("writes of 1 MiB, synced", "disk_synced_write_bytes_per_s", "write", True, True),
    ):
        is_rate = figure.endswith("_bytes_per_s")
        ours = partial(file.transfer, figure, SECONDS / SLICES, 1)
        theirs = partial(fio, path, BLOCK_BYTES if is_rate else PAGE_BYTES, mode, direct, synced)
        compared.append(Match(name, "fio", ours, theirs, *(megabytes if is_rate else each), SLICES))
    return compared


def row(match: Match, pairs: int) -> str:
    """The medians and the ratios of some pairs."""
    ours, theirs = list[float](), list[float]()
    for pair in range(pairs):
        sides = [(match.ours, list[float]()), (match.theirs, list[float]())]
        for part in range(match.slices):
            for measure, values in sides[:: -1 if (pair + part) % 2 else 1]:
                time.sleep(PAUSE_S)
                values.append(measure())
        for pairs_values, (_, values) in zip((ours, theirs), sides, strict=True):
            pairs_values.append(mean(values))
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    ratio = median(ratios)
    verdict = "yes" if abs(ratio - 1) <= TOLERANCE else "no"
    medians = " | ".join(number(match.factor * median(values)) for values in (ours, theirs))
    spread = f"{ratio:.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {verdict}"
    return f"| {match.name} ({match.unit}) | {match.judge} | {medians} | {spread} |"


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else PAIRS
    print("| quantity | judge | Knee | judge's | ratio | range | within 10 % |\n|---|---|---|---|---|---|---|")
    try:
        with before_others(), NamedTemporaryFile(dir=folder, buffering=0) as file:
            path = Path(file.name)
            for match in matches(DiskFile(folder, file.fileno(), FILE_BYTES, seed=1), path):
                print(row(match, pairs), flush=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
