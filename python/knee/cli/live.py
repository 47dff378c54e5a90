"""The page of a measurement that goes on: drawn between its runs, never during one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from knee.cli.analyse import write_report
from knee.cli.output import note
from knee.errors import KneeError

if TYPE_CHECKING:
    from types import TracebackType

    from knee.verdict import Findings

PAUSE_S = 10
"""Least time between two drawings."""

SHARE_MAX = 0.1
"""Largest share of the time that drawings take, but for the first: it also loads what every drawing needs."""


class LivePage:
    """A page that :meth:`update` draws from the measurements so far. Use it as a context: after an error, the page
    says that the measurement stopped.

    Parameters
    ----------
    path
        The page.
    analyse
        Returns the findings so far and the progress, such as "12 of 48 runs"; None without findings.
    seconds
        Length of a run. An open page reads the file again after this time, at least PAUSE_S.
    """

    def __init__(self, path: Path, analyse: Callable[[], tuple[Findings, str] | None], seconds: int) -> None:
        self._path = path
        self._analyse = analyse
        self._refresh_s = max(PAUSE_S, seconds)
        self._due_s = 0.0
        self._drawn: tuple[Findings, str] | None = None

    def __enter__(self) -> LivePage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and self._drawn is not None:
            findings, state = self._drawn
            with suppress(KneeError):  # The error that stopped the measurement matters more.
                self._write(findings, f"Stopped after {state}.", None)

    def update(self) -> None:
        """Draw the page, unless the last drawing is too recent."""
        began_s = time.monotonic()
        if began_s < self._due_s:
            return
        try:
            found = self._analyse()
            if found is not None:
                self._write(found[0], f"In progress: {found[1]}.", self._refresh_s)
                self._drawn = found
        except Exception as error:  # A page that cannot be drawn must not end a measurement of hours.
            note(f"no live page: {error}; the measurement continues")
            self._due_s = math.inf
            return
        ended_s = time.monotonic()
        took_s = ended_s - began_s if self._due_s else 0.0
        self._due_s = ended_s + max(PAUSE_S, took_s / SHARE_MAX)

    def _write(self, findings: Findings, state: str, refresh_s: int | None) -> None:
        from knee import report

        write_report(findings, self._path, report.Live(state, refresh_s))
