"""Links of an asked rate in layered models: their bytes, their times and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.unit.synthetic import System, configured, synthetic_dataset
from tests.unit.test_layered import TRUE, runs, setup

from knee import fit
from knee.data.observations import observations
from knee.errors import FitError
from knee.fit.demands import demands_of, with_demands
from knee.fit.layered import LayeredFit, LayeredSystem, Setup, layered_system
from knee.fit.links import asked_links, rates_of, wire_of
from knee.fit.setups import _setup
from knee.queueing import Delay, Network, Queue, solve_closed
from knee.queueing.layered import solve_layered

# 4,096 bytes asked in 2.83 frames, 32 answered in one; the synthetic tables have the same of all tiers.
ASKED, ANSWERED = 4096 + 66 * 4096 / 1448, 32 + 66.0


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
    assert system.data.wire[0, 1:3] == pytest.approx([ANSWERED, ASKED], rel=0.01)
    assert system.data.wire[2, 1:3] == pytest.approx([ASKED, ANSWERED], rel=0.01)


@pytest.mark.parametrize(
    ("tier", "size", "hosts"), [("store", ASKED, 1), ("load", ASKED, 1), ("middleware", ASKED + ANSWERED, 2)]
)
def test_full_link_limits_to_its_rate(system: LayeredSystem, tier: str, size: float, hosts: int) -> None:
    found = forecast(system, **{f"{tier}__link_mbit": 10}, clients=512, workers=64)
    assert found.throughput.estimate == pytest.approx(hosts * 10e6 / 8 / size, rel=0.03)
    # The middlewares get as many bytes as they send.
    name = {"store": "stores' receiving links", "load": "load generators' receiving links"}.get(
        tier, found.limits[0][0]
    )
    assert found.limits[0][0] == name
    assert name.endswith("links")
    assert found.busy[name] > 0.97


def test_link_of_a_high_rate_changes_nothing(system: LayeredSystem) -> None:
    free, fast = forecast(system, clients=32), forecast(system, clients=32, store__link_mbit=1_000_000)
    assert fast.throughput.estimate == pytest.approx(free.throughput.estimate, rel=1e-3)


def test_links_alone_are_queues() -> None:
    # No processor time to speak of: the two directions are two queues, and the stretch leaves them alone.
    tiers, laws = ("load", "store"), np.full((2, 2), [1e-9, 0.0])
    wire = np.array([[1, 500.0, 2000, 1, 1], [1, 500, 2000, 1, 1]])
    model = LayeredFit(tiers, False, laws, (0.0, 1.0), (3.0, 1.0), 0.0, wire)
    setup = Setup(20, 10.0, None, (1, 2), (1, 1), 4.0, links=(("store", 2.0),))
    # 2 Mbit/s are 250 bytes/ms, and each of two stores has half of the requests.
    queues = [Queue(f"{way}{i}", size / 250 / 2) for way, size in (("in", 500), ("out", 2000)) for i in range(2)]
    exact = solve_closed(Network([*queues, Delay("delay", 3.0)], 10.0), 20).throughput[-1]
    assert solve_layered(model.network(setup), 20).throughput[0] == pytest.approx(exact, rel=0.02)
    # The receiving way of a link that is four times as fast takes a quarter of the time.
    fast = replace(model, wire=wire * [1, 1, 1, 0.25, 1])
    queues = [Queue(f"{way}{i}", size / 250 / 2) for way, size in (("in", 125), ("out", 2000)) for i in range(2)]
    quick = solve_closed(Network([*queues, Delay("delay", 3.0)], 10.0), 20).throughput[-1]
    assert solve_layered(fast.network(setup), 20).throughput[0] == pytest.approx(quick, rel=0.02)
    stretched = replace(model, outside=(3.0, 0.5))
    assert solve_layered(stretched.network(setup), 20).throughput[0] == pytest.approx(exact, rel=0.02)


def test_copies_of_a_write_take_the_links_at_the_same_time() -> None:
    tiers, laws = ("load", "middleware", "store"), np.full((3, 2), [1e-9, 0.0])
    wire = np.array([[1, 500.0, 10, 1, 1], [1, 500, 10, 1, 1], [3, 1500, 30, 1, 1]])
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
        with pytest.raises(FitError, match=f"{tier}.link_mbit: the bytes of the stores' messages are unknown"):
            _setup(blind, {f"{tier}.link_mbit": 100})
    assert _setup(blind, {"load.link_mbit": 100}).links == (("load", 100.0),)


def test_links_of_a_tier_that_is_missing_are_refused(system: LayeredSystem) -> None:
    direct = replace(system.data, tiers=("load", "store"), wire=np.ones((2, 5)))
    with pytest.raises(FitError, match=r"middleware\.link_mbit: there is no middleware"):
        asked_links({"middleware": 100.0}, direct)


def test_other_number_of_stores_is_refused_for_copies(system: LayeredSystem) -> None:
    processes = system.data.processes.copy()
    processes[0, -1] = 2
    with pytest.raises(FitError, match=r"store\.link_mbit: the number of stores changed the messages"):
        asked_links({"store": 100.0}, replace(system.data, spread=True, processes=processes))


def test_clients_stand_for_stores_without_windows() -> None:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8), seconds=15)
    rows = with_demands(dataset, observations(dataset))
    assert np.isnan(demands_of(rows).wire[2, :3]).all()  # type: ignore[index]
    direct = wire_of(rows, ("load", "store"))
    assert direct[1].tolist() == direct[0].tolist()
    assert direct[:, 3:].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_simulation_refuses_links(system: LayeredSystem) -> None:
    with pytest.raises(FitError, match="link_mbit: links have no simulation"):
        fit.layered_forecasts([("", system)], {"store.link_mbit": 100}, fit.Simulator())
    goal = fit.Goal.parse("p99 < 5 ms")
    with pytest.raises(FitError, match="link_mbit: links have no simulation"):
        fit.seek_settings([("", system)], {"clients": 64}, "store.link_mbit", goal, fit.Simulator())


# ------------------------------------------------------------------------------------------------- emulated links


WIRE = np.array([[1, 300.0, 1100, 1, 1], [1, 300, 1100, 1, 1], [1.5, 900, 800, 1, 1]])


def emulated(rate: float, clients: int, workers: int = 4) -> Setup:
    return setup(clients, workers, links=(("store", rate),))


def test_fit_separates_emulated_links_from_delays() -> None:
    true = replace(TRUE, wire=WIRE)
    data = runs([emulated(60.0, n) for n in (8, 16, 32, 64, 128)], system=true)
    rates = np.tile([np.nan, np.nan, 60.0], (len(data), 1))
    system = layered_system(replace(data, wire=WIRE, rates=rates), level=0.95, seed=0)
    assert system.fit.inside == pytest.approx(TRUE.inside, rel=0.1)
    assert system.fit.outside == pytest.approx(TRUE.outside, rel=0.1)
    for rate in (20.0, 60.0, 1000.0):
        asked = emulated(rate, 128)
        truth = 1000 * solve_layered(true.network(asked), 128).throughput[0]
        assert system.forecast(asked).throughput.estimate == pytest.approx(truth, rel=0.05)
    full = system.limits(emulated(20.0, 128))[0]
    assert full.resource == "stores' receiving links"
    assert system.twice(emulated(20.0, 128), full.resource).links == (("store", 40.0),)


def test_emulated_rates_stay_as_measured_unless_asked() -> None:
    data = runs([emulated(60.0, n) for n in (8, 16, 32)], system=replace(TRUE, wire=WIRE))
    data = replace(data, wire=WIRE, rates=np.tile([500.0, np.nan, 60.0], (len(data), 1)))
    assert rates_of(data, 0) == (("load", 500.0), ("store", 60.0))
    assert asked_links({"store": 10.0}, data) == (("load", 500.0), ("store", 10.0))
    varied = replace(data, rates=np.where(np.arange(len(data))[:, np.newaxis] < 3, 100.0, data.rates))
    with pytest.raises(FitError, match=r"load\.link_mbit was a factor: choose a value"):
        asked_links({"store": 10.0, "middleware": 10.0}, varied)


def test_emulated_links_have_the_bytes_of_the_probes() -> None:
    dataset = synthetic_dataset(System(slots=8, think_ms=2.0), (2, 4, 8), seconds=15)
    dataset.manifest = {**dataset.manifest, "links_emulated": True}
    configured(dataset, {"store.link_mbit": 100.0, "store.receive_mbit": 400.0})
    is_store = pl.col("target").str.starts_with("store")
    dataset.probes = dataset.probes.with_columns(
        net_rx_bytes=pl.when(is_store).then(300_000), net_tx_bytes=pl.when(is_store).then(6_000_000)
    )
    rows = with_demands(dataset, observations(dataset))
    data = demands_of(rows)
    assert data.rates is not None
    assert data.wire is not None
    assert data.rates[0].tolist() == pytest.approx([np.nan, np.nan, 100.0], nan_ok=True)
    expected = [(each / rows["throughput"]).mean() for each in (300_000, 6_000_000)]
    assert data.wire[2, 1:3] == pytest.approx(expected, rel=1e-6)
    # What is asked arrives on the receiving link, which is four times as fast.
    assert data.wire[2, 3:].tolist() == [0.25, 1.0]
    # The load generators have no probes of bytes: their windows count.
    assert data.wire[0, 1:3] == pytest.approx([ANSWERED, ASKED], rel=0.01)
