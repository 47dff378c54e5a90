"""Only `data` knows the names of a run folder's files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "knee"
MODULES = sorted(PACKAGE.rglob("*.py"))


def texts(module: Path) -> Iterator[str]:
    """The string constants of a module that are not docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", "experiment.toml", "manifest.json", "report.html"])
def test_file_name_stands_in_data_only(suffix: str) -> None:
    knowing = {module for module in MODULES if any(text.endswith(suffix) for text in texts(module))}
    assert knowing
    assert all(module.parent.name == "data" for module in knowing)
