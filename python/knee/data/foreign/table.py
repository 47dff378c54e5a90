"""Reads a CSV of measurements (docs/your-measurements.md). Pure."""

from __future__ import annotations

from knee.data import csv
from knee.data.foreign.result import Result
from knee.data.measurements import ROUNDING, label_of

_FACTORS = ("throughput", "response_ms")


def table(text: str) -> list[Result]:
    """A CSV with the columns throughput and response_ms: each row is a result. Raises MeasurementsError."""
    found = csv.parse(text, "its table")
    others = [name for name in found.factors if name not in ("clients", "rate", "pipeline")]
    return [
        Result(
            "csv",
            row["throughput"],
            row.get("response_ms"),
            operation=label_of({name: row[name] for name in others}),
            clients=row["clients"] * row.get("pipeline", 1) if row.get("clients") else None,
            percentiles_ms={
                share: row[name] for share, name in ((50.0, "p50_ms"), (99.0, "p99_ms")) if row.get(name) is not None
            },
            rate=row.get("rate"),
            is_open=row["think_ms"] is None,
            rest_ms=row["think_ms"],
            rounding=sum((row.get(name + ROUNDING) or 0.0) / (row.get(name) or 1e-9) for name in _FACTORS),
        )
        for row in found.table.iter_rows(named=True)
        if row.get("throughput") is not None
    ]
