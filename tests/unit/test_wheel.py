"""What pyproject.toml puts into the wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_wheel_has_every_program_and_experiment() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    crate = tomllib.loads((REPOSITORY / "crates/bin/Cargo.toml").read_text(encoding="utf-8"))
    packed = {one["target"] for one in project["tool"]["setuptools-rust"]["bins"]}
    assert packed == {one["name"] for one in crate["bin"]}
    assert (REPOSITORY / "python/knee/experiments").resolve() == REPOSITORY / "experiments"
    assert project["tool"]["setuptools"]["package-data"]["knee.experiments"] == ["*.toml"]
