"""The simulator's time for a replication.

python -m bench.simulate
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from knee.queueing import Delay, Erlang, Lognormal, Network, Queue, simulate

RUNS = 21
AIM_MS = 20.0

M_M_4 = Network([Queue("servers", 1.0, servers=4)])
REPLICATED = Network(
    [Delay("wire", 0.2), Queue("workers", 0.5, servers=8), *(Queue(f"store {index}", 1.0) for index in range(3))],
    think_time=10.0,
)
MILLION = Network([Delay("wire", 0.2), Queue("workers", 1.0, servers=64)], think_time=20_000.0)

_simulate = partial(simulate, warmup=0, replications=1)
CASES: dict[str, tuple[int, Callable[[int], object]]] = {
    "M/M/4 at 80 %": (100_000, lambda rounds: _simulate(M_M_4, arrival_rates=3.2, rounds=rounds)),
    "G/G/4 at 80 %, Erlang-3 and lognormal": (
        100_000,
        lambda rounds: _simulate(
            M_M_4, arrival_rates=3.2, arrivals=Erlang(3), service={"servers": Lognormal(2.0)}, rounds=rounds
        ),
    ),
    "closed, 24 clients, a fork to 3 stores": (
        100_000,
        lambda rounds: _simulate(
            REPLICATED, populations=24, forks=[[f"store {index}" for index in range(3)]], rounds=rounds
        ),
    ),
    "closed, 1,000,000 clients": (
        1_000_000,
        lambda rounds: _simulate(MILLION, populations=1_000_000, rounds=rounds),
    ),
}


def main() -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Linux {platform.release()}, {os.cpu_count()} cores, load {load}; one replication, {RUNS} runs.")
    print(f"{'':40}{'rounds':>10}{'median':>11}{'least':>11}{'CPU, median':>13}")
    for name, (rounds, run) in CASES.items():
        wall_ms, cpu_ms = zip(*(_once_ms(partial(run, rounds)) for _ in range(RUNS)), strict=True)
        print(f"{name:40}{rounds:>10,}{median(wall_ms):>8.1f} ms{min(wall_ms):>8.1f} ms{median(cpu_ms):>10.1f} ms")
    print(f"Aim: the first within {AIM_MS:g} ms.")


def _once_ms(call: Callable[[], object]) -> tuple[float, float]:
    began, used = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - began) * 1e3, (time.process_time() - used) * 1e3


if __name__ == "__main__":
    main()
