"""The example of docs/methods/networks.md."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

METHODS = Path(__file__).parents[2] / "docs/methods"


@pytest.mark.parametrize("page", ["networks.md"])
def test_example_of_the_page_prints_what_it_says(page: str) -> None:
    failed, attempted = doctest.testfile(str(METHODS / page), module_relative=False)
    assert attempted > 3
    assert failed == 0
