"""The response time of puts while a client scans the whole store."""

from __future__ import annotations

import math
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.drivers import KEY_PREFIX, run_generator
from bench.programs import BenchError, Program, before_others, find_program, free_port
from bench.samples import Ratio
from bench.servers import Servers
from bench.table import WARM_UP_S, Plan, Row, Table, median_of

KEYS = 200_000
VALUE_BYTES = 100
CLIENTS = 16
# A share of the store's capacity, and a limit in puts a second. So few puts do not wait for each other, and leave
# enough of two cores for the scans.
LOAD = 0.1
RATE_MAX = 1500.0
# A percentile needs more requests than a mean, and disturbances are rare. So stretches are twice the plan's, with
# several pairs in a round.
STRETCH = 2.0
PAIRS = 3
# The result needs this many pairs, and half of all pairs, in which the load generator was not late.
PAIRS_MIN = 5
# A difference of counts above this many standard deviations is more than chance.
DEVIATIONS = 2.0
RATIO_MAX = 1.5
POPULATED_S = 120.0

IN_MEMORY = "in memory"
ALONE, SCANNED = "alone", "during scans"
TITLE = "Puts during full snapshot scans"


@dataclass(frozen=True)
class PutTimes:
    """A stretch of puts in an open loop. A response time begins when the put is due."""

    p50_us: float
    p99_us: float
    #: Whether the load generator was late itself.
    late: bool
    #: Scans of the whole store that ended in that time.
    scans_per_second: float = 0.0


def pairs_of(row: Row) -> list[tuple[PutTimes, PutTimes]]:
    """Pairs of successive stretches with and without scans. Pairs with a late load generator are left out: their p99
    shows the generator's wait for a processor."""
    pairs = zip(row.samples[SCANNED], row.samples[ALONE], strict=True)
    return [pair for pair in pairs if not any(sample.late for sample in pair)]


def why_unknown(row: Row) -> str | None:
    """Why the pairs do not show the effect of scans; None if they do.

    A scan may also keep the load generator from running: then just the worst stretches are those that are left out.
    """
    usable, pairs = len(pairs_of(row)), len(row.samples[ALONE])
    if usable < max(PAIRS_MIN, pairs / 2):
        return f"the load generator was late in all but {usable} of {pairs} pairs"
    alone, scanned = (sum(sample.late for sample in row.samples[name]) for name in (ALONE, SCANNED))
    if scanned - alone > DEVIATIONS * math.sqrt(scanned + alone):
        return f"the load generator was late in {scanned} of {pairs} stretches during scans and {alone} alone"
    return None


def slowdown(row: Row) -> Ratio | None:
    """The p99 with scans divided by the p99 without, pair by pair; None if the pairs do not show it."""
    if why_unknown(row) is not None:
        return None
    return Ratio.of(*([sample.p99_us for sample in several] for several in zip(*pairs_of(row), strict=True)))


def verdict_of(row: Row) -> str:
    """Whether the aim was reached."""
    ratio = slowdown(row)
    if ratio is None:
        return f"cannot tell, as {why_unknown(row)}"
    found = f"{ratio.median:.2f} in {len(pairs_of(row))} of {len(row.samples[ALONE])} pairs"
    return f"{'yes' if ratio.median <= RATIO_MAX else 'no'} ({found})"


class Load:
    """`knee-load`: puts over the memcached protocol, scans over gRPC."""

    def __init__(self, servers: Servers, put_address: str, scan_address: str) -> None:
        self._program = find_program("knee-load", servers.directory)
        self._put_address, self._scan_address = put_address, scan_address

    def _puts(self, *flags: str) -> list[str]:
        return [
            *(self._program, "memcached", "--server", self._put_address, "--key-prefix", KEY_PREFIX),
            *("--keys", str(KEYS), "--key-choice", "uniform", "--value-bytes", str(VALUE_BYTES), *flags),
        ]

    def _set(self, seconds: float, *flags: str) -> dict[str, Any]:
        clients = ("--clients", str(CLIENTS), "--threads", "1", "--set-get", "1:0", "--seconds", str(seconds))
        summary, _ = run_generator(self._puts(*clients, *flags), None, seconds)
        wrong = sum(operation["errors"] for operation in summary["ops"].values())
        if wrong:
            raise BenchError(f"{wrong} puts failed")
        return summary

    def populate(self) -> None:
        """Puts every key once."""
        run_generator(self._puts("--clients", "4", "--populate", "1"), None, POPULATED_S)

    def capacity(self, seconds: float) -> float:
        """Puts per second in a closed loop."""
        summary = self._set(seconds, "--think-ms", "0")
        return float(summary["ops"]["set"]["count"] / summary["seconds"])

    def puts(self, rate: float, seconds: float) -> PutTimes:
        """A stretch without scans. Raises BenchError if a put failed."""
        summary = self._set(seconds, "--rate", str(rate), "--arrivals", "poisson")
        (times,) = (one for one in summary["histograms"] if one["op"] == "set" and one["stage"] == "response")
        return PutTimes(times["p50"] / 1e3, times["p99"] / 1e3, summary["bottleneck"] is not None)

    def puts_during_scans(self, rate: float, seconds: float) -> PutTimes:
        """A stretch while a client repeats scans of all keys. Raises BenchError if a put or scan failed."""
        command = [
            # A scan begins at the only key of the key space, and covers all keys of the store.
            *(self._program, "kv", "--server", self._scan_address, "--key-prefix", KEY_PREFIX, "--keys", "1"),
            *("--mix", "atomic_scan:1", "--scan-keys", str(KEYS), "--clients", "1", "--threads", "1"),
            *("--think-ms", "0", "--seconds", str(10 * (seconds + WARM_UP_S))),
        ]
        # The scanning client must not take a core from the puts or the store.
        with Program(command, None, gives_way=True) as scanner:
            scanner.await_line()
            times = self.puts(rate, seconds)
            summary = scanner.summary()
        scans = summary["ops"].get("atomic_scan", {"count": 0, "errors": 0, "hits": 0})
        if scans["errors"] or not scans["count"] or scans["hits"] != scans["count"] * KEYS:
            raise BenchError(f"not every scan has seen {KEYS} keys: {scans}")
        return replace(times, scans_per_second=scans["count"] / summary["seconds"])


def compare_scans(plan: Plan, servers: Servers, disk: Path) -> list[Table]:
    """Puts with and without scans, in turns, in memory and on disk."""
    names = (ALONE, SCANNED)
    table = Table(
        title=TITLE,
        key="store",
        notes=[
            f"{KEYS:,} keys with values of {VALUE_BYTES} B. Puts over {CLIENTS} connections, memcached protocol, due "
            f"at random (Poisson) at {LOAD:.0%} of what the store takes in a closed loop, {RATE_MAX:,.0f} a second at "
            "most; times from when each is due. One client makes one atomic scan of everything after the other over "
            "gRPC, and gives way to the rest. Nothing is pinned; first: whether it all goes before what else runs.",
            "p50, p99: medians of all stretches. of p99: median of that during scans over that alone, pair "
            "by pair, in those pairs in which the load generator did not wait for a processor itself.",
        ],
        columns=[
            ("puts /s", lambda row: f"{row.facts['rate']:,.0f}"),
            *(median_of(f"{p} {name}", name, f"{p}_us", unit=" µs") for p in ("p50", "p99") for name in names),
            ("of p99", lambda row: f"{ratio.median:.2f}" if (ratio := slowdown(row)) else "?"),
            ("range", lambda row: f"{ratio.low:.2f} to {ratio.high:.2f}" if (ratio := slowdown(row)) else ""),
            median_of("scans /s", SCANNED, "scans_per_second", ".1f"),
            ("pairs", lambda row: f"{len(pairs_of(row))} of {len(row.samples[ALONE])}"),
            ("first", lambda row: "yes" if row.facts["before_others"] else "no"),
        ],
        verdict=lambda rows: (
            f"p99 at most {RATIO_MAX:g} times that without: "
            + ("; ".join(f"{row.name} {verdict_of(row)}" for row in rows) or "not measured")
        ),
        facts={"keys": KEYS, "value_bytes": VALUE_BYTES},
    )
    with tempfile.TemporaryDirectory(prefix="knee-bench-", dir=disk) as files:
        for store, flags in {IN_MEMORY: [], "--durability always": ["--data", f"{files}/data"]}.items():
            table.add(plan, store, partial(_row, plan, servers, store, flags))
    return [table]


def _row(plan: Plan, servers: Servers, store: str, flags: list[str]) -> Row:
    grpc = f"127.0.0.1:{free_port()}"
    # Otherwise waits for a processor would determine the p99, also in the kernel's part of disk writes.
    held = before_others() if store == IN_MEMORY else nullcontext(False)
    # No program is pinned: puts, scans and their clients would otherwise wait for each other's cores.
    with held as first, servers.knee_kv(None, "--grpc", grpc, *flags) as server:
        load = Load(servers, server.address, grpc)
        load.populate()
        load.capacity(WARM_UP_S)
        rate = min(LOAD * load.capacity(plan.seconds), RATE_MAX)
        samples = replace(plan, rounds=PAIRS * plan.rounds).in_turns(
            {ALONE: load.puts, SCANNED: load.puts_during_scans}, lambda puts: puts(rate, STRETCH * plan.seconds)
        )
    return Row(store, samples, {"rate": rate, "before_others": first})
