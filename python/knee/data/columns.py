"""The columns of a run's tables: names, types, units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from knee.spec import Level

_RUN: dict[str, pl.DataType] = {"point": pl.Int64(), "repetition": pl.Int64()}
_PROCESS: dict[str, pl.DataType] = {**_RUN, "role": pl.String(), "process": pl.String()}
_COUNTS: dict[str, pl.DataType] = {
    "count": pl.Int64(),
    "errors": pl.Int64(),
    "items": pl.Int64(),
    "hits": pl.Int64(),
    "misses": pl.Int64(),
    "bytes_in": pl.Int64(),
    "bytes_out": pl.Int64(),
    "queueing_sum_ns": pl.Int64(),
    "connection_sum_ns": pl.Int64(),
    "service_sum_ns": pl.Int64(),
    "response_sum_ns": pl.Int64(),
}
_SPAN: dict[str, pl.DataType] = {"first_request_unix_s": pl.Float64(), "last_request_unix_s": pl.Float64()}

POINTS = pl.Schema(
    {
        **_RUN,
        "status": pl.String(),
        "reason": pl.String(),
        "clients": pl.Int64(),
        "middlewares": pl.Int64(),
        "stores": pl.Int64(),
        "workers": pl.Int64(),
        "start_unix_s": pl.Int64(),
        "seconds": pl.Int64(),
        "warmup_s": pl.Int64(),
        "cooldown_s": pl.Int64(),
        "think_ms": pl.Float64(),
        "rate": pl.Float64(),
    }
)
"""One row per point and repetition that was run; after these columns, one per factor under its dotted name.

point        number of the grid's point, from 0, the same in every repetition
repetition   from 1
status       "done", "failed" or "interrupted"
reason       why it failed, null otherwise
clients      virtual clients (connections) over all load hosts
middlewares  number of middlewares, 0 when clients talk to the stores directly
workers      worker slots of each middleware; null when there is none or it is pipelined
start_unix_s the agreed start second; null when the point failed before it
think_ms     mean think time of a closed loop as declared; null in an open loop
rate         requests per second over all load hosts in an open loop; null in a closed loop
"""

WINDOWS = pl.Schema(
    {
        **_PROCESS,
        "second": pl.Int64(),
        "elapsed_s": pl.Float64(),
        "seconds": pl.Float64(),
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
op        "set", "get", "multiget", "delete", "other"; of a store that keeps versions also "read", "insert", "update",
          "put", "append", "scan", "atomic_scan", "bulk_put", and of its clients "read_missing" (a read that found
          nothing) and "read_large" (one of so many bytes as the experiment calls large)
response  the window's histogram (:mod:`knee.data.hdr`), service time for a store; null where absent
connection_sum_ns  of a middleware of messages: the wait for a connection to its database, part of the service
Sums of stages that the role does not know are null.
"""

STATIONS = pl.Schema(
    {
        **_PROCESS,
        "second": pl.Int64(),
        "elapsed_s": pl.Float64(),
        "seconds": pl.Float64(),
        "queue_length_mean": pl.Float64(),
        "queue_length_end": pl.Int64(),
        "queue_length_max": pl.Int64(),
        "workers": pl.Int64(),
        "workers_busy_s": pl.Float64(),
        "threads": pl.Int64(),
        "threads_cpu_s": pl.Float64(),
        "thread_cpu_max_s": pl.Float64(),
        "beside_cpu_s": pl.Float64(),
        "connections": pl.Int64(),
        "in_flight": pl.Int64(),
        "late_sends": pl.Int64(),
        "late_max_ns": pl.Int64(),
        "wrong_values": pl.Int64(),
        "losses": pl.Int64(),
        "reconnects": pl.Int64(),
        "cut": pl.Int64(),
        "missing": pl.Int64(),
        "unanswered": pl.Int64(),
        "thinks": pl.Int64(),
        "think_sum_ns": pl.Int64(),
        "memory_bytes": pl.Int64(),
        "items_stored": pl.Int64(),
        "evictions": pl.Int64(),
        **_SPAN,
        "keys": pl.Int64(),
        "versions": pl.Int64(),
        "snapshots_open": pl.Int64(),
        "snapshot_age_s": pl.Float64(),
        "file_bytes": pl.Int64(),
        "file_live_bytes": pl.Int64(),
        "commits": pl.Int64(),
        "commit_sum_ns": pl.Int64(),
        "commit_max_ns": pl.Int64(),
        "commit_records": pl.Int64(),
        "reclaims": pl.Int64(),
        "reclaim_sum_ns": pl.Int64(),
    }
)
"""One row per process and wall-clock second: the state of the process as a service station.

threads are those of one kind that serve requests, threads_cpu_s is the sum over them within the window;
thread_cpu_max_s is the busiest one's of all of these kinds. beside_cpu_s is the sum of all that runs beside them, null
where no other thread runs.
Columns that the role does not print are null. Foreign programs (memcached) print nothing: see PROBES.

Of a store that keeps versions only:

first_request_unix_s, last_request_unix_s  when the first and the last request of the window came
snapshot_age_s     age of the oldest snapshot that is open
file_bytes         bytes that the log takes; file_live_bytes, those of what can still be asked for
commits            groups made safe together, commit_sum_ns and commit_max_ns what that took, commit_records of how many
                   writes
reclaims           segments of the log had back, reclaim_sum_ns what that took
"""

PROBES = pl.Schema(
    {
        **_RUN,
        "second": pl.Int64(),
        "elapsed_s": pl.Float64(),
        "seconds": pl.Float64(),
        "target": pl.String(),
        "cpu_user_s": pl.Float64(),
        "cpu_system_s": pl.Float64(),
        "cpu_steal_s": pl.Float64(),
        "cpu_count": pl.Int64(),
        "thread_cpu_max_s": pl.Float64(),
        "wakeups": pl.Int64(),
        "cpu_wait_s": pl.Float64(),
        "rss_bytes": pl.Int64(),
        "net_lo_bytes": pl.Int64(),
        "net_rx_bytes": pl.Int64(),
        "net_tx_bytes": pl.Int64(),
        "disk_read_bytes": pl.Int64(),
        "disk_write_bytes": pl.Int64(),
    }
)
"""One row per sample (about a second) and target, seen from outside by :mod:`knee.lab.probe`.

target      "host", or the name of a process as in WINDOWS ("store-0"), or "knee" for the lab itself
seconds     length of the sample; CPU seconds and bytes are those used within it
cpu_steal_s host only: CPU time that the hypervisor gave to others while something here wanted to run
cpu_count   CPUs of the host (the capacity is cpu_count · seconds); for a process the number of its threads
thread_cpu_max_s  CPU seconds of the process's busiest thread; null for the host
wakeups     how often a thread of the process slept and was woken (voluntary context switches); null for the host
cpu_wait_s  time that the process's threads were ready to run and waited for a CPU; null for the host, and without
            /proc/PID/schedstat
rss_bytes   memory of the process; for the host the memory in use
net_*       host only: bytes through the loopback interface (sent, which is also what is received there),
            and received and sent over all the others
"""

SUMMARIES = pl.Schema(
    {
        **_PROCESS,
        "started_unix_s": pl.Float64(),
        "ended_unix_s": pl.Float64(),
        "seconds": pl.Float64(),
        "clients": pl.Int64(),
        "bottleneck_reason": pl.String(),
        "bottleneck_detail": pl.String(),
        "late_sends": pl.Int64(),
        "late_max_ns": pl.Int64(),
        "unsent": pl.Int64(),
        "wrong_values": pl.Int64(),
        "losses": pl.Int64(),
        "reconnects": pl.Int64(),
        "evictions": pl.Int64(),
        "servers_ejected": pl.Int64(),
        "servers_errors": pl.Int64(),
        **_SPAN,
    }
)
"""One row per process that printed its summary: the whole life of the process, nothing trimmed.

bottleneck_* load only: why the generator was itself the limit ("cpu" or "late"), null when it was not
losses       load only: lost connections; reconnects is how many were opened again
unsent       load only: requests of an open loop that were due and never sent: those that stood were full, or none did
servers_*    middleware only: how often servers were taken out, and errors on them, over all its servers
"""

TOTALS = pl.Schema(
    {
        **_PROCESS,
        "op": pl.String(),
        **_COUNTS,
        "queueing": pl.String(),
        "connection": pl.String(),
        "service": pl.String(),
        "response": pl.String(),
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
    """The column type of a factor: that of its levels, text when they are of several types."""
    types = {type(level) for level in levels}
    if types == {bool}:
        return pl.Boolean()
    if types == {int}:
        return pl.Int64()
    if types <= {int, float}:
        return pl.Float64()
    return pl.String()


def frame_of(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """A frame of rows; what a row lacks is null."""
    return pl.DataFrame([[row.get(name) for row in rows] for name in schema], schema=schema, strict=False)
