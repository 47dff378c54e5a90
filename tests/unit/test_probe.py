"""The probe, watching a process that is known to work and one that is known to sleep."""

from __future__ import annotations

import subprocess
import sys
import time

from knee.dataset import PROBES
from knee.probe import Probe

_BUSY = "import time\nwhile True: time.thread_time()"


def test_a_busy_process_is_told_from_an_idle_one() -> None:
    busy = subprocess.Popen([sys.executable, "-c", _BUSY])
    idle = subprocess.Popen(["/bin/sleep", "60"])
    try:
        probe = Probe({"busy": busy.pid, "idle": idle.pid})
        probe.start()
        time.sleep(3.2)
        samples = probe.stop()
    finally:
        for process in (busy, idle):
            process.kill()
            process.wait()
    used = {
        target: sum(one["cpu_user_s"] + one["cpu_system_s"] for one in samples if one["target"] == target)
        for target in ("busy", "idle", "host", "knee")
    }
    assert used["idle"] == 0
    assert 0 < used["busy"] <= used["host"] * 1.1
    assert used["knee"] < used["busy"]
    assert {one["target"] for one in samples} == {"busy", "idle", "host", "knee"}
    assert {name for one in samples for name in one} <= set(PROBES)


def test_a_process_that_ends_is_no_longer_sampled() -> None:
    short = subprocess.Popen(["/bin/sleep", "60"])
    probe = Probe({"short": short.pid})
    short.kill()
    short.wait()
    probe.start()
    time.sleep(1.5)
    assert {one["target"] for one in probe.stop()} == {"host", "knee"}
