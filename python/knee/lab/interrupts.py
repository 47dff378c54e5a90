"""What a signal that asks the lab to end does to it, and when.

Ctrl-C, SIGTERM and a closed terminal all end it orderly, as a KeyboardInterrupt; what must not be left half done
is done before one is raised.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

from knee.lab.endings import Ending

_P = ParamSpec("_P")
_T = TypeVar("_T")

_ASKING_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_TOGETHER_S = 0.1
"""Signals that come so soon after an interrupt was raised ask for the same, and are dropped: service managers send two
at once (systemd: SendSIGHUP=). Those that come while interrupts are deferred are one anyway, however far apart."""


class _State:
    """Of the process, as the handling of signals is. Each is changed by an assignment, which no signal can divide."""

    deferred = False
    came = False
    raised_s = -math.inf
    """When an interrupt was raised last, which is later than its signal came if it was deferred."""


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the lab as Ctrl-C does. What is ignored stays so: `nohup` asks for that."""
    before = {
        number: signal.signal(number, _handle)
        for number in _ASKING_TO_END
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
        if _handle not in before.values():
            _State.raised_s = -math.inf


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let what is inside finish; an interrupt that came meanwhile is raised after it, and says what else ended it.

    By handlers and not by a signal mask: a process's signals go to any of its threads that does not block them,
    and Python then interrupts the main thread all the same. Within another one it is that which raises.
    """
    with _termination_as_interrupt():
        outer, ending = _State.deferred, Ending()
        try:
            _State.deferred = True
            with ending.gathering():
                yield
            if not outer:
                with ending.gathering():
                    raise_deferred()
            ending.raise_any()
        finally:
            _State.deferred = outer
            # What came since, beside what ends it already.
            if not outer and _State.came:
                with ending.gathering():
                    raise_deferred()
                ending.raise_any()


def interruptible(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call it so that it can be interrupted where nothing else can, also by what came before.

    No context manager: leaving one is a call, and Python lets signals in at calls.
    """
    outer = _State.deferred
    try:
        _State.deferred = False
        raise_deferred()
        return call(*args, **kwargs)
    finally:
        _State.deferred = outer


def interruptible_anew(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call it so that it can be interrupted, but not by what came before: that stays deferred."""
    outer = _State.deferred
    try:
        _State.deferred = False
        return call(*args, **kwargs)
    finally:
        _State.deferred = outer


def raise_deferred() -> None:
    """Raise an interrupt that came while they were deferred."""
    if _State.came:
        _raise()


def _handle(_signal: int, _frame: FrameType | None) -> None:
    if time.monotonic() - _State.raised_s < _TOGETHER_S:
        return
    if not _State.deferred:
        _raise()
    _State.came = True


def _raise() -> NoReturn:
    _State.came = False
    _State.raised_s = time.monotonic()
    raise KeyboardInterrupt
