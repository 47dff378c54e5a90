"""The exception tree of the package.

KneeError                what a person did or met; printed as text, never as a traceback
├── SpecError            the experiment file or an override is wrong        (exit code 2)
├── DatasetError         a run folder cannot be read                        (exit code 2)
├── MeasurementsError    a file of somebody else's measurements is wrong    (exit code 2)
├── DesignError          observations are not the design that they must be  (exit code 2)
├── FitError             a model cannot be fitted to what was measured      (exit code 2)
├── ProgramError         a program that the lab starts is not installed     (exit code 2)
├── StorageError         the run folder cannot be written                   (exit code 1)
└── ProcessError         a started process failed or did not get ready      (exit code 1)
    └── UnendedError     one goes on, and would beside whatever comes next  (exit code 1)
"""

from __future__ import annotations


class KneeError(Exception):
    """Something a person can act on; its text says what was wrong, where, and what to do."""

    exit_code = 1


class SpecError(KneeError):
    """The experiment is wrong; the message holds one line per problem."""

    exit_code = 2


class DatasetError(KneeError):
    """A run folder is missing, incomplete or not one of ours."""

    exit_code = 2


class MeasurementsError(KneeError):
    """A file of somebody else's measurements cannot be read; the message holds one line per problem."""

    exit_code = 2


class DesignError(KneeError):
    """The observations are not the factorial design that an analysis needs; one line per problem."""

    exit_code = 2


class FitError(KneeError):
    """What was measured is too little, or of the wrong kind, for a model; the message says what is needed."""

    exit_code = 2


class ProgramError(KneeError):
    """A program that the lab has to start is nowhere to be found."""

    exit_code = 2


class StorageError(KneeError):
    """The run folder cannot be written: full, read-only, or not ours."""


class ProcessError(KneeError):
    """A process did not start, did not get ready in time, or ended when it should not have."""


class UnendedError(ProcessError):
    """A process, or what it has started, goes on although it was killed: nothing can be measured beside it."""
