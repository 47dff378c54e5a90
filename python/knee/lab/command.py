"""A program to start, and the flags that all of ours share."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from knee.lab import programs
from knee.spec import Workload

CONNECTIONS_SPARE = 64
"""Connections that a server must have free for populating, probing and reconnecting."""
CHECKPOINT_S = 60.0
"""Seconds that a store on disk may need to write what is in memory."""

START_PASSED = 75
"""The exit code of a `knee-load` that was connected only after the agreed start (sysexits.h: EX_TEMPFAIL)."""


@dataclass(frozen=True)
class Command:
    """A program to start.

    process  its name in lines, logs and tables: "store-0"
    serves   the address at which to ask a program that does not print when it is ready
    asks     the protocol in which to ask there: "memcached" or "postgresql"
    answers  the address to take from the `ready` line of a program that prints one
    ends_by  the signal that asks it to end
    grace_s  seconds that it then has
    is_family  its children do its work
    cpus     processors that it is pinned to, with its children; not pinned unless given
    environment  variables that it gets beside the lab's
    own_database  its database is the lab's: it inherits no variable of libpq (PGHOSTADDR, PGPASSWORD, ...)
    """

    process: str
    role: str
    argv: tuple[str, ...]
    serves: str | None = None
    asks: str = "memcached"
    answers: str = "listen"
    ends_by: signal.Signals = signal.SIGTERM
    grace_s: float = 5.0
    is_family: bool = False
    cpus: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    own_database: bool = False


def addressed_to(addresses: Sequence[str]) -> list[str]:
    """The servers of a client."""
    return [part for address in addresses for part in ("--server", address)]


def pacing(workload: Workload, hosts: int) -> list[str]:
    """How the clients of one of several load hosts pace their requests."""
    if workload.rate is not None:
        return ["--rate", repr(workload.rate / hosts), "--arrivals", workload.arrivals]
    return ["--think-ms", repr(workload.think_ms), "--think", workload.think]


def life() -> list[str]:
    """Every program of ours prints JSON lines and ends with the lab."""
    return ["--stats", "json", "--tied-to-parent", str(os.getpid())]


def tied() -> list[str]:
    """What stands before a foreign program: setpriv (util-linux) has the kernel end it with the lab."""
    return [str(programs.find_foreign("setpriv", "util-linux")), "--pdeathsig", "KILL", "--"]


def port_zero(address: str) -> str:
    """The same interface with a port that the server chooses."""
    return address.rpartition(":")[0] + ":0"
