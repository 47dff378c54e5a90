"""How exact emulated links are, and what they cost.

    python -m bench.links [MEMTIER [PAIRS]]

iperf3 measures rates, and ping delays. MEMTIER (the program memtier_benchmark) and knee-load send the same requests
over the same links. The last rows compare hosts without rates and delays with plain loopback: knee-load, knee-proxy
and memcached. Pairs alternate; the table has medians.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from bench.cpu import CpuTime
from bench.machine import found
from bench.programs import BenchError, Program, find_program
from knee.lab.hosts import Link
from knee.lab.hosts.emulated import EmulatedHosts

SECONDS, PAIRS = 4, 5
RATES_MBIT = (100, 200, 800)
DELAYS_MS = (0.5, 2.0, 5.0)
FRAME, SEGMENT = 1514, 1448
"""Bytes of a full Ethernet frame, and of TCP's data in it."""
KEYS = 1000


@contextmanager
def hosts(near: Link, far: Link) -> Iterator[EmulatedHosts]:
    """Two emulated hosts."""
    both = EmulatedHosts()
    try:
        both.place("near", near)
        both.place("far", far)
        yield both
    finally:
        both.close(2)


def at(both: EmulatedHosts | None, name: str, command: Sequence[str]) -> list[str]:
    """The command on a host; None is plain loopback."""
    return list(command) if both is None else list(both.placed(name).namespace.entering(command))


def output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise BenchError(f"{command}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def address_of(both: EmulatedHosts | None, port: int) -> str:
    return "127.0.0.1:" + str(port) if both is None else f"{both.placed('far').address}:{port}"


def rate(mbit: float) -> float:
    """Mbit/s of frames, by iperf3."""
    with hosts(Link(send_mbit=mbit), Link()) as both:
        host, port = address_of(both, 5201).split(":")
        with Program(at(both, "far", ["iperf3", "--server", "--one-off", "--bind", host]), None, quiet=True):
            time.sleep(0.3)
            text = output(at(both, "near", ["iperf3", "-J", "-t", str(SECONDS), "-O", "1", "-c", host, "-p", port]))
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e6 * FRAME / SEGMENT


def round_trip(delay_ms: float) -> float:
    """Milliseconds, by ping."""
    with hosts(Link(delay_ms=delay_ms), Link(delay_ms=delay_ms)) as both:
        host = both.placed("far").address
        # The first packet waits until both addresses are resolved.
        output(at(both, "near", ["ping", "-q", "-c", "1", host]))
        text = output(at(both, "near", ["ping", "-q", "-c", "200", "-i", "0.01", host]))
    return found(r"= [\d.]+/([\d.]+)/", text)


@contextmanager
def memcached(both: EmulatedHosts | None, port: int) -> Iterator[Program]:
    host = address_of(both, port).split(":")[0]
    user = ["-u", "root"]
    command = [find_program("memcached", None), "-l", host, "-p", str(port), "-t", "1", "-m", "256", *user]
    with Program(at(both, "far", command), None, quiet=True) as server:
        time.sleep(0.3)
        yield server


def knee_load(both: EmulatedHosts | None, address: str, clients: int, bytes_: int, *more: str) -> float:
    """Answers per second."""
    program = find_program("knee-load", None)
    flags = ["--server", address, "--keys", str(KEYS), "--value-bytes", str(bytes_), *more]
    if "--populate" not in more:
        flags += ["--clients", str(clients), "--seconds", str(SECONDS), "--set-get", "0:1"]
    lines = output(at(both, "near", [program, "memcached", *flags])).splitlines()
    if "--populate" in more:
        return 0.0
    summary = json.loads(lines[-1])
    get = summary["ops"]["get"]
    assert get["errors"] == 0 and get["misses"] == 0, get
    return float(get["count"]) / SECONDS


def memtier(program: str, both: EmulatedHosts, address: str, clients: int, bytes_: int = 0) -> float:
    """Answers per second. With a size, it stores its own keys first, and answers 0."""
    host, port = address.split(":")
    flags = ["-s", host, "-p", port, "-P", "memcache_text", "--threads", "1", "--hide-histogram"]
    flags += ["--key-minimum", "1", "--key-maximum", str(KEYS)]
    if bytes_:
        flags += ["--clients", "1", "--ratio", "1:0", "--key-pattern", "S:S", "-n", "allkeys", "-d", str(bytes_)]
    else:
        flags += ["--clients", str(clients), "--ratio", "0:1", "--key-pattern", "R:R", "--test-time", str(SECONDS)]
    text = output(at(both, "near", [program, *flags]))
    total, hits = (found(rf"Gets\s+{which}", text) for which in (r"([\d.]+)", r"[\d.]+\s+([\d.]+)"))
    assert bytes_ or hits > 0.99 * total, text[-800:]
    return total


def pairs(count: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float, float]:
    """Medians of both, and of the ratios ours / theirs."""
    measured = []
    for number in range(count):
        if number % 2:
            other = theirs()
            measured.append((ours(), other))
        else:
            measured.append((ours(), theirs()))
    a, b = zip(*measured, strict=True)
    return median(a), median(b), median(x / y for x, y in measured)


def through_proxy(both: EmulatedHosts | None) -> tuple[float, float]:
    """Answers per second through knee-proxy, and microseconds of processor time of all programs for each."""
    port = 11_500
    with ExitStack() as stack:
        server = stack.enter_context(memcached(both, port))
        proxy_at = address_of(both, port + 1)
        command = [find_program("knee-proxy", None), "--listen", proxy_at, "--server", address_of(both, port)]
        proxy = stack.enter_context(Program(at(both, "far", [*command, "--stats", "none", "--pipelined"]), None))
        proxy.await_line()
        knee_load(both, address_of(both, port), 1, 100, "--populate", "1")
        before = [CpuTime.of(each.pid).total_s for each in (server, proxy)]
        answers = knee_load(both, proxy_at, 16, 100)
        used = sum(CpuTime.of(each.pid).total_s for each in (server, proxy)) - sum(before)
    return answers, 1e6 * used / (answers * SECONDS)


def main() -> None:
    program = sys.argv[1] if len(sys.argv) > 1 else None
    count = int(sys.argv[2]) if len(sys.argv) > 2 else PAIRS
    print("| link | judge | declared | measured | ratio |\n|---|---|---|---|---|")
    for mbit in RATES_MBIT:
        each = median(rate(mbit) for _ in range(count))
        print(f"| {mbit} Mbit/s | iperf3, frames | {mbit} Mbit/s | {each:.1f} Mbit/s | {each / mbit:.3f} |", flush=True)
    for delay in DELAYS_MS:
        each = median(round_trip(delay) for _ in range(count))
        print(
            f"| {delay:g} ms at both ends | ping | {4 * delay:g} ms | {each:.2f} ms | {each / 4 / delay:.3f} |",
            flush=True,
        )
    if program:
        print("\n| requests over links | knee-load | memtier | ratio |\n|---|---|---|---|")
        for name, far, clients, size in (
            ("64 clients, 4,096 bytes, server sends 100 Mbit/s", Link(send_mbit=100, delay_ms=2), 64, 4096),
            ("16 clients, 100 bytes, 2 ms at the server", Link(delay_ms=2), 16, 100),
        ):
            with hosts(Link(), far) as both, memcached(both, 11_500):
                address = address_of(both, 11_500)
                knee_load(both, address, 1, size, "--populate", "1")
                memtier(program, both, address, 1, size)

                def ours(
                    both: EmulatedHosts = both, address: str = address, clients: int = clients, size: int = size
                ) -> float:
                    return knee_load(both, address, clients, size)

                def theirs(both: EmulatedHosts = both, address: str = address, clients: int = clients) -> float:
                    return memtier(program, both, address, clients)

                a, b, ratio = pairs(count, ours, theirs)
            print(f"| {name} | {a:,.0f}/s | {b:,.0f}/s | {ratio:.3f} |", flush=True)
    print("\n| through knee-proxy | emulated hosts | loopback | ratio |\n|---|---|---|---|")
    used: dict[bool, list[float]] = {True: [], False: []}

    def measured(is_emulated: bool) -> float:
        with ExitStack() as stack:
            both = stack.enter_context(hosts(Link(), Link())) if is_emulated else None
            answers, cpu = through_proxy(both)
        used[is_emulated].append(cpu)
        return answers

    a, b, ratio = pairs(count, lambda: measured(True), lambda: measured(False))
    print(f"| answers | {a:,.0f}/s | {b:,.0f}/s | {ratio:.3f} |")
    cpu = [median(used[kind]) for kind in (True, False)]
    ratio = median(x / y for x, y in zip(used[True], used[False], strict=True))
    print(f"| processor time of both servers | {cpu[0]:.1f} µs | {cpu[1]:.1f} µs | {ratio:.3f} |")


if __name__ == "__main__":
    main()
