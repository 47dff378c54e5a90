"""The package's namespace is what it says it exports, and all of it is documented."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from knee import queueing


def test_nothing_else_is_public() -> None:
    public = {
        name for name, value in vars(queueing).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(queueing.__all__)
    assert len(queueing.__all__) == len(set(queueing.__all__))


@pytest.mark.parametrize("name", queueing.__all__)
def test_documented(name: str) -> None:
    exported = getattr(queueing, name)
    if callable(exported):
        assert inspect.getdoc(exported)
        assert exported.__module__.startswith("knee.queueing.")
