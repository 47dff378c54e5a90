"""The exception tree of the package.

KneeError                a problem that the user can solve; printed as a message, never as a traceback
├── SpecError            the experiment file or an override is wrong        (exit code 2)
├── DatasetError         a run folder cannot be read                        (exit code 2)
├── MeasurementsError    a CSV of measurements is wrong                     (exit code 2)
├── DesignError          the observations are not a factorial design        (exit code 2)
├── FitError             a model cannot be fitted to the measurements       (exit code 2)
├── ProgramError         a program that the lab starts is not installed     (exit code 2)
├── StorageError         the run folder cannot be written                   (exit code 1)
├── WorkerError          a worker of a cluster is missing, lost or unfit    (exit code 1)
└── ProcessError         a started process failed or did not get ready      (exit code 1)
"""

from __future__ import annotations

from collections.abc import Iterator


class KneeError(Exception):
    """The base of all errors. The message gives the problem, the place and the remedy."""

    exit_code = 1


class SpecError(KneeError):
    """The experiment is wrong; the message has one line per problem."""

    exit_code = 2


class DatasetError(KneeError):
    """A run folder is missing or incomplete, or not a folder of Knee."""

    exit_code = 2


class MeasurementsError(KneeError):
    """A CSV of measurements cannot be read; the message has one line per problem."""

    exit_code = 2


class DesignError(KneeError):
    """The observations are not the factorial design that an analysis needs; one line per problem."""

    exit_code = 2


class FitError(KneeError):
    """The measurements are too few, or of the wrong kind, for a model. The message names the missing data."""

    exit_code = 2


class ProgramError(KneeError):
    """A program that the lab starts is not installed."""

    exit_code = 2


class StorageError(KneeError):
    """The run folder cannot be written: the disk is full or read-only, or permissions are missing."""


class WorkerError(KneeError):
    """A host of the experiment has no worker in the cluster, or a worker is lost or has other programs."""


class ProcessError(KneeError):
    """A process did not start, was not ready in time, ended too early, or did not end."""


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error and the chain of errors that led to it, the first error first."""
    if error is not None:
        yield from chain_of(error.__context__)
        yield error


def reasons_of(error: BaseException) -> tuple[bool, list[str]]:
    """Whether the error is an interrupt or was raised after one; and the messages of all errors in its chain, but for
    those that a later message repeats."""
    chain = list(chain_of(error))
    messages = list(dict.fromkeys(str(one) for one in chain if isinstance(one, KneeError)))
    said = [one for at, one in enumerate(messages) if not any(one in later for later in messages[at + 1 :])]
    return any(isinstance(one, KeyboardInterrupt) for one in chain), said
