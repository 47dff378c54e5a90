"""The probe, watching a process that is known to work and one that is known to sleep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from systems import wait_until

from knee.data import PROBES
from knee.lab.hosts.namespaces import network_bytes
from knee.lab.probe import Probe, Sample

PATIENCE_S = 60.0
_BUSY = "import time\nwhile True: time.thread_time()"


def used_s(samples: list[Sample], target: str) -> float:
    """The processor time of all samples of a target."""
    return sum(one["cpu_user_s"] + one["cpu_system_s"] for one in samples if one["target"] == target)


def sampled(pids: Mapping[str, int], target: str, cpu_s: float) -> list[Sample]:
    """Samples until a target has used so much processor time in them."""
    probe = Probe(pids)
    probe.start()
    try:
        wait_until(lambda: used_s(probe._samples, target) > cpu_s, f"{target} has used {cpu_s} s", PATIENCE_S)
    finally:
        probe.stop()
    return probe.stop()


def test_a_busy_process_is_told_from_an_idle_one() -> None:
    busy = subprocess.Popen([sys.executable, "-c", _BUSY])
    idle = subprocess.Popen(["/bin/sleep", "300"])
    try:
        samples = sampled({"busy": busy.pid, "idle": idle.pid}, "busy", 1.0)
    finally:
        for process in (busy, idle):
            process.kill()
            process.wait()
    used = {target: used_s(samples, target) for target in ("busy", "idle", "host", "knee")}
    # To begin to sleep takes some milliseconds.
    assert used["idle"] < used["busy"] / 10
    # The host is looked at a moment before.
    assert used["busy"] < used["host"] * 1.5
    assert used["knee"] < used["busy"]
    assert {one["target"] for one in samples} == {"busy", "idle", "host", "knee"}
    assert {name for one in samples for name in one} <= set(PROBES)


def test_wakeups_count_the_sleeps_of_all_threads() -> None:
    napping = "import threading, time\ndef nap():\n    while True: time.sleep(0.001)\n"
    program = napping + "threading.Thread(target=nap).start()\nnap()\n"
    with subprocess.Popen([sys.executable, "-c", program]) as napper:
        probe = Probe({"napper": napper.pid})
        probe.start()
        try:
            wait_until(lambda: len(probe._samples) >= 9, "there are three samples of each target", PATIENCE_S)
        finally:
            napper.kill()
            samples = [one for one in probe.stop() if one["target"] == "napper"]
    # The second sample is whole: the first may hold the start.
    assert 100 < samples[1]["wakeups"] / samples[1]["seconds"] < 2500
    assert 0 <= samples[1]["cpu_wait_s"] < samples[1]["seconds"] * 2


def test_a_process_that_ends_is_no_longer_sampled() -> None:
    short = subprocess.Popen(["/bin/sleep", "60"])
    probe = Probe({"short": short.pid})
    short.kill()
    short.wait()
    probe.start()
    wait_until(lambda: bool(probe._samples), "there is a sample", PATIENCE_S)
    assert {one["target"] for one in probe.stop()} == {"host", "knee"}


def test_bytes_of_frames_include_the_headers_of_each_segment() -> None:
    interfaces = """Inter-|   Receive    |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:     700       7    0    0    0 0 0 0 700 7 0 0 0 0 0 0
  eth0:     660      10    0    0    0 0 0 0 57986 2 0 0 0 0 0 0
"""
    protocols = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: InSegs OutSegs RetransSegs\nTcp: 10 41 0\n"
    # 57,920 bytes in 40 segments are one frame to the interface.
    assert network_bytes(interfaces, protocols) == (660, 57986 + 39 * 66)
