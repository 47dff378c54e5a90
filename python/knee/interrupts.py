"""What a signal that asks the lab to end does to it, and when.

Ctrl-C, SIGTERM and a closed terminal all end it orderly, as a KeyboardInterrupt; what must not be left half done
is done before one is raised.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_Handler = Callable[[int, FrameType | None], object]

_ASKING_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the lab as Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let what is inside finish; an interrupt that came meanwhile is raised after it.

    By handlers and not by a signal mask: a process's signals go to any of its threads that does not block them,
    and Python then interrupts the main thread all the same. Within another one it is that which raises.
    """
    came: signal.Signals | None = None

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = signal.Signals(number)

    try:
        with _handling(note):
            yield
    finally:
        if came is not None:
            handler = signal.getsignal(came)
            if callable(handler):
                handler(came, None)
            else:
                raise KeyboardInterrupt


@contextmanager
def _handling(handler: _Handler) -> Iterator[None]:
    """Handle what asks the lab to end; what is ignored stays so, for that is what `nohup` asks for."""
    before = {
        number: signal.signal(number, handler)
        for number in _ASKING_TO_END
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
