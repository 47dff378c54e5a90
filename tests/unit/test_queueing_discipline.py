"""The discipline of a queue: what the solvers refuse, and what the simulator serves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_queueing_simulate import agrees

from knee.queueing import (
    MG1,
    ArgumentError,
    Delay,
    Deterministic,
    HyperExponential,
    Network,
    Queue,
    Shape,
    bard_schweitzer,
    linearizer,
    simulate,
    solve_classes,
    solve_closed,
    solve_mixed,
    solve_open,
)

CLASSES = ("get", "set")
UNEQUAL = Network([Queue("cpu", 1.0), Queue("disk", (1.0, 3.0)), Delay("wire", (1.0, 2.0))], 4.0, CLASSES)


@pytest.mark.parametrize(
    "solve",
    [
        lambda network: solve_classes(network, [2, 3]),
        lambda network: solve_open(network, 0.1),
        lambda network: solve_mixed(network, [2, None], [None, 0.1]),
        lambda network: bard_schweitzer(network, [2, 3]),
        lambda network: linearizer(network, [2, 3]),
    ],
)
def test_first_come_first_served_with_unequal_service_is_refused_by_name(solve: Callable[[Network], object]) -> None:
    with pytest.raises(ArgumentError, match=r"^network: 'disk' serves first.*discipline='ps'.*or simulate") as refusal:
        solve(UNEQUAL)
    assert refusal.value.argument == "network"


def test_times_of_classes_that_never_come_do_not_count() -> None:
    disks = [Queue("disk", time, visits=(1.0, 0.0), servers=2) for time in (2.0, (2.0, 5.0))]
    one, other = (solve_classes(Network([disk], 1.0, CLASSES), [3, 2]).throughput[3, 2] for disk in disks)
    assert other == pytest.approx(one, rel=1e-15)


def test_discipline_changes_nothing_where_the_product_form_has_one_class() -> None:
    queues = [Queue("disk", 2.0, servers=2, discipline=discipline) for discipline in ("fcfs", "ps")]
    one, other = (solve_closed(Network([queue, Queue("cpu", 1.0)], 3.0), 9) for queue in queues)
    assert (one.queue_length == other.queue_length).all()


def test_shared_queue_is_simulated_as_solved() -> None:
    stations = [
        Queue("cpu", (1.0, 3.0), visits=(2.0, 1.0), discipline="ps"),
        Queue("disk", (4.0, 0.5), servers=3, discipline="ps"),
        Delay("wire", (2.0, 5.0)),
    ]
    network = Network(stations, (6.0, 9.0), CLASSES)
    exact = solve_classes(network, [5, 3])
    result = simulate(network, populations=[5, 3], replications=20, rounds=40_000, seed=20)
    assert agrees(result.throughput, exact.throughput[5, 3])
    assert agrees(result.residence_time, exact.residence_time[5, 3])
    assert agrees(result.queue_length, exact.queue_length[5, 3])
    assert agrees(result.utilisation, exact.utilisation[5, 3])


@pytest.mark.parametrize("shape", [Deterministic(), HyperExponential(9.0)])
def test_shared_queue_depends_on_the_mean_only(shape: Shape) -> None:
    # Insensitivity (Baskett, Chandy, Muntz & Palacios 1975); M/G/1 and M/G/m with processor sharing.
    for servers in (1, 3):
        network = Network([Queue("cpu", 1.0, servers=servers, discipline="ps")])
        exact, given = solve_open(network, 0.7 * servers), {"cpu": shape}
        result = simulate(
            network, arrival_rates=0.7 * servers, service=given, warmup=3_000, rounds=50_000, replications=20, seed=21
        )
        assert agrees(result.response_time, exact.response_time)


def test_queue_in_order_of_arrival_with_unequal_service_waits_as_pollaczek_and_khinchine_say() -> None:
    # Both classes wait the same time; the mix is an M/G/1.
    network, rates = Network([Queue("disk", (1.0, 3.0))], classes=CLASSES), (0.4, 0.1)
    service = {"disk": [Deterministic(), Deterministic()]}
    mean, second = (0.4 * 1 + 0.1 * 3) / 0.5, (0.4 * 1 + 0.1 * 9) / 0.5
    waiting = MG1(0.5, 1 / mean, second / mean**2 - 1).mean_waiting
    result = simulate(
        network, arrival_rates=rates, service=service, warmup=3_000, rounds=50_000, replications=20, seed=22
    )
    assert agrees(result.response_time, [waiting + 1, waiting + 3])
