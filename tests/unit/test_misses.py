"""Keys that gets did not find: their share in the tables, and the warning beyond what the experiment leaves out."""

from __future__ import annotations

import polars as pl
import pytest
from synthetic import System, configured, synthetic_dataset

from knee.data import Dataset
from knee.report import clients
from knee.report.sheet import Sheet
from knee.verdict import analyse, words
from knee.verdict.health import Missed

pytestmark = pytest.mark.usefixtures("modelless")


def missing(share: float, **workload: object) -> Dataset:
    """A run of two client counts; at the second, clients miss a share of their keys."""
    dataset = synthetic_dataset(System(), (4, 8), repetitions=2)
    missed = (pl.col("hits") * share * (pl.col("point") == 1) * (pl.col("role") == "load")).round().cast(pl.Int64)
    dataset.windows = dataset.windows.with_columns(misses=missed, hits=pl.col("hits") - missed)
    return configured(dataset, {f"workload.{name}": value for name, value in workload.items()})


def test_misses_of_each_view_are_in_the_table() -> None:
    page = clients.section(Sheet(analyse(missing(1.0))))
    assert "Missed keys (clients)" in page and "Missed keys (middlewares)" in page
    assert "<td>0%</td><td>0%</td></tr>" in page
    assert "<td>100%</td><td>0%</td></tr>" in page


def test_misses_beyond_unpopulated_keys_are_a_warning() -> None:
    (found,) = [one for one in analyse(missing(1.0, populated=1.0, ttl_s=3)).warnings if isinstance(one, Missed)]
    assert (found.affected, found.runs, found.expire) == (2, 4, True)
    said = words.warning(found)
    assert said.startswith("In 2 of 4 runs, gets missed up to 100% of the requested keys. ")
    assert "had set 100% of all keys before. Values expired, or a store evicted" in said and "more memory" not in said


@pytest.mark.parametrize(("key_choice", "populated", "is_warned"), [
    ("zipf:0.99", 0.9, False), ("hotset:0.1:0.9", 0.9, False), ("zipf:0.99", 1.0, True), ("uniform", 0.9, True),
])  # fmt: skip
def test_misses_of_frequent_keys_are_a_warning_if_all_are_populated(
    key_choice: str, populated: float, is_warned: bool
) -> None:
    found = analyse(missing(0.5, populated=populated, key_choice=key_choice)).warnings
    assert any(isinstance(one, Missed) for one in found) is is_warned


@pytest.mark.parametrize(("share", "populated"), [(0.05, 0.95), (0.009, 1.0), (0.5, 0.0)])
def test_misses_of_unpopulated_keys_are_no_warning(share: float, populated: float) -> None:
    assert not [one for one in analyse(missing(share, populated=populated)).warnings if isinstance(one, Missed)]
