"""Reads the output of load generators for databases, caches and disks. Pure."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from knee.data.foreign.result import ForeignError, Result, found, loaded, maybe, rounding

_ONE_AT_A_TIME = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap")
"""Engines of fio that ignore its iodepth."""
_KINDS = ("read", "update")
"""Requests that mutilate prints."""
_PARTS = 20
"""Number of equal times into which a log of transactions is split."""


def redis_benchmark(text: str) -> list[Result]:
    """redis-benchmark --csv: a closed loop for each command. The number of clients is not in the output."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row and row[0] != "test"]
    header = ("rps", "avg", "min", "p50", "p95", "p99", "max")
    if not rows or any(len(row) != 1 + len(header) for row in rows):
        raise ForeignError(f"no rows with {len(header)} numbers")
    found = []
    for operation, *cells in rows:
        values = dict(zip(header, map(float, cells), strict=True))
        found.append(
            Result(
                "redis-benchmark",
                values["rps"],
                values["avg"],
                operation=operation,
                percentiles_ms={share: values[f"p{share:g}"] for share in (50.0, 95.0, 99.0)},
                max_ms=values["max"],
                rounding=rounding(cells[1], cells[0]),
            )
        )
    return found


def memtier(text: str) -> Result:
    """memtier_benchmark: its JSON file, or its text. A closed loop, unless its rate is limited."""
    if not text.lstrip().startswith("{"):
        return _memtier_text(text)
    report = loaded(text)
    settings, stats = report["configuration"], report["ALL STATS"]
    totals = stats["Totals"]
    connections, limit = settings["clients"] * settings["threads"], settings.get("rate_limit", 0)
    shares = {name: time for name, time in totals["Percentile Latencies"].items() if re.match(r"p\d", name)}
    return Result(
        "memtier",
        totals["Ops/sec"],
        # The average of all commands is 0 in some versions.
        totals["Accumulated Latency"] / max(totals["Count"], 1),
        clients=connections * settings.get("pipeline", 1),
        percentiles_ms={float(name[1:]): time for name, time in shares.items()},
        max_ms=totals.get("Max Latency"),
        duration_s=stats["Runtime"]["Total duration"] / 1000,
        load_s=settings.get("test_time") or None,
        requests=totals["Count"],
        errors=totals.get("Connection Errors", 0),
        # The last second is not whole.
        counts=tuple(int(second["Count"]) for second in totals.get("Time-Serie", {}).values())[:-1],
        rate=limit * connections if limit else None,
        is_open=bool(limit),
        rounding=0.5 / max(totals["Accumulated Latency"], 1),
    )


def _memtier_text(text: str) -> Result:
    threads = int(found(text, r"(\d+)\s+Threads", "number of threads"))
    header = re.split(r"\s{2,}", found(text, r"(Type\s+Ops/sec.*\S)", "header of the table"))
    cells = found(text, r"(Totals\s.*\S)", "line Totals").split()
    row = dict(zip(header, cells, strict=False))
    return Result(
        "memtier",
        float(row["Ops/sec"]),
        float(row["Avg. Latency"]),
        clients=threads * int(found(text, r"(\d+)\s+Connections per thread", "number of connections")),
        percentiles_ms={
            float(name[1:].split()[0]): float(time) for name, time in row.items() if re.match(r"p[\d.]+ Latency", name)
        },
        rounding=rounding(row["Avg. Latency"], row["Ops/sec"]),
    )


def mutilate(run: str) -> Result:
    """mutilate: a closed loop, unless its rate is limited. Neither connections nor rate are in the output. With agents,
    the throughput is that of all, and the response times are the master's."""
    header = run.partition("\n")[0].split()
    rows = [dict(zip(header, found(run, rf"({kind}\s.*)", f"line {kind}").split(), strict=True)) for kind in _KINDS]
    made = [row for row in rows if float(row["avg"])]
    rate = found(run, r"Total QPS = ([\d.]+) \(\d+ / ", "line Total QPS")
    # Times of reads and updates cannot be merged: the output has no numbers of each.
    times = made[0] if len(made) == 1 else {}
    return Result(
        "mutilate",
        float(rate),
        float(times["avg"]) / 1000 if times else None,
        percentiles_ms={
            float(name[:-2]): float(time) / 1000 for name, time in times.items() if re.fullmatch(r"\d+(?:st|th)", name)
        },
        duration_s=float(found(run, r"Total QPS = [\d.]+ \(\d+ / ([\d.]+)s\)", "length of the run")),
        requests=int(found(run, r"Total QPS = [\d.]+ \((\d+) / ", "number of requests")),
        rounding=rounding(times["avg"], rate) if times else 0.0,
    )


def pgbench(run: str) -> Result:
    """pgbench: its summary. Without -P, -R or -L, pgbench computes the mean as N / X. With -R, response times include
    the lag behind the schedule."""
    mean = found(run, r"latency average = ([\d.]+) ms", "line latency average")
    rate = found(run, r"tps = ([\d.]+) \((?:without|excluding|including reconnection)", "line tps")
    tps = float(rate)
    done = int(found(run, r"number of transactions actually processed: (\d+)", "number of transactions"))
    failed = int(maybe(run, r"number of failed transactions: (\d+)") or 0)
    has_rate = "rate limit schedule lag" in run
    return Result(
        "pgbench",
        tps,
        float(mean),
        clients=int(found(run, r"number of clients: (\d+)", "number of clients")),
        duration_s=done / tps if tps else None,
        requests=done + failed,
        errors=failed,
        is_open=has_rate,
        computed="latency stddev" not in run and not has_rate,
        rounding=rounding(mean, rate),
    )


def pgbench_log(text: str) -> Result:
    """pgbench -l: a line per transaction. The files of one run, one for each thread, are read together."""
    if not text.endswith("\n"):
        raise ForeignError("no end of the last line")
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    starts, ends, times = [], [], []
    delayed = False
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        try:
            client, transaction, took, _, unix_s, unix_us = map(int, cells[:6])
        except ValueError:
            if cells[2:3] in (["skipped"], ["failed"]):
                continue
            raise ForeignError(f"line {number} is no transaction") from None
        delayed = delayed or len(cells) > 6
        first[client] = min(transaction, first.get(client, transaction))
        last[client] = max(transaction, last.get(client, transaction))
        ends.append(unix_s + unix_us / 1e6)
        starts.append(ends[-1] - took / 1e6)
        times.append(took / 1e3)
    if len(times) < 2:
        raise ForeignError("fewer than two transactions")
    # With --sampling-rate, the log omits transactions. The numbers of the others still count them.
    requests = sum(last[client] - first[client] + 1 for client in first)
    times.sort()
    duration_s = max(ends) - min(starts)
    begin = min(starts)
    places = [min(_PARTS - 1, int(_PARTS * (end - begin) / duration_s)) for end in ends]
    return Result(
        "pgbench",
        requests / duration_s,
        sum(times) / len(times),
        clients=len(first),
        percentiles_ms={share: times[int(share / 100 * len(times))] for share in (50.0, 90.0, 99.0)},
        max_ms=times[-1],
        duration_s=duration_s,
        requests=requests,
        is_open=delayed,
        counts=tuple(map(places.count, range(_PARTS))),
    )


def ycsb(text: str) -> Result:
    """YCSB: a closed loop of threads, whose number is not in the output. The runtime includes the clients' start."""
    values: dict[str, dict[str, float]] = {}
    for kind, name, value in re.findall(r"(?m)^\[(\S+)\], (\S+), ([\d.]+(?:E-?\d+)?)$", text):
        values.setdefault(kind, {})[name] = float(value)
    overall = values["OVERALL"]
    kinds = [
        each
        for kind, each in values.items()
        if "AverageLatency(us)" in each and kind != "CLEANUP" and not kind.startswith("Intended")
    ]
    requests = sum(each["Operations"] for each in kinds)
    if not requests or any("99thPercentileLatency(us)" not in each for each in kinds):
        raise ForeignError("no whole list of an operation")
    # Percentiles of several operations cannot be merged.
    shares = {float(share): kinds[0][f"{share}thPercentileLatency(us)"] / 1000 for share in (95, 99)}
    return Result(
        "ycsb",
        overall["Throughput(ops/sec)"],
        sum(each["Operations"] * each["AverageLatency(us)"] for each in kinds) / requests / 1000,
        percentiles_ms=shares if len(kinds) == 1 else {},
        max_ms=max(each["MaxLatency(us)"] for each in kinds) / 1000,
        duration_s=overall["RunTime(ms)"] / 1000,
        requests=round(requests),
        errors=round(
            sum(
                value
                for each in kinds
                for name, value in each.items()
                if name.startswith("Return=") and name[7:] != "OK"
            )
        ),
    )


def sysbench(run: str) -> Result:
    """sysbench 1.0: a closed loop of threads, unless it has a rate."""
    seconds = float(found(run, r"total time:\s+([\d.]+)s", "line total time"))
    events = int(found(run, r"total number of events:\s+(\d+)", "number of events"))
    mean = found(run, r"avg:\s+([\d.]+)", "mean latency")
    rate = maybe(run, r"Target transaction rate: ([\d.]+)/sec")
    share = re.search(r"(?m)^\s*(\d+)th percentile:\s+([\d.]+)", run)
    return Result(
        "sysbench",
        events / seconds,
        float(mean),
        clients=int(found(run, r"Number of threads: (\d+)", "number of threads")),
        percentiles_ms={float(share[1]): float(share[2])} if share and float(share[2]) else {},
        max_ms=float(found(run, r"max:\s+([\d.]+)", "longest latency")),
        duration_s=seconds,
        requests=events,
        errors=int(maybe(run, r"ignored errors:\s+(\d+)") or 0),
        rate=float(rate) if rate else None,
        is_open=rate is not None,
        rounding=rounding(mean),
    )


def fio(text: str) -> list[Result]:
    """fio --output-format=json: a closed loop of jobs × iodepth. Reads and writes of a job are one loop."""
    report = loaded(text)
    common = report.get("global options", {})
    return [_fio(job, {**common, **job.get("job options", {})}) for job in report["jobs"]]


def _fio(job: dict[str, Any], options: dict[str, str]) -> Result:
    ways = [job[way] for way in ("read", "write", "trim") if job.get(way, {}).get("total_ios")]
    if not ways:
        raise ForeignError(f"job {job.get('jobname')} made no request")
    iops = sum(way["iops"] for way in ways)
    # With group_reporting, the entry sums the time of several jobs.
    runtime_ms = max(way["runtime"] for way in ways)
    jobs = max(1, round(job.get("job_runtime", runtime_ms) / runtime_ms))
    shares = ways[0]["clat_ns"].get("percentile", {}) if len(ways) == 1 else {}
    return Result(
        "fio",
        iops,
        sum(way["iops"] * way["lat_ns"]["mean"] for way in ways) / iops / 1e6,
        operation=str(job.get("jobname", "")),
        clients=jobs * (1 if options.get("ioengine", "psync") in _ONE_AT_A_TIME else int(options.get("iodepth", 1))),
        percentiles_ms={float(share): time / 1e6 for share, time in shares.items()},
        max_ms=max(way["lat_ns"]["max"] for way in ways) / 1e6,
        duration_s=runtime_ms / 1000,
        requests=sum(way["total_ios"] for way in ways),
        generator_busy=(job["usr_cpu"] + job["sys_cpu"]) / 100,
    )
