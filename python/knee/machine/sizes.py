"""The working sets: powers of two, and the sizes of the caches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil

from knee.machine.groups import ROOT, groups_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LEAST_BYTES = 4 * KIB

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_GROUPS, _OWN_GROUPS = ROOT, Path("/proc/self/cgroup")
_MEMORY_FILES = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of both versions of control groups: the folder, the limit, the use, and pages that the kernel drops first."""


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
    """The memory that programs can have without swapping, within the limits of this control group and those above."""
    return max(0, min([psutil.virtual_memory().available, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """The memory that each group with a limit has left."""
    for controller, limit_file, used_file, droppable in _MEMORY_FILES:
        for group in groups_of(_text(_OWN_GROUPS), controller, _GROUPS):
            if (limit := _text(group / limit_file)).isdigit():
                cached = re.search(rf"^{droppable} (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
                yield int(limit) - int(_text(group / used_file) or 0) + (int(cached[1]) if cached else 0)


def size_text(size: int) -> str:
    """“32 KiB”."""
    unit, name = next(((unit, name) for unit, name in ((GIB, "GiB"), (MIB, "MiB")) if size >= unit), (KIB, "KiB"))
    return f"{size / unit:g} {name}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
