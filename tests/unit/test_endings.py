"""What is raised where something ends and something else fails on the way out."""

from __future__ import annotations

import pytest

from knee.errors import DatasetError, KneeError, ProcessError, StorageError, UnendedError
from knee.lab.endings import Ending


class ParsedError(KneeError):
    """Is made of more than words."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")


def noted(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


def raised(*errors: BaseException) -> BaseException:
    ending = Ending()
    for error in errors:
        with ending.gathering():
            raise error
    with pytest.raises(BaseException) as told:
        ending.raise_any()
    return told.value


def test_where_nothing_ends_it_nothing_is_raised() -> None:
    ending = Ending()
    with ending.gathering():
        pass
    ending.raise_any()


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([ProcessError("a"), ProcessError("b")], ProcessError("a; b")),
        ([ProcessError("a"), StorageError("b")], StorageError("a; b")),
        ([StorageError("a"), ProcessError("b")], StorageError("a; b")),
        ([ProcessError("a"), UnendedError("b"), ProcessError("c")], UnendedError("a; b; c")),
        ([UnendedError("a"), StorageError("b"), UnendedError("c")], StorageError("a; b; c")),
        ([DatasetError("a"), ProcessError("b"), ProcessError("c")], DatasetError("a; b; c")),
        ([ParsedError(1, "a"), ProcessError("b")], KneeError("line 1: a; b")),
        ([ParsedError(1, "a"), StorageError("b")], StorageError("line 1: a; b")),
        ([ProcessError("a"), ParsedError(1, "b")], ProcessError("a; line 1: b")),
        ([KeyboardInterrupt(), ProcessError("a"), StorageError("b")], KeyboardInterrupt("a", "b")),
        ([ProcessError("a"), KeyboardInterrupt()], KeyboardInterrupt("a")),
        ([KeyboardInterrupt("a"), KeyboardInterrupt()], KeyboardInterrupt("a")),
        # Of a fault it is told which.
        ([KeyboardInterrupt(), AssertionError()], KeyboardInterrupt("AssertionError")),
        ([KeyError("k"), KeyboardInterrupt()], KeyboardInterrupt("KeyError: 'k'")),
        ([ValueError("a"), ProcessError("b"), KeyboardInterrupt()], KeyboardInterrupt("ValueError: a", "b")),
    ],
)
def test_whichever_is_raised_says_what_the_others_would_have_said(
    errors: list[BaseException], expected: BaseException
) -> None:
    told = raised(*errors)
    assert (type(told), told.args) == (type(expected), expected.args)


@pytest.mark.parametrize(
    ("errors", "notes"),
    [
        ([ValueError("a"), ProcessError("b")], ["b"]),
        ([ProcessError("b"), ValueError("a")], ["b"]),
        ([ValueError("a"), AssertionError()], ["AssertionError"]),
        ([ValueError("a"), noted(AssertionError(), "b")], ["AssertionError; b"]),
    ],
)
def test_a_fault_stays_that(errors: list[BaseException], notes: list[str]) -> None:
    told = raised(*errors)
    assert isinstance(told, ValueError)
    assert (told.args, told.__notes__) == (("a",), notes)


@pytest.mark.parametrize(
    "errors",
    [
        [AssertionError(), KeyboardInterrupt()],
        [KeyboardInterrupt(), AssertionError()],
        [ProcessError("it ended"), KeyboardInterrupt(), AssertionError()],
    ],
)
def test_beside_an_interrupt_a_fault_is_where_it_was(errors: list[BaseException]) -> None:
    cause = raised(*errors, StorageError("it is full")).__cause__
    assert isinstance(cause, AssertionError)
    assert cause.__traceback__ is not None
