"""The plot of `knee machine`."""

from __future__ import annotations

import vl_convert

from knee.machine import Machine
from knee.report.charts.machine import against_working_set
from knee.report.charts.vega import Axis, ends
from knee.stats.intervals import Interval

_KIB = 1024
_ACCESSES = ("read", "write", "copy")


def svg(machine: Machine) -> str:
    """Latency and bandwidth against the working set, as SVG."""
    sizes = [each.size_bytes / _KIB for each in machine.memory]
    axis = Axis("working_set_kib", "Working set (KiB)", sizes)
    latencies = [{axis.field: size, **ends(each.latency_ns)} for size, each in zip(sizes, machine.memory, strict=True)]
    bandwidths = [
        {axis.field: size, "access": access, **_gigabytes(getattr(each, f"{access}_bytes_per_s"))}
        for size, each in zip(sizes, machine.memory, strict=True)
        for access in _ACCESSES
    ]
    caches = [(name, size / _KIB) for name, size in machine.caches.items() if sizes[0] <= size / _KIB <= sizes[-1]]
    return vl_convert.vegalite_to_svg(against_working_set(latencies, bandwidths, axis, caches))


def _gigabytes(rate: Interval) -> dict[str, float | None]:
    return {name: None if value is None else value / 1e9 for name, value in ends(rate).items()}
