"""What the tests with real servers share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from systems import Systems

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Where no disk is waited for, where there is such a place: other tests keep it busy."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="knee-", dir=_MEMORY) as directory:
        yield Path(directory)


@pytest.fixture
def systems() -> Iterator[Systems]:
    """Starts servers and clients; none outlives the test."""
    systems = Systems()
    yield systems
    systems.close()
