"""Where in a TOML text each key and each element stands, so that an error can name its line.

`tomllib` drops positions. This scanner keeps only them: it is handed a text that `tomllib` has accepted and
therefore needs no error handling of its own.
"""

from __future__ import annotations

import tomllib

Path = tuple[str | int, ...]


def positions(text: str) -> dict[Path, int]:
    """Map the path of every table, key and array element of a valid TOML text to its line, from 1."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n") + "\n"
        self._at = 0
        self._lines: dict[Path, int] = {}
        self._tables_in: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip_blank():
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _header(self) -> Path:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        table: Path = self._key()
        self._at += 2 if is_array else 1
        self._lines.setdefault(table, line)
        if is_array:
            index = self._tables_in.get(table, 0)
            self._tables_in[table] = index + 1
            table = (*table, index)
            self._lines[table] = line
        return table

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for part in self._key():
            path = (*path, part)
            self._lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> tuple[str, ...]:
        """Read a dotted key; stop at what follows it."""
        parts = []
        while True:
            self._skip_spaces()
            if self._peek() in "\"'":
                start = self._at
                self._string()
                parts.append(str(tomllib.loads(f"v = {self._text[start : self._at]}")["v"]))
            else:
                start = self._at
                while self._peek().isalnum() or self._peek() in "-_":
                    self._at += 1
                parts.append(self._text[start : self._at])
            self._skip_spaces()
            if self._peek() != ".":
                return tuple(parts)
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip_spaces()
        opening = self._peek()
        if opening in "\"'":
            self._string()
        elif opening == "[":
            self._at += 1
            index = 0
            while self._skip_blank() and self._peek() != "]":
                self._lines[(*path, index)] = self._line()
                self._value((*path, index))
                index += 1
                self._skip_comma()
            self._at += 1
        elif opening == "{":
            self._at += 1
            while self._skip_blank() and self._peek() != "}":
                self._pair(path)
                self._skip_comma()
            self._at += 1
        else:
            while self._peek() not in ",]}#\n":
                self._at += 1

    def _string(self) -> None:
        quote = self._peek()
        fence = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(fence)
        while not self._text.startswith(fence, self._at):
            self._at += 2 if quote == '"' and self._peek() == "\\" else 1
        self._at += len(fence)
        # Up to two quotes may stand right before a closing fence of three.
        while len(fence) == 3 and self._peek() == quote:
            self._at += 1

    def _skip_comma(self) -> None:
        self._skip_blank()
        if self._peek() == ",":
            self._at += 1

    def _skip_spaces(self) -> None:
        while self._peek() in " \t":
            self._at += 1

    def _skip_blank(self) -> bool:
        """Skip spaces, line ends and comments; say whether anything is left."""
        while self._at < len(self._text):
            if self._peek() == "#":
                self._at = self._text.index("\n", self._at)
            elif self._peek() in " \t\n":
                self._at += 1
            else:
                return True
        return False

    def _peek(self) -> str:
        # A text always ends in a line end, which no loop above steps over without looking.
        return self._text[self._at] if self._at < len(self._text) else "\n"

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1
