"""The experiment file: the measured system, and its load.

:func:`load` reads the file and the overrides of a command line, and validates every point of the grid.
:class:`~knee.errors.SpecError` names each problem: the line (or the override), the field, the expected value, and the
nearest right spelling.
"""

from knee.spec.reader import load, parse, parse_overrides, read
from knee.spec.tables import Configuration, Graph, Level, Measure, Middleware, Spec, Store, System, Thresholds, Workload

__all__ = [
    "Configuration",
    "Graph",
    "Level",
    "Measure",
    "Middleware",
    "Spec",
    "Store",
    "System",
    "Thresholds",
    "Workload",
    "load",
    "parse",
    "parse_overrides",
    "read",
]
