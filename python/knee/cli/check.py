"""`knee check`: audits the results of other load generators."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from knee.data import Dataset, foreign
from knee.data.outputs import failures_of, is_commands, outputs_of, results_of
from knee.errors import MeasurementsError
from knee.storage import writing


def print_check(
    paths: Sequence[Path],
    tool: str | None,
    clients: int | None,
    rate: float | None,
    out: Path | None,
    *,
    renames: Sequence[str],
    ignored: Sequence[str],
    as_json: bool,
) -> None:
    """Print the findings; with `out`, also write the results as a CSV for the other commands."""
    from knee import check

    if len(paths) == 1 and is_commands(paths[0]):
        dataset = Dataset.open(paths[0])
        results, guesses = results_of(dataset), failures_of(paths[0], dataset)
    else:
        outputs = [outputs_of(path) for path in paths]
        results, guesses = foreign.read(outputs, tool, clients, rate, renames=renames, ignored=ignored)
    for guess in guesses:
        print(f"knee: {guess}", file=sys.stderr)
    if out is not None:
        if not (table := check.table(results)):
            raise MeasurementsError("--csv: no result has clients or a rate; add --clients or --rate")
        with writing(out):
            out.write_text(table, encoding="utf-8")
    found = check.check(results)
    if as_json:
        from knee.answers import check as answer
        from knee.answers import form

        print(form.render("check", answer.of(found)))
    else:
        print(check.render_text(found))
