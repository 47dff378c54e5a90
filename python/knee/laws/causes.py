"""Why a law may be violated: the law is an identity, so it is the measurement that is wrong.

Causes that left a trace come first, with the trace; then what the sign of the residual makes likely, less what the
measurement itself excludes.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from knee.intervals import counted
from knee.laws.residual import measured

MIX = "the types do not occur as often as the visits declare"
SUM = "the types do not add up to the rows for all requests: one is missing, or was counted otherwise"


def likely_causes(rows: pl.DataFrame, throughput_residual: float) -> tuple[str, ...]:
    """What may break the interactive law of all requests at a point; `rows` are its repetitions.

    They have `rest_ms`, what a client does between two requests. `throughput_residual` is N / (R + Z) / X − 1:
    above zero, fewer requests were made than N clients that wait R and think Z would have made, so part of their time
    is in neither; below zero, more were in flight than N.

    Errors are no cause: an error is an answer, and counts with its time like every other.
    """
    few = throughput_residual > 0
    traces = (*(_losses(rows) if few else ()), *_drift(rows), *_straddling(rows, throughput_residual))
    suspects = (*(_too_few(rows) if few else _too_many(rows)),)
    untested = () if measured(rows, "unsteady") else ("the run is not steady: warm-up was not cut off",)
    return (*traces, *suspects, *untested)


def slower_middleware(excess: float) -> str:
    """Why a middleware's response time may exceed its client's, by a share of `excess`."""
    return (
        f"the middlewares' mean response time is {excess:.1%} above the clients': clocks that disagree, or not the "
        "same requests"
    )


def _losses(rows: pl.DataFrame) -> Iterator[str]:
    """Traces of clients that did less than they should have."""
    if (reconnects := _total(rows, "reconnects")) > 0:
        yield f"{counted(int(reconnects), 'reconnect')}: requests were lost, their time was not counted"
    if measured(rows, "clients_connected"):
        connected = float(rows["clients_connected"].min())  # type: ignore[arg-type]
        declared = float(rows["clients"].max())  # type: ignore[arg-type]
        if connected < declared:
            yield f"only {connected:.0f} of {declared:.0f} clients started"


def _drift(rows: pl.DataFrame) -> Iterator[str]:
    if (unsteady := _total(rows, "unsteady")) > 0:
        yield f"{unsteady:.0f} of {rows.height} runs drifted beyond their warm-up (MSER-5): it was not cut off whole"


def _straddling(rows: pl.DataFrame, residual: float) -> Iterator[str]:
    """Requests at both ends of the observation, where they make up half of what is to be explained or more."""
    if not measured(rows, "observed_s", "response_ms"):
        return
    observed_s, response_s = (rows.select(pl.col("observed_s").mean(), pl.col("response_ms").mean() / 1000)).row(0)
    if 2 * response_s / observed_s >= abs(residual) / 2:
        yield (
            f"the observed {observed_s:.3g} s are short beside response times of {response_s:.2g} s: a request across "
            "one of their ends is counted on one side only"
        )


def _too_few(rows: pl.DataFrame) -> Iterator[str]:
    missing = _missing_ms(rows)
    gap = f" ({missing:.3g} ms a request)" if missing is not None else ""
    # Without a reconnect no request was lost for good: its client would have waited for it.
    lost = "" if measured(rows, "reconnects") else "requests that were lost; "
    yield (
        f"clients spent time{gap} that is in neither response nor think time: coordinated omission, where the "
        f"clock starts when a late request is sent and not when it is due; {lost}or a load "
        "generator that is itself busy"
    )
    yield "not all clients were running all the time"


def _too_many(rows: pl.DataFrame) -> Iterator[str]:
    how = "" if "pipeline" in rows.columns else ": an open loop, or pipelining"
    yield f"more requests in flight than declared{how}"
    yield "response times count time in which the client was not waiting"


def _total(rows: pl.DataFrame, column: str) -> float:
    return float(rows[column].sum() or 0) if column in rows.columns else 0.0


def _missing_ms(rows: pl.DataFrame) -> float | None:
    """N / X − R − Z, what each request's cycle lacks, on average over the repetitions."""
    if not measured(rows, "clients", "throughput", "response_ms", "rest_ms"):
        return None
    pipeline = pl.col("pipeline").fill_null(1) if "pipeline" in rows.columns else pl.lit(1)
    gap = 1000 * pl.col("clients") * pipeline / pl.col("throughput") - pl.col("response_ms") - pl.col("rest_ms")
    return float(rows.select(gap.alias("gap"))["gap"].mean())  # type: ignore[arg-type]
