"""`knee` within the process of the tests, which has imported everything already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import command_line
import pytest
from command_line import Done

from knee.cli import measure
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


def knee(folder: Path, *arguments: str, **environment: str) -> Done:
    """The result of `knee` in a folder, with further variables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "brief", _brief)
        return command_line.knee(*arguments, cwd=folder, **environment)
