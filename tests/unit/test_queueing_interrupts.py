"""A long solution ends at Ctrl-C, with KeyboardInterrupt as everywhere else."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# Each would take longer than the test waits.
LONG = {
    "one class": "solve_closed(Network([LoadDependent('usl', [1 + 0.001 * j for j in range(99_000)])], 1.0), 99_000)",
    "several classes": "solve_classes(Network([LoadDependent('usl', [1.0, 0.9999])], 1.0, 'ab'), [16_000, 5])",
    "simulation": "simulate(Network([Queue('store', 1.0)]), arrival_rates=0.5, warmup=0, rounds=10_000_000_000)",
}
PROGRAM = """
from knee.queueing import *
print("ready", flush=True)
{}
"""


@pytest.mark.parametrize("solve", LONG.values(), ids=LONG)
def test_an_interrupt_ends_it(solve: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(solve)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # While it solves.
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.0)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=5)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
