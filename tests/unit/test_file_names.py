"""Only `data` knows the names of a run folder's files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "knee"
SUFFIXES = (".parquet", ".jsonl", "experiment.toml", "manifest.json", "report.html")


def texts(text: str) -> Iterator[str]:
    """The string constants of a module that are not docstrings."""
    tree = ast.parse(text)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def test_file_names_stand_in_data_only() -> None:
    knowing = set()
    for module in PACKAGE.rglob("*.py"):
        code = module.read_text(encoding="utf-8")
        named = [suffix for suffix in SUFFIXES if suffix in code]
        # Most modules have none, and need no parsing.
        for text in texts(code) if named else ():
            knowing |= {(suffix, module.parent.name) for suffix in named if text.endswith(suffix)}
    assert knowing == {(suffix, "data") for suffix in SUFFIXES}
