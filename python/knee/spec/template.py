"""A command with placeholders, and the address of a system. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from knee.errors import SpecError

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_URL = re.compile(r"https?://[^\s'\"]+")
_ANY_URL = re.compile(r"\w+://[^\s'\"]+")
_PLACE = re.compile(r"(?:^|[=\s])(\[[\da-fA-F:]+\]|[\w.-]*[a-zA-Z.][\w.-]*):(\d{1,5})(?=[\s'\"]|$)")
PORTS = {"http": 80, "https": 443, "redis": 6379, "postgres": 5432, "postgresql": 5432}


@dataclass(frozen=True)
class Template:
    """The words of a command. `{clients}` is the load, `{seconds}` the length of a run, and `{output}` a file for
    results that the generator does not print. A system that Knee starts has further values, such as `{port}`. Other
    braces, as in JSON, stay as they are."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> Template:
        """Raises SpecError for a command without `{clients}`."""
        template = cls(tuple(words))
        if not template.has("clients"):
            raise SpecError("the command has no {clients}: write it for the number of clients, as in wrk -c{clients}")
        return template

    def has(self, name: str) -> bool:
        """Whether the command has this placeholder."""
        return any(name in _PLACEHOLDER.findall(word) for word in self.words)

    @property
    def url(self) -> str | None:
        """The first URL in the command; a word that is itself a URL ranks before the others."""
        return next((found[0] for word in self._addresses_first() if (found := _URL.search(word))), None)

    @property
    def place(self) -> tuple[str, int] | None:
        """Host and port of the first URL with a known port, in the same order, or else of the first HOST:PORT."""
        for url in (found[0] for word in self._addresses_first() for found in _ANY_URL.finditer(word)):
            with suppress(ValueError):
                parts = urlsplit(url)
                port = parts.port or PORTS.get(parts.scheme)
                if parts.hostname and port:
                    return parts.hostname, port
        found = next((found for word in self.words if (found := _PLACE.search(word))), None)
        return None if found is None else (found[1].strip("[]"), int(found[2]))

    def _addresses_first(self) -> list[str]:
        return sorted(self.words, key=lambda word: not _ANY_URL.fullmatch(word))

    def argv(self, clients: int, seconds: int, output: str, **more: str) -> tuple[str, ...]:
        """The command for a load."""
        values = {"clients": str(clients), "seconds": str(seconds), "output": output, **more}
        return tuple(_PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word) for word in self.words)


def words_of(command: str) -> tuple[str, ...]:
    """The words of a command, as a shell divides them. Raises SpecError for none, or for an open quote."""
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        words = ()
    if not words:
        raise SpecError("expected a command, with closed quotes")
    return words


def is_url(address: str) -> bool:
    """Whether an address is a URL, not HOST:PORT."""
    return re.match(r"https?://", address) is not None


def place_of(address: str) -> tuple[str, int]:
    """Host and port of a URL or HOST:PORT. Raises SpecError for another address."""
    try:
        url = urlsplit(address if is_url(address) else f"//{address}")
        host, port = url.hostname, url.port or PORTS.get(url.scheme)
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise SpecError("expected a URL or HOST:PORT, such as 127.0.0.1:8080")
    return host, port
