"""The waits of a PostgreSQL's sessions: for its write-ahead log, and for the lock of a row."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping

from knee.lab import programs
from knee.lab.command import tied
from knee.lab.hosts.dialogue import Dialogue

PERIOD_S = 0.05
_TIMEOUT_S = 2.0
_COMPUTING_MAX = 2
"""With more computing sessions, the holder of a lock may itself wait for a processor."""
_PREPARE = """\
PREPARE knee_waits AS WITH locks AS (
    SELECT pid, granted, concat_ws(' ', transactionid, database, relation, page, tuple) AS object
    FROM pg_locks WHERE locktype IN ('transactionid', 'tuple')
), waiting AS (
    SELECT string_agg(waiter.pid || ' ' || holder.pid, ',') AS pairs
    FROM locks AS waiter JOIN locks AS holder USING (object) WHERE holder.granted AND NOT waiter.granted
), sessions AS (
    SELECT *, backend_type = 'client backend' AS is_client, lower(wait_event) IN ('walwrite', 'walsync') AS in_wal
    FROM pg_stat_activity WHERE pid <> pg_backend_pid()
)
SELECT count(*) FILTER (WHERE is_client AND (state <> 'idle' OR state_change > now() - interval '1 s')),
    count(*) FILTER (WHERE is_client AND state = 'active' AND wait_event IS NULL),
    count(*) FILTER (WHERE is_client AND in_wal),
    count(*) FILTER (WHERE in_wal AND wait_event_type = 'IO'),
    (SELECT pairs FROM waiting)
FROM sessions;
SELECT pg_has_role('pg_read_all_stats', 'USAGE');""".replace("\n", " ")


class Waits(Dialogue):
    """A connection to the PostgreSQL at an address, through psql. It closes at the end of the context.

    Each answer counts for the time since the last. A resource is busy in an answer if most sessions are there: work
    there is serial, and in a closed network most customers queue at the bottleneck from twice the knee on. Sessions
    that have been idle for a second do not count. One sync serves any number of commits, so most of the `clients` of
    the load must be at the log: others may wait for the sessions.
    """

    def __init__(self, address: str, clients: int) -> None:
        psql = [*tied(), str(programs.find_postgresql("psql")), "--no-psqlrc", "--no-password", "--quiet"]
        argv = [*psql, "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1", "--dbname", address]
        # A pool of connections would keep a SET for its other clients; it refuses options.
        options = f"{os.environ.get('PGOPTIONS', '')} -c statement_timeout={_TIMEOUT_S:.0f}s"
        environment = {**os.environ, "PGAPPNAME": "knee", "PGOPTIONS": options}
        super().__init__(argv, {"PGCONNECT_TIMEOUT": f"{_TIMEOUT_S:.0f}", **environment}, 2 * _TIMEOUT_S)
        self._clients = clients
        self._busy_s = {"postgresql WAL": 0.0, "postgresql row lock": 0.0}
        self._last_s: float | None = None

    def read(self) -> tuple[float, Mapping[str, float]]:
        """The time, and by station the busy seconds until then. Raises OSError if PostgreSQL does not answer, or if the
        user may not see the sessions of others."""
        if self._last_s is None and self.ask(_PREPARE) != "t":
            raise PermissionError("the user does not see the waits of others: GRANT pg_monitor TO it")
        in_use, computing, in_wal, flushing, pairs = self.ask("EXECUTE knee_waits;").split("|")
        now_s = time.monotonic()
        blocked = 1 + _blocked(dict(pair.split() for pair in pairs.split(",") if pair))
        is_busy = (
            int(flushing) > 0 and 2 * int(in_wal) > max(self._clients, int(in_use)),
            blocked > 1 and 2 * blocked > int(in_use) and int(computing) <= _COMPUTING_MAX,
        )
        for name, busy in zip(self._busy_s, is_busy, strict=True):
            self._busy_s[name] += busy * (now_s - (self._last_s or now_s))
        self._last_s = now_s
        return now_s, dict(self._busy_s)


def _blocked(holders: Mapping[str, str]) -> int:
    """The number of sessions that wait for one transaction, directly or behind others: the largest over all
    transactions. `holders` has the session that each one waits for."""
    found = Counter[str]()
    for waiter in holders:
        last, seen = waiter, {waiter}
        while (holder := holders.get(last, waiter)) not in seen:
            last = holder
            seen.add(holder)
        found[last] += 1
    return max(found.values(), default=0)
