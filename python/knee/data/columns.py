"""The columns of a run's tables: names, types, units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from knee.spec import Level


def _of(kind: pl.DataType, *names: str) -> dict[str, pl.DataType]:
    """Columns of one type; each text has some names."""
    return dict.fromkeys(" ".join(names).split(), kind)


_RUN = _of(pl.Int64(), "point repetition")
_PROCESS = {**_RUN, **_of(pl.String(), "role process")}
_COUNTS = _of(
    pl.Int64(),
    "count errors items hits misses bytes_in bytes_out",
    "queueing_sum_ns connection_sum_ns service_sum_ns response_sum_ns",
)
_SPAN = _of(pl.Float64(), "first_request_unix_s last_request_unix_s")

POINTS = pl.Schema(
    {
        **_RUN,
        **_of(pl.String(), "status reason"),
        **_of(pl.Int64(), "clients middlewares stores workers start_unix_s seconds warmup_s cooldown_s"),
        **_of(pl.Float64(), "think_ms rate"),
    }
)
"""One row per point and repetition that ran; after these columns, one per factor under its dotted name.

point        number of the grid's point, from 0, the same in every repetition
repetition   from 1
status       "done", "failed" or "interrupted"
reason       cause of the failure; null otherwise
clients      virtual clients (connections) over all load hosts
middlewares  number of middlewares, 0 when clients talk to the stores directly
workers      worker slots of each middleware; null without a middleware and for a pipelined one
start_unix_s the agreed start second; null if the point failed before it
think_ms     mean think time of a closed loop as declared; null in an open loop
rate         requests per second over all load hosts in an open loop; null in a closed loop
"""

WINDOWS = pl.Schema(
    {
        **_PROCESS,
        "second": pl.Int64(),
        **_of(pl.Float64(), "elapsed_s seconds"),
        "op": pl.String(),
        **_COUNTS,
        "response": pl.String(),
    }
)
"""One row per process, wall-clock second and operation that occurred in it.

role      "load", "middleware" or "store"
process   "load-0", "middleware-1", "store-2", …
elapsed_s second − the point's start second: 0 is the first second of the measurement, negative is before it
seconds   the part of the second that the window covers
op        "set", "get", "multiget", "delete", "other"; for a versioned store also "read", "insert", "update", "put",
          "append", "scan", "atomic_scan", "bulk_put", and for its clients "read_missing" (a read that found nothing)
          and "read_large" (a read of at least `workload.large_bytes`)
response  the window's histogram of response times, for a store of service times (:mod:`knee.data.hdr`); null if absent
connection_sum_ns  message middleware only: the wait for a connection to its database, part of the service
Sums of stages that the role does not have are null.
"""

STATIONS = pl.Schema(
    {
        **_PROCESS,
        "second": pl.Int64(),
        **_of(pl.Float64(), "elapsed_s seconds queue_length_mean"),
        **_of(pl.Int64(), "queue_length_end queue_length_max workers"),
        "workers_busy_s": pl.Float64(),
        "threads": pl.Int64(),
        **_of(pl.Float64(), "threads_cpu_s thread_cpu_max_s beside_cpu_s"),
        **_of(
            pl.Int64(),
            "connections in_flight late_sends late_max_ns wrong_values losses reconnects cut missing unanswered",
            "thinks think_sum_ns memory_bytes items_stored evictions cache_hits cache_misses",
        ),
        **_of(pl.List(pl.Int64()), "servers_requests servers_bytes"),
        **_SPAN,
        **_of(pl.Int64(), "keys versions snapshots_open"),
        "snapshot_age_s": pl.Float64(),
        **_of(
            pl.Int64(),
            "file_bytes file_live_bytes commits commit_sum_ns commit_max_ns commit_records reclaims reclaim_sum_ns",
        ),
    }
)
"""One row per process and wall-clock second: the state of the process as a service station.

threads is the number of request-serving threads of one kind, and threads_cpu_s their CPU time within the window.
thread_cpu_max_s is the CPU time of the busiest thread over all kinds. beside_cpu_s is the CPU time of all other
threads; null without other threads.

Columns that the role does not print are null. Foreign programs (memcached) print nothing: see PROBES.

cache_hits and cache_misses are the keys that a middleware's near cache had and lacked; null without one.
servers_requests are the requests that a middleware sent to each store, in the stores' order, and servers_bytes their
bytes and those of the answers; of an address space's manager, the bytes of data.

For a versioned store only:

first_request_unix_s, last_request_unix_s  arrival times of the first and the last request of the window
snapshot_age_s     age of the oldest open snapshot
file_bytes         size of the log; file_live_bytes, the part of it that holds reachable data
commits            group commits; commit_sum_ns and commit_max_ns, their durations; commit_records, the writes in them
reclaims           segments of the log that were reclaimed; reclaim_sum_ns, the time for this
"""

PROBES = pl.Schema(
    {
        **_RUN,
        "second": pl.Int64(),
        **_of(pl.Float64(), "elapsed_s seconds"),
        "target": pl.String(),
        "machine": pl.String(),
        **_of(pl.Float64(), "cpu_user_s cpu_system_s cpu_steal_s"),
        "cpu_count": pl.Int64(),
        "thread_cpu_max_s": pl.Float64(),
        "wakeups": pl.Int64(),
        "cpu_wait_s": pl.Float64(),
        **_of(pl.Int64(), "rss_bytes net_lo_bytes net_rx_bytes net_tx_bytes disk_read_bytes disk_write_bytes"),
    }
)
"""One row per sample (about a second) and target, measured from outside by :mod:`knee.lab.probe`.

target      "host", or the name of a process as in WINDOWS ("store-0"), "knee" for the lab itself ("knee-0" for its
            agent on a cluster's worker), or "links" for the program that emulates delays
machine     the machine in a cluster, by the name of its first worker; null on the lab's machine
seconds     length of the sample; CPU seconds and bytes are within it
cpu_steal_s host only: stolen CPU time (a thread was ready, but the hypervisor ran another guest)
cpu_count   CPUs of the host (the capacity is cpu_count · seconds); for a process the number of its threads
thread_cpu_max_s  CPU seconds of the process's busiest thread; null for the host
wakeups     voluntary context switches of the process's threads; null for the host
net_rx_bytes, net_tx_bytes  bytes of frames to and from the host, or an emulated host's process; null for others
cpu_wait_s  time that ready threads of the process waited for a CPU; null for the host, and without /proc/PID/schedstat
rss_bytes   memory of the process; for the host the memory in use
net_*       host only: bytes through the loopback interface (sent, which equals received), and bytes received and sent
            over all other interfaces
"""

SUMMARIES = pl.Schema(
    {
        **_PROCESS,
        **_of(pl.Float64(), "started_unix_s ended_unix_s seconds"),
        "clients": pl.Int64(),
        **_of(pl.String(), "bottleneck_reason bottleneck_detail"),
        **_of(
            pl.Int64(),
            "late_sends late_max_ns unsent wrong_values losses reconnects evictions servers_ejected servers_errors",
        ),
        **_SPAN,
    }
)
"""One row per process that printed its summary: totals over the life of the process, not trimmed.

bottleneck_* load only: why the generator was the bottleneck ("cpu" or "late"); null if it was not
losses       load only: lost connections; reconnects, the number of reopened ones
unsent       load only: requests of an open loop that were due and never sent, because all connections were full or
             missing
servers_*    middleware only: ejections of servers and errors on servers, over all its servers
"""

TOTALS = pl.Schema(
    {
        **_PROCESS,
        "op": pl.String(),
        **_COUNTS,
        **_of(pl.String(), "queueing connection service response"),
    }
)
"""One row per process and operation over the process's whole life; the last four are histograms."""

TABLES = {
    "points": POINTS,
    "windows": WINDOWS,
    "stations": STATIONS,
    "probes": PROBES,
    "summaries": SUMMARIES,
    "totals": TOTALS,
}


def factor_type(levels: tuple[Level, ...]) -> pl.DataType:
    """The column type of a factor: the type of its levels, or text if they have several types."""
    types = {type(level) for level in levels}
    if types == {bool}:
        return pl.Boolean()
    if types == {int}:
        return pl.Int64()
    if types <= {int, float}:
        return pl.Float64()
    return pl.String()


def frame_of(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """A frame of the rows; missing values are null."""
    return pl.DataFrame([[row.get(name) for row in rows] for name in schema], schema=schema, strict=False)
