"""Moderated variances and single repetitions, on normal numbers of known scatter."""

from __future__ import annotations

import numpy as np
import pytest

from knee.laws.scatter import scatter_of
from knee.stats.intervals import Floats

GROUPS, REPETITIONS = 2000, 3
STARTS = np.arange(0, GROUPS * REPETITIONS, REPETITIONS)


def normal(deviations: Floats | float, seed: int = 1) -> Floats:
    """Groups around zero with these standard deviations."""
    rng = np.random.default_rng(seed)
    return np.ravel(rng.standard_normal((GROUPS, REPETITIONS)) * np.reshape(deviations, (-1, 1)))


def test_equal_scatter_is_pooled() -> None:
    values = normal(0.02)
    found = scatter_of(values, STARTS)
    assert found.error == pytest.approx(0.02 / np.sqrt(REPETITIONS), rel=0.1)
    assert found.freedom.min() > 100
    means = values.reshape(GROUPS, REPETITIONS).mean(axis=1)
    assert np.mean(np.abs(means) < 1.96 * found.error) == pytest.approx(0.95, abs=0.015)


def test_unequal_scatter_has_the_prior_it_came_from() -> None:
    """Smyth 2004, eq. 2: σ² = d₀ s₀² / χ²(d₀), here with d₀ = 4, gives d₀ + d degrees of freedom."""
    deviations = 0.02 * np.sqrt(4 / np.random.default_rng(2).chisquare(4, GROUPS))
    values = normal(deviations)
    found = scatter_of(values, STARTS)
    assert found.freedom == pytest.approx(4 + REPETITIONS - 1, rel=0.15)
    moderated = np.abs(values.reshape(GROUPS, REPETITIONS).mean(axis=1)) / found.error
    assert np.mean(moderated < 2.45) == pytest.approx(0.95, abs=0.015)


def test_group_alone_has_its_own_variance_only() -> None:
    values = np.array([1.0, 2.0, 4.0])
    found = scatter_of(values, np.array([0]))
    assert found.error == pytest.approx(values.std(ddof=1) / np.sqrt(3))
    assert found.freedom.tolist() == [2]
    assert np.isnan(scatter_of(np.array([1.0, 2.0]), np.array([0, 1])).error).all()


@pytest.mark.parametrize("deviations", [0.02, 0.02 * np.sqrt(4 / np.random.default_rng(3).chisquare(4, GROUPS))])
def test_right_repetition_rarely_seems_to_depart(deviations: Floats | float) -> None:
    probabilities = scatter_of(normal(deviations), STARTS).probability
    assert np.mean(probabilities < 0.01) <= 0.012
    assert np.mean(probabilities < 0.001) <= 0.0015


def test_wrong_repetition_departs_by_its_difference() -> None:
    values = normal(0.005)
    values[4] += 0.05
    found = scatter_of(values, STARTS)
    assert found.apart[4] == pytest.approx(values[4] - (values[3] + values[5]) / 2)
    assert found.probability.argmin() == 4 and found.probability[4] < 1e-6


def test_missing_values_are_left_out() -> None:
    values = normal(0.02)
    values[:2] = np.nan
    found = scatter_of(values, STARTS)
    assert np.isfinite(found.error[0]) and np.isnan(found.apart[:3]).all()
    assert found.error[0] == pytest.approx(0.02, rel=0.1)
