"""A long solution ends at Ctrl-C, with KeyboardInterrupt as everywhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

PATIENCE_S = 300.0
# Each takes seconds of a processor. What takes longer than anybody waits, only a simulation may.
LONG = {
    "one class": "solve_closed(Network([LoadDependent('usl', [1 + 0.001 * j for j in range(99_000)])], 1.0), 99_000)",
    "several classes": "solve_classes(Network([LoadDependent('usl', [1.0, 0.9999])], 1.0, 'ab'), [20_000, 5])",
    "simulation": "simulate(Network([Queue('store', 1.0)]), arrival_rates=0.5, warmup=0, rounds=10_000_000_000)",
}
# The kernel and the note that it has finished are called by one call of the interpreter, which raises no interrupt
# between them: one that had to wait for the kernel's end comes after the note.
PROGRAM = """
import operator
from functools import partial
from knee import _kernels
from knee.queueing import *

finished = []

def noted(kernel):
    def call(*arguments):
        return list(map(operator.call, [partial(kernel, *arguments), partial(finished.append, True)]))[0]
    return call

for name in ("closed", "lattice"):
    setattr(_kernels, name, noted(getattr(_kernels, name)))
for solve in ({}):
    print("ready", flush=True)
    try:
        solve()
    except KeyboardInterrupt:
        print("finished" if finished else "cut off", flush=True)
"""


def used_s(process: psutil.Process) -> float:
    """Its processor time."""
    times = process.cpu_times()
    return times.user + times.system


def test_long_solutions_end_at_an_interrupt() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format("".join(f"lambda: {solve}, " for solve in LONG.values()))],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            watched = psutil.Process(process.pid)
            for name in LONG:
                assert process.stdout.readline() == "ready\n", name
                # The solution has begun.
                until, begun_s = time.monotonic() + PATIENCE_S, used_s(watched)
                while used_s(watched) < begun_s + 0.3:
                    assert process.poll() is None and time.monotonic() < until, name
                    time.sleep(0.01)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "cut off\n", name
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
