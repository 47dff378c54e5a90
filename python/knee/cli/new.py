"""`knee init` and `knee schema`: a new experiment file, and the keys of one."""

from __future__ import annotations

import json

from knee.spec import reference


def print_schema(*, as_markdown: bool) -> None:
    """Print the keys of an experiment file as a JSON Schema or as a page."""
    print(reference.markdown().rstrip() if as_markdown else json.dumps(reference.schema(), indent=2))
