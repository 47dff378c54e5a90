"""Why a law may be violated: the law is an identity, so it is the measurement that is wrong.

Causes that left a trace come first, with the trace; without any, the sign of the residual says what to suspect.
"""

from __future__ import annotations

import polars as pl

from knee.laws.residual import measured

CLOCKS = "the middleware's response time exceeds the client's: clocks that disagree"


def likely_causes(rows: pl.DataFrame, throughput_residual: float) -> tuple[str, ...]:
    """What may break the interactive law at a point; `rows` are its repetitions.

    They have `rest_ms`, what a client does between two such requests. `throughput_residual` is N / (R + Z) / X − 1:
    above zero, fewer requests were made than N clients that wait R and think Z would have made, so part of their time
    is in neither; below zero, more were in flight than N.
    """
    traces = _traces(rows)
    if traces:
        return tuple(traces)
    if throughput_residual > 0:
        missing = _missing_ms(rows)
        lost = f" ({missing:.3g} ms a request)" if missing is not None else ""
        return (
            f"clients spent time{lost} that is in neither response nor think time: coordinated omission, where the "
            "clock starts when a late request is sent and not when it is due; requests that were lost; or a load "
            "generator that is itself busy",
            "not all clients were running all the time",
            "the run is not steady: warm-up was not cut off",
        )
    return (
        "more requests in flight than declared: an open loop, or pipelining",
        "response times count time in which the client was not waiting",
        "the run is not steady: warm-up was not cut off",
    )


def _traces(rows: pl.DataFrame) -> list[str]:
    traces: list[str] = []

    def total(column: str) -> float:
        return float(rows[column].sum() or 0) if column in rows.columns else 0.0

    if (errors := total("errors")) > 0:
        traces.append(f"{errors:.0f} requests were answered with an error")
    if (reconnects := total("reconnects")) > 0:
        traces.append(f"{reconnects:.0f} reconnects: requests were lost, their time was not counted")
    if measured(rows, "clients_connected"):
        connected = float(rows["clients_connected"].min())  # type: ignore[arg-type]
        declared = float(rows["clients"].max())  # type: ignore[arg-type]
        if connected < declared:
            traces.append(f"only {connected:.0f} of {declared:.0f} clients started")
    if (unsteady := total("unsteady")) > 0:
        traces.append(
            f"{unsteady:.0f} of {rows.height} runs drifted beyond their warm-up (MSER-5): it was not cut off whole"
        )
    return traces


def _missing_ms(rows: pl.DataFrame) -> float | None:
    """N / X − R − Z, what each request's cycle lacks, on average over the repetitions."""
    if not measured(rows, "clients", "throughput", "response_ms", "rest_ms"):
        return None
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    gap = 1000 * pl.col("clients") * pipeline / pl.col("throughput") - pl.col("response_ms") - pl.col("rest_ms")
    return float(rows.select(gap.alias("gap"))["gap"].mean())  # type: ignore[arg-type]
