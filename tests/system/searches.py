"""`knee find` within a test's process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from knee.cli.commands import main


def knee(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Knee within this process: its imports take seconds."""
    words = ["knee", *arguments]
    with (
        chdir(cwd),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as complaints,
        patch.object(sys, "argv", words),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return subprocess.CompletedProcess(words, int(ended.value.code or 0), out.getvalue(), complaints.getvalue())


def folder_of(cwd: Path) -> Path:
    (found,) = (cwd / "runs" / "find").iterdir()
    return found
