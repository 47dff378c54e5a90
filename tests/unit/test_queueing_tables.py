"""Published tables of single stations, reproduced from their own inputs.

An input is known to half a unit of its last digit, so a model's answer is an interval: the one between the answers at
the ends of the inputs, as all of them rise with λ and fall with μ. A printed output holds if the interval reaches
the numbers that round to it. docs/methods/single-stations.md lists what does not.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from knee.data.csv import read
from knee.queueing import MM1, MMm, Network, Queue, solve_closed
from knee.queueing.errors import UnstableError

DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True)
class Printed:
    """A number as printed: its value and half a unit of its last digit."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)

    @property
    def half(self) -> float:
        exponent = Decimal(self.text).as_tuple().exponent
        assert isinstance(exponent, int)
        return 0.5 * 10.0**exponent

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    def rounds(self, low: float, high: float) -> bool:
        """Whether a number between `low` and `high` rounds to this one."""
        return low <= self.high and self.low <= high

    def cuts(self, low: float, high: float) -> bool:
        """Whether a number between `low` and `high` has these digits and others that were cut off."""
        return low <= self.value + 2 * self.half and self.value <= high


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# Seed 000: μ as printed under each table, and m.
MM1_TABLES = {13: ("3814.9", 1), 14: ("5159.4", 1), 15: ("6776.7", 1), 16: ("8283.9", 1)}
MMM_TABLES = {
    17: ("64.718", 32),
    18: ("64.718", 64),
    19: ("64.718", 128),
    20: ("105.886", 64),
    25: ("238.431", 16),
    26: ("161.231", 32),
}
MEASURED_IN = {17: 14, 18: 15, 19: 16, 20: 15, 25: 13, 26: 14}
"""Where the measurements of the M/M/m tables are: the same rows are printed beside the M/M/1 model."""

CUT_OFF = {
    (13, "192", "utilization"),
    (15, "6", "response_ms"),
    (15, "48", "response_ms"),
    (16, "24", "waiting_customers"),
    (16, "48", "customers"),
    (16, "96", "utilization"),
}
"""What is not rounded but cut off in seed 000: table, clients, column."""


def answers(arrival_rate: float, service_rate: float, servers: int) -> dict[str, float]:
    station = MM1(arrival_rate, service_rate) if servers == 1 else MMm(arrival_rate, service_rate, servers)
    return {
        "utilization": station.utilisation,
        "customers": station.mean_customers,
        "waiting_customers": station.mean_queue,
        "response_ms": 1000 * station.mean_response,
        "waiting_ms": 1000 * station.mean_waiting,
    }


@pytest.mark.parametrize("table", [*MM1_TABLES, *MMM_TABLES])
def test_seed_000_tables_13_to_20_and_25_and_26(table: int) -> None:
    rate, servers = (MM1_TABLES | MMM_TABLES)[table]
    service = Printed(rate)
    cut_off = set()
    for row in rows(f"seed000_table{table}_model.csv"):
        arrival = Printed(row["arrival_rate_per_s"])
        least = answers(arrival.low, service.high, servers)
        most = answers(arrival.high, service.low, servers)
        for column, low in least.items():
            printed, where = Printed(row[column]), (table, row["clients"], column)
            if not printed.rounds(low, most[column]):
                assert printed.cuts(low, most[column]), where
                cut_off.add(where)
    assert cut_off == {where for where in CUT_OFF if where[0] == table}


def test_input_digits_move_saturated_rows_below_a_percent() -> None:
    """So that the test above can fail: where ρ is near 1 the digits of λ and μ count most."""
    for table, (rate, servers) in (MM1_TABLES | MMM_TABLES).items():
        service = Printed(rate)
        for row in rows(f"seed000_table{table}_model.csv"):
            arrival = Printed(row["arrival_rate_per_s"])
            least = answers(arrival.low, service.high, servers)
            most = answers(arrival.high, service.low, servers)
            assert most["response_ms"] / least["response_ms"] < 1.01, (table, row["clients"])


@pytest.mark.parametrize("table", MMM_TABLES)
def test_seed_000_mmm_tables_omit_only_unstable_rows(table: int) -> None:
    rate, servers = MMM_TABLES[table]
    shown = {row["clients"] for row in rows(f"seed000_table{table}_model.csv")}
    for row in rows(f"seed000_table{MEASURED_IN[table]}.csv"):
        arrival_rate = float(row["throughput"])
        if row["clients"] in shown:
            MMm(arrival_rate, float(rate), servers)
        else:
            with pytest.raises(UnstableError):
                MMm(arrival_rate, float(rate), servers)


def test_seed_000_8_workers_at_the_rate_of_64_are_unstable() -> None:
    """Section 7.2: "8 thread configuration ... cannot be modeled", which is why there is no table of it."""
    for row in rows("seed000_table13.csv"):
        with pytest.raises(UnstableError):
            MMm(float(row["throughput"]), 64.718, 16)


@pytest.mark.parametrize("table", [13, 14, 15, 16])
def test_seed_000_tables_13_to_16_measurements(table: int) -> None:
    measured = read(DATA / f"seed000_table{table}.csv")
    model = rows(f"seed000_table{table}_model.csv")
    assert measured.responses == ("throughput", "queueing_ms", "service_ms", "queue_length")
    assert measured.table["clients"].to_list() == [int(row["clients"]) for row in model]
    assert measured.table["throughput"].to_list() == [float(row["arrival_rate_per_s"]) for row in model]
    # Little's law where the queue is long beside its digits: qlen is that of each of two middlewares.
    for throughput, queueing_ms, queue in measured.table.select("throughput", "queueing_ms", "queue_length").rows():
        if queue > 20:
            assert throughput * queueing_ms / 1000 == pytest.approx(queue, rel=0.04)


@pytest.mark.parametrize(("table", "clients"), [(21, 288), (22, 48), (23, 72), (24, 48)])
def test_seed_000_tables_21_to_24_obey_the_law(table: int, clients: int) -> None:
    """N = X R with Z = 0: the modelled columns to their digits, the measured ones, which are means of runs, to 1 %."""
    measured = read(DATA / f"seed000_table{table}.csv").table
    assert measured["clients"].max() == clients
    for population, throughput, response_ms in measured.select("clients", "throughput", "response_ms").rows():
        assert throughput * response_ms / 1000 == pytest.approx(population, rel=0.01)
    for row in rows(f"seed000_table{table}_model.csv"):
        throughput, response = Printed(row["throughput"]), Printed(row["response_ms"])
        assert response.rounds(*(1000 * int(row["clients"]) / x for x in (throughput.high, throughput.low)))


# Seed 001, section 6.

ARRIVALS_PER_MS, SERVICE_MS = Printed("5.897"), Printed("3.33")


def ends(servers: int, arrival: Printed, service: Printed) -> tuple[MMm, MMm]:
    """The stations with the least and the most load that the printed inputs allow, in ms."""
    return MMm(arrival.low, 1 / service.low, servers), MMm(arrival.high, 1 / service.high, servers)


def test_seed_001_one_server_for_all_twenty_threads_is_unstable() -> None:
    with pytest.raises(UnstableError, match=r"rho = 19\.637") as raised:
        MM1(ARRIVALS_PER_MS.value, 1 / SERVICE_MS.value)
    assert Printed("19.63").cuts(raised.value.rho, raised.value.rho)


def test_seed_001_mm1_of_137_ms_is_139() -> None:
    """ρ = 0.99348 is cut off to 0.9934 before 1 − ρ is formed, which gives the printed 137.27 ms; rightly, 138.89."""
    arrival, service = Printed("1.096509"), Printed("0.906036")
    station = MM1(arrival.value, 1 / service.value)
    assert Printed("0.9934").cuts(station.utilisation, station.utilisation)
    assert Printed("137.27").cuts(*[service.value / (1 - 0.9934)] * 2)
    assert station.mean_response == pytest.approx(138.89, abs=0.005)
    least, most = (end.mean_response for end in ends(1, arrival, service))
    assert not Printed("137.27").rounds(least, most)
    assert 138.86 < least < most < 138.92


def test_seed_001_mm20_example_does_not_follow_from_its_inputs() -> None:
    station = MMm(ARRIVALS_PER_MS.value, 1 / SERVICE_MS.value, 20)
    assert station.probability_idle == pytest.approx(5.51e-10, abs=0.005e-10)
    assert station.probability_waiting == pytest.approx(0.907, abs=0.0005)
    assert station.mean_response == pytest.approx(11.65, abs=0.005)
    assert station.mean_waiting == pytest.approx(8.32, abs=0.005)
    # Of what is printed only ρ follows, and E[w] to the digits of S; neither P0 nor ϱ nor E[r] comes near.
    least, most = ends(20, ARRIVALS_PER_MS, SERVICE_MS)
    assert Printed("0.981").cuts(least.utilisation, most.utilisation)
    assert not Printed("9.34e-10").rounds(most.probability_idle, least.probability_idle)
    assert not Printed("0.86").rounds(least.probability_waiting, most.probability_waiting)
    assert not Printed("8.57").rounds(least.mean_response, most.mean_response)
    assert Printed("7.88").rounds(least.mean_waiting, most.mean_waiting)
    # P0 and ϱ are those of one and the same other load.
    other = MMm(0.973 * 20, 1.0, 20)
    assert other.probability_idle == pytest.approx(9.34e-10, rel=1e-3)
    assert Printed("0.86").rounds(other.probability_waiting, other.probability_waiting)
    # That E[w] is by its formula with the wrong ϱ, and no service time is as short as E[r] − E[w].
    by_printed = 0.86 / (20 / SERVICE_MS.value * (1 - station.utilisation))
    assert by_printed == pytest.approx(7.88, abs=0.02)
    assert SERVICE_MS.low > 4 * (8.57 - 7.88)


def test_seed_001_table_of_mm20_over_the_number_of_clients() -> None:
    stable = []
    for measured, model in zip(rows("seed001_section6.csv"), rows("seed001_section6_model.csv"), strict=True):
        assert measured["clients"] == model["clients"]
        arrival, service, rho = (
            Printed(text) for text in (measured["throughput"], measured["service_ms"], model["utilization"])
        )
        least, most = (
            rate * time / 1000 / 20 for rate, time in ((arrival.low, service.low), (arrival.high, service.high))
        )
        assert rho.rounds(least, most)
        if not model["response_ms"]:
            with pytest.raises(UnstableError):
                MMm(arrival.value, 1000 / service.value, 20)
            continue
        fast, slow = (
            MMm(rate, 1000 / time, 20) for rate, time in ((arrival.low, service.low), (arrival.high, service.high))
        )
        assert Printed(model["response_ms"]).rounds(1000 * fast.mean_response, 1000 * slow.mean_response)
        stable.append(int(model["clients"]))
    assert stable == [2, 5, 10, 15, 20, 25]


def test_seed_001_25_clients_print_another_utilisation() -> None:
    """4.0087 · 4.98 / 20 = 0.99817, with which E[r] = 139.45 ms follows; with the printed 0.9987 it would be 195 ms."""
    station = MMm(4.0087, 1 / 4.98, 20)
    assert station.utilisation == pytest.approx(0.99817, abs=0.000005)
    assert Printed("139.45").cuts(station.mean_response, station.mean_response)
    assert MMm(0.9987 * 20 / 4.98, 1 / 4.98, 20).mean_response == pytest.approx(195, abs=0.5)
    # Here a digit of S decides: anything from 91 to 308 ms is in what is printed.
    least, most = (end.mean_response for end in ends(20, Printed("4.0087"), Printed("4.98")))
    assert least == pytest.approx(91.0, abs=0.05)
    assert most == pytest.approx(308.0, abs=0.05)


def test_the_network_of_seed_001_figures_10_and_11() -> None:
    """Seed 001, section 7: MVA of 20 middleware threads of 0.000534249 ms before a database of 6 servers of 1.35318 ms.

    The curves are drawn, not printed. What they must do follows from the inputs: one or two customers never wait, and
    beyond six clients the database is full.
    """
    stations = [Queue("middleware", 0.000534249, servers=20), Queue("database", 1.35318, servers=6)]
    solution = solve_closed(Network(stations), 30)
    alone = 0.000534249 + 1.35318
    assert solution.response_time[:6] == pytest.approx([alone] * 6, rel=1e-5)
    assert 1000 * solution.throughput[1] == pytest.approx(2000 / alone)
    # Nearly: the sixth server idles while one of the clients is with the middleware.
    assert 1000 * solution.throughput[-1] == pytest.approx(6000 / 1.35318)
    assert solution.response_time[-1] == pytest.approx(30 * 1.35318 / 6)
    assert np.all(np.diff(solution.throughput) >= 0)
