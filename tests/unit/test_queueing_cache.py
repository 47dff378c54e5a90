"""The hit ratio of a cache, against closed forms, an exact product form and a simulation."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from knee.queueing import ArgumentError, cache_hit_ratio


def zipf(keys: int, exponent: float) -> list[float]:
    return [rank**-exponent for rank in range(1, keys + 1)]


def test_a_key_hits_by_the_renewals_of_its_copies() -> None:
    # λ = 40, T = 0.5: a miss and 20 hits.
    assert cache_hit_ratio([1], 40, 0.5) == pytest.approx(20 / 21)
    # A write for each read: every read is a hit if the last request of its key was a read.
    assert cache_hit_ratio([3, 1], 40, math.inf, writes_per_read=1) == pytest.approx(1 / 2)
    # Four writes a second: a copy lives (1 - exp(-4 · 0.5)) / 4 s.
    lives = -math.expm1(-2) / 4
    assert cache_hit_ratio([1], 40, 0.5, writes_per_read=0.1) == pytest.approx(40 * lives / (1 + 40 * lives))


def test_keys_that_all_fit_always_hit() -> None:
    assert cache_hit_ratio(zipf(100, 1.0), 1000, math.inf, items_max=100) == pytest.approx(1)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_first_in_first_out_is_close_to_its_product_form(exponent: float) -> None:
    """The set of cached keys has a probability proportional to the product of their popularities (King 1971)."""
    popularity, room = np.array(zipf(14, exponent)), 6
    popularity /= popularity.sum()
    sets = [list(chosen) for chosen in combinations(range(14), room)]
    weights = np.array([popularity[chosen].prod() for chosen in sets])
    exact = (weights * [popularity[chosen].sum() for chosen in sets]).sum() / weights.sum()
    assert cache_hit_ratio(popularity, 5, math.inf, items_max=room) == pytest.approx(exact, abs=0.02)


def test_values_with_a_lifetime_hit_as_simulated() -> None:
    random = np.random.default_rng(7)
    popularity = np.array(zipf(500, 1.0)) / sum(zipf(500, 1.0))
    requests, rate, lifetime = 40_000, 2000.0, 0.2
    times = random.exponential(1 / (rate * 1.1), requests).cumsum()
    keys = random.choice(500, requests, p=popularity)
    writes = random.random(requests) < 0.1 / 1.1
    ends: dict[int, float] = {}
    hits = 0
    for time, key, write in zip(times.tolist(), keys.tolist(), writes.tolist(), strict=True):
        if write:
            ends.pop(key, None)
        elif ends.get(key, 0.0) > time:
            hits += 1
        else:
            ends[key] = time + lifetime
    measured = hits / (requests - writes.sum())
    predicted = cache_hit_ratio(popularity, rate, lifetime, writes_per_read=0.1)
    assert predicted == pytest.approx(measured, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([], 1, 1), "popularity"),
        (([1, 0], 1, 1), "popularity"),
        (([1], 0, 1), "reads_per_s"),
        (([1], 1, math.nan), "lifetime_s"),
    ],
)
def test_an_invalid_argument_is_named(arguments: tuple[list[float], float, float], name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        cache_hit_ratio(*arguments)


def test_invalid_options_are_named() -> None:
    with pytest.raises(ArgumentError, match="items_max"):
        cache_hit_ratio([1], 1, 1, items_max=0)
    with pytest.raises(ArgumentError, match="writes_per_read"):
        cache_hit_ratio([1], 1, 1, writes_per_read=-0.1)
