"""Group commit against a simulation of its rules, and against limits in closed form."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from knee.queueing import ArgumentError, GroupCommit


def simulated(model: GroupCommit, syncs: int = 15_000) -> tuple[float, float]:
    """Throughput, and commits of a sync: the rules of a store, one sync after another."""
    random = np.random.default_rng(7)
    most = model.batch_max or model.clients + 1
    due = [random.exponential(model.think) for _ in range(model.clients)]
    heapq.heapify(due)
    now, commits, waiting = 0.0, 0, list[float]()
    for _ in range(syncs):
        if not waiting:
            waiting.append(heapq.heappop(due))
        now = max(now, waiting[0])
        # All that arrive while the oldest commit waits, until the group is full.
        until = max(now, waiting[0] + model.dally)
        while due and (due[0] <= now or (len(waiting) < most and due[0] <= until)):
            waiting.append(heapq.heappop(due))
            now = max(now, waiting[-1])
        now = now if len(waiting) >= most else until
        batch, waiting = waiting[:most], waiting[most:]
        now += model.sync + model.each * len(batch)
        while due and due[0] <= now:
            waiting.append(heapq.heappop(due))
        for _ in batch:
            heapq.heappush(due, now + random.exponential(model.think))
        commits += len(batch)
    return commits / now, commits / syncs


@pytest.mark.parametrize("clients", [1, 2, 24])
@pytest.mark.parametrize("think", [0.05, 2.0])
@pytest.mark.parametrize("dally", [0.0, 0.1, 0.3, 3.0])
@pytest.mark.parametrize("batch_max", [None, 1, 4])
def test_model_agrees_with_a_simulation_of_its_rules(
    clients: int, think: float, dally: float, batch_max: int | None
) -> None:
    model = GroupCommit(clients=clients, think=think, sync=0.3, each=0.004, dally=dally, batch_max=batch_max)
    throughput, batch = simulated(model, 4_000)
    assert model.throughput == pytest.approx(throughput, rel=0.025)
    assert model.batch == pytest.approx(batch, rel=0.03)


def test_one_client_waits_for_its_company_and_its_sync() -> None:
    model = GroupCommit(clients=1, think=5.0, sync=0.3, each=0.01, dally=1.5)
    assert model.mean_response == pytest.approx(1.5 + 0.3 + 0.01)
    assert model.batch == 1


def test_syncs_of_one_commit_are_a_queue_with_constant_service() -> None:
    saturated = GroupCommit(clients=50, think=1.0, sync=0.4, each=0.1, batch_max=1)
    assert saturated.throughput == pytest.approx(1 / 0.5, rel=1e-6)


def test_dallying_turns_from_a_loss_to_a_gain_with_more_clients() -> None:
    def gain(clients: int) -> float:
        plain = GroupCommit(clients=clients, think=0.05, sync=0.27)
        return GroupCommit(clients=clients, think=0.05, sync=0.27, dally=0.15).throughput / plain.throughput

    assert gain(1) < 0.8 < 1 < gain(2)
    plain, dallies = (simulated(GroupCommit(2, think=0.05, sync=0.27, dally=dally))[0] for dally in (0.0, 0.15))
    assert gain(2) == pytest.approx(dallies / plain, rel=0.02)
    assert gain(2) > 1.1


@pytest.mark.parametrize(
    ("name", "value"),
    [("clients", 0), ("think", 0.0), ("sync", -1.0), ("each", math.inf), ("dally", math.nan), ("batch_max", 0)],
)
def test_values_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    good = {"clients": 2, "think": 1.0, "sync": 1.0}
    with pytest.raises(ArgumentError, match=name):
        GroupCommit(**{**good, name: value})  # type: ignore[arg-type]
