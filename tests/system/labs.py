"""`knee` within the process of the tests, which has imported everything already."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from knee.cli import commands


def knee_run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code and standard error of `knee run --no-report` in a folder, with further variables."""
    code, _, said = knee(folder, "run", "--no-report", *arguments, **environment)
    return code, said


def knee(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of `knee` in a folder, with further variables."""
    printed, said = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stderr(said),
        redirect_stdout(printed),
        pytest.raises(SystemExit) as ended,
    ):
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["knee", *arguments])
        commands.main()
    return int(ended.value.code or 0), printed.getvalue(), said.getvalue()
