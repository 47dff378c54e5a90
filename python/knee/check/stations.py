"""Processor times of results as stations of a table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from knee.data.foreign import Result
from knee.data.measurements import kind_by_name
from knee.data.usage import GENERATOR, Part, Usage
from knee.data.utilization import OUTSIDERS_DECISIVE, SATURATED

_HOST = "host CPU"


def stations_of(results: Sequence[Result]) -> list[dict[str, float | None]]:
    """For each result, the cells of the columns `utilization_STATION` and `servers_STATION`.

    The stations are the processors of the machine, the busiest thread of each part, and the processors that a part may
    use, if these are fewer than the machine's. The machine's are left out if other programs took much of them. A part
    has the name of its process with the most CPU time.
    """
    usages = [result.usage for result in results]
    known = [usage for usage in usages if usage is not None]
    if not known:
        return [{} for _ in results]
    names = _names(known)
    confined = dict.fromkeys(part.name for usage in known for part in usage.parts if part.cores < usage.host_cores)
    return [_cells(usage, names, confined) for usage in usages]


def _cells(usage: Usage | None, names: dict[str, str], confined: Collection[str]) -> dict[str, float | None]:
    keys = [f"utilization_{_HOST}", f"servers_{_HOST}"]
    keys += [f"utilization_{label} thread" for label in names.values()]
    keys += [f"{what}_{names[name]} CPU" for name in confined for what in ("utilization", "servers")]
    cells: dict[str, float | None] = dict.fromkeys(keys)
    if usage is None:
        return cells
    # Processors that other programs fill show nothing about the system.
    is_own = usage.others < OUTSIDERS_DECISIVE
    if is_own:
        cells[f"utilization_{_HOST}"], cells[f"servers_{_HOST}"] = round(usage.host_busy, 4), float(usage.host_cores)
    for part in usage.parts:
        label = names[part.name]
        # A part without processes has ended.
        if part.processes:
            # A thread that waits for full processors waits for another station.
            waits = not (is_own and usage.host_busy >= SATURATED)
            cells[f"utilization_{label} thread"] = round(usage.thread_busy(part, waits=waits), 4)
        if part.processes and part.name in confined:
            cells[f"utilization_{label} CPU"], cells[f"servers_{label} CPU"] = round(usage.busy(part), 4), part.cores
    return cells


def _names(usages: Sequence[Usage]) -> dict[str, str]:
    """By part, the name of its stations."""
    parts: dict[str, list[Part]] = {}
    for usage in usages:
        for part in usage.parts:
            parts.setdefault(part.name, []).append(part)
    found: dict[str, str] = {}
    for name, some in parts.items():
        label = GENERATOR if name == GENERATOR else some[0].label or _busiest(some) or name
        # A system's process may have a name such as "client".
        if name != GENERATOR and kind_by_name(f"{label} thread") != "station":
            label = f"the system's {label}"
        found[name] = f"{label} ({name})" if label in found.values() else label
    return found


def _busiest(parts: Sequence[Part]) -> str:
    used_s: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        for process in part.processes:
            used_s[process.name] += process.cpu_s
    return max(used_s, key=lambda name: used_s[name], default="")
