"""Converts the output lines of programs (docs/formats.md) to rows with the columns of :mod:`knee.data.columns`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from knee.data.columns import STATIONS, SUMMARIES, TOTALS, WINDOWS
from knee.data.hdr import Histogram
from knee.errors import DatasetError

_BESIDE = "beside"
"""Suffix of the entry for all threads outside the runtime; a runtime thread has a number there."""

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each table."""


def messages(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a file. Raises DatasetError for a line that is not a JSON object."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                message = json.loads(line)
            except ValueError as error:
                raise DatasetError(f"{path}:{number}: not a JSON line: {error}") from error
            if not isinstance(message, dict):
                raise DatasetError(f"{path}:{number}: not a JSON object: {line[:40]!r}")
            yield message


_OVER_A_LIFE = ("servers", "unsent", "first_request_unix_s", "last_request_unix_s")
"""Fields of a summary that describe a process's whole life, not a part of it."""


def part_of(printed: Iterable[dict[str, Any]], start: int, seconds: int, clients: int) -> Iterator[dict[str, Any]]:
    """The windows of some seconds of a process, and a summary of these windows. A load host has this number of clients
    in them. A load generator that was the bottleneck at any time counts as one in every part.
    """
    windows: list[dict[str, Any]] = []
    for message in printed:
        if message.get("type") == "window" and start <= message["second"] < start + seconds:
            windows.append(message)
            yield message
        elif message.get("type") == "summary":
            whole = {name: value for name, value in message.items() if name not in _OVER_A_LIFE}
            sums = {name: sum(each.get(name, 0) for each in windows) for name in _SUMMED if name in whole}
            part = {**whole, **sums, **_operations(windows, whole), "seconds": float(seconds)}
            if servers := [server for window in windows for server in window.get("servers", ())]:
                part["servers"] = servers
            part |= {"started_unix_s": float(start), "ended_unix_s": float(start + seconds)}
            yield part | ({"clients": clients} if "clients" in whole else {})


_SUMMED = ("late_sends", "wrong_values", "losses", "reconnects", "evictions")


def _operations(windows: Sequence[dict[str, Any]], whole: Mapping[str, Any]) -> dict[str, Any]:
    """The operations and the histograms of a summary of these windows. Windows have one stage, which is the last one of
    the whole summary: the response, or a store's service.
    """
    ops: dict[str, dict[str, Any]] = {}
    hdrs: dict[str, list[str]] = {}
    for op, counts in (each for window in windows for each in window.get("ops", {}).items()):
        sums = ops.setdefault(op, {})
        for name, value in counts.items():
            if name == "response":
                hdrs.setdefault(op, []).append(value)
            elif value is not None:
                sums[name] = sums.get(name, 0) + value
    stages = {one["op"]: one["stage"] for one in whole.get("histograms", [])}
    return {
        "ops": ops,
        "histograms": [
            {"op": op, "stage": stages[op], "hdr": Histogram.decode(*texts).encode()} for op, texts in hdrs.items()
        ],
    }


def add_window(rows: Rows, of_process: dict[str, Any], window: dict[str, Any], start_unix_s: int) -> None:
    when = {
        "second": window["second"],
        "elapsed_s": float(window["second"] - start_unix_s),
        "seconds": window["seconds"],
    }
    for op, counts in window.get("ops", {}).items():
        rows["windows"].append({**of_process, **when, "op": op, **_known(counts, WINDOWS)})
    station = {**of_process, **when, **_known(window, STATIONS)}
    kinds: dict[str, list[float]] = {}
    beside: list[float] = []
    for thread in window.get("threads", []):
        kind, _, number = thread["name"].rpartition("-")
        # Their number of threads is unknown.
        (beside if number == _BESIDE else kinds.setdefault(kind, [])).append(thread["cpu_s"])
    # A store with two protocols has several kinds: threads of one kind do not serve requests of the other.
    used = max(kinds.values(), key=lambda used: sum(used) / len(used), default=[])
    station.update(
        threads=len(used) if used else None,
        threads_cpu_s=sum(used) if used else None,
        thread_cpu_max_s=max(map(max, kinds.values()), default=None),
        beside_cpu_s=sum(beside) if beside else None,
    )
    if servers := window.get("servers"):
        station |= {f"servers_{count}": [server[count] for server in servers] for count in ("requests", "bytes")}
    rows["stations"].append(station)


def add_summary(rows: Rows, of_process: dict[str, Any], summary: dict[str, Any]) -> None:
    servers = summary.get("servers")
    bottleneck = summary.get("bottleneck") or {}
    rows["summaries"].append(
        {
            **of_process,
            **_known(summary, SUMMARIES),
            "bottleneck_reason": bottleneck.get("reason"),
            "bottleneck_detail": bottleneck.get("detail"),
            "servers_ejected": servers and sum(server["ejected"] for server in servers),
            "servers_errors": servers and sum(server["errors"] for server in servers),
        }
    )
    histograms: dict[str, dict[str, str]] = {}
    for one in summary.get("histograms", []):
        histograms.setdefault(one["op"], {})[one["stage"]] = one["hdr"]
    for op, counts in summary.get("ops", {}).items():
        rows["totals"].append({**of_process, "op": op, **_known(counts, TOTALS), **histograms.get(op, {})})


def _known(fields: Mapping[str, Any], schema: pl.Schema) -> dict[str, Any]:
    """The fields that are columns; unknown fields are ignored."""
    return {name: value for name, value in fields.items() if name in schema}
