"""The plan of an experiment's runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from knee import spec
from knee.spec.design import runs

TEXT = """\
[experiment]
name = "x"
[system]
load = {{}}
store = {{}}
[factors]
"load.clients" = [1, 2, 4]
"workload.multiget" = [1, 9]
[measure]
repetitions = {repetitions}
order = "{order}"
"""


def plan(order: str, seed: int, repetitions: int = 2) -> list[tuple[int, int]]:
    experiment = spec.parse(TEXT.format(order=order, repetitions=repetitions), "x.toml")
    return [(run.point, run.repetition) for run in runs(experiment, seed)]


def test_the_given_order_goes_through_the_grid_and_then_again() -> None:
    assert plan("given", seed=1) == [(point, repetition) for repetition in (1, 2) for point in range(6)]


def test_a_points_number_says_its_levels_whatever_the_order() -> None:
    experiment = spec.parse(TEXT.format(order="random", repetitions=2), "x.toml")
    by_point = {run.point: dict(run.levels) for run in runs(experiment, seed=5)}
    assert by_point[0] == {"load.clients": 1, "workload.multiget": 1}
    assert by_point[1] == {"load.clients": 1, "workload.multiget": 9}
    assert by_point[5] == {"load.clients": 4, "workload.multiget": 9}
    for run in runs(experiment, seed=5):
        assert run.configuration.clients == run.levels["load.clients"]


@given(st.integers(0, 2**63 - 1), st.integers(1, 5))
def test_a_random_order_is_a_permutation_that_the_seed_decides(seed: int, repetitions: int) -> None:
    order = plan("random", seed, repetitions)
    assert order == plan("random", seed, repetitions)
    assert sorted(order) == sorted(plan("given", seed, repetitions))


def test_different_seeds_give_different_orders() -> None:
    assert len({tuple(plan("random", seed)) for seed in range(5)}) > 1


def test_ramp_has_a_run_for_each_combination_of_the_other_factors() -> None:
    text = TEXT.format(order="given", repetitions=2).replace("[1, 2, 4]", "[2, 4, 6]") + "ramp = true\n"
    plan = runs(spec.parse(text, "x.toml"), seed=1)
    assert [(run.point, run.repetition) for run in plan] == [(4, 1), (5, 1), (4, 2), (5, 2)]
    assert [step.configuration.clients for step in plan[1].steps] == [2, 4, 6]
    assert [step.point for step in plan[1].measurements] == [1, 3, 5]
