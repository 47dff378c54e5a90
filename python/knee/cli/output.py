"""Where a command prints: with `--json`, standard output has the answer alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def progress_aside(as_json: bool) -> Iterator[None]:
    """Within it, other printed lines go to standard error if the answer is JSON."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield
