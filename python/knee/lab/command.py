"""A program to start, and the flags that all of Knee's programs share."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from knee.lab import programs

CONNECTIONS_SPARE = 64
"""Spare connections of a server for populating, probing and reconnecting."""
CHECKPOINT_S = 60.0
"""Seconds that a store on disk may need to write its memory to disk."""

START_PASSED = 75
"""The exit code of a `knee-load` that connected only after the agreed start (sysexits.h: EX_TEMPFAIL)."""


@dataclass(frozen=True)
class File:
    """A small text file that a program reads. Its text may be a password, which no log may show."""

    path: Path
    text: str = field(repr=False)


@dataclass(frozen=True)
class Command:
    """A program to start.

    process  its name in lines, logs and tables: "store-0"
    at       the host of the experiment that it runs on; by default the one of its own name
    serves   the address to poll if the program prints no `ready` line
    asks     the protocol for polling: "memcached", "postgresql", "http" (the address is a URL), or "connection" if an
             accepted one is enough
    answers  the field of the `ready` line with the program's address
    ends_by  the signal that stops the program; SIGKILL is for a program that has nothing to save, and no summary
    grace_s  seconds between that signal and a kill
    is_family  whether child processes do the program's work
    cpus     processors that the program and its children are pinned to; by default not pinned
    environment  variables in addition to the lab's
    own_database  whether its database belongs to the lab: the program then inherits no variable of libpq (PGHOSTADDR,
                  PGPASSWORD, ...)
    never_root  whether the program refuses to run as root: root then runs it as user 1 of a user namespace, with root's
                files
    files    the host writes them before it starts the program; only its user may read them
    makes    the file that the program makes
    scratch  the lab's scratch directory: a machine of a cluster has its own in place of it
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
    never_root: bool = False
    files: tuple[File, ...] = ()
    makes: Path | None = None
    scratch: Path | None = None
    at: str | None = None


def addressed_to(addresses: Sequence[str]) -> list[str]:
    """The servers of a client."""
    return [part for address in addresses for part in ("--server", address)]


def life() -> list[str]:
    """Flags of every Knee program: it prints JSON lines and ends with the lab."""
    return ["--stats", "json", "--tied-to-parent", str(os.getpid())]


def tied() -> list[str]:
    """Prefix of a foreign program's command: with setpriv (util-linux) the kernel ends the program with the lab."""
    return [str(programs.find_foreign("setpriv")), "--pdeathsig", "KILL", "--"]


def port_zero(address: str) -> str:
    """The interface of an address with port 0, so that the server chooses its port."""
    return address.rpartition(":")[0] + ":0"
