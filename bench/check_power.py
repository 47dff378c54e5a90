"""How often `knee check` finds a violation of X · R = N, and how often it accuses right results.

    python -m bench.check_power [SETS]

A set is a file with six numbers of clients, three runs each, of a closed system with one queue. With consistent noise,
a run's response time is off, and its throughput follows by the law. With independent noise, both are off. The error is
±5 % in all throughputs or response times, or in those of one number of clients. The data can show an error of all
results if the smallest violation that `knee check` prints is at most 5 %.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import numpy as np

from knee.check import checks_of
from knee.data import foreign

SETS = 100
NOISES = (0.005, 0.01, 0.02, 0.03, 0.05)
CLIENTS = (1, 2, 4, 8, 16, 32)
RUNS = 3
ERROR = 0.05
SHOWN = r"smallest violation that all \d+ can show is ([\d.]+)%"


def written(rng: np.random.Generator, noise: float, *, independent: bool, extent: str) -> str:
    """A table with five digits, and with an error in its `extent`: nothing, all results, or one level."""
    clients = np.repeat(CLIENTS, RUNS)
    right_ms = np.maximum(rng.uniform(2, 20), clients * rng.uniform(0.2, 2))
    response_ms = right_ms * np.exp(rng.normal(0, noise, clients.size))
    own = np.exp(rng.normal(0, noise, clients.size))
    throughput = 1000 * clients / (right_ms * own if independent else response_ms)
    level = rng.choice(CLIENTS)
    wrong = {"nothing": clients == 0, "all results": clients > 0, "one level": clients == level}[extent]
    spoilt = throughput if rng.random() < 0.5 else response_ms
    spoilt[wrong] *= 1 + ERROR * rng.choice([-1, 1])
    rows = [f"{n},{x:.5g},{r:.5g}" for n, x, r in zip(clients, throughput, response_ms, strict=True)]
    return "\n".join(["clients,throughput,response_ms", *rows, ""])


def checked(file: Path) -> tuple[bool, float]:
    """Whether the law accuses a result or all, and the smallest violation that all can show."""
    found = checks_of(foreign.read([file])[0])
    (shown,) = [float(match[1]) / 100 for each in found if (match := re.search(SHOWN, each.cause))]
    return any(each.state == "wrong" for each in found), shown


def main() -> None:
    """Print the shares of accused sets."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else SETS
    print("| noise | ±5 % in | sets | can show it | accused of these | of all | smallest violation that shows |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "set.csv"
        for independent in (False, True):
            for extent in ("nothing", "all results", "one level"):
                found = []
                for seed in range(sets):
                    rng = np.random.default_rng([seed, independent])
                    file.write_text(written(rng, NOISES[seed % len(NOISES)], independent=independent, extent=extent))
                    found.append(checked(file))
                accused, shown = (np.array(each) for each in zip(*found, strict=True))
                able = shown <= ERROR
                print(
                    f"| {'independent' if independent else 'consistent'} | {extent} | {sets} | {able.sum()} | "
                    f"{accused[able].mean():.1%} | {accused.mean():.1%} | {shown.min():.1%} to {shown.max():.1%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
