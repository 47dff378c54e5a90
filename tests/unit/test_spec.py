"""The experiment file: what is accepted, and what the messages about the rest say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knee import spec
from knee.errors import SpecError

GOOD = """\
[experiment]
name = "throughput-for-writes"
question = "How many workers?"

[system]
load = { hosts = 3, link_mbit = 200 }
middleware = { hosts = 2, workers = 8 }
store = { hosts = 3, kind = "memcached" }

[workload]
set_get = "1:0"
value_bytes = 4096
keys = 10_000
populated = 0.99

[factors]
"load.clients" = [6, 12, 24]
"middleware.workers" = [8, 16]

[measure]
repetitions = 3
seconds = 70
"""


def read(text: str, *overrides: str) -> spec.Spec:
    return spec.parse(text, "x.toml", spec.parse_overrides(overrides))


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text, *overrides)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} has to stand once in the good file"
    return GOOD.replace(old, new)


def test_the_designs_example_is_read_whole() -> None:
    good = read(GOOD)
    assert good.factors == {"load.clients": (6, 12, 24), "middleware.workers": (8, 16)}
    point = good.at({"load.clients": 24, "middleware.workers": 16})
    assert (point.clients, point.middlewares, point.stores) == (24, 2, 3)
    assert point.system.middleware is not None and point.system.middleware.workers == 16
    assert point.workload.populated == 0.99
    assert good.wants_links


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # A misspelt field, table, factor and choice: each names the nearest right one.
        ("workers = 8 }", "wrokers = 8 }", 'x.toml:7: middleware.wrokers: no such field; did you mean "workers"?'),
        ("[measure]", "[mesure]", 'x.toml:20: mesure: no such table; did you mean "measure"?'),
        ('"load.clients"', '"load.client"', 'x.toml:17: load.client: no such factor; did you mean "load.clients"?'),
        (
            '"memcached"',
            '"memcache"',
            "x.toml:8: store.kind: should be 'knee-kv' or 'memcached', not 'memcache'; did you mean \"memcached\"?",
        ),
        # Wrong types and ranges, where they stand.
        ("keys = 10_000", 'keys = "many"', "x.toml:13: workload.keys: should be a valid integer, not 'many'"),
        ("keys = 10_000", "keys = true", "x.toml:13: workload.keys: should be a valid integer, not True"),
        ('"1:0"', '"0:0"', 'x.toml:11: workload.set_get: should ask for something, not "0:0"'),
        ('"1:0"', '"1/0"', "x.toml:11: workload.set_get: should be sets to gets, such as \"1:9\", not '1/0'"),
        (
            "value_bytes = 4096",
            'value_bytes = "uniform:9:3"',
            "x.toml:12: workload.value_bytes: should be LOW:HIGH, not 'uniform:9:3'",
        ),
        (
            "populated = 0.99",
            "populated = 1.5",
            "x.toml:14: workload.populated: should be less than or equal to 1, not 1.5",
        ),
        (
            "repetitions = 3",
            "repetitions = 0",
            "x.toml:21: measure.repetitions: should be greater than or equal to 1, not 0",
        ),
        (
            "seconds = 70",
            "seconds = 10",
            "x.toml:22: measure.seconds: should be more than warm-up and cool-down together (5 + 5), not 10",
        ),
        ('name = "throughput-for-writes"', "", "x.toml:1: experiment.name: missing"),
        # Factors: the level that is wrong, by its line.
        (
            "[6, 12, 24]",
            "[6,\n 7]",
            "x.toml:18: load.clients: should divide evenly over 3 load hosts, not 7; the nearest that do are 6 and 9",
        ),
        ("[6, 12, 24]", "[2]", "x.toml:17: load.clients: should be at least one per load host (3), not 2"),
        ("[8, 16]", '[8,\n "x"]', "x.toml:19: middleware.workers: should be a valid integer, not 'x'"),
        ("[8, 16]", "[8, 8]", "x.toml:18: middleware.workers: should have different levels, not [8, 8]"),
        ("[8, 16]", "8", "x.toml:18: middleware.workers: should be a list of at least one level, not 8"),
        ("[8, 16]", "[]", "x.toml:18: middleware.workers: should be a list of at least one level, not []"),
        (
            '"load.clients" =',
            "load.clients =",
            'x.toml:17: load: a factor\'s name has to be quoted: "load.…" = […]',
        ),
        # What only several fields together make wrong.
        (
            "workers = 8 }",
            "workers = 8, pipelined = true }",
            "x.toml:18: middleware.workers: cannot be given together with pipelined = true",
        ),
        (
            'kind = "memcached" }',
            'address = ["a:1"] }',
            "x.toml:8: store.address: should name hosts = 3 addresses, not 1",
        ),
        (
            'hosts = 3, kind = "memcached" }',
            'address = ["a:70000"] }',
            "x.toml:8: store.address: should have ports from 1 to 65535, not 'a:70000'",
        ),
        (
            "populated = 0.99",
            "rate = 100\nthink_ms = 1",
            "x.toml:15: workload.think_ms: cannot be given together with rate: an open loop has none",
        ),
    ],
)
def test_a_problem_is_named_with_its_line_and_remedy(old: str, new: str, expected: str) -> None:
    assert expected in problems(changed(old, new))


def test_several_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = changed("workers = 8 }", "wrokers = 8 }")
    text = text.replace("keys = 10_000", "keys = 0").replace("seconds = 70", "seconds = 0")
    text = text.replace('name = "throughput-for-writes"', 'name = "a b"')
    assert [problem.split(": ")[0] for problem in problems(text)] == ["x.toml:2", "x.toml:7", "x.toml:13", "x.toml:22"]


def test_an_override_replaces_a_value_and_its_problem_names_the_flag() -> None:
    assert read(GOOD, "measure.repetitions=1").measure.repetitions == 1
    assert read(GOOD, "workload.set_get=1:9").base.workload.set_get == "1:9"
    assert problems(GOOD, "measure.seconds=abc") == [
        "--set measure.seconds=abc: measure.seconds: should be a valid integer, not 'abc'"
    ]
    assert problems(GOOD, "measure.secnds=5") == [
        '--set measure.secnds=5: no such name; did you mean "measure.seconds"?'
    ]
    with pytest.raises(SpecError, match="expected NAME=VALUE"):
        spec.parse_overrides(["measure.seconds"])


def test_an_override_with_a_list_makes_a_factor_and_with_a_value_fixes_one() -> None:
    assert read(GOOD, "load.clients=[3, 6]").factors["load.clients"] == (3, 6)
    assert read(GOOD, "store.hosts=[1, 2]").factors["store.hosts"] == (1, 2)
    fixed = read(GOOD, "load.clients=9")
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
    measure = read(GOOD, *overrides).measure
    assert (measure.seconds, measure.warmup_s, measure.cooldown_s) == expected


def test_overrides_that_went_into_a_manifest_give_the_same_spec_again() -> None:
    first = read(GOOD, "measure.seconds=14", "load.clients=[3, 6]", "store.kind=knee-kv")
    assert spec.parse(GOOD, "x.toml", first.overrides) == first


def test_a_system_that_runs_elsewhere() -> None:
    text = changed('hosts = 3, kind = "memcached" }', 'address = ["10.0.0.1:11211", "[::1]:11211"] }')
    assert read(text).base.stores == 2
    assert problems(text.replace('"middleware.workers"', '"store.threads"'))[0] == (
        "x.toml:18: store.threads: cannot vary: this tier already runs elsewhere (address = …)"
    )


def test_a_grid_without_end_is_refused() -> None:
    assert problems(GOOD, f"load.clients={[3 * n for n in range(1, 6000)]}")[0].endswith("at most 10000 points")


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
