"""Reads by what came of them: clusters, their shares, and how far the few large ones move the mean."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from synthetic import System, synthetic_dataset
from versioned import OUTCOMES, versioned_dataset

from knee.distributions import merged
from knee.outcomes import clusters, outcomes, reads, why_the_mean_misleads


def test_every_outcome_has_its_own_time_and_its_share_of_all() -> None:
    found = reads(merged(versioned_dataset((1, 8))))
    table = outcomes(found).filter(point=1)
    assert table["outcome"].to_list() == ["not found", "ordinary", "very large", "all reads"]
    mean = dict(table.select("outcome", "mean_ms").iter_rows())
    assert mean["not found"] / mean["ordinary"] == pytest.approx(OUTCOMES["read_missing"], rel=0.01)
    assert mean["very large"] / mean["ordinary"] == pytest.approx(OUTCOMES["read_large"], rel=0.01)
    shares = table.filter(pl.col("outcome") != "all reads")
    assert shares["share"].sum() == pytest.approx(1)
    assert shares["time_share"].sum() == pytest.approx(1, rel=0.01)
    large = table.filter(outcome="very large").row(0, named=True)
    assert large["share"] == pytest.approx(0.01, rel=0.05)
    assert large["each"] == pytest.approx(1000 / large["mean_ms"])


def test_outcomes_that_lie_apart_are_clusters() -> None:
    drawn = clusters(reads(merged(versioned_dataset((8,)))))
    spans = drawn.group_by("outcome").agg(pl.col("low_ms").min(), pl.col("high_ms").max(), pl.col("share").sum())
    assert spans["share"].to_list() == pytest.approx([1.0, 1.0, 1.0])
    ends = spans.sort("low_ms").select("low_ms", "high_ms").rows()
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_the_few_large_ones_are_named_for_what_they_do_to_the_mean() -> None:
    table = outcomes(reads(merged(versioned_dataset((8,)))))
    sentence = why_the_mean_misleads(table, 0, 8)
    assert sentence.startswith("At 8 clients 1.0% of the reads were very large ones.")
    assert "100 times as long as ordinary ones" in sentence
    without = why_the_mean_misleads(table.filter(pl.col("outcome") != "very large"), 0, 8)
    assert "found nothing took 0.50 times as long" in without
    assert "nothing to compare" in why_the_mean_misleads(table.filter(outcome="ordinary"), 0, 8)


def test_reads_that_nobody_told_apart_have_no_outcomes() -> None:
    assert not reads(merged(synthetic_dataset(System(), (4,), repetitions=1)))
