"""The working sets: powers of two, and the sizes of the caches."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import psutil

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LEAST_BYTES = 4 * KIB

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def working_sets(most_bytes: int, caches: Collection[int]) -> list[int]:
    """Sizes from 4 KiB to `most_bytes` in ascending order: powers of two, and the caches' sizes between them."""
    powers = [1 << power for power in range(LEAST_BYTES.bit_length() - 1, max(LEAST_BYTES, most_bytes).bit_length())]
    return sorted({*powers, *(size for size in caches if LEAST_BYTES <= size <= most_bytes)})


def cache_bytes(folder: Path = _CACHES) -> dict[str, int]:
    """The first processor's data caches by name ("L1"), as sysfs shows them; empty where it shows none."""
    found = {}
    for index in sorted(folder.glob("index*")):
        kind, level, size = (_text(index / name) for name in ("type", "level", "size"))
        if kind in ("Data", "Unified") and size.endswith("K"):
            found[f"L{level}"] = int(size[:-1]) * KIB
    return found


def available_bytes() -> int:
    """The memory that programs can have without swapping, within the limit of this control group."""
    available = psutil.virtual_memory().available
    limit = _text(_LIMIT)
    if limit.isdigit():
        available = min(available, int(limit) - int(_text(_USED) or 0))
    return max(0, available)


def size_text(size: int) -> str:
    """“32 KiB”."""
    unit, name = next(((unit, name) for unit, name in ((GIB, "GiB"), (MIB, "MiB")) if size >= unit), (KIB, "KiB"))
    return f"{size / unit:g} {name}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
