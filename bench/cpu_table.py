"""The CPU time of a request in every cell: ours, a peer's and, where there is one, a floor's."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.cells import Cell
from bench.samples import Sample
from bench.table import Row, Table, median_of, range_of, ratio_of

# Above these, a figure says more about the machine than about the program.
WAITED_SHARE_MAX = 0.05
DRIVER_BUSY_SHARE = 0.95


class CpuTable(Table):
    """A table with a row for each cell. The aim is less CPU per request than the peer in every cell."""

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        store: str,
        driver: str,
        notes: Sequence[str],
        fan_out: dict[str, int] | None = None,
    ) -> None:
        """`names` are ours, the peer and perhaps the floor.

        `fan_out` says, by contestant, how many requests to stores a client's set becomes.
        """
        ours, peer, *_ = self.names = list(names)
        self.fan_out = fan_out or {}
        super().__init__(
            title=title,
            key="cell",
            notes=[
                f"Store: {store}. Load: {driver}. µs: CPU time of a request, median over the rounds; "
                f"of: median of {ours}'s over the other's, round by round.",
                *notes,
            ],
            columns=[
                *(median_of(f"{name} µs", name, "cpu_us", ".2f") for name in names),
                *(ratio_of(f"of {name}", ours, name, "cpu_us") for name in names[1:]),
                range_of(f"of {peer}, range", ours, peer, "cpu_us"),
                *(median_of(f"{name} /s", name, "per_second") for name in names),
                (f"{ours} user", lambda row: f"{median(sample.cpu.user_share for sample in row.samples[ours]):.0%}"),
                median_of("busy", ours, "busy", ".0%"),
                median_of("store busy" if "floor-send" in names else "load busy", ours, "other_busy", ".0%"),
                ("less than peer", lambda row: {True: "yes", False: "no", None: "-"}[self.is_less(row)]),
            ],
            verdict=self._verdict,
            facts={"store": store, "driver": driver, "notes": list(notes), "set_fan_out": self.fan_out},
            below=self._per_request_to_a_store,
            warnings=self._warnings,
        )

    def row(self, cell: Cell, samples: dict[str, list[Sample]]) -> Row:
        """The table's row for a cell."""
        row = Row(cell.name, {name: samples[name] for name in self.names if name in samples})
        ratios = {name: row.ratio(self.names[0], name, "cpu_us") for name in self.names[1:] if name in samples}
        row.facts.update(
            operation=cell.operation,
            value_bytes=cell.value_bytes,
            depth=cell.depth,
            ratios={name: vars(ratio) for name, ratio in ratios.items()},
        )
        return row

    def is_less(self, row: Row) -> bool | None:
        """Whether our program takes less CPU per request; None if the peer cannot do the cell."""
        ours, peer, *_ = self.names
        return row.ratio(ours, peer, "cpu_us").median < 1 if peer in row.samples else None

    def _verdict(self, rows: list[Row]) -> str:
        cells = {row.name: less for row in rows if (less := self.is_less(row)) is not None}
        missed = [name for name, less in cells.items() if not less]
        return (
            f"less CPU per request than {self.names[1]}: {'no' if missed or not cells else 'yes'}, "
            f"{len(cells) - len(missed)} of {len(cells)} cells" + (f"; not in {'; '.join(missed)}" if missed else "")
        )

    def _per_request_to_a_store(self, row: Row) -> list[list[str]]:
        """A further line for a set that goes to several stores."""
        if row.facts["operation"] != "set" or not self.fan_out:
            return []
        ours, fan_out = self.names[0], self.fan_out
        cells = ["  per request to a store"]
        cells += [f"{row.median(name, 'cpu_us') / fan_out[name]:.2f}" for name in self.names]
        for name in self.names[1:]:
            cells.append(f"{row.ratio(ours, name, 'cpu_us').median * fan_out[name] / fan_out[ours]:.2f}")
        return [cells + [""] * (len(self.columns) + 1 - len(cells))]

    def _warnings(self, rows: list[Row]) -> list[str]:
        """The limits of the table's meaning, a sentence each."""
        found = []
        waits = {(row.name, name): row.median(name, "waited") for row in rows for name in row.samples}
        if disturbed := {cell for (cell, _), share in waits.items() if share > WAITED_SHARE_MAX}:
            (cell, name), share = max(waits.items(), key=lambda item: item[1])
            found.append(
                f"warning: other programs had the core of the program under test in {len(disturbed)} of "
                f"{len(rows)} cells, at worst for {share:.0%} of the time ({name}, {cell}): stop them, or take "
                "the throughput as a lower bound."
            )
        ours = self.names[0]
        limited = [row.name for row in rows if row.median(ours, "other_busy") > DRIVER_BUSY_SHARE]
        if limited and "floor-send" not in self.names:
            found.append(
                f"The load generator was the bottleneck of {ours} in: {'; '.join(limited)}. "
                "Compare CPU per request there, not throughput."
            )
        return found
