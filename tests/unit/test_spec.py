"""The experiment file: what is accepted, and what the messages about the rest say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import CACHE, changed, problems, read

from knee import spec
from knee.errors import SpecError


def test_the_designs_example_is_read_whole() -> None:
    good = read(CACHE)
    assert good.factors == {"load.clients": (6, 12, 24), "middleware.workers": (8, 16)}
    point = good.at({"load.clients": 24, "middleware.workers": 16})
    assert (point.clients, point.middlewares, point.stores) == (24, 2, 3)
    assert point.system.middleware is not None and point.system.middleware.workers == 16
    assert point.workload.populated == 0.99
    assert good.wants_links


def test_several_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = changed(CACHE, "workers = 8 }", "wrokers = 8 }")
    text = text.replace("keys = 10_000", "keys = 0").replace("seconds = 70", "seconds = 0")
    text = text.replace('name = "throughput-for-writes"', 'name = "a b"')
    assert [problem.split(": ")[0] for problem in problems(text)] == ["x.toml:2", "x.toml:7", "x.toml:13", "x.toml:22"]


def test_an_override_replaces_a_value_and_its_problem_names_the_flag() -> None:
    assert read(CACHE, "measure.repetitions=1").measure.repetitions == 1
    assert read(CACHE, "workload.set_get=1:9").base.workload.set_get == "1:9"
    assert problems(CACHE, "measure.seconds=abc") == [
        "--set measure.seconds=abc: measure.seconds: should be a valid integer, not 'abc'"
    ]
    assert problems(CACHE, "measure.secnds=5") == [
        '--set measure.secnds=…: no such name; did you mean "measure.seconds"?'
    ]
    for levels in ("kv", '["kv", "queue"]'):
        (problem,) = problems(CACHE, f"workload.protocol={levels}")
        assert "workload.protocol=" in problem and "cannot be replaced: what else the file says" in problem
    (problem,) = problems(CACHE, "measure.seconds=[9, 18]")
    assert problem.startswith("--set measure.seconds=[9, 18]: measure.seconds: cannot vary")
    with pytest.raises(SpecError, match="expected NAME=VALUE"):
        spec.parse_overrides(["measure.seconds"])


def test_an_override_with_a_list_makes_a_factor_and_with_a_value_fixes_one() -> None:
    assert read(CACHE, "load.clients=[3, 6]").factors["load.clients"] == (3, 6)
    assert read(CACHE, "store.hosts=[1, 2]").factors["store.hosts"] == (1, 2)
    fixed = read(CACHE, "load.clients=9")
    assert "load.clients" not in fixed.factors
    assert fixed.base.clients == 9


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # Shortened in proportion, rounded up to whole seconds …
        (["measure.seconds=14"], (14, 1, 1)),
        (["measure.seconds=35"], (35, 3, 3)),
        # … unless they are given too; longer runs keep the file's.
        (["measure.seconds=14", "measure.warmup_s=4"], (14, 4, 1)),
        (["measure.seconds=700"], (700, 5, 5)),
    ],
)
def test_shortening_a_run_shortens_its_warm_up(overrides: list[str], expected: tuple[int, int, int]) -> None:
    measure = read(CACHE, *overrides).measure
    assert (measure.seconds, measure.warmup_s, measure.cooldown_s) == expected


def test_overrides_that_went_into_a_manifest_give_the_same_spec_again() -> None:
    first = read(CACHE, "measure.seconds=14", "load.clients=[3, 6]", "store.kind=knee-kv")
    assert spec.parse(CACHE, "x.toml", first.overrides) == first


def test_a_system_that_runs_elsewhere() -> None:
    text = changed(CACHE, 'hosts = 3, kind = "memcached" }', 'address = ["10.0.0.1:11211", "[::1]:11211"] }')
    assert read(text).base.stores == 2
    assert problems(text.replace('"middleware.workers"', '"store.threads"'))[0] == (
        "x.toml:18: store.threads: cannot vary: this tier already runs elsewhere (address = …)"
    )


def test_a_grid_without_end_is_refused() -> None:
    assert problems(CACHE, f"load.clients={[3 * n for n in range(1, 6000)]}")[0].endswith("at most 10000 points")


def test_text_that_is_no_toml(tmp_path: Path) -> None:
    assert problems("[experiment\n")[0].startswith("x.toml: not valid TOML")
    assert problems("a = " + "9" * 5000)[0].startswith("x.toml: not valid TOML")
    assert problems("a = " + "[" * 5000)[0].startswith("x.toml: not valid TOML")
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        spec.load(tmp_path / "absent.toml")


_SCALARS = st.integers() | st.booleans() | st.text("abc:1", max_size=3)


@given(
    st.sampled_from(["experiment", "system", "system.load", "workload", "factors", "measure"]),
    st.dictionaries(
        st.sampled_from(["name", "hosts", "clients", "load", "set_get", "seconds", "'load.clients'"]),
        _SCALARS | st.lists(_SCALARS, max_size=3),
        max_size=4,
    ),
)
def test_whatever_a_table_holds_each_problem_is_told(table: str, fields: dict[str, object]) -> None:
    text = f"[{table}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    for problem in problems(text):
        assert problem.startswith("x.toml")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "experiments").glob("*.toml")), ids=lambda f: f.name
)
def test_every_experiment_of_the_project_is_valid_also_when_shortened(file: Path) -> None:
    whole = spec.load(file)
    short = spec.load(file, ["measure.seconds=3"]).measure
    assert short.seconds - short.warmup_s - short.cooldown_s >= 1
    assert whole.experiment.question
