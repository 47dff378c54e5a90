"""What the Python tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("knee", deadline=None)
settings.load_profile("knee")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY
