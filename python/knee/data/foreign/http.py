"""Reads the output of load generators for HTTP. Each reader takes a text and returns its results. Pure."""

from __future__ import annotations

import re

from knee.data.foreign.result import ForeignError, Result, found, half_digit, maybe, milliseconds, runs

_TIME = r"[\d.]+(?:us|ms|s|m|h)"


def wrk(text: str) -> list[Result]:
    """wrk: a closed loop. Its latencies contain invented ones after every long response (`stats_correct`)."""
    return [_wrk(run, is_open=False) for run in runs(text, "Running ")]


def wrk2(text: str) -> list[Result]:
    """wrk2: an open loop, whose latencies count from the due time. The requested rate is not in the output."""
    return [_wrk(run, is_open=True) for run in runs(text, "Running ")]


def _wrk(run: str, *, is_open: bool) -> Result:
    latency = re.search(rf"(?m)^\s*Latency\s+({_TIME})\s+{_TIME}\s+({_TIME})", run)
    mean, longest = latency.groups() if latency else (None, None)
    sent, took = found(run, rf"(\d+ requests in {_TIME})", "line with the requests").split(" requests in ")
    failed = maybe(run, r"Non-2xx or 3xx responses: (\d+)")
    lost = maybe(run, r"Socket errors: (.*)")
    clients = int(found(run, r"\d+ threads and (\d+) connections", "number of connections"))
    threads = int(found(run, r"(\d+) threads and", "number of threads"))
    digits = re.match(r"[\d.]+", mean) if mean else None
    return Result(
        "wrk2" if is_open else "wrk",
        float(found(run, r"Requests/sec:\s+([\d.]+)", "line Requests/sec")),
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
        is_open=is_open,
        corrected=not is_open,
        half_digit_ms=half_digit(digits[0]) * milliseconds("1" + mean[digits.end() :]) if mean and digits else 0.0,
    )


def hey(text: str) -> list[Result]:
    """hey: a closed loop. The number of clients is not in the output."""
    return [_hey(run) for run in runs(text, "Summary:")]


def _hey(run: str) -> Result:
    mean = found(run, r"Average:\s+([\d.]+) secs", "line Average")
    _, listed, codes = run.partition("Status code distribution:")
    if not listed:
        raise ForeignError("no Status code distribution")
    answers = [int(count) for count in re.findall(r"(?m)^\s*\[\d{3}\]\s+(\d+) responses", codes)]
    good = sum(int(count) for count in re.findall(r"(?m)^\s*\[[23]\d\d\]\s+(\d+) responses", codes))
    _, _, errors = run.partition("Error distribution:")
    return Result(
        "hey",
        float(found(run, r"Requests/sec:\s+([\d.]+)", "line Requests/sec")),
        1000 * float(mean),
        percentiles_ms={
            float(share): 1000 * float(time) for share, time in re.findall(r"(?m)^\s*(\d+)% in ([\d.]+) secs", run)
        },
        max_ms=1000 * float(found(run, r"Slowest:\s+([\d.]+) secs", "line Slowest")),
        duration_s=float(found(run, r"Total:\s+([\d.]+) secs", "line Total")),
        requests=sum(answers),
        errors=sum(answers) - good + sum(map(int, re.findall(r"(?m)^\s*\[(\d+)\]", errors))),
        half_digit_ms=1000 * half_digit(mean),
    )


def ab(text: str) -> list[Result]:
    """ab: a closed loop. Its `Time per request` is N / X; the mean of `Total` is measured, in whole milliseconds."""
    return [_ab(run) for run in runs(text, "This is ApacheBench")]


def _ab(run: str) -> Result:
    total = r"Total:\s+\d+\s+(\d+)(?:\s+[\d.]+\s+\d+)?\s+"
    return Result(
        "ab",
        float(found(run, r"Requests per second:\s+([\d.]+)", "line Requests per second")),
        float(found(run, rf"{total}\d+", "line Total of the connection times")),
        clients=int(found(run, r"Concurrency Level:\s+(\d+)", "line Concurrency Level")),
        percentiles_ms={
            float(share): float(time) for share, time in re.findall(r"(?m)^\s*(\d+)%\s+(\d+)", run) if share != "100"
        },
        max_ms=float(found(run, r"Total:.*?(\d+)\s*$", "line Total of the connection times")),
        duration_s=float(found(run, r"Time taken for tests:\s+([\d.]+) seconds", "line Time taken for tests")),
        requests=int(found(run, r"Complete requests:\s+(\d+)", "line Complete requests")),
        errors=int(found(run, r"Failed requests:\s+(\d+)", "line Failed requests"))
        + int(maybe(run, r"Non-2xx responses:\s+(\d+)") or 0),
        half_digit_ms=0.5,
    )
