"""What the Python tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that starts the tests in the background has them ignore SIGINT, and the lab respects what it inherits:
# tests that interrupt it, and the programs they start, need it as at a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine, not about the code.
settings.register_profile("knee", deadline=None)
settings.load_profile("knee")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY
