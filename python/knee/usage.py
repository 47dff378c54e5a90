"""A command line that is not understood: what is said of it repeats nothing in which a password may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from knee import repeating
from knee.errors import SpecError

_UsageError: Any = typer.BadParameter.__base__
"""Typer has it from click, or of its own: it names only the one below."""


class Commands(TyperGroup):
    """The commands of a program; see the module."""

    _words: Sequence[str] = ()

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read the options of the program itself."""
        self._words = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            self._hide(error)
            raise

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Read the command with its options, and run it."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            is_of_a_command = error.ctx is not None and error.ctx.parent is not None
            # Whichever word was one too many: after `--set store.password` it is the password alone.
            if type(error) is _UsageError and is_of_a_command:
                takes_settings = any("--set" in option.opts for option in error.ctx.command.params)
                remedy = "; each setting has a --set of its own, as in --set NAME=VALUE" if takes_settings else ""
                error.message = f"Expected fewer arguments{remedy}"
            self._hide(error)
            raise

    def _hide(self, error: Any) -> None:
        for word in sorted(_not_plain(self._words), key=len, reverse=True):
            for written in (word, repr(word)[1:-1]):
                error.message = error.message.replace(written, repeating.HIDDEN)


def _not_plain(words: Sequence[str]) -> Iterator[str]:
    """The words of a command line that are not to be repeated, and what of them stands before and behind a =."""
    for word in words:
        name, _, value = word.partition("=")
        for part in (word, name, value):
            if not repeating.is_plain(part) and any(map(str.isalnum, part)):
                yield part


def expected_path(path: Path | None) -> Path | None:
    """What was given where something to be read is expected. Raises SpecError where something else was meant."""
    if path is None or repeating.is_plain_path(str(path)):
        return path
    # It may be too long for the name of a file.
    with suppress(OSError):
        if path.exists():
            return path
    raise SpecError(
        "expected a file or a run folder, and what was given instead is neither: it is not repeated, as there may be a "
        "password in it; a setting is given as --set NAME=VALUE"
    )
