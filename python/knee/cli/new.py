"""`knee init` and `knee schema`: a new experiment file, and the keys of one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from knee.errors import SpecError
from knee.spec import reference
from knee.spec.draft import KINDS, draft
from knee.spec.tables import AUTO
from knee.storage import writing

_CLIENTS, _WORKERS, _SECONDS = "8,16,32,64,128", "2", "10"


def write_experiment(
    file: Path, kind: str | None, clients: str | None, workers: str | None, seconds: str | None
) -> None:
    """Write a new experiment file. At a terminal, ask for the values of missing flags. Raises SpecError."""
    if file.suffix != ".toml":
        raise SpecError(f"{file}: expected a name that ends in .toml")
    if file.exists():
        raise SpecError(f"{file}: exists; choose another name")
    if kind is None and not _is_terminal():
        raise SpecError(f"--kind: missing; expected {' or '.join(KINDS)}")
    while kind not in KINDS:
        if kind is not None and not _is_terminal():
            raise SpecError(f"--kind {kind}: expected {' or '.join(KINDS)}")
        for name, each in KINDS.items():
            print(f"{name:<12}{each.about}")
        kind = typer.prompt("Kind of system")
    chosen = KINDS[kind]
    if workers is not None and not chosen.has_middleware:
        raise SpecError(f"--workers: kind {kind} has no middleware; leave it out")
    clients = _asked(clients, f"Numbers of clients, or {AUTO}", _CLIENTS)
    counts = None if clients == AUTO else _whole("--clients", clients, _CLIENTS)
    slots: Sequence[int] = []
    if chosen.has_middleware:
        slots = _whole("--workers", _asked(workers, "Workers of each middleware", _WORKERS), _WORKERS)
    length, *others = _whole("--seconds", _asked(seconds, "Seconds of each measurement", _SECONDS), _SECONDS)
    if others:
        raise SpecError("--seconds: expected one number")
    text = draft(file.stem, chosen, counts, slots, length)
    # Another program may have made the file since.
    with writing(file), file.open("x", encoding="utf-8") as new:
        new.write(text)
    print(f"{file}: measure it with `knee run {file}`")


def print_schema(*, as_markdown: bool, of_answers: bool) -> None:
    """Print the keys of an experiment file as a page or as a JSON Schema, or the schema of the commands' answers."""
    if as_markdown:
        print(reference.markdown().rstrip())
        return
    schema = reference.schema()
    if of_answers:
        from knee.answers import form

        schema = form.schema()
    print(json.dumps(schema, indent=2, ensure_ascii=False))


def _whole(flag: str, given: str, usual: str) -> Sequence[int]:
    """The whole numbers of a text."""
    try:
        return [int(part) for part in given.split(",")]
    except ValueError:
        raise SpecError(f"{flag} {given}: expected whole numbers, such as {usual}") from None


def _asked(given: str | None, question: str, usual: str) -> str:
    """The text of a flag, or the answer to a question."""
    if given is not None:
        return given
    return str(typer.prompt(question, default=usual)) if _is_terminal() else usual


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
