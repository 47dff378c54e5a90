"""Links of an asked rate in layered models: their bytes, their times and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.unit.synthetic import System, synthetic_dataset

from knee import fit
from knee.data.observations import observations
from knee.errors import FitError
from knee.fit.demands import demands_of, with_demands
from knee.fit.layered import LayeredFit, LayeredSystem, Setup
from knee.fit.links import LINKS, wire_of
from knee.fit.setups import _setup
from knee.queueing import Delay, Network, Queue, solve_closed
from knee.queueing.layered import solve_layered

# 4,096 bytes asked in 2.83 frames, 32 answered in one; the synthetic tables have the same of all tiers.
ASKED, ANSWERED = 4096 + 90 * 4096 / 1448, 32 + 90.0


@pytest.fixture(scope="module")
def system() -> LayeredSystem:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8, 16, 32), seconds=15)
    middlewares = dataset.windows.filter(dataset.windows["role"] == "middleware")
    dataset.windows = pl.concat([dataset.windows, middlewares.with_columns(role=pl.lit("store"))])
    ((_, found),) = fit.layered_systems(dataset, [], level=0.95, seed=0)
    return replace(found, data=replace(found.data, spread=False))


def forecast(system: LayeredSystem, **asked: object) -> fit.layered.LayeredForecast:
    ((_, _, (found,)),) = fit.layered_forecasts(
        [("", system)], {name.replace("__", "."): value for name, value in asked.items()}
    )  # type: ignore[misc]
    return found


def test_bytes_are_those_of_the_windows_with_headers(system: LayeredSystem) -> None:
    assert system.data.wire is not None
    assert system.data.wire[:, 0] == pytest.approx([1, 1, 1], rel=0.01)
    # A client's windows have what it sends under "out".
    assert system.data.wire[0, 1:] == pytest.approx([ANSWERED, ASKED], rel=0.01)
    assert system.data.wire[2, 1:] == pytest.approx([ASKED, ANSWERED], rel=0.01)


@pytest.mark.parametrize(
    ("tier", "size", "hosts"), [("store", ASKED, 1), ("load", ASKED, 1), ("middleware", ASKED + ANSWERED, 2)]
)
def test_full_link_limits_to_its_rate(system: LayeredSystem, tier: str, size: float, hosts: int) -> None:
    found = forecast(system, **{f"{tier}__link_mbit": 10}, clients=512, workers=64)
    assert found.throughput.estimate == pytest.approx(hosts * 10e6 / 8 / size, rel=0.03)
    assert found.limits[0][0] == LINKS[tier]
    assert found.busy[LINKS[tier]] > 0.97


def test_link_of_a_high_rate_changes_nothing(system: LayeredSystem) -> None:
    free, fast = forecast(system, clients=32), forecast(system, clients=32, store__link_mbit=1_000_000)
    assert fast.throughput.estimate == pytest.approx(free.throughput.estimate, rel=1e-3)


def test_links_alone_are_queues() -> None:
    # No processor time to speak of: the two directions are two queues, and the stretch leaves them alone.
    tiers, laws = ("load", "store"), np.full((2, 2), [1e-9, 0.0])
    wire = np.array([[1, 500.0, 2000], [1, 500, 2000]])
    model = LayeredFit(tiers, False, laws, (0.0, 1.0), (3.0, 1.0), 0.0, wire)
    setup = Setup(20, 10.0, None, (1, 2), (1, 1), 4.0, links=(("store", 2.0),))
    # 2 Mbit/s are 250 bytes/ms, and each of two stores has half of the requests.
    queues = [Queue(f"{way}{i}", size / 250 / 2) for way, size in (("in", 500), ("out", 2000)) for i in range(2)]
    exact = solve_closed(Network([*queues, Delay("delay", 3.0)], 10.0), 20).throughput[-1]
    assert solve_layered(model.network(setup), 20).throughput[0] == pytest.approx(exact, rel=0.02)
    stretched = replace(model, outside=(3.0, 0.5))
    assert solve_layered(stretched.network(setup), 20).throughput[0] == pytest.approx(exact, rel=0.02)


def test_copies_of_a_write_take_the_links_at_the_same_time() -> None:
    tiers, laws = ("load", "middleware", "store"), np.full((3, 2), [1e-9, 0.0])
    wire = np.array([[1, 500.0, 10], [1, 500, 10], [3, 1500, 30]])
    model = LayeredFit(tiers, False, laws, (0.5, 1.0), (0.5, 1.0), 0.4, wire)
    setup = Setup(1, 10.0, 1, (1, 1, 3), (1, 1, 1), 8.0, links=(("store", 1.0),))
    # 510 bytes at 125 bytes/ms, for each of three stores.
    assert solve_layered(model.network(setup), 1).inside[0] == pytest.approx(0.5 + 510 / 125, rel=1e-3)


def test_table_has_a_column_of_rates(system: LayeredSystem) -> None:
    ((label, _, found),) = fit.layered_forecasts([("", system)], {"store.link_mbit": [10, 1000], "clients": 64})
    head, first, *_ = fit.render_layered(label, system, found).splitlines()
    assert head.split()[:3] == ["clients", "workers", "Mbit/s"]
    assert first.split()[2] == "10"


def test_text_names_the_rate(system: LayeredSystem) -> None:
    found = forecast(system, middleware__link_mbit=1000)
    assert ", middlewares' links of 1,000 Mbit/s: " in fit.render_layered("", system, [found])


def test_tier_without_bytes_is_refused(system: LayeredSystem) -> None:
    blind = replace(system.data, wire=np.where(np.arange(3)[:, np.newaxis] == 2, np.nan, system.data.wire))
    for tier in ("store", "middleware"):
        with pytest.raises(FitError, match=f"{tier}.link_mbit: no window of the stores .* measure with store.kind"):
            _setup(blind, {f"{tier}.link_mbit": 100})
    assert _setup(blind, {"load.link_mbit": 100}).links == (("load", 100.0),)


def test_links_of_a_tier_that_is_missing_are_refused(system: LayeredSystem) -> None:
    direct = replace(system.data, tiers=("load", "store"), wire=np.ones((2, 3)))
    with pytest.raises(FitError, match=r"middleware\.link_mbit: there is no middleware"):
        fit.links.check_links({"middleware": 100.0}, direct)


def test_other_number_of_stores_is_refused_for_copies(system: LayeredSystem) -> None:
    processes = system.data.processes.copy()
    processes[0, -1] = 2
    with pytest.raises(FitError, match=r"store\.link_mbit: the number of stores changed the messages"):
        fit.links.check_links({"store": 100.0}, replace(system.data, spread=True, processes=processes))


def test_clients_stand_for_stores_without_windows() -> None:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8), seconds=15)
    rows = with_demands(dataset, observations(dataset))
    assert np.isnan(demands_of(rows).wire[2]).all()  # type: ignore[index]
    direct = wire_of(rows, ("load", "store"))
    assert direct[1].tolist() == direct[0].tolist()


def test_simulation_refuses_links(system: LayeredSystem) -> None:
    with pytest.raises(FitError, match="link_mbit: links have no simulation"):
        fit.layered_forecasts([("", system)], {"store.link_mbit": 100}, fit.Simulator())
    goal = fit.Goal.parse("p99 < 5 ms")
    with pytest.raises(FitError, match="link_mbit: links have no simulation"):
        fit.seek_settings([("", system)], {"clients": 64}, "store.link_mbit", goal, fit.Simulator())
