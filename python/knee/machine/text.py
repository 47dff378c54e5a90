"""The result as tables."""

from __future__ import annotations

from knee.machine.findings import FIGURES, Machine
from knee.machine.sizes import size_text
from knee.stats.intervals import Interval, number
from knee.stats.tables import columns

_HEADER = ["working set", "", "latency (ns)", "read (GB/s)", "write (GB/s)", "copy (GB/s)"]


def render_text(machine: Machine) -> str:
    """The tables: memory by working set, then every other quantity, each with its median and its interval."""
    level = machine.memory[0].latency_ns.level
    names = {size: name for name, size in machine.caches.items()}
    lines = [f"Medians of {machine.rounds} rounds, with {level:.0%} intervals.", "", "Memory, one thread"]
    rows = [
        [
            size_text(each.size_bytes),
            names.get(each.size_bytes, ""),
            _shown(each.latency_ns),
            *(_shown(rate, 1e-9) for rate in (each.read_bytes_per_s, each.write_bytes_per_s, each.copy_bytes_per_s)),
        ]
        for each in machine.memory
    ]
    lines += columns([_HEADER, *rows])
    for heading, figures in FIGURES.items():
        shown = [
            [figure.title, _shown(machine.figures[figure.name], figure.factor), figure.unit]
            for figure in figures
            if figure.name in machine.figures
        ]
        lines += ["", heading, *columns(shown, {0, 2})]
    return "\n".join([*lines, *(f"Note: {note}." for note in machine.notes)])


def _shown(value: Interval, factor: float = 1.0) -> str:
    """“1.39 (1.38 to 1.52)”."""
    if value.low is None or value.high is None:
        return number(value.estimate * factor)
    return f"{number(value.estimate * factor)} ({number(value.low * factor)} to {number(value.high * factor)})"
