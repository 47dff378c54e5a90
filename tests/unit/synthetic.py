"""Synthetic datasets whose knee and bottleneck are known exactly, for tests of the analysis.

The system is the machine repairman (M/M/c//N; Jain 1991, §33.6 and Lavenberg 1983): N clients think for Z, cross a
fixed gap to the middleware, wait for one of c worker slots and hold it for an exponential time of mean S. Its light
load asymptote is N / (Z + gap + S) and its plateau c / S, so N* = (c / S) · (Z + gap + S).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from knee import data as tables
from knee.data import Dataset
from knee.data.hdr import Histogram, bucket_of
from knee.data.reading import part_path
from knee.data.trim import trim
from knee.spec import Spec, parse

START = 1_700_000_000
CLIENTS = (4, 16, 24, 48, 96)
"""Around the knee of a System at 20 clients."""


@dataclass(frozen=True)
class System:
    """The synthetic system.

    slowdown      each further client stretches the service time by this share (retrograde throughput)
    *_cpu_us      CPU time per request of each tier's one busy thread
    load_cpu_us   when `load_bound`, also the demand at the load generator's single thread, where requests queue
    """

    slots: int = 16
    service_ms: float = 2.0
    gap_ms: float = 0.5
    think_ms: float = 0.0
    middlewares: int = 2
    slowdown: float = 0.0
    load_cpu_us: float = 20.0
    middleware_cpu_us: float = 20.0
    store_cpu_us: float = 20.0
    load_bound: bool = False
    cores: int = 64

    @property
    def knee(self) -> float:
        """N* = X_max · (R_0 + Z), without slowdown."""
        cycle_ms = self.service_ms + self.gap_ms + self.think_ms
        if self.load_bound:
            demand_ms = self.load_cpu_us / 1000
            return (cycle_ms + demand_ms) / demand_ms
        return self.slots / self.service_ms * cycle_ms

    def solve(self, clients: int) -> Solution:
        """Exact steady state with N clients."""
        service_ms = self.service_ms * (1 + self.slowdown * max(0, clients - self.slots))
        delay_ms = self.gap_ms + self.think_ms
        slots = self.slots
        if self.load_bound:
            # The load generator's thread is the one queue; everything else is delay.
            delay_ms += service_ms
            service_ms, slots = self.load_cpu_us / 1000, 1
        throughput_per_ms, waiting_ms = repairman(clients, slots, service_ms, delay_ms)
        if self.load_bound:
            return Solution(1000 * throughput_per_ms, 0.0, self.service_ms, self.gap_ms + waiting_ms + service_ms)
        return Solution(1000 * throughput_per_ms, waiting_ms, service_ms, self.gap_ms)


@dataclass(frozen=True)
class Solution:
    """Throughput in requests/s, and the parts of the client's response time."""

    throughput: float
    queueing_ms: float
    service_ms: float
    gap_ms: float

    @property
    def response_ms(self) -> float:
        return self.queueing_ms + self.service_ms + self.gap_ms


def repairman(clients: int, servers: int, service_ms: float, delay_ms: float) -> tuple[float, float]:
    """Throughput (1/ms) and mean waiting time (ms) of M/M/c//N, from its birth and death equations."""
    if delay_ms == 0:
        return min(clients, servers) / service_ms, service_ms * max(0, clients - servers) / min(clients, servers)
    logs = np.zeros(clients + 1)
    for k in range(1, clients + 1):
        birth = (clients - k + 1) / delay_ms
        death = min(k, servers) / service_ms
        logs[k] = logs[k - 1] + np.log(birth / death)
    weights = np.exp(logs - logs.max())
    probabilities = weights / weights.sum()
    states = np.arange(clients + 1)
    throughput = float((np.minimum(states, servers) * probabilities).sum()) / service_ms
    waiting = float((np.maximum(states - servers, 0) * probabilities).sum())
    return throughput, waiting / throughput


EXPERIMENT = """
[experiment]
name = "synthetic"
question = "How many clients until the worker slots are full?"

[system]
load       = {{ hosts = 1, clients = 1 }}
middleware = {{ hosts = {middlewares}, workers = {workers} }}
store      = {{ hosts = 1 }}

[workload]
set_get = "1:9"
think_ms = {think_ms}

[factors]
"load.clients" = {clients}
{more_factors}

[measure]
repetitions = {repetitions}
seconds = {seconds}
warmup_s = {warmup_s}
cooldown_s = {cooldown_s}
"""


def experiment(text: str, clients: Sequence[float], levels: Sequence[int] = (), **given: Any) -> Spec:
    """The experiment of a text like EXPERIMENT, over clients (or rates) and levels of workers."""
    usual: dict[str, Any] = {"middlewares": 2, "workers": 8, "think_ms": 0.0}
    usual |= {"repetitions": 3, "seconds": 30, "warmup_s": 5, "cooldown_s": 5}
    more = f'"middleware.workers" = {list(levels)}' if levels else ""
    return parse(text.format(clients=list(clients), more_factors=more, **(usual | given)), "synthetic")


def synthetic_dataset(
    system: System, clients: Sequence[int] = CLIENTS, *, workers: Sequence[int] | None = None, **settings: Any
) -> Dataset:
    """A dataset as a run would have left it, with the settings of :func:`_dataset`. Tests may replace its tables.

    workers     levels of a second factor, worker slots of each middleware
    """
    return copy(_dataset(system, tuple(clients), tuple(workers or ()), **settings))


@cache
def _dataset(
    system: System,
    clients: tuple[int, ...],
    workers: tuple[int, ...],
    *,
    repetitions: int = 3,
    seconds: int = 30,
    warmup_s: int = 5,
    cooldown_s: int = 5,
    noise: float = 0.005,
    seed: int = 1,
    warming_s: int = 0,
) -> Dataset:
    """The dataset of these arguments, made once.

    noise       standard deviation of the throughput's relative deviation from run to run
    warming_s   for so many seconds from the start, throughput is halved
    """
    spec = experiment(
        EXPERIMENT,
        clients,
        workers,
        middlewares=system.middlewares,
        workers=system.slots // system.middlewares,
        think_ms=system.think_ms,
        repetitions=repetitions,
        seconds=seconds,
        warmup_s=warmup_s,
        cooldown_s=cooldown_s,
    )
    rng = np.random.default_rng(seed)
    frames: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("points", "windows", "stations", "probes", "summaries")
    }
    systems = [replace(system, slots=each * system.middlewares) for each in workers] if workers else [system]
    for point, (count, system) in enumerate(product(clients, systems)):
        solution = system.solve(count)
        for repetition in range(1, repetitions + 1):
            run = {"point": point, "repetition": repetition}
            frames["points"].append(
                run
                | {
                    "status": "done",
                    "clients": count,
                    "middlewares": system.middlewares,
                    "stores": 1,
                    "workers": system.slots // system.middlewares,
                    "start_unix_s": START,
                    "seconds": seconds,
                    "warmup_s": warmup_s,
                    "cooldown_s": cooldown_s,
                    "think_ms": system.think_ms,
                    "load.clients": count,
                }
                | ({"middleware.workers": system.slots // system.middlewares} if workers else {})
            )
            _measure(frames, run, system, count, solution, 1 + noise * rng.standard_normal(), seconds, warming_s, rng)
    dataset = Dataset(Path("/nonexistent"), spec, {"program": "synthetic"})
    factors = {name: pl.Int64() for name in dataset.factors}
    schemas = tables.TABLES | {"points": pl.Schema({**tables.POINTS, **factors})}
    for name, schema in schemas.items():
        setattr(dataset, name, pl.DataFrame(frames.get(name, []), schema=schema, orient="row"))
    return dataset


SAVED = System(slots=8, think_ms=2.0)
SAVED_CLIENTS = (2, 4, 8, 16, 32, 64)


def saved(folder: Path, more: str = "") -> Path:
    """A run folder of SAVED with SAVED_CLIENTS; its experiment has more lines."""
    settings = {"middlewares": 2, "workers": 4, "think_ms": 2.0, "repetitions": 3, "seconds": 15}
    text = EXPERIMENT.format(clients=[*SAVED_CLIENTS], more_factors="", warmup_s=5, cooldown_s=5, **settings)
    dataset = synthetic_dataset(SAVED, SAVED_CLIENTS, seconds=15)
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(text + more)
    (folder / "manifest.json").write_text('{"program": "synthetic"}')
    for name in tables.TABLES:
        for (point, repetition), rows in getattr(dataset, name).group_by("point", "repetition", maintain_order=True):
            part = part_path(folder, name, point, repetition)
            part.parent.mkdir(parents=True, exist_ok=True)
            rows.write_parquet(part)
    return folder


def open_loop(rates: Mapping[int, float], *, workers: Sequence[int] | None = None) -> Dataset:
    """A run over arrival rates with 40 clients: at each rate the system does what it does for so many clients."""
    closed = synthetic_dataset(System(), tuple(rates), workers=workers)
    text = EXPERIMENT.replace('"load.clients"', '"workload.rate"').replace("think_ms = {think_ms}\n", "")
    dataset = Dataset(closed.path, experiment(text, list(rates.values()), workers or ()), closed.manifest)
    for name in tables.TABLES:
        setattr(dataset, name, getattr(closed, name))
    rate = pl.col("clients").replace_strict(rates, return_dtype=pl.Float64)
    dataset.points = closed.points.drop("load.clients").with_columns(
        **{"workload.rate": rate}, rate=rate, think_ms=pl.lit(None, pl.Float64), clients=pl.lit(40, pl.Int64)
    )
    return dataset


def pooled(system: System, workers: int, **settings: Any) -> Dataset:
    """A system whose slots are its connections to a database, with so many worker slots of each middleware above them.

    As many requests as there are slots more than connections wait for one of these, with a slot; the others in front.
    """
    dataset = synthetic_dataset(system, **settings)
    spare = workers * system.middlewares - system.slots
    waiting = (
        trim(dataset.stations, dataset.points)
        .filter(role="middleware")
        .group_by("point", "repetition")
        # All seconds are alike.
        .agg((pl.col("queue_length_mean").mean() * system.middlewares).alias("_waiting"))
    )
    inside = pl.when(pl.col("_waiting") > spare).then(spare / pl.col("_waiting")).otherwise(1.0)
    text = EXPERIMENT.replace("{workers} }}", "{workers}, connections = {connections} }}")
    text = text.replace("store      = {{ hosts = 1 }}", 'store = {{ kind = "postgresql" }}')
    dataset.spec = experiment(
        text.replace('set_get = "1:9"', 'protocol = "queue"'),
        sorted(set(dataset.points["clients"])),
        middlewares=system.middlewares,
        workers=workers,
        connections=system.slots,
        think_ms=system.think_ms,
    )
    dataset.points = dataset.points.with_columns(workers=pl.lit(workers, pl.Int64))
    middleware, queueing = pl.col("role") == "middleware", pl.col("queueing_sum_ns")
    connecting = pl.when(middleware).then((queueing * pl.col("_inside")).round().cast(pl.Int64))
    dataset.windows = (
        dataset.windows.join(waiting.with_columns(inside.alias("_inside")), on=["point", "repetition"])
        .with_columns(connection_sum_ns=connecting)
        .with_columns(
            queueing_sum_ns=queueing - pl.col("connection_sum_ns"),
            service_sum_ns=pl.col("service_sum_ns") + pl.col("connection_sum_ns"),
        )
        .select(list(tables.TABLES["windows"]))
    )
    length = pl.col("queue_length_mean")
    dataset.stations = (
        dataset.stations.join(waiting.with_columns(inside.alias("_inside")), on=["point", "repetition"])
        .with_columns(
            queue_length_mean=length * (1 - pl.col("_inside")),
            workers_busy_s=pl.col("workers_busy_s") + length * pl.col("_inside"),
            workers=pl.when(middleware).then(pl.lit(workers, pl.Int64)),
        )
        .select(list(tables.TABLES["stations"]))
    )
    return dataset


def closed_system(*, noise: float = 0.005, seed: int = 1) -> str:
    """A foreign CSV: two settings of cache, a disk that saturates, a CPU that does not."""
    rng = np.random.default_rng(seed)
    lines = ["cache,clients,repetition,throughput,response_ms,think_ms,utilization_disk,utilization_cpu"]
    for setting, demand_ms in (("cold", 2.0), ("warm", 1.0)):
        for clients in (1, 2, 4, 8, 16, 32):
            for repetition in (1, 2, 3):
                throughput = 1000 * repairman(clients, 1, demand_ms, 10.0)[0] * (1 + noise * rng.standard_normal())
                response_ms = 1000 * clients / throughput - 10.0
                lines.append(
                    f"{setting},{clients},{repetition},{throughput:.6g},{response_ms:.6g},10,"
                    f"{min(1.0, throughput * demand_ms / 1000):.4f},{throughput * 0.2 / 1000:.4f}"
                )
    return "\n".join(lines) + "\n"


def elsewhere(dataset: Dataset, tier: str) -> Dataset:
    """The dataset as it would be had the tier run elsewhere (`address = [...]`), without samples of its processes."""
    for name in ("windows", "stations", "summaries"):
        setattr(dataset, name, getattr(dataset, name).filter(pl.col("role") != tier))
    dataset.probes = dataset.probes.filter(~pl.col("target").str.starts_with(tier))
    return configured(dataset, {f"{tier}.address": ("192.0.2.1:11211",)})


def configured(dataset: Dataset, settings: Mapping[str, object]) -> Dataset:
    """The dataset as it would be with other settings, by their names in the file."""
    base = dataset.spec.base
    for name, value in settings.items():
        part, _, field = name.partition(".")
        owner = base if part == "workload" else base.system
        changed = {part: getattr(owner, part).model_copy(update={field: value}) if field else value}
        base = base.model_copy(update=changed if owner is base else {"system": base.system.model_copy(update=changed)})
    dataset.spec = dataset.spec.model_copy(update={"base": base})
    return dataset


def _measure(
    frames: dict[str, list[dict[str, Any]]],
    run: dict[str, Any],
    system: System,
    clients: int,
    solution: Solution,
    luck: float,
    seconds: int,
    warming_s: int,
    rng: np.random.Generator,
) -> None:
    throughput = solution.throughput * luck
    # The law holds in every run: what the clients lose in throughput they gained in response time.
    response_ms = 1000 * clients / throughput - system.think_ms
    queueing_ms = max(0.0, solution.queueing_ms + response_ms - solution.response_ms)
    service_ms = solution.service_ms
    # What queueing cannot absorb falls to the gap.
    middleware_ms = min(queueing_ms + service_ms, response_ms)
    histogram = _exponential(response_ms, rng)
    asked = 0.0
    for second in range(seconds):
        rate = throughput * (0.5 if second < warming_s else 1.0)
        before, asked = asked, asked + rate
        window = run | {"second": START + second, "elapsed_s": float(second), "seconds": 1.0}
        # All seconds alike, and fractions of the sets carried on, so that the types keep their shares.
        sets = round(asked * 0.1) - round(before * 0.1)
        for op, count in (("get", round(rate) - sets), ("set", sets)):
            frames["windows"].append(
                window
                | _window("load", "load-0", op, count)
                | {"response_sum_ns": round(count * response_ms * 1e6), "response": histogram}
            )
            for number in range(system.middlewares):
                each = round(count * (number + 1) / system.middlewares) - round(count * number / system.middlewares)
                frames["windows"].append(
                    window
                    | _window("middleware", f"middleware-{number}", op, each)
                    | {
                        "queueing_sum_ns": round(each * queueing_ms * 1e6),
                        "service_sum_ns": round(each * service_ms * 1e6),
                        "response_sum_ns": round(each * middleware_ms * 1e6),
                        "response": histogram,
                    }
                )
        cpu = {
            "load-0": rate * system.load_cpu_us / 1e6,
            **{
                f"middleware-{number}": rate * system.middleware_cpu_us / 1e6 / system.middlewares
                for number in range(system.middlewares)
            },
            "store-0": rate * system.store_cpu_us / 1e6,
        }
        for process, cpu_s in cpu.items():
            role = process.rsplit("-", 1)[0]
            station = window | {"role": role, "process": process}
            station |= {"threads": 1, "threads_cpu_s": cpu_s, "thread_cpu_max_s": cpu_s}
            if role == "middleware":
                station |= {
                    "queue_length_mean": rate / system.middlewares * queueing_ms / 1000,
                    "workers": system.slots // system.middlewares,
                    "workers_busy_s": rate / system.middlewares * service_ms / 1000,
                }
            frames["stations"].append(station)
            frames["probes"].append(
                window
                | {"target": process, "cpu_user_s": cpu_s, "cpu_system_s": 0.0}
                | {"cpu_count": 1, "thread_cpu_max_s": cpu_s, "rss_bytes": 10_000_000}
            )
        frames["probes"].append(
            window
            | {"target": "host", "cpu_user_s": sum(cpu.values()), "cpu_system_s": 0.0}
            | {"cpu_count": system.cores, "rss_bytes": 100_000_000}
        )
    frames["summaries"].append(
        run
        | {"role": "load", "process": "load-0", "clients": clients, "late_sends": 0, "reconnects": 0}
        | {"wrong_values": 0, "seconds": float(seconds)}
    )


def _window(role: str, process: str, op: str, count: int) -> dict[str, Any]:
    return {
        "role": role,
        "process": process,
        "op": op,
        "count": count,
        "errors": 0,
        "items": count,
        "hits": count if op == "get" else 0,
        "misses": 0,
        "bytes_in": count * 4096,
        "bytes_out": count * 32,
    }


def _exponential(mean_ms: float, rng: np.random.Generator) -> str:
    values = rng.exponential(mean_ms * 1e6, size=200).astype(np.int64)
    buckets = [bucket_of(int(value)) for value in values]
    return Histogram(np.bincount(buckets).astype(np.int64)).encode()
