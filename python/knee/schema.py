"""The schema of messages in a database, as an experiment wants it, in SQL. Pure."""

from __future__ import annotations


def indexes(wanted: str) -> list[str]:
    """What makes of the indexes that `knee-queue migrate` has made those that are wanted (`store.indexes`)."""
    if wanted == "none":
        return [f"DROP INDEX knee_queue.{name};" for name in ("ready", "ready_from", "leased", "leased_until")]
    if wanted == "arrival":
        return ["CREATE INDEX arrival ON knee_queue.message (arrived_at);"]
    return []
