"""A long solution ends at Ctrl-C, with KeyboardInterrupt as everywhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

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
print("ready", flush=True)
try:
    {}
finally:
    print("finished" if finished else "cut off")
"""


def used_s(process: psutil.Process) -> float:
    """Its processor time."""
    times = process.cpu_times()
    return times.user + times.system


@pytest.mark.parametrize("solve", LONG.values(), ids=LONG)
def test_an_interrupt_ends_it(solve: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(solve)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # While it solves.
            watched = psutil.Process(process.pid)
            until, begun_s = time.monotonic() + PATIENCE_S, used_s(watched)
            while used_s(watched) < begun_s + 0.5:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert said == "cut off\n"
