"""A run of a store that keeps versions, as it would have been left: its views and outcomes are known exactly.

N clients read and put without thinking. The store serves two at a time for a millisecond each: X = min(N, 2) / 1 ms
and R = N / X. Half of the reads find nothing, in half the time of an ordinary one; one in a hundred takes a hundred
times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from knee import data as tables
from knee.data import Dataset
from knee.data.hdr import Histogram, bucket_of
from knee.spec import parse

START = 1_700_000_000

EXPERIMENT = """
[experiment]
name = "versioned"
question = "What did the server see?"

[system]
load  = {{ clients = 1 }}
store = {{ durability = "always" }}

[workload]
protocol = "kv"
mix = "read:90,put:10"

[factors]
"load.clients" = {clients}

[measure]
repetitions = 2
seconds = {seconds}
warmup_s = 1
cooldown_s = 1
"""

SECONDS = 6
OUTCOMES = {"read_missing": 0.5, "read": 1.0, "read_large": 100.0}
"""Each with its response time, relative to an ordinary read."""


def throughput(clients: int) -> float:
    """Of all of them together."""
    return 1000.0 * min(clients, 2)


def versioned_dataset(clients: Sequence[int] = (1, 2, 4, 8), **settings: Any) -> Dataset:
    """A copy of :func:`_dataset`, whose tables tests may replace."""
    return copy(_dataset(tuple(clients), **settings))


@cache
def _dataset(clients: tuple[int, ...], *, lost: float = 0.0, populate_until: int = -1, stores: int = 1) -> Dataset:
    """A run folder's tables.

    lost            share of the requests that the store did not count
    populate_until  the last second, from the start, in which the store was still being populated
    stores          how many are declared; one reports
    """
    frames: dict[str, list[dict[str, Any]]] = {name: [] for name in ("points", "windows", "stations", "summaries")}
    for point, count in enumerate(clients):
        for repetition in (1, 2):
            run = {"point": point, "repetition": repetition}
            frames["points"].append(
                run
                | {"status": "done", "clients": count, "middlewares": 0, "stores": stores, "start_unix_s": START}
                | {"seconds": SECONDS, "warmup_s": 1, "cooldown_s": 1, "think_ms": 0.0, "load.clients": count}
            )
            for second in range(-2, SECONDS):
                _second(frames, run, count, second, lost, populate_until)
            frames["summaries"].append(run | {"role": "load", "process": "load-0", "clients": count})
    text = EXPERIMENT.format(clients=list(clients), seconds=SECONDS)
    dataset = Dataset(Path("/nonexistent"), parse(text, "versioned"), {})
    schemas = tables.TABLES | {"points": pl.Schema({**tables.POINTS, "load.clients": pl.Int64()})}
    for name, schema in schemas.items():
        setattr(dataset, name, pl.DataFrame(frames.get(name, []), schema=schema, orient="row"))
    return dataset


def _second(
    frames: dict[str, list[dict[str, Any]]],
    run: dict[str, int],
    clients: int,
    second: int,
    lost: float,
    populate_until: int,
) -> None:
    rate = throughput(clients)
    when = run | {"second": START + second, "elapsed_s": float(second), "seconds": 1.0}
    populated = 5000 if second <= populate_until else 0
    if second >= 0:
        # 100 puts in a thousand, 445 reads that find nothing, 446 that do, 9 that find much.
        counts = {"put": 0.1, "read_missing": 0.445, "read": 0.446, "read_large": 0.009}
        weights = {op: share * OUTCOMES.get(op, 1.0) for op, share in counts.items()}
        response_ms = 1000 * clients / rate
        for op, share in counts.items():
            each_ms = response_ms * OUTCOMES.get(op, 1.0) / sum(weights.values())
            count = round(rate * share)
            values = np.bincount([bucket_of(round(each_ms * 1e6))] * count).astype(np.int64)
            frames["windows"].append(
                when
                | {"role": "load", "process": "load-0", "op": op, "count": count, "errors": 0}
                | {"response_sum_ns": round(count * each_ms * 1e6), "response": Histogram(values).encode()}
            )
        frames["stations"].append(when | {"role": "load", "process": "load-0"})
    asked = (round(rate * (1 - lost)) if second >= 0 else 0) + populated
    if asked:
        for op, share in (("put", 0.1), ("read", 0.9)):
            frames["windows"].append(
                when | {"role": "store", "process": "store-0", "op": op, "count": round(asked * share)}
            )
    frames["stations"].append(
        when
        | {"role": "store", "process": "store-0", "versions": 10, "file_bytes": 4_000_000, "file_live_bytes": 1_000_000}
        | {"commits": 50, "commit_sum_ns": 950_000_000, "commit_records": 100, "snapshot_age_s": 0.0, "reclaims": 0}
        | ({"first_request_unix_s": START + second, "last_request_unix_s": START + second + 1.0} if asked else {})
    )
