"""Processor times of results as stations of a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from knee.data.foreign import Result
from knee.data.measurements import kind_by_name
from knee.data.usage import GENERATOR, Usage
from knee.data.utilization import OUTSIDERS_DECISIVE, SATURATED

_Names = dict[tuple[str, str | None], str]
"""The names in the table of a part's stations, and of a watched server's station with its own name."""


def stations_of(results: Sequence[Result]) -> list[dict[str, float | None]]:
    """For each result, the cells of the columns `utilization_STATION` and `servers_STATION`.

    The busiest thread of each part of the system is a station. So are the processors that a part may use, if they are
    fewer than the machine's. A part has the name of the process with the busiest thread. The generator is a station:
    its busiest thread, or if they are busier, its processors. The machine is one if a part of the system runs there,
    unless other programs took much of it. It is the generator's if the generator took more of it than the system.
    Stations whose servers reported their own use follow.
    """
    usages = [result.usage for result in results]
    known = [usage for usage in usages if usage is not None]
    full = [usage for usage in known if usage.host_busy >= SATURATED]
    host = f"{GENERATOR} host" if sum(usage.generator - usage.system for usage in full) > 0 else "host CPU"
    # In a run with few clients, some threads may rest, and with them their processors.
    cores: dict[str, float] = {}
    for part in (part for usage in known for part in usage.parts):
        if part.cores is not None:
            cores[part.name] = max(part.cores, cores.get(part.name, 0.0))
    names = _names(known)
    cells = [{} if usage is None else _cells(usage, names, cores, host) for usage in usages]
    columns = dict.fromkeys(name for own in cells for name in own)
    return [{**columns, **own} for own in cells]


def _cells(usage: Usage, names: _Names, cores: Mapping[str, float], host: str) -> dict[str, float | None]:
    cells: dict[str, float | None] = {}
    # Processors that other programs fill show nothing about the system.
    if usage.host_cores is not None and usage.sees_system and usage.others < OUTSIDERS_DECISIVE:
        cells |= {f"utilization_{host}": round(usage.host_busy, 4), f"servers_{host}": float(usage.host_cores)}
    # A part without processes has ended.
    for part in (part for part in usage.parts if part.processes):
        thread = round(usage.thread_busy(part), 4)
        own_cores = None if part.cores is None else cores[part.name]
        busy = 0.0 if own_cores is None else round(usage.busy(part, own_cores), 4)
        if part.name == GENERATOR:
            cells[f"utilization_{GENERATOR}"] = max(thread, busy)
            continue
        label = names[part.name, None]
        cells[f"utilization_{label} thread"] = thread
        if own_cores is not None and (usage.host_cores is None or own_cores < usage.host_cores):
            cells |= {f"utilization_{label} CPU": busy, f"servers_{label} CPU": own_cores}
    for station in usage.stations:
        label = names[station.watched, station.name]
        cells |= {f"utilization_{label}": round(station.busy, 4), f"servers_{label}": station.servers}
    return cells


def _names(usages: Sequence[Usage]) -> _Names:
    busiest: dict[str, dict[str, float]] = {}
    for part in (part for usage in usages for part in usage.parts if part.name != GENERATOR):
        used_s = busiest.setdefault(part.name, {})
        for process in part.processes[:1]:
            used_s[process.name] = used_s.get(process.name, 0.0) + process.thread_cpu_s
    found: _Names = {}
    for name, used_s in busiest.items():
        label = max(used_s, key=lambda process: used_s[process], default=name)
        found[name, None] = _label(label, f"{label} thread", name, found)
    for station in (station for usage in usages for station in usage.stations):
        if (key := (station.watched, station.name)) not in found:
            found[key] = _label(station.name, station.name, station.watched, found)
    return found


def _label(label: str, station: str, watched: str, others: _Names) -> str:
    # A system's process or machine may have a name such as "client".
    if kind_by_name(station) != "station":
        label = f"the system's {label}"
    return f"{label} ({watched})" if label in others.values() else label
