"""Tables as text for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.outcome import Outcome, aligned
from bench.samples import Ratio, Sample
from bench.table import Row, Table

# Above these, a figure says more about the machine than about the program.
WAITED_SHARE_MAX = 0.05
DRIVER_BUSY_SHARE = 0.95


def report(table: Table) -> Outcome:
    """A table, ready to be shown. The aim is less CPU per request than the peer in every cell."""
    cells = aim_reached(table)
    missed = [name for name, reached in cells.items() if not reached]
    verdict = (
        f"{table.title}: less CPU per request than {table.peer}: {'no' if missed or not cells else 'yes'}, "
        f"{len(cells) - len(missed)} of {len(cells)} cells" + (f"; not in {'; '.join(missed)}" if missed else "")
    )
    return Outcome(table.title, render(table), verdict, as_json(table), table.failures)


def render(table: Table) -> str:
    """One table as text, its circumstances above it and its warnings below."""
    others = [name for name in (table.peer, table.floor) if name]
    names = [table.ours, *others]
    header = [
        "cell",
        *(f"{name} µs" for name in names),
        *(f"of {name}" for name in others),
        f"of {table.peer}, range",
        *(f"{name} /s" for name in names),
        f"{table.ours} user",
        "busy",
        "load busy" if table.floor != "floor-send" else "store busy",
        "less than peer",
    ]
    lines = [header]
    for row in table.rows:
        ratios = {name: _ratio(row, table.ours, name) for name in others}
        peer = ratios[table.peer]
        ours = row.samples[table.ours]
        lines.append(
            [
                row.cell.name,
                *(_per_request(row, name) for name in names),
                *(f"{ratio.median:.2f}" if ratio else "-" for ratio in ratios.values()),
                f"{peer.low:.2f} to {peer.high:.2f}" if peer else "-",
                *(_per_second(row, name) for name in names),
                f"{median(sample.cpu.user_share for sample in ours):.0%}",
                f"{median(sample.busy for sample in ours):.0%}",
                f"{median(sample.other_busy for sample in ours):.0%}",
                _verdict(peer),
            ]
        )
        if row.cell.operation == "set" and table.set_fan_out:
            lines.append(_fan_out_line(table, row, names, others, len(header)))
    head = [
        table.title,
        f"Store: {table.store}. Load: {table.driver}. µs: CPU time of a request, median over the rounds; "
        f"of: median of {table.ours}'s over the other's, round by round.",
        *table.notes,
    ]
    return "\n".join([*head, "", *aligned(lines), *warnings(table), ""])


def warnings(table: Table) -> list[str]:
    """What limits the table's meaning, one sentence each."""
    found = []
    waits = {
        (row.cell.name, name): median(sample.waited for sample in samples)
        for row in table.rows
        for name, samples in row.samples.items()
    }
    disturbed = sorted({cell for (cell, _), share in waits.items() if share > WAITED_SHARE_MAX})
    if disturbed:
        (cell, name), share = max(waits.items(), key=lambda item: item[1])
        found.append(
            f"warning: other programs had the core of the program under test in {len(disturbed)} of "
            f"{len(table.rows)} cells, at worst for {share:.0%} of the time ({name}, {cell}): stop them, or take "
            "the throughput as a lower bound."
        )
    limited = [
        row.cell.name
        for row in table.rows
        if median(sample.other_busy for sample in row.samples[table.ours]) > DRIVER_BUSY_SHARE
    ]
    if limited and table.floor != "floor-send":
        found.append(
            f"The load generator was the bottleneck of {table.ours} in: {'; '.join(limited)}. "
            "Compare CPU per request there, not throughput."
        )
    return found


def aim_reached(table: Table) -> dict[str, bool]:
    """For each cell that the peer can do: whether ours takes less CPU per request."""
    verdicts = {}
    for row in table.rows:
        ratio = _ratio(row, table.ours, table.peer)
        if ratio:
            verdicts[row.cell.name] = ratio.median < 1
    return verdicts


def as_json(table: Table) -> dict[str, Any]:
    """The table with every sample."""
    return {
        "title": table.title,
        "store": table.store,
        "driver": table.driver,
        "notes": table.notes,
        "set_fan_out": table.set_fan_out,
        "rows": [_row_json(table, row) for row in table.rows],
        "warnings": warnings(table),
    }


def _row_json(table: Table, row: Row) -> dict[str, Any]:
    ratios = {name: _ratio(row, table.ours, name) for name in (table.peer, table.floor) if name}
    return {
        "cell": row.cell.name,
        "operation": row.cell.operation,
        "value_bytes": row.cell.value_bytes,
        "depth": row.cell.depth,
        "ratios": {
            name: {"median": ratio.median, "low": ratio.low, "high": ratio.high}
            for name, ratio in ratios.items()
            if ratio
        },
        "samples": {name: [sample_json(sample) for sample in samples] for name, samples in row.samples.items()},
    }


def sample_json(sample: Sample) -> dict[str, float]:
    """A sample, for other programs."""
    return {
        "requests": sample.requests,
        "seconds": sample.seconds,
        "cpu_us_per_request": sample.cpu_us,
        "user_share": sample.cpu.user_share,
        "busy": sample.busy,
        "waited": sample.waited,
        "other_busy": sample.other_busy,
    }


def _ratio(row: Row, ours: str, other: str) -> Ratio | None:
    return Ratio.of_cpu(row.samples[ours], row.samples[other]) if other in row.samples else None


def _cpu_us(row: Row, name: str) -> float:
    return median(sample.cpu_us for sample in row.samples[name])


def _per_second(row: Row, name: str) -> str:
    return f"{median(sample.per_second for sample in row.samples[name]):,.0f}" if name in row.samples else "-"


def _per_request(row: Row, name: str) -> str:
    return f"{_cpu_us(row, name):.2f}" if name in row.samples else "-"


def _verdict(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    return "yes" if ratio.median < 1 else "no"


def _fan_out_line(table: Table, row: Row, names: Sequence[str], others: Sequence[str], width: int) -> list[str]:
    fan_out = table.set_fan_out
    ours = fan_out[table.ours]
    cells = ["  per request to a store"]
    cells += [f"{_cpu_us(row, name) / fan_out[name]:.2f}" for name in names]
    for name in others:
        ratio = _ratio(row, table.ours, name)
        cells.append(f"{ratio.median * fan_out[name] / ours:.2f}" if ratio else "-")
    return cells + [""] * (width - len(cells))
