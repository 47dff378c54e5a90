"""What the Python tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Tests run as many at a time as there are cores: a thread pool in each would compete with the other tests.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts the tests in the background has them ignore SIGINT, and the lab respects what it inherits:
# tests that interrupt it, and the programs they start, need it as at a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine, so there is no deadline. With KNEE_SOAK
# there are four times as many examples, and others in each run.
SOAK = "KNEE_SOAK" in os.environ
settings.register_profile("knee", deadline=None, derandomize=not SOAK, max_examples=100 if SOAK else 25)
settings.load_profile("knee")

REPOSITORY = Path(__file__).resolve().parents[1]

# The programs that Rust's tests start: `make test` builds no others.
os.environ.setdefault("KNEE_BIN_DIR", str(REPOSITORY / "target" / "debug"))


LONGEST = ("test_cluster.py", "test_lab.py", "test_emulated.py", "test_find.py")
"""The modules that take longest. Each begins on a process of its own, so that none is the last to run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Each process gets an equal part of the list; later, idle ones take the end of another's part.
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for i, name in enumerate(LONGEST):
        parts[i % processes] += [item for item in items if item.path.name == name]
    others = [item for item in items if item.path.name not in LONGEST]
    for i, part in enumerate(parts):
        free = -(-len(items) // processes) - len(part) if i < processes - 1 else len(others)
        part += others[: max(0, free)]
        del others[: max(0, free)]
    items[:] = [item for part in parts for item in part]


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture
def modelless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings without models, which take a second or two to fit."""
    from knee.fit import Outlooks

    monkeypatch.setattr("knee.verdict.findings.outlooks", lambda *_, **__: Outlooks((), (), ()))


@pytest.fixture(scope="module")
def scriptless() -> Iterator[None]:
    """Reports without Vega, whose bundling takes seconds, in all tests of the module. test_report has a whole page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knee.report.page._vega", lambda: "")
        yield
