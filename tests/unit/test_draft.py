"""New experiment files: every kind is valid as written, and with each of its commented keys."""

from __future__ import annotations

import pytest

from knee import spec
from knee.errors import SpecError
from knee.spec.draft import KINDS, draft


@pytest.mark.parametrize("name", KINDS)
def test_draft_is_valid_with_each_of_its_comments(name: str) -> None:
    kind = KINDS[name]
    lines = draft("new", kind, [8, 16], [2], 10).splitlines()
    found = spec.parse("\n".join(lines), "x.toml")
    assert found.factors == {"load.clients": (8, 16)}
    assert found.measure.seconds == 10 and found.experiment.name == "new"
    assert (found.base.system.middleware is not None) == kind.has_middleware
    commented = [number for number, line in enumerate(lines) if line.startswith("# ") and " = " in line]
    assert len(commented) >= 5
    for number in commented:
        changed = [*lines[:number], lines[number].removeprefix("# "), *lines[number + 1 :]]
        spec.parse("\n".join(changed), "x.toml")


def test_several_workers_are_a_factor() -> None:
    found = spec.parse(draft("new", KINDS["cache"], [8], [2, 4], 1), "x.toml")
    assert found.factors == {"load.clients": (8,), "middleware.workers": (2, 4)}
    assert (found.measure.warmup_s, found.measure.seconds) == (0, 1)


def test_clients_without_numbers_are_left_to_scouts() -> None:
    assert spec.parse(draft("new", KINDS["kv"], None, [], 10), "x.toml").is_auto


def test_wrong_values_are_refused_by_name() -> None:
    with pytest.raises(SpecError) as caught:
        draft("a b", KINDS["kv"], [0], [], 10)
    first, second = str(caught.value).splitlines()
    assert first.startswith("experiment.name: should be letters")
    assert second == "load.clients: should be greater than or equal to 1, not 0"
