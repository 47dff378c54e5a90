"""Rounds of all measurements. A round measures everything once, so that a disturbance touches few values of each."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from knee import _kernels
from knee.errors import KneeError
from knee.machine.disk import SYNC, DiskFile, disk_file
from knee.machine.findings import Machine, WorkingSet, ends
from knee.machine.sizes import GIB, MIB, available_bytes, cache_bytes, size_text, working_sets
from knee.stats.intervals import median_interval

SHARE_OF_AVAILABLE = 1 / 4
"""Largest working set, as a share of the available memory."""

ROUNDS_MIN = 2
_WORKING_SET = ("latency_ns", "read_bytes_per_s", "write_bytes_per_s", "copy_bytes_per_s")

_BRIEF_BYTES, _BRIEF_ROUNDS, _BRIEF_S = 64 * MIB, 3, 0.01

_Key = tuple[int, str]
"""Bytes of the working set, 0 for other quantities; the name."""


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    rounds      the most rounds
    budget_s    no round starts that would probably end after this time; there are at least two
    memory_s    time of each of the four measurements of a working set
    other_s     time of each measurement of disk, loopback and clock
    """

    rounds: int = 6
    budget_s: float = 55.0
    memory_bytes_max: int = GIB
    file_bytes_max: int = 256 * MIB
    memory_s: float = 0.02
    other_s: float = 0.1


def measure(folder: Path, plan: Plan, on_round: Callable[[int], None] = lambda _: None) -> Machine:
    """Measure this machine, and the disk below a folder.

    Raises SpecError without the folder, StorageError if it cannot be written, and KneeError if the system refuses
    memory or connections.
    """
    notes = []
    caches = cache_bytes()
    memory_bytes = int(available_bytes() * SHARE_OF_AVAILABLE)
    sizes = working_sets(min(plan.memory_bytes_max, memory_bytes), set(caches.values()))
    if memory_bytes < plan.memory_bytes_max:
        notes.append(
            f"working sets end at {size_text(sizes[-1])}: the largest has at most a quarter of the available memory"
        )
    seen: dict[_Key, list[float]] = defaultdict(list)
    begun, rounds = time.monotonic(), 0
    with disk_file(folder, plan.file_bytes_max, seed=0) as file:
        if not file.is_direct:
            notes.append(
                "direct transfers use the page cache on this file system: the disk's figures are those of the cache"
            )
        while rounds < plan.rounds and (
            rounds < ROUNDS_MIN or (time.monotonic() - begun) * (rounds + 1) / rounds < plan.budget_s
        ):
            rounds += 1
            on_round(rounds)
            for key, value in _round(sizes, file, plan, seed=rounds):
                seen[key].append(value)
    if not any(seen[0, "mapped_uncached_major_faults_per_1000_pages"]):
        notes.append("the page cache kept the file: no mapped scan has read from the disk")
    if rounds < plan.rounds:
        notes.append(f"the time ended after {rounds} of {plan.rounds} rounds")
    medians = {key: median_interval(values) for key, values in seen.items()}
    memory = tuple(WorkingSet(size, *(medians[size, name] for name in _WORKING_SET)) for size in sizes)
    figures = {name: value for (size, name), value in medians.items() if not size}
    found = Machine(caches, memory, figures, rounds, tuple(notes))
    if found.beyond_caches is None:
        return replace(
            found, notes=(*notes, "all working sets may fit into a cache: no figure is of memory beyond them")
        )
    return found


def _round(sizes: Sequence[int], file: DiskFile, plan: Plan, seed: int) -> Iterator[tuple[_Key, float]]:
    for size in sizes:
        with _refused(f"memory of {size_text(size)}", "end other programs, or choose less with --memory-mb"):
            found = _kernels.memory(size, plan.memory_s, seed)
        for name, value in zip(_WORKING_SET, found, strict=True):
            yield (size, name), value
    for name, value in _others(file, plan, seed):
        yield (0, name), value


def _others(file: DiskFile, plan: Plan, seed: int) -> Iterator[tuple[str, float]]:
    yield from zip(("clock_read_ns", "clock_step_ns", "sleep_late_us"), _kernels.clock(plan.other_s / 2), strict=True)
    with _refused("127.0.0.1", "start the loopback interface (`ip link set lo up`)"):
        yield "loopback_bytes_per_s", _kernels.loopback_bytes_per_s(plan.other_s)
        yield "loopback_round_trip_us", _kernels.loopback_round_trip_us(plan.other_s)
    yield from file.scans()
    yield from file.transfers(plan.other_s, seed)


@contextmanager
def _refused(what: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KneeError(f"{what}: {error.strerror or error}; {remedy}") from error


def brief(folder: Path) -> dict[str, Any]:
    """A short form for a run's manifest, in less than a second: memory beyond the caches, loopback, and syncs of the
    disk below the folder. A part that the system refuses has its reason under `refused`.
    """
    least = 2 * max(cache_bytes().values(), default=0) or _BRIEF_BYTES
    size = min(max(_BRIEF_BYTES, least), int(available_bytes() * SHARE_OF_AVAILABLE))
    seen: dict[str, list[float]] = defaultdict(list)
    refused = []
    parts: list[Callable[[int], dict[str, float]]] = [_brief_loopback]
    if size >= least:
        parts.append(partial(_brief_memory, size))
    else:
        refused.append("memory: a quarter of what is available may fit into a cache")
    for part in parts:
        try:
            each = [part(seed) for seed in range(_BRIEF_ROUNDS)]
        except OSError as error:
            refused.append(error.strerror or str(error))
            continue
        for name in each[0]:
            seen[name] += [found[name] for found in each]
    try:
        with disk_file(folder, MIB, seed=0) as file:
            seen[SYNC] += [file.transfer(SYNC, 5 * _BRIEF_S, seed) for seed in range(_BRIEF_ROUNDS)]
    except KneeError as error:
        refused.append(str(error))
    figures = {name: ends(median_interval(values)) for name, values in seen.items()}
    return {"working_set_bytes": size, "rounds": _BRIEF_ROUNDS, **figures, **({"refused": refused} if refused else {})}


def _brief_memory(size_bytes: int, seed: int) -> dict[str, float]:
    latency_ns, _, _, copy_bytes_per_s = _kernels.memory(size_bytes, _BRIEF_S, seed)
    return {"memory_latency_ns": latency_ns, "memory_copy_bytes_per_s": copy_bytes_per_s}


def _brief_loopback(_: int) -> dict[str, float]:
    bytes_per_s, round_trip_us = _kernels.loopback_bytes_per_s(_BRIEF_S), _kernels.loopback_round_trip_us(_BRIEF_S)
    return {"loopback_bytes_per_s": bytes_per_s, "loopback_round_trip_us": round_trip_us}
