"""The invariants of ARCHITECTURE.md that the text of the sources can show."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "python" / "knee"
MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(module: Path) -> ast.Module:
    """A module's syntax tree; every test looks at all of them."""
    return ast.parse(module.read_text(encoding="utf-8"))


def imported(module: Path) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    names = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def texts(module: Path) -> Iterator[str]:
    """The string constants of a module that are no docstrings."""
    tree = parsed(module)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def named(modules: list[Path]) -> set[str]:
    return {str(module.relative_to(PACKAGE)) for module in modules}


def test_only_hosts_start_processes() -> None:
    starters = {"subprocess", "multiprocessing", "pty"}
    assert named([module for module in MODULES if imported(module) & starters]) == {"lab/hosts/local.py"}


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", "experiment.toml", "manifest.json", "report.html"])
def test_only_data_knows_file_names(suffix: str) -> None:
    knowing = [module for module in MODULES if any(text.endswith(suffix) for text in texts(module))]
    assert knowing
    assert all(name.startswith("data/") for name in named(knowing)), named(knowing)


@pytest.mark.parametrize(
    "name", ["laws", "factorial", "fit", "verdict", "stats/intervals", "data/trim", "data/hdr", "data/source"]
)
def test_pure_modules_touch_nothing_outside(name: str) -> None:
    outside = {"os", "sys", "io", "pathlib", "subprocess", "socket", "signal", "threading", "time", "psutil", "rich"}
    modules = [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").is_file() else sorted((PACKAGE / name).rglob("*.py"))
    assert modules
    for module in modules:
        assert not imported(module) & outside, module


def test_the_report_computes_nothing() -> None:
    modules = sorted((PACKAGE / "report").rglob("*.py"))
    assert modules
    for module in modules:
        assert not imported(module) & {"numpy", "scipy", "statistics"}, module
