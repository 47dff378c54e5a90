"""Reads the output of load generators for HTTP. Each reader takes a text and returns its results. Pure."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from statistics import fmean
from typing import Any

from knee.data.foreign.result import (
    ForeignError,
    Result,
    found,
    loaded,
    maybe,
    milliseconds,
    rounding,
)

_TIME = r"[\d.]+(?:us|ms|s|m|h)"

_BUSY = 0.9
"""Share of k6's constant users that iterate in a closed loop: all, but for the ends of the run."""
_PARTS = 20
"""Number of equal times into which points are split."""


def wrk2(run: str) -> Result:
    """wrk2: an open loop, whose latencies count from the due time. The requested rate is not in the output."""
    return replace(wrk(run), tool="wrk2", is_open=True, corrected=False)


def wrk(run: str) -> Result:
    """wrk: a closed loop. Its latencies contain invented ones after every long response (`stats_correct`)."""
    latency = re.search(rf"(?m)^\s*Latency\s+({_TIME})\s+{_TIME}\s+({_TIME})", run)
    mean, longest = latency.groups() if latency else (None, None)
    sent, took = found(run, rf"(\d+ requests in {_TIME})", "line with the requests").split(" requests in ")
    failed = maybe(run, r"Non-2xx or 3xx responses: (\d+)")
    lost = maybe(run, r"Socket errors: (.*)")
    clients = int(found(run, r"\d+ threads and (\d+) connections", "number of connections"))
    threads = int(found(run, r"(\d+) threads and", "number of threads"))
    rate = found(run, r"Requests/sec:\s+([\d.]+)", "line Requests/sec")
    return Result(
        "wrk",
        float(rate),
        milliseconds(mean) if mean else None,
        # Every thread opens an equal share, rounded down.
        clients=clients // threads * threads,
        declared=clients,
        percentiles_ms={
            float(share): milliseconds(time) for share, time in re.findall(rf"(?m)^\s*([\d.]+)%\s+({_TIME})\s*$", run)
        },
        max_ms=milliseconds(longest) if longest else None,
        duration_s=milliseconds(took) / 1000,
        requests=int(sent),
        errors=int(failed or 0) + sum(map(int, re.findall(r"\d+", lost or ""))),
        corrected=True,
        rounding=rounding(mean.rstrip("umsh"), rate) if mean else 0.0,
    )


def hey(run: str) -> Result:
    """hey: a closed loop. The number of clients is not in the output."""
    mean = found(run, r"Average:\s+([\d.]+) secs", "line Average")
    _, listed, codes = run.partition("Status code distribution:")
    if not listed:
        raise ForeignError("no Status code distribution")
    answers = [int(count) for count in re.findall(r"(?m)^\s*\[\d{3}\]\s+(\d+) responses", codes)]
    good = sum(int(count) for count in re.findall(r"(?m)^\s*\[[23]\d\d\]\s+(\d+) responses", codes))
    _, _, errors = run.partition("Error distribution:")
    lost = sum(map(int, re.findall(r"(?m)^\s*\[(\d+)\]", errors)))
    rate = found(run, r"Requests/sec:\s+([\d.]+)", "line Requests/sec")
    return Result(
        "hey",
        float(rate),
        1000 * float(mean),
        percentiles_ms={
            float(share): 1000 * float(time) for share, time in re.findall(r"(?m)^\s*(\d+)% in ([\d.]+) secs", run)
        },
        max_ms=1000 * float(found(run, r"Slowest:\s+([\d.]+) secs", "line Slowest")),
        duration_s=float(found(run, r"Total:\s+([\d.]+) secs", "line Total")),
        requests=sum(answers) + lost,
        errors=sum(answers) - good + lost,
        rounding=rounding(mean, rate),
    )


def ab(run: str) -> Result:
    """ab: a closed loop. Its `Time per request` is N / X; the mean of `Total` is measured, in whole milliseconds."""
    total = r"Total:\s+\d+\s+(\d+)(?:\s+[\d.]+\s+\d+)?\s+"
    mean = found(run, rf"{total}\d+", "line Total of the connection times")
    rate = found(run, r"Requests per second:\s+([\d.]+)", "line Requests per second")
    # An answer of another length than the first one counts as failed, as every dynamic page may be.
    other_lengths = int(maybe(run, r"\(Connect: .* Length: (\d+)") or 0)
    return Result(
        "ab",
        float(rate),
        float(mean),
        clients=int(found(run, r"Concurrency Level:\s+(\d+)", "line Concurrency Level")),
        percentiles_ms={
            float(share): float(time) for share, time in re.findall(r"(?m)^\s*(\d+)%\s+(\d+)", run) if share != "100"
        },
        max_ms=float(found(run, r"Total:.*?(\d+)\s*$", "line Total of the connection times")),
        duration_s=float(found(run, r"Time taken for tests:\s+([\d.]+) seconds", "line Time taken for tests")),
        requests=int(found(run, r"Complete requests:\s+(\d+)", "line Complete requests")),
        errors=int(found(run, r"Failed requests:\s+(\d+)", "line Failed requests"))
        - other_lengths
        + int(maybe(run, r"Non-2xx responses:\s+(\d+)") or 0),
        rounding=rounding(mean, rate),
    )


def vegeta(text: str) -> Result:
    """vegeta: an open loop; `vegeta report` as text or as JSON. It prints the rate at which it sent."""
    if text.lstrip().startswith("{"):
        report = loaded(text)
        times = {name: value / 1e6 for name, value in report["latencies"].items()}
        rate, throughput, total = (float(report[name]) for name in ("rate", "throughput", "requests"))
        attack_s, wait_s, success = report["duration"] / 1e9, report.get("wait", 0) / 1e9, report["success"]
    else:
        total, rate, throughput = map(float, _listed(text, "Requests").values())
        duration = _listed(text, "Duration")
        attack_s, wait_s = (milliseconds(duration[name]) / 1000 for name in ("attack", "wait"))
        times = {name: milliseconds(time) for name, time in _listed(text, "Latencies").items()}
        success = float(found(text, r"Success\s+\[ratio\]\s+([\d.]+)%", "line Success")) / 100
    return Result(
        "vegeta",
        throughput,
        times["mean"],
        percentiles_ms={float(name.removesuffix("th")): time for name, time in times.items() if name[0].isdigit()},
        max_ms=times["max"],
        duration_s=attack_s + wait_s,
        requests=int(total),
        errors=round((1 - success) * total),
        sent_rate=rate,
        is_open=True,
    )


def _listed(text: str, name: str) -> dict[str, str]:
    """The values of a line such as `Duration [total, attack] 2s, 1s`, by their names."""
    names = found(text, rf"{name}\s+\[(.*?)\]", f"line {name}").split(", ")
    return dict(zip(names, found(text, rf"{name}\s+\[.*?\]\s+(.*)", f"line {name}").split(", "), strict=True))


def k6(text: str) -> Result:
    """k6: the JSON of `--summary-export` or `handleSummary`. A constant number of users is a closed loop."""
    return _k6({name: each.get("values", each) for name, each in loaded(text)["metrics"].items()})


def k6_points(text: str) -> Result:
    """k6: the points of `--out json` or `--out csv`. If their times are whole seconds, as in CSV by default, the first
    and the last second are cut off."""
    points: dict[str, list[tuple[float, float]]] = {}
    for name, time_s, value in _csv_points(text) if text.startswith("metric_name,") else _json_points(text):
        points.setdefault(name, []).append((time_s, value))
    served = points.get("http_req_duration", [])
    times_s = [time_s for time_s, _ in served]
    if all(time_s.is_integer() for time_s in times_s):
        begin_s, end_s = min(times_s, default=0.0) + 1, max(times_s, default=0.0)
    else:
        begin_s, end_s = min(time_s - took / 1000 for time_s, took in served), math.nextafter(max(times_s), math.inf)
    inner = {name: [value for at, value in some if begin_s <= at < end_s] for name, some in points.items()}
    took = sorted(inner.get("http_req_duration", []))
    if not took:
        raise ForeignError("no requests in three seconds")
    places = [int(_PARTS * (at - begin_s) / (end_s - begin_s)) for at in times_s if begin_s <= at < end_s]
    metrics: dict[str, dict[str, Any]] = {
        "http_reqs": {"count": len(took), "rate": len(took) / (end_s - begin_s)},
        "http_req_duration": {"avg": fmean(took), "med": took[len(took) // 2], "max": took[-1]}
        | {f"p({share})": took[share * len(took) // 100] for share in (90, 95, 99)},
    }
    if users := inner.get("vus"):
        metrics["vus"] = {"min": min(users), "max": max(users)}
    if cycles := inner.get("iteration_duration"):
        metrics["iteration_duration"] = {"avg": fmean(cycles)}
        metrics["iterations"] = {"count": len(cycles)}
    if dropped := inner.get("dropped_iterations"):
        metrics["dropped_iterations"] = {"count": sum(dropped)}
    if failed := inner.get("http_req_failed"):
        metrics["http_req_failed"] = {"value": fmean(failed)}
    # Seconds that are whole do not fill equal parts.
    is_fine = not begin_s.is_integer()
    return replace(_k6(metrics), counts=tuple(map(places.count, range(_PARTS))) if is_fine else ())


def _json_points(text: str) -> Iterator[tuple[str, float, float]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            raise ForeignError(f"line {number} is no point") from None
        if entry["type"] == "Point":
            yield entry["metric"], datetime.fromisoformat(entry["data"]["time"]).timestamp(), entry["data"]["value"]


def _csv_points(text: str) -> Iterator[tuple[str, float, float]]:
    if not text.endswith("\n"):
        raise ForeignError("no end of the last line")
    for row in csv.DictReader(io.StringIO(text)):
        time, value = row["timestamp"], float(row["metric_value"])
        if time.isdigit():
            # Seconds, or thousandths, millionths or billionths of them.
            yield row["metric_name"], int(time) / 10.0 ** (3 * max(0, (len(time) - 8) // 3)), value
        else:
            yield row["metric_name"], datetime.fromisoformat(time).timestamp(), value


def _k6(metrics: dict[str, dict[str, Any]]) -> Result:
    requests, times = metrics["http_reqs"], metrics["http_req_duration"]
    users, iterations = metrics.get("vus", {}), metrics.get("iterations", {})
    dropped = int(metrics.get("dropped_iterations", {}).get("count", 0))
    count, rate = requests["count"], requests["rate"]
    per_iteration = count / iterations["count"] if iterations.get("count") else 1.0
    cycle_ms = metrics["iteration_duration"]["avg"] / per_iteration if "iteration_duration" in metrics else None
    constant = users and users["min"] == users["max"]
    # Users without rest would have been busy all the time: they waited for the due times of a constant rate.
    is_open = bool(dropped) or bool(constant and cycle_ms and rate * cycle_ms < _BUSY * 1000 * users["max"])
    failed = metrics.get("http_req_failed", {})
    return Result(
        "k6",
        rate,
        times["avg"],
        clients=round(users["max"]) if users and (constant or is_open) else None,
        percentiles_ms={50.0: times["med"]}
        | {float(name[2:-1]): time for name, time in times.items() if name.startswith("p(")},
        max_ms=times["max"],
        duration_s=count / rate if rate else None,
        requests=count,
        # `--summary-export` and `handleSummary` name the share differently.
        errors=round(failed.get("value", failed.get("rate", 0)) * count),
        rate=rate * (1 + dropped / iterations["count"]) if dropped else None,
        is_open=is_open,
        rest_ms=None if cycle_ms is None or is_open else max(0.0, cycle_ms - times["avg"]),
        dropped=dropped,
    )


def locust(text: str) -> Result:
    """Locust: the file PREFIX_stats.csv of --csv. It lacks the number of users."""
    rows = list(csv.DictReader(io.StringIO(text)))
    row = next((row for row in rows if row.get("Name") == "Aggregated"), None)
    if row is None or None in row.values():
        raise ForeignError("no whole line Aggregated")
    rate, count = float(row["Requests/s"]), int(row["Request Count"])
    return Result(
        "locust",
        rate,
        float(row["Average Response Time"]),
        percentiles_ms={
            float(name[:-1]): float(time)
            for name, time in row.items()
            if name.endswith("%") and name != "100%" and time != "N/A"
        },
        max_ms=float(row["Max Response Time"]),
        duration_s=count / rate if rate else None,
        requests=count,
        errors=int(row["Failure Count"]),
    )


def oha(text: str) -> Result:
    """oha --output-format json: a closed loop, unless it has a rate. Neither clients nor rate are in the output."""
    report = loaded(text)
    summary, times, codes = (report[name] for name in ("summary", "latencyPercentiles", "statusCodeDistribution"))
    answers, good = sum(codes.values()), sum(count for code, count in codes.items() if code[0] in "23")
    # At the end of the run, oha aborts a request of each client.
    failed = sum(count for error, count in report["errorDistribution"].items() if error != "aborted due to deadline")
    return Result(
        "oha",
        summary["requestsPerSec"],
        1000 * summary["average"],
        percentiles_ms={float(name[1:]): 1000 * time for name, time in times.items() if time is not None},
        max_ms=1000 * summary["slowest"],
        duration_s=summary["total"],
        requests=answers + failed,
        errors=answers - good + failed,
    )
