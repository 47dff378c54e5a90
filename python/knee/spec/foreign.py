"""Experiments whose load generator is a command: which fields apply. Pure: a point in, problems out."""

from __future__ import annotations

from collections.abc import Iterator

from knee.errors import SpecError
from knee.spec.positions import Path
from knee.spec.tables import Configuration, System
from knee.spec.template import Template, place_of, words_of

NOT_MEASURED = ("warmup_s", "cooldown_s", "hosts", "ramp")
"""The fields of [measure] that do not apply."""

_OF_LOAD = ("clients", "command")

Problem = tuple[Path, str]


def check_foreign(point: Configuration) -> Iterator[Problem]:
    """Problems of a point: fields that do not apply, and commands that cannot run."""
    system = point.system
    yield from _check_commands(system)
    for field in sorted(system.load.model_fields_set - set(_OF_LOAD)):
        yield ("system", "load", field), "does not apply to load.command: write it into the command"
    if system.middleware is not None:
        yield ("system", "middleware"), "does not apply to load.command: start it with system.command"
    if system.store is not None:
        yield ("system", "store"), "does not apply to load.command: start it with system.command"
    for field in sorted(point.workload.model_fields_set):
        yield ("workload", field), "does not apply to load.command: write the requests into the command"


def check_no_command(system: System) -> Iterator[Problem]:
    """Problems of a point whose load generator is no command."""
    for field in ("command", "ready"):
        if getattr(system, field) is not None:
            yield ("system", field), "needs load.command: knee-load measures the tiers that Knee starts"


def _check_commands(system: System) -> Iterator[Problem]:
    path: Path = ("system", "load", "command")
    try:
        template = Template.parse(words_of(system.load.command or ""))
    except SpecError as error:
        yield path, f"{error}"
        return
    if system.command is None:
        if system.ready is not None:
            yield ("system", "ready"), "needs system.command: otherwise the system already runs"
        return
    try:
        words_of(system.command)
    except SpecError as error:
        yield ("system", "command"), f"{error}"
    ready = system.ready or template.url
    if ready is None:
        yield ("system", "ready"), "missing: load.command has no URL to wait for; give a URL or HOST:PORT"
        return
    try:
        place_of(ready)
    except SpecError as error:
        yield ("system", "ready"), f"{error}, not {ready!r}"
