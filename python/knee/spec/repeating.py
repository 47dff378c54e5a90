"""What a message repeats of what somebody wrote: nothing in which a password may be.

Whoever gives a database's address may give its password with it, wherever he puts it. So what is repeated is what looks
like an ordinary value of a setting, a name or a path, and not whatever does not look like a password. Pure.
"""

from __future__ import annotations

import re

HIDDEN = "…"
"""What stands where something is not repeated."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_VALUE = re.compile(r"(?:[\w.,+%-]|/(?!/)|:[0-9.]+(?!\w)){0,100}|[0-9 .,;*\[\]-]{1,100}")
"""A word, or numbers. Behind a colon are numbers: no user's password, and no URL."""
_PATH = re.compile(r"(?:[\w .,+~/()*?\[\]-]|:[0-9]+(?!\w)){1,4096}")


def name(text: str) -> str:
    """A name that somebody gave to a setting, or to what is none."""
    return text if _NAME.fullmatch(text) else HIDDEN


def word(text: str) -> str:
    """What was given where a name or a word of ours was expected."""
    return text if is_plain(text) else HIDDEN


def but_is(value: object) -> str:
    """“, not …” with the value of a setting, unless that may be more than a value."""
    return f", not {value!r}" if is_plain(value) else ""


def is_plain(value: object) -> bool:
    """Whether the value of a setting is one word, a number or a list of these: of a table nobody knows the names."""
    if isinstance(value, str):
        return _VALUE.fullmatch(value) is not None
    if isinstance(value, list | tuple):
        return all(is_plain(one) for one in value)
    return not isinstance(value, dict)


def is_plain_path(path: str) -> bool:
    """Whether nothing else was meant where a path was expected: no setting, and no URL."""
    return _PATH.fullmatch(path) is not None
