"""`knee compare`: compares run folders or tables, each with the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer

from knee.cli.analyse import opened
from knee.data import run_folders
from knee.errors import MeasurementsError

FAILED = 3
"""Exit code when a condition of the user does not hold."""


def print_comparison(
    paths: Sequence[Path],
    renames: list[str] | None,
    factor: str | None,
    conditions: Sequence[str],
    level: float,
    apart: float | None,
    form: Literal["text", "json", "markdown"],
) -> None:
    """Print the comparison. Raises typer.Exit with 3 if the data show a condition."""
    from knee import compare

    gates = [compare.Gate.parse(text) for text in conditions]
    if factor is None:
        if len(paths) < 2:
            raise MeasurementsError("expected two run folders or tables, or one with --between FACTOR")
        sides = [compare.side_of(str(path), [opened(each, renames) for each in run_folders(path)]) for path in paths]
    else:
        if len(paths) != 1:
            raise MeasurementsError("--between: compares the levels of a factor of one run folder or table")
        sides = compare.sides_between(str(paths[0]), opened(paths[0], renames), factor)
    apart = compare.RUNS_APART if apart is None else apart
    pairs = [compare.compare(sides[0], side, gates=gates, level=level, apart=apart) for side in sides[1:]]
    if form == "json":
        from knee.answers import compare as answer
        from knee.answers.form import render

        print(render("compare", tuple(map(answer.of, pairs))))
    else:
        print(compare.render_markdown(pairs) if form == "markdown" else compare.render_text(pairs))
    if any(gate.state == "fails" for pair in pairs for gate in pair.gates):
        raise typer.Exit(FAILED)
