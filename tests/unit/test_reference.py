"""The page of all keys, and the schema for editors, against the program and the experiments."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from json_schema import violations
from specs import CACHE, GRAPH, MESSAGES, VERSIONED

from knee.spec import reference
from knee.spec.tables import factor_names

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted((REPOSITORY / "experiments").glob("*.toml"))
SCHEMA = json.loads(json.dumps(reference.schema()))


def found(text: str) -> list[str]:
    document: dict[str, Any] = tomllib.loads(text)
    return list(violations(document, SCHEMA, SCHEMA))


def test_page_of_keys_is_the_generated_one() -> None:
    page = REPOSITORY / "docs" / "experiment-keys.md"
    assert page.read_text() == reference.markdown(), "write it again: knee schema --markdown > docs/experiment-keys.md"


def test_every_key_has_a_row() -> None:
    rows = [line.split("`")[1] for line in reference.markdown().splitlines() if line.startswith("| `")]
    links = {"link_mbit", "receive_mbit", "delay_ms"}
    keys = {name.rpartition(".")[2] for name in factor_names()} - links
    assert keys <= set(rows) and links <= set(rows)
    assert rows.count("hosts") == 4 and all(rows.count(name) == 1 for name in links)


@pytest.mark.parametrize(
    "text",
    [CACHE, CACHE.replace("[6, 12, 24]", '"auto"'), GRAPH, MESSAGES, VERSIONED, *(file.read_text() for file in FILES)],
)
def test_valid_experiment_keeps_the_schema(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[measure]", "[mesure]", "$.mesure: not allowed"),
        ("workers = 8", "wrokers = 8", "$.system.middleware.wrokers: not allowed"),
        ("hosts = 3, kind", "hosts = 0, kind", "$.system.store.hosts: 0: minimum 1"),
        ('"memcached"', '"memcache"', "$.system.store.kind: 'memcache' is not"),
        ("value_bytes = 4096", 'value_bytes = "9"', "$.workload.value_bytes: '9' is none of 2 alternatives"),
        ("populated = 0.99", "populated = 1.5", "$.workload.populated: 1.5: maximum 1"),
        ('"1:0"', '"1"', "$.workload.set_get: '1' does not match"),
        ("[6, 12, 24]", '"all"', "$.factors.load.clients: 'all' is none of 2 alternatives"),
        ("[8, 16]", "[8, 8]", "$.factors.middleware.workers: has equal items"),
        ("[8, 16]", '["8"]', "$.factors.middleware.workers[0]: '8' is no integer"),
        ('name = "throughput-for-writes"', "", "$.experiment.name: missing"),
    ],
)
def test_wrong_experiment_violates_the_schema(old: str, new: str, says: str) -> None:
    assert found(CACHE.replace(old, new, 1))[0].startswith(says)
