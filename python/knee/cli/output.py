"""Where a command prints: notes to standard error, and with `--json`, only the answer to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout


@contextmanager
def progress_aside(as_json: bool) -> Iterator[None]:
    """Within it, other printed lines go to standard error if the answer is JSON."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


def note(*texts: str) -> None:
    """Print texts to standard error."""
    for text in texts:
        print(f"knee: {text}", file=sys.stderr)
