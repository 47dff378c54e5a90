"""`knee` within the process of the tests, which has imported everything already."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from knee.cli import commands, measure
from knee.machine import brief

_MACHINES: dict[int, dict[str, Any]] = {}


def _brief(folder: Path) -> dict[str, Any]:
    """The short form of this machine, measured once for each disk: it takes 0.4 s of CPU."""
    disk = folder.stat().st_dev
    if disk not in _MACHINES:
        _MACHINES[disk] = brief(folder)
    return _MACHINES[disk]


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
        patch.setattr(measure, "brief", _brief)
        commands.main()
    return int(ended.value.code or 0), printed.getvalue(), said.getvalue()
