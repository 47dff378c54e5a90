"""Samples of contestants, and comparisons over several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.cells import Cell
from bench.cpu import CpuTime
from bench.drivers import Driven, KneeLoad
from bench.programs import BenchError, Program, Server


@dataclass(frozen=True)
class Sample:
    """The program under test over one stretch of load.

    `other_busy` is the CPU that the other side (the load generator; for generators, the store) used,
    as a share of the time: near 1 it was what limited the throughput.
    """

    requests: int
    seconds: float
    cpu: CpuTime
    other_busy: float

    @property
    def cpu_us(self) -> float:
        """CPU time of a request in µs: the figure that all comparisons are about."""
        return self.cpu.total_s / self.requests * 1e6

    @property
    def per_second(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def busy(self) -> float:
        """The share of the time for which the program had its core."""
        return self.cpu.total_s / self.seconds

    @property
    def waited(self) -> float:
        """The share of the time in which the program waited for its core."""
        return self.cpu.waited_s / self.seconds


def drive(server: Server, driver: KneeLoad, cell: Cell, seconds: float) -> Driven:
    """Loads a server. Raises BenchError, with the server's name, if an answer is wrong."""
    try:
        return driver.drive(server.address, cell, seconds)
    except BenchError as error:
        raise BenchError(f"{server.name}: {error} {server.messages()}".strip()) from error


def measure_server(server: Server, load: Callable[[], Driven]) -> Sample:
    """A sample of a server while `load` runs, including the opening and closing of connections."""
    before = CpuTime.of(server.pid)
    driven = load()
    cpu = CpuTime.of(server.pid) - before
    return Sample(driven.requests, driven.seconds, cpu, driven.cpu_s / driven.seconds)


class Requests:
    """A store's own counts of requests.

    All generators are measured by what arrived, at two instants well after their start: some spend
    their first seconds on filling the store, and none is to be charged or credited for that.
    """

    def __init__(self, store: Server, cell: Cell) -> None:
        self.store = store
        self._counter = "cmd_set" if cell.operation == "set" else "cmd_get"
        self._keys_per_request = cell.keys_per_request

    def count(self) -> int:
        """Requests so far; a multi-get counts once."""
        return self.store.stat(self._counter) // self._keys_per_request


def measure_generator(generator: Program, requests: Requests, seconds: float) -> Sample:
    """A sample of a running generator over `seconds`."""
    began, store_before, before, first = (
        time.monotonic(),
        CpuTime.of(requests.store.pid),
        CpuTime.of(generator.pid),
        requests.count(),
    )
    time.sleep(seconds)
    last, after, store_after, ended = (
        requests.count(),
        CpuTime.of(generator.pid),
        CpuTime.of(requests.store.pid),
        time.monotonic(),
    )
    elapsed = ended - began
    return Sample(last - first, elapsed, after - before, (store_after - store_before).total_s / elapsed)


@dataclass(frozen=True)
class Ratio:
    """A figure of ours over a peer's, round by round."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Iterable[float], theirs: Iterable[float]) -> Ratio:
        """Pairs the figures of a round, which were taken seconds apart: drift of the machine cancels."""
        ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
        return cls(median(ratios), min(ratios), max(ratios))

    @classmethod
    def of_cpu(cls, ours: Sequence[Sample], theirs: Sequence[Sample]) -> Ratio:
        """The CPU time of a request."""
        return cls.of((sample.cpu_us for sample in ours), (sample.cpu_us for sample in theirs))

    @classmethod
    def of_rate(cls, ours: Sequence[Sample], theirs: Sequence[Sample]) -> Ratio:
        """Requests per second."""
        return cls.of((sample.per_second for sample in ours), (sample.per_second for sample in theirs))
