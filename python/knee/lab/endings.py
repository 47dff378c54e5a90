"""What ends something, and what fails on the way out: told together, and never the one in the place of the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from knee.errors import KneeError, StorageError, UnendedError


class Ending:
    """Gathers what ends something and what fails while that is cleaned up, to raise all of it as one.

    An interrupt stays an interrupt, of which a fault of the lab's own becomes the cause; beside anything else a fault
    stays that. Of what a person can act on, what ends the lab goes first: that the run folder cannot be written, or
    that a process goes on. Whichever it is says what the others would have said.
    """

    def __init__(self, by: BaseException | None = None) -> None:
        self.by = by

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Go on after whatever ends what is inside."""
        try:
            yield
        except BaseException as error:
            self.by = error if self.by is None else _both(self.by, error)

    def raise_any(self) -> None:
        """Raise what was gathered, if anything was."""
        if self.by is not None:
            raise self.by


def _both(first: BaseException, second: BaseException) -> BaseException:
    words = [*_words(first), *_words(second)]
    if isinstance(first, KeyboardInterrupt) or isinstance(second, KeyboardInterrupt):
        interrupt = KeyboardInterrupt(*words)
        interrupt.__cause__ = _fault(first) or _fault(second)
        return interrupt
    for one, other in ((first, second), (second, first)):
        if not isinstance(one, KneeError):
            one.add_note("; ".join(_words(other)))
            return one
    ending = (kind for kind in (StorageError, UnendedError) if isinstance(first, kind) or isinstance(second, kind))
    kind = next(ending, type(first))
    # Some are made of more than their words.
    return (kind if kind.__init__ is KneeError.__init__ else KneeError)("; ".join(words))


def _fault(error: BaseException) -> BaseException | None:
    if isinstance(error, KeyboardInterrupt):
        return error.__cause__
    return None if isinstance(error, KneeError) else error


def _words(error: BaseException) -> list[str]:
    """What it says; of a fault of the lab's own also what it is, and what came beside it before."""
    if isinstance(error, KeyboardInterrupt):
        words = [str(word) for word in error.args]
    elif isinstance(error, KneeError):
        words = [str(error)]
    else:
        words = [": ".join(filter(None, (type(error).__name__, str(error)))), *getattr(error, "__notes__", ())]
    return [word for word in words if word]
