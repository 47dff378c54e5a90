"""The schema of messages in a database, as an experiment wants it, in SQL. Pure."""

from __future__ import annotations

MIGRATING = 0x6B6E_6565_0001
"""The lock of whoever migrates (crates/queue/src/postgres/migrate.rs)."""
_WAITED_S = 30
_PATIENTLY = (f"SET lock_timeout = '{_WAITED_S}s'", "SET client_min_messages = warning")
_MARK = "obj_description(to_regnamespace('knee_queue'), 'pg_namespace')"
"""Null where there is no schema, or nothing was said of it."""


def indexes(wanted: str) -> list[str]:
    """What makes of the indexes that `knee-queue migrate` has made those that are wanted (`store.indexes`)."""
    if wanted == "none":
        return [f"DROP INDEX knee_queue.{name};" for name in ("ready", "ready_from", "leased", "leased_until")]
    if wanted == "arrival":
        return ["CREATE INDEX arrival ON knee_queue.message (arrived_at);"]
    return []


def claim(mark: str, own: str | None = None) -> list[str]:
    """What makes the schema, and fails where there is one. The mark is how who has made it knows it again.

    One of which the mark begins with `own` is removed first, with all that is in it: nobody is at work on it any more.
    """
    return [
        *_PATIENTLY,
        "DO $$ BEGIN "
        f"{'' if own is None else _removal(own)}"
        "IF to_regnamespace('knee_queue') IS NOT NULL THEN RAISE EXCEPTION USING MESSAGE = format("
        "'database %s has a schema knee_queue (%s), which this run folder does not know and leaves alone: name another"
        " database or, if nobody needs it, DROP SCHEMA knee_queue CASCADE', current_database(), "
        f"coalesce({_MARK}, 'not by knee run')); "
        "END IF; "
        f"CREATE SCHEMA knee_queue; COMMENT ON SCHEMA knee_queue IS {_quoted(mark)}; "
        "END $$",
    ]


def _removal(own: str) -> str:
    # Asked before the lock, too: whoever migrates another's is nobody to wait for. Who migrated this one may have been
    # cut off, and goes on until it has noticed.
    is_own = f"left({_MARK}, {len(own)}) = {_quoted(own)}"
    return (
        f"IF {is_own} THEN "
        f"PERFORM pg_advisory_xact_lock({MIGRATING}); "
        f"IF {is_own} THEN DROP SCHEMA knee_queue CASCADE; END IF; "
        "END IF; "
    )


def release(mark: str) -> list[str]:
    """What removes the schema if it has this mark, with all that is in it."""
    return [
        *_PATIENTLY,
        # Whoever migrates may have been cut off, and goes on until it has noticed.
        f"SELECT pg_advisory_lock({MIGRATING})",
        f"DO $$ BEGIN IF {_MARK} = {_quoted(mark)} THEN DROP SCHEMA knee_queue CASCADE; END IF; END $$",
    ]


def _quoted(text: str) -> str:
    assert "'" not in text and "$" not in text and "\\" not in text
    return f"'{text}'"
