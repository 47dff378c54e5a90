"""The sentence on a bound by what the machine can do."""

from __future__ import annotations

from knee.stats.intervals import number
from knee.verdict.ceilings import SyncBound


def note_on_syncs(bound: SyncBound) -> str:
    """What the dashed lines of the throughput are, or why there are none, with a space before it."""
    median, low, high = map(number, bound.syncs_per_s)
    synced = f"Before the runs, the disk took {median} synced writes a second ({low} to {high})"
    if bound.is_refuted:
        return (
            f" {synced}. A store made {number(bound.commits_per_s)} commits a second: the disk was busier before the "
            "runs, so its bound is not drawn."
        )
    return f" Dashed: the throughput at the disk's fastest syncs, with the runs' requests per commit. {synced}."
