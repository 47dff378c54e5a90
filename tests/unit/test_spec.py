"""The experiment file: what is accepted, and what the messages about the rest say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import CACHE, MESSAGES, changed, problems, read

from knee import spec
from knee.errors import SpecError
from knee.spec.design import runs


def test_the_designs_example_is_read_whole() -> None:
    good = read(CACHE)
    assert good.factors == {"load.clients": (6, 12, 24), "middleware.workers": (8, 16)}
    point = good.at({"load.clients": 24, "middleware.workers": 16})
    assert (point.clients, point.middlewares, point.stores) == (24, 2, 3)
    assert point.system.middleware is not None and point.system.middleware.workers == 16
    assert point.workload.populated == 0.99
    assert good.wants_links


def test_problems_are_reported_in_the_order_of_their_lines() -> None:
    text = changed(CACHE, "workers = 8 }", "wrokers = 8 }")
    text = text.replace("keys = 10_000", "keys = 0").replace("seconds = 70", "seconds = 0")
    text = text.replace('name = "throughput-for-writes"', 'name = "a b"')
    assert [problem.split(": ")[0] for problem in problems(text)] == ["x.toml:2", "x.toml:7", "x.toml:13", "x.toml:22"]


def test_a_wrong_override_is_reported_with_its_flag() -> None:
    assert read(CACHE, "measure.repetitions=1").measure.repetitions == 1
    assert read(CACHE, "workload.set_get=1:9").base.workload.set_get == "1:9"
    assert problems(CACHE, "measure.seconds=abc") == ["--set measure.seconds: should be a valid integer, not 'abc'"]
    assert problems(CACHE, "measure.secnds=5") == [
        '--set measure.secnds: no such name; did you mean "measure.seconds"?'
    ]
    for levels in ("kv", '["kv", "queue"]'):
        (problem,) = problems(CACHE, f"workload.protocol={levels}")
        assert "workload.protocol: cannot be replaced: the rest of the file depends" in problem
    (problem,) = problems(CACHE, "measure.seconds=[9, 18]")
    assert problem.startswith("--set measure.seconds: cannot vary")
    with pytest.raises(SpecError, match="expected NAME=VALUE"):
        spec.parse_overrides(["measure.seconds"])


def test_a_list_makes_a_factor_and_a_value_fixes_one() -> None:
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


def test_kept_overrides_give_the_same_spec() -> None:
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
def test_every_problem_has_a_place(table: str, fields: dict[str, object]) -> None:
    text = f"[{table}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
    for problem in problems(text):
        assert problem.startswith("x.toml")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[2] / "experiments").glob("*.toml")), ids=lambda f: f.name
)
def test_an_experiment_is_valid_and_can_be_planned(file: Path) -> None:
    whole = spec.load(file)
    short = spec.load(file, ["measure.seconds=3"]).measure
    assert whole.base.system.load.is_foreign or short.seconds - short.warmup_s - short.cooldown_s >= 1
    assert whole.experiment.question
    assert {run.repetition for run in runs(whole, seed=1)} == set(range(1, whole.measure.repetitions + 1))


SECRET = "kept2themselves"


@pytest.mark.parametrize(
    "override",
    [
        f"postgresql://me:{SECRET}@h:5432/db",
        f"postgresql://me:{SECRET}@h:5432/db?sslmode=require",
        f"store.address=me:{SECRET}@h:5432",
        f'store.address=["h:5432", "me:{SECRET}@h:5432"]',
        f"middleware.address=postgresql://me:{SECRET}@h:5432/db",
        f"store.user=me:{SECRET}",
        f"store.database=db?password={SECRET}",
        f"store.password={SECRET}",
        f"store.adress=me:{SECRET}@h:5432",
    ],
)
def test_no_problem_repeats_an_address(override: str) -> None:
    said = problems(MESSAGES, override)
    assert said and SECRET not in "".join(said)


@pytest.mark.parametrize("field", ["address", "user", "database", "password"])
def test_no_problem_repeats_an_address_of_a_file(field: str) -> None:
    said = problems(changed(MESSAGES, '"postgresql"', f'"postgresql", {field} = "me:{SECRET}@h:5432"'))
    assert said and SECRET not in "".join(said)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("store.kind=[sqlite,null]", """put double quotes around each text in a list"""),
        ('workload.characters="1', "should be a valid integer"),
    ],
)
def test_an_unquoted_list_is_reported_with_its_quotes(override: str, says: str) -> None:
    (said,) = problems(MESSAGES, override)
    assert says in said and said.endswith("""--set 'store.kind=["sqlite", "null"]')""")


def test_addresses_are_refused_with_emulated_hosts() -> None:
    text = changed(CACHE, 'hosts = 3, kind = "memcached" }', 'address = ["10.0.0.1:11211", "10.0.0.2:11211"] }')
    (said,) = problems(text, "measure.hosts=emulated")
    assert "store.address: cannot be reached from emulated hosts (measure.hosts)" in said


def test_hosts_and_sockets_are_addresses() -> None:
    for address in ("db-1.example:5432", "[::1]:5432", "10.0.0.1:5432", "%2Fvar%2Frun%2Fpostgresql:5432"):
        store = read(MESSAGES, f'store.address=["{address}"]').base.system.store
        assert store is not None and store.address == (address,)
