"""Where the command begins, before anything that takes long is loaded."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def main() -> None:
    """Load the command line and run it; Ctrl-C at any time ends it without a traceback."""
    may_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if may_interrupt:
        signal.signal(signal.SIGINT, _leave)
    # Takes about a second, in which nothing is begun that would have to be ended.
    from knee import cli

    if may_interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        cli.main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        # Everything has ended but the interpreter, which an interrupt would only make complain.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
