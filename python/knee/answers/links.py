"""The answer of `knee hosts check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from knee.lab.hosts.meter import LinkCheck


@dataclass(frozen=True)
class Link:
    """A host's link, as declared and as measured. Rates are in Mbit/s; a declared one is null without a limit."""

    host: str
    sending_mbit: float
    declared_sending_mbit: float | None
    receiving_mbit: float
    declared_receiving_mbit: float | None
    round_trip_ms: float
    declared_round_trip_ms: float
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """Every emulated link; `as_declared` if none has a problem."""

    as_declared: bool
    links: tuple[Link, ...]


def of(checks: Sequence[LinkCheck]) -> Links:
    """The answer of these checks."""
    found = tuple(
        Link(
            each.host,
            each.sending_mbit,
            each.link.send_mbit,
            each.receiving_mbit,
            each.link.receive_mbit,
            each.round_trip_ms,
            2 * each.link.delay_ms,
            tuple(each.problems),
        )
        for each in checks
    )
    return Links(not any(each.problems for each in found), found)
