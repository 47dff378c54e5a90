"""A command line that is not understood: what is said of it repeats nothing in which a password may be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from knee.errors import SpecError
from knee.spec import repeating

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
                error.message = "Expected fewer arguments; what has spaces in it is quoted"
                if any("--set" in option.opts for option in error.ctx.command.params):
                    error.message += ", and each setting has a --set of its own, as in --set 'load.clients=[1, 2]'"
            else:
                self._hide(error)
            raise

    def _hide(self, error: Any) -> None:
        for word in sorted(_not_plain(self._words), key=len, reverse=True):
            for written in (word, repr(word)[1:-1]):
                # Not within a word of the message's own.
                error.message = re.sub(rf"(?<!\w){re.escape(written)}(?!\w)", repeating.HIDDEN, error.message)


def _not_plain(words: Sequence[str]) -> Iterator[str]:
    """The words of a command line that are not to be repeated, and what of them stands before and behind a =."""
    for word in words:
        name, _, value = word.partition("=")
        for part in (word, name, value):
            if not repeating.is_plain(part.strip()) and any(map(str.isalnum, part)):
                yield part


def path_to_read(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """What was given where something is to be read. Raises SpecError where something else was meant."""
    if path is not None and not (repeating.is_plain_path(str(path)) or _exists(path)):
        setting = "; a setting is given as --set NAME=VALUE" if "=" in str(path) else ""
        raise SpecError(f"{_name(param)}: no such file or run folder can be looked at{_NOT_REPEATED}{setting}")
    return path


def path_to_write(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """The same where something is to be written: what may be no path has to be in a folder that is there."""
    if path is not None and not (repeating.is_plain_path(str(path)) or _exists(path.parent)):
        raise SpecError(f"{_name(param)}: there is no folder to make this in{_NOT_REPEATED}")
    return path


_NOT_REPEATED = " (the name is not repeated, as there may be a password in it)"


def _name(param: typer.CallbackParam) -> str:
    return str(param.metavar if param.param_type_name == "argument" else param.opts[0])


def _exists(path: Path) -> bool:
    # It may be too long for the name of a file.
    with suppress(OSError):
        return path.exists()
    return False
