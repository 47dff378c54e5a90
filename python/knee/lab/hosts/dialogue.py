"""A program on this machine that answers each line with a line."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self


class Dialogue:
    """Starts the program, and kills it at the end of the context."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> None:
        self._argv = argv
        self._environment = environment
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        self._popen = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            env=self._environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.kill()
        self._popen.communicate()

    def ask(self, line: str) -> str:
        """The answer to a line. Raises TimeoutError without one, and ends the program, as a late answer would be taken
        for the next. Raises ConnectionError with the program's first complaint if it has ended."""
        process = self._popen
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with suppress(BrokenPipeError):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
        if not select.select([process.stdout], [], [], self._timeout_s)[0]:
            process.kill()
            raise TimeoutError(f"no answer within {self._timeout_s:g} s")
        if answer := process.stdout.readline():
            return answer.decode().rstrip("\n")
        raise ConnectionError(process.stderr.readline().decode(errors="replace").strip())
