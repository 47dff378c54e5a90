"""Where the command begins, before anything that takes long is loaded."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

_INTERRUPTED = 130
_STDERR = 2
_ASKING_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE_S = 1.0

_asked_s: float | None = None
"""When somebody asked to end first, by the monotonic clock."""


def main() -> None:
    """Load the command line and run it; what asks it to end does so at any time, with a line and no traceback."""
    # What is ignored stays so: `nohup` asks for that.
    asking = [number for number in _ASKING_TO_END if signal.getsignal(number) is not signal.SIG_IGN]
    _handle(asking, _leave)
    # Takes about a second, in which nothing is begun that would have to be ended.
    from knee.cli import commands as cli

    _handle(asking, _interrupt)
    try:
        cli.main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        # Everything has ended but the interpreter, which an interrupt would only make complain.
        _handle(asking, signal.SIG_IGN)


def _handle(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], Any] | signal.Handlers
) -> None:
    for number in numbers:
        signal.signal(number, handler)


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    _tell()
    os._exit(_INTERRUPTED)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """Where nobody else handles it, as `knee run` does who has more to say of what it has measured."""
    global _asked_s
    now_s = time.monotonic()
    if _asked_s is None:
        _asked_s = now_s
        _tell()
        raise KeyboardInterrupt
    # Who sends several at once, as systemd does, asks once; who does so again does not want to wait for an end.
    if now_s - _asked_s > _AT_ONCE_S:
        os._exit(_INTERRUPTED)


def _tell() -> None:
    # Not through sys.stderr, which may be in the middle of something. The terminal may be gone.
    with suppress(OSError):
        os.write(_STDERR, b"knee: interrupted\n")


if __name__ == "__main__":
    main()
