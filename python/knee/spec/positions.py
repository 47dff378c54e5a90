"""The lines of the tables and keys of a TOML text, so that an error can name its line.

`tomllib` drops positions. This parser finds headers and keys at the start of a line, even inside a multi-line text.
A key further inside a line has no entry: an error names the line of the enclosing key.
"""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress

Path = tuple[str | int, ...]

Problem = tuple[Path, str]
"""The path of a wrong field, and the expected value."""

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_KEY})\s*\]")
_PAIR = re.compile(rf"\s*({_KEY})\s*=")


def positions(text: str) -> dict[Path, int]:
    """Map the paths of tables and keys of a valid TOML text to their lines, from 1."""
    lines: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        # A line inside a multi-line text may look like a key, but not be valid TOML.
        with suppress(tomllib.TOMLDecodeError):
            if header := _HEADER.match(line):
                table = _parts(header[1])
                lines.setdefault(table, number)
            elif pair := _PAIR.match(line):
                parts = _parts(pair[1])
                for length in range(1, len(parts) + 1):
                    lines.setdefault((*table, *parts[:length]), number)
    return lines


def _parts(key: str) -> Path:
    parts: Path = ()
    value: object = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((name, value),) = value.items()
        parts = (*parts, name)
    return parts
