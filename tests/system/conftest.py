"""What the tests with real servers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from systems import Systems


@pytest.fixture
def systems() -> Iterator[Systems]:
    """Starts servers and clients; none outlives the test."""
    systems = Systems()
    yield systems
    systems.close()
