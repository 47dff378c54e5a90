"""`knee` within the process of a test, which has imported everything already."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from knee.cli.commands import main


class Done(NamedTuple):
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


def knee(*arguments: str, cwd: Path | None = None, **environment: str) -> Done:
    """Runs the command line in a folder, with further variables."""
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as printed,
        redirect_stderr(StringIO()) as said,
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["knee", *arguments])
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        main()
    return Done(int(ended.value.code or 0), printed.getvalue(), said.getvalue())
