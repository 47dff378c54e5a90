"""Levels of clients that scouts choose: with known knees, and in experiment files."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from specs import CACHE, changed, problems, read
from test_find import slots
from test_spec_foreign import COMMAND, WRK

from knee import spec
from knee.data.foreign import Result
from knee.errors import SpecError
from knee.find.scouts import LEVELS_MAX, ScoutTarget, combinations, joint_levels, levels_of, thinned
from knee.find.search import Search
from knee.generators.runner import ExitError

AUTO = changed(CACHE, "[6, 12, 24]", '"auto"')


@pytest.mark.parametrize(("number", "delay_ms"), [(1, 0), (2, 0), (5, 30), (8, 0), (32, 20), (100, 100)])
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("least", [1, 3])
def test_levels_of_scouts_enclose_the_knee(number: int, delay_ms: float, noise: float, least: int) -> None:
    for seed in range(4 if noise else 1):
        measure = slots(number, 10, delay_ms, noise, seed)
        search = Search(ScoutTarget(0.05), measure, pytest.fail, random.Random(0), least)
        search.scout()
        levels, knee = levels_of(search), number * (1 + delay_ms / 10)
        assert len(levels) <= LEVELS_MAX and levels == sorted(set(levels))
        assert all(level % least == 0 for level in levels)
        assert levels[0] <= max(least, knee / 4) and sum(level > 1.2 * knee for level in levels) >= 2


def test_scouts_go_on_after_a_slow_one() -> None:
    works = slots(32, 10, 0)

    def measure(clients: int, is_scout: bool) -> object:
        return works(4 if clients == 8 else clients, is_scout)

    search = Search(ScoutTarget(0.05), measure, pytest.fail, random.Random(0))  # type: ignore[arg-type]
    search.scout()
    assert max(search.scouts) >= 64


def test_levels_of_several_knees_are_thinned_between_their_ends() -> None:
    every = {2**power + offset for power in range(11) for offset in (0, power)}
    levels = thinned(every)
    assert len(levels) == LEVELS_MAX and (levels[0], levels[-1]) == (min(every), max(every))
    assert max(above / below for below, above in pairwise(levels)) < 5
    assert thinned({4, 1, 2}) == [1, 2, 4]


def scouted(number: int, threads: int = 1, most: int = 10_000) -> Search:
    """The scouts of a system with a knee, and of a generator with threads, which fails with more clients."""
    works = slots(number, 10, 0)

    def measure(clients: int, is_scout: bool) -> Result:
        if clients % threads or clients > most:
            raise ExitError("wrk: exit code 1")
        return works(clients, is_scout)

    search = Search(ScoutTarget(0.05), measure, lambda _: None, random.Random(0))
    search.scout()
    return search


def test_levels_of_generators_with_other_threads_suit_all() -> None:
    levels = joint_levels({1, 2, 3, 5, 6, 32}, [scouted(8), scouted(8, threads=4)])
    assert levels == [4, 8, 32]


def test_levels_beside_a_system_that_fails_stay_below() -> None:
    few, many = scouted(8, most=100), scouted(256)
    assert not few.has_failed and max(few.scouts) < 100
    few.scout(1024)
    assert few.has_failed and joint_levels({1, 8, 100, 1024}, [few, many]) == [1, 8, 64]


def test_levels_of_combinations_without_a_common_one_are_refused() -> None:
    with pytest.raises(
        SpecError, match=r"load\.clients: the combinations need multiples of 8, and fail with more than 4 "
    ):
        joint_levels({4, 8}, [scouted(8, threads=8), scouted(8, most=4)])


def test_scouts_of_many_combinations_have_every_text_and_both_ends_of_numbers() -> None:
    commands = [f"nginx -c {name}" for name in "abcde"]
    found, unscouted = combinations(read(COMMAND, "load.clients=auto", f"system.command={commands}"))
    assert found == [{"system.command": command} for command in commands] and unscouted == 0
    more = read(WRK, "load.clients=auto", "store.threads=[1,2,4]", "workload.value_bytes=[1,2,4]")
    ends = [{"store.threads": each, "workload.value_bytes": each} for each in (1, 4)]
    assert combinations(more) == (ends, 7)
    few = read(WRK, "load.clients=auto")
    assert combinations(few) == ([{"store.threads": 1}, {"store.threads": 2}], 0)


@pytest.mark.parametrize(
    ("text", "override"),
    [
        (AUTO, "measure.seconds=20"),
        (CACHE, "load.clients=auto"),
        (CACHE, "factors.load.clients=auto"),
        (
            changed(
                changed(CACHE, '"load.clients" = [6, 12, 24]\n', ""),
                "hosts = 3, link",
                'clients = "auto", hosts = 3, link',
            ),
            "measure.seconds=20",
        ),
    ],
)
def test_auto_clients_begin_with_one_for_each_load_host(text: str, override: str) -> None:
    found = read(text, override)
    assert found.is_auto and found.factors["load.clients"] == (3,)
    kept = spec.parse(text, "x.toml", {"load.clients": [6, 9]})
    assert not kept.is_auto and kept.factors["load.clients"] == (6, 9)
    assert not read(text, "load.clients=6").is_auto


def test_auto_clients_suit_every_number_of_load_hosts() -> None:
    assert read(AUTO, "load.hosts=[2,3,4]").factors["load.clients"] == (12,)


def test_auto_clients_are_refused_where_clients_are_no_load() -> None:
    for name, says in (
        ("workload.rate=5", '--set load.clients: cannot be "auto" with workload.rate: an open loop has no knee; list'),
        ("measure.ramp=true", "--set measure.ramp: needs the factor load.clients with equal steps"),
    ):
        (said,) = problems(CACHE, "load.clients=auto", name)
        assert said.startswith(says)
