"""The entry point of the command; it imports slow modules only when they are needed."""

from __future__ import annotations

import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. SIGTERM and a closed terminal end it as Ctrl-C does, with a line and no traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Under `nohup`, SIGHUP is ignored and stays so.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        from knee.cli.commands import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("knee: interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
