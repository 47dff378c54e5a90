"""What asks the lab to end: each is an interrupt, deferred where asked, and ignored where it was before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from knee.errors import StorageError
from knee.lab import interrupts
from knee.lab.endings import Ending
from knee.lab.interrupts import interruptible, interruptible_anew, interrupts_deferred

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """Whoever runs the tests may have some ignored: `nohup` does."""
    defaults = dict.fromkeys(SIGNALS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_interrupts_and_is_handled_as_before_afterwards(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        interruptible(os.kill, os.getpid(), number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_what_must_not_be_left_half_done_is_done_first(number: signal.Signals) -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        os.kill(os.getpid(), number)
        done = True
    assert done


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_deferred_within_waits_for_all_of_it(number: signal.Signals) -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        with interrupts_deferred():
            os.kill(os.getpid(), number)
        done = True
    assert done


def test_an_interrupt_is_not_lost_to_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        raise OSError


def test_an_interrupt_says_what_else_has_ended_what_it_waited_for() -> None:
    with pytest.raises(KeyboardInterrupt) as ended, interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        raise StorageError("it is full")
    assert ended.value.args == ("it is full",)


def test_one_that_comes_last_does_not_take_back_what_has_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Ending):
        def raise_any(self) -> None:
            if isinstance(self.by, StorageError):
                signal.raise_signal(signal.SIGINT)
            super().raise_any()

    monkeypatch.setattr(interrupts, "Ending", Interrupted)
    with pytest.raises(KeyboardInterrupt) as ended, interrupts_deferred():
        raise StorageError("it is full")
    assert ended.value.args == ("it is full",)


def test_one_that_came_before_interrupts_what_may_be_and_nothing_else() -> None:
    called, done = [], False
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        try:
            interruptible(called.append, 1)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            done = True
    assert done and not called


def test_what_may_be_interrupted_is_at_once_and_returns_what_it_does_otherwise() -> None:
    passed = False

    def interrupted() -> None:
        nonlocal passed
        os.kill(os.getpid(), signal.SIGINT)
        passed = True

    with interrupts_deferred():
        assert interruptible(max, 1, 2) == 2
        with pytest.raises(KeyboardInterrupt):
            interruptible(interrupted)
    assert not passed


def test_what_is_interruptible_anew_is_not_interrupted_by_what_came_before() -> None:
    called = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        interruptible_anew(called.append, 1)
        called.append(2)
    assert called == [1, 2]
    with interrupts_deferred():
        assert interruptible_anew(interrupting, signal.SIGTERM)


def interrupting(number: signal.Signals) -> bool:
    """Whether a signal that comes now interrupts what may be."""
    try:
        interruptible_anew(signal.raise_signal, number)
    except KeyboardInterrupt:
        return True
    return False


def test_signals_that_come_together_interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    # Of that module alone: whoever else is measuring time goes on.
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: now_s))
    with interrupts_deferred():
        assert interrupting(signal.SIGTERM)
        now_s += interrupts._TOGETHER_S / 2
        assert not interrupting(signal.SIGHUP)
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
        now_s += interrupts._TOGETHER_S
        assert interrupting(signal.SIGHUP)
    # Who interrupts what comes next has not done so before.
    with interrupts_deferred():
        assert interrupting(signal.SIGTERM)


def test_signals_that_come_together_with_a_deferred_interrupt_do_so_when_it_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: now_s))

    def deferring() -> None:
        nonlocal now_s
        with interrupts_deferred():
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
                now_s += 100 * interrupts._TOGETHER_S

    with interrupts_deferred():
        with pytest.raises(KeyboardInterrupt):
            interruptible(deferring)
        assert not interrupting(signal.SIGTERM)
        now_s += 2 * interrupts._TOGETHER_S
        assert interrupting(signal.SIGTERM)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
