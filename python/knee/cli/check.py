"""`knee check`: audits the results of other load generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from knee.cli.output import note
from knee.data import Dataset, foreign
from knee.data.foreign import Result
from knee.data.outputs import failures_of, is_commands, outputs_of, results_of
from knee.data.reading import resuming
from knee.errors import DatasetError, MeasurementsError, SpecError
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
    """Print the findings; with `out`, also write the results as a CSV for the other commands. Raises SpecError for an
    option that does not apply, and DatasetError for an experiment without a finished run."""
    from knee import check

    results, others, guesses = list[Result](), list[Path](), list[str]()
    given = {"--from": tool, "--clients": clients, "--rate": rate, "--map": renames, "--ignore": ignored}
    options = [option for option, value in given.items() if value not in (None, [], ())]
    for path in paths:
        if not is_commands(path):
            others.append(outputs_of(path))
            continue
        if options:
            cause = f"does not apply to {path}, whose runs Knee made"
            raise SpecError(f"{options[0]}: {cause}; leave it out, or check that folder alone")
        dataset = Dataset.open(path)
        if not (made := results_of(dataset)):
            raise DatasetError(f"{path}: no run is complete; {resuming(path, dataset.manifest)} makes them")
        results += made
        guesses += failures_of(path, dataset)
    if others:
        read, assumed = foreign.read(others, tool, clients, rate, renames=renames, ignored=ignored)
        results, guesses = [*results, *read], [*guesses, *assumed]
    if len(paths) > 1:
        # Each folder counts its repetitions and runs from 1, and has columns of its own, which the labels repeat.
        common = set[str].intersection(*({*each.row} for each in results)) - {"repetition", "run_order"}
        results = [replace(each, row={name: each.row[name] for name in each.row if name in common}) for each in results]
    note(*guesses)
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
