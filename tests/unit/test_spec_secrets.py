"""A password that somebody has put into an experiment: what is said of it does not repeat it, wherever it stands."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest
from specs import MESSAGES, changed, problems, read

from knee import spec
from knee.errors import SpecError
from knee.spec.tables import Experiment, Graph, Measure, factor_names

SECRET = "kept2themselves"

ADDRESSES = {
    "url": f"postgresql://me:{SECRET}@h:5432/db",
    "url with settings": f"postgresql://h:5432/db?user=me&password={SECRET}",
    "url in capitals": f"POSTGRESQL://ME:{SECRET}@H/DB",
    "words": f"host=h user=me pass={SECRET}",
    "credentials": f"me:{SECRET}",
    "credentials and host": f"me:{SECRET}@h:5432",
    "host with settings": f"h/db?password={SECRET}&port=:5432",
    "several words": f"password {SECRET}",
}
"""What nobody could mean by a setting's value or name."""

ALONE = {"alone": SECRET}
"""Looks like any other word: it is told by where it stands."""

SHAPES = (
    "{}",
    '"{}"',
    '["{}"]',
    '["h:1", "{}"]',
    '[["{}"]]',
    '{{ user = "me", pass = "{}" }}',
    '{{ "{}" = 1 }}',
    "'{}",
)

OF_A_DATABASE = ("store.address", "store.user", "store.database", "middleware.address")
UNKNOWN = (
    *("password", "store.password", "store.pass", "store.pw", "store.dsn", "store.adress", "store.host", "nothing"),
    *("store", "system", "system.store", "factors.store.user", "factors", "workload", "workload.grahp.users"),
    *("store.user.x", "store.database.x", "store.address.x.y", "store.kind.x", "", " store.user ", '"store.user"'),
)
KNOWN = (
    *factor_names(),
    *(f"experiment.{field}" for field in Experiment.model_fields),
    *(f"measure.{field}" for field in Measure.model_fields),
    *(f"workload.graph.{field}" for field in Graph.model_fields),
)


def asked(text: str, *overrides: str) -> str:
    """What is said of an experiment, or would be were it not printed as text; empty where nothing is wrong with it."""
    try:
        spec.parse(text, "x.toml", spec.parse_overrides(overrides))
    except SpecError as error:
        # Without what was handled before it, tomllib's own words among that: it is never shown.
        return "".join([str(error), *traceback.format_exception(error, chain=False)])
    return ""


def overrides() -> Iterator[str]:
    every = [*ADDRESSES.values(), *ALONE.values()]
    yield from every
    yield from (f"{name} {secret}" for secret in every for name in ("store.password", "store.user:"))
    for shape in SHAPES:
        yield from (f"{name}={shape.format(secret)}" for secret in every for name in (*OF_A_DATABASE, *UNKNOWN))
    for shape in SHAPES[:3]:
        yield from (f"{name}={shape.format(secret)}" for secret in ADDRESSES.values() for name in KNOWN)
    yield from (f"{secret}=1" for secret in ADDRESSES.values())
    yield from (f"{table}.{secret}=1" for secret in ADDRESSES.values() for table in ("store", "store.user", "measure"))


def test_no_override_is_repeated_that_may_hold_one() -> None:
    accepted = []
    for override in overrides():
        said = asked(MESSAGES, override)
        assert SECRET not in said, override
        if not said:
            accepted.append(override.partition("=")[0].strip())
    # A question may be anything, and a name that is one is no address.
    assert set(accepted) <= {"experiment.question", "experiment.name", "store.user", "store.database"}


@pytest.mark.parametrize("secret", [*ADDRESSES, *ALONE])
def test_nothing_of_a_file_is_repeated_that_may_hold_one(secret: str) -> None:
    written = {**ADDRESSES, **ALONE}[secret]
    said = []
    # Of a table it is the name of a field, which is repeated.
    for shape in (one for one in SHAPES if not (secret in ALONE and "= 1" in one)):
        value = shape.format(written)
        for table in ("experiment", "system", "workload", "factors", "system.store", "system.load", "workload.graph"):
            keys = (f"password = {value}", f'"store.user" = {value}', f"user.x = {value}", f"address = {value}")
            said += [asked(with_table(table, key)) for key in keys]
            if secret not in ALONE:
                said += [asked(with_table(table, key)) for key in keys_of(written)]
        tables = ("experiment", "system", "workload", "factors", "measure", "store", "dsn", "system.store")
        # Beside the whole file, where it is a table twice, and alone.
        said += [asked(f"{table} = {value}\n{rest}") for table in tables for rest in ("", MESSAGES)]
        stored = 'store = { kind = "postgresql" }'
        said += [asked(changed(MESSAGES, stored, f"{tier} = {value}")) for tier in ("store", "middleware", "load")]
        for field in ("address", "user", "database", "pass"):
            told = asked(changed(MESSAGES, stored, f'store = {{ kind = "postgresql", {field} = {value} }}'))
            assert told or field in ("user", "database")
            said.append(told)
    assert SECRET not in "".join(said)


def with_table(table: str, line: str) -> str:
    """A file with another line in a table, which may be one that it has in another form."""
    header = f"[{table}]\n"
    return MESSAGES.replace(header, header + line + "\n") if header in MESSAGES else f"{MESSAGES}\n{header}{line}\n"


def keys_of(written: str) -> Iterator[str]:
    """As a name, and as one that stands there twice."""
    key = f'"{written}"'
    yield f"{key} = 1"
    yield f"{key}.x = [1]"
    yield f"{key} = 1\n{key} = 2"
    yield f"x = {{ {key} = 1, {key} = 2 }}"
    yield f"x = {{ {key} = 1 }}\nx.{key} = 2"
    yield f"[{key}]\n[{key}]"
    yield f"[system.{key}]\n[factors.{key}]\nx = 1"


def test_what_is_hidden_is_named_with_what_was_expected() -> None:
    def told(*overrides: str) -> str:
        return "\n".join(problems(MESSAGES, *overrides))

    url = ADDRESSES["url"]
    assert told(url) == "--set: expected NAME=VALUE, for example measure.seconds=5"
    assert told("workload.characters=1", url).startswith("--set (number 2 of 2): expected NAME=VALUE")
    assert told(f"{url}?sslmode=require") == "--set …=…: no such name; names are such as measure.seconds"
    assert told("store.adress=h") == '--set store.adress=…: no such name; did you mean "store.address"?'
    assert told(f"store.address={url}") == (
        '--set store.address=…: store.address: should be a list of "HOST:PORT", '
        "and whom a database lets in are store.user and store.database"
    )
    characters = told(f"workload.characters={url}")
    assert characters.startswith("--set workload.characters=…: workload.characters: should be a valid integer")
    (unknown,) = problems(with_table("workload", f'"{url}" = 1'))
    assert unknown.startswith("x.toml:10: workload.…: no such field")
    (twice,) = problems(with_table("workload", f'x = {{ "{url}" = 1, "{url}" = 2 }}'))
    assert twice.startswith("x.toml: not valid TOML: Duplicate inline table key … (at line 10, column ")
    (named,) = problems(with_table("workload", "x = { y = 1, y = 2 }"))
    assert named.startswith("x.toml: not valid TOML: Duplicate inline table key 'y' (at line 10, column ")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("workload.characters=abc", "'abc'"),
        ("workload.characters=99%", "'99%'"),
        ("workload.characters=1/2", "'1/2'"),
        ("workload.set_get=1:2:3", "'1:2:3'"),
        ("workload.characters=1 2 3", "'1 2 3'"),
        ("workload.characters=10*60", "'10*60'"),
        ("workload.characters=[1, 1]", "[1, 1]"),
        ("workload.rate=-5", "-5"),
        ("measure.repetitions=1.5", "1.5"),
        ("measure.order=reversed", "'reversed'"),
        ("experiment.name=-", "'-'"),
    ],
)
def test_an_ordinary_value_is_repeated(override: str, value: str) -> None:
    (said,) = problems(MESSAGES, override)
    assert said.startswith(f"--set {override}: ") and said.endswith(f", not {value}")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("store.kind=[sqlite,null]", """did you mean "sqlite"? (taken as text: """),
        ("store.address=[db:5432]", "are store.user and store.database (taken as text: "),
        ("workload.characters=[1;2]", "not '[1;2]' (taken as text: "),
        ('workload.characters="1', "should be a valid integer (taken as text: "),
        ("workload.characters={a}", "should be a valid integer (taken as text: "),
    ],
)
def test_what_was_to_be_toml_is_told_with_how_it_is_quoted(override: str, says: str) -> None:
    quoted = """texts in a list are quoted, and all of it for the shell, as in --set 'store.kind=["sqlite", "null"]')"""
    (said,) = problems(MESSAGES, override)
    assert said.endswith(f"{says}{quoted}")


def test_a_question_may_begin_as_toml_does() -> None:
    assert read(MESSAGES, "experiment.question=[draft] why?").experiment.question == "[draft] why?"


@pytest.mark.parametrize(
    "escaped", ["%40", "%3A", "%3a", "%3F", "%26", "%23", "%3D", "%2C", "%00", "%25", "%2", "%g0", "%"]
)
def test_what_is_between_the_parts_of_a_url_is_in_no_address(escaped: str) -> None:
    (said,) = problems(MESSAGES, f'store.address=["%2Fhome{escaped}x:5432"]')
    assert "should be a list of" in said


def test_hosts_and_sockets_are_addresses() -> None:
    sockets = ("%2Fvar%2Frun%2Fpostgresql:5432", "%2fhome%2fa%20b:5432", "%2Fhome%2Fgr%C3%B6%C3%9Fe:5432")
    for address in ("db-1.example:5432", "[::1]:5432", "10.0.0.1:5432", *sockets):
        store = read(MESSAGES, f'store.address=["{address}"]').base.system.store
        assert store is not None and store.address == (address,)
