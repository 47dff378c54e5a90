"""Only `data` knows the names of a run folder's files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "knee"
MODULES = sorted(PACKAGE.rglob("*.py"))


def texts(module: Path) -> Iterator[str]:
    """The string constants of a module that are not docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def test_file_names_stand_in_data_only() -> None:
    suffixes = (".parquet", ".jsonl", "experiment.toml", "manifest.json", "report.html")
    knowing = {
        (suffix, module.parent.name)
        for module in MODULES
        for text in texts(module)
        for suffix in suffixes
        if text.endswith(suffix)
    }
    assert knowing == {(suffix, "data") for suffix in suffixes}
