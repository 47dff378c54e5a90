"""The laws on foreign tables, and on those that the seeds print."""

from __future__ import annotations

from pathlib import Path

import pytest

from knee.data.csv import parse, read
from knee.errors import MeasurementsError
from knee.laws import LawReport, laws_of_measurements, render_text, sentences

DATA = Path(__file__).resolve().parents[1] / "data"


def laws(text: str) -> LawReport:
    return laws_of_measurements(parse(text, "x.csv"))


def test_the_interactive_law_holds_per_type_in_seed_001_figure_2() -> None:
    """Seed 001, section 2: 98 requests/s of each type, with the other two types' response times as think time."""
    report = laws_of_measurements(read(DATA / "seed001_figure2.csv"))
    assert {check.verdict for check in report.interactive} == {"holds"}
    of_type = {check.request_type: check for check in report.interactive if check.request_type}
    lists = of_type["LIST_QUEUES"]
    assert lists.think_ms.estimate == pytest.approx(434.751, rel=2e-4)
    for check in of_type.values():
        assert check.throughput.predicted.estimate == pytest.approx(98, abs=0.1)
    together = next(check for check in report.interactive if check.request_type is None)
    assert together.throughput.measured.estimate == pytest.approx(294.34, abs=0.01)
    assert together.response_ms.measured.estimate == pytest.approx((75.2135 + 304.199 + 130.552) / 3, rel=1e-3)


def test_without_the_other_types_the_law_would_seem_violated() -> None:
    """Seed 001, section 2: X = 50 / 75.2135 ms would be 664 requests/s."""
    rows = (DATA / "seed001_figure2.csv").read_text().splitlines()
    report = laws("\n".join(rows[:2]))
    (check,) = report.interactive
    assert check.verdict == "violated"
    assert check.throughput.predicted.estimate == pytest.approx(664.8, abs=0.1)


def test_the_database_is_the_bottleneck_in_seed_001_section_7() -> None:
    """Seed 001, "Finding Bottleneck": D = V S of 0.000534249 ms and of 1.35318 ms."""
    report = laws_of_measurements(read(DATA / "seed001_bottleneck.csv"))
    (demands,) = report.demands
    assert {demand.station: demand.demand_ms.estimate for demand in demands.demands} == {
        "database": 1.35318,
        "middleware": 0.000534249,
    }
    assert demands.bottleneck is not None and demands.bottleneck.station == "database"
    assert "station to saturate is database" in " ".join(sentences(report))


def test_declared_visits_make_a_types_law_a_test_of_its_own() -> None:
    # Two reads to a write were declared, but three were made: all requests together do not show it.
    header = "request_type,visits,clients,think_ms,throughput,response_ms\n"
    rows = "read,{},10,0,750.00,10.000\nwrite,1,10,0,250.00,10.000\n"
    declared = laws(header + rows.format(2))
    verdicts = {check.request_type: check.verdict for check in declared.interactive}
    assert verdicts == {None: "holds", "read": "violated", "write": "violated"}
    assert {check.verdict for check in laws(header + rows.format(3)).interactive} == {"holds"}


def test_visits_from_throughputs_are_noted() -> None:
    report = laws_of_measurements(read(DATA / "seed001_figure2.csv"))
    assert any("repeats the check of all requests" in sentence for sentence in sentences(report))


def test_types_alone_breaking_the_law_blame_the_mix() -> None:
    header = "request_type,visits,clients,throughput,response_ms\n"
    report = laws(header + "read,2,10,750.00,10.000\nwrite,1,10,250.00,10.000\n")
    assert "Likely cause: the types do not occur as often as the visits declare." in " ".join(sentences(report))
    assert "coordinated omission" not in " ".join(sentences(report))
    parts = "request_type,clients,throughput,response_ms\nget,8,600.0,8.00\nset,8,100.0,16.00\nall,8,800.0,10.00\n"
    assert "Likely cause: the types do not add up to the rows for all requests" in " ".join(sentences(laws(parts)))


def test_an_exact_mix_is_not_blamed_where_all_requests_are_in_doubt() -> None:
    header = "request_type,visits,clients,repetition,throughput,response_ms\n"
    # All are 2.8 to 4 % apart, which leaves open whether that is more than 2; reads are by 0.2 % more.
    runs = [(n, 1000 / (1 + apart)) for n, apart in enumerate((0.028, 0.034, 0.040), start=1)]
    exact = "".join(
        f"read,3,10,{n},{0.748 * x:.6f},10.00000\nwrite,1,10,{n},{0.252 * x:.6f},10.00000\n"
        f"all,4,10,{n},{x:.6f},10.00000\n"
        for n, x in runs
    )
    report = laws(header + exact)
    verdicts = {check.request_type: (check.verdict, check.causes) for check in report.interactive}
    assert verdicts[None][0] == "cannot tell"
    assert verdicts["read"] == ("violated", ())


def test_a_rare_type_is_apart_by_no_more_than_all_requests_are() -> None:
    # The client needs 0.3 % of every cycle for itself; a cycle of the rare type is a hundred of its response times.
    header = "request_type,clients,throughput,response_ms\n"
    report = laws(header + "get,1,990.0,1.007\nset,1,10.00,0.007\nall,1,1000.0,0.997\n")
    assert {check.verdict for check in report.interactive} == {"holds"}
    (rare,) = (check for check in report.interactive if check.request_type == "set")
    assert rare.response_ms.residual.estimate > 1
    assert rare.residual == pytest.approx(0.003, abs=0.001)


def test_type_missing_in_a_run_is_no_time_of_zero() -> None:
    header = "request_type,clients,repetition,throughput,response_ms\n"
    alls = "all,8,1,800.0,10.00\nall,8,2,800.0,10.00\n"
    for gap in ("", "set,8,2,200.0,\n", "set,8,2,0,16.00\n"):
        one = laws(f"{header}{alls}get,8,1,600.0,8.00\nset,8,1,200.0,16.00\nget,8,2,600.0,8.00\n{gap}")
        assert {check.verdict for check in one.interactive} == {"holds"}
        assert {c.throughput.residual.repetitions for c in one.interactive if c.request_type} == {1}
    none = laws("request_type,clients,throughput,response_ms\nget,8,600.0,8.00\nset,8,200.0,\nall,8,800.0,10.00\n")
    assert [check.request_type for check in none.interactive] == [None]


def test_a_second_row_for_all_requests_is_refused() -> None:
    text = "request_type,clients,throughput,response_ms\nget,8,600.0,8.00\nset,8,200.0,16.00\n"
    with pytest.raises(MeasurementsError, match=r"x\.csv:5: a second row for all requests of the same run"):
        laws(text + "all,8,800.0,10.00\nTotal,8,800.0,10.00\n")


def test_configurations_with_equal_clients_are_not_thrown_together() -> None:
    header = "hosts,per_host,clients,throughput,response_ms,utilization_db\n"
    report = laws(header + "1,4,4,1000,4.000,0.5\n2,2,4,500,8.000,0.6\n1,2,2,800,2.500,0.4\n2,4,8,1000,8.00,0.9\n")
    assert [(c.clients, c.throughput.residual.repetitions) for c in report.interactive] == [
        *((4, 1), (4, 1), (2, 1), (8, 1))
    ]


def test_the_middlewares_view_takes_rounding_where_it_enters() -> None:
    # The round trip is 4 ms − 3.5 ms, and 4 ms may be 3.8.
    text = "clients,throughput,response_ms,middleware_throughput,middleware_response_ms\n8,2105,{},2105,{}\n"
    assert {check.verdict for check in laws(text.format("4", "3.500")).interactive} == {"cannot tell"}
    assert {check.verdict for check in laws(text.format("3.800", "3")).interactive} == {"holds"}
    # A middleware of 4.1 ms and a client of “4 ms” agree.
    assert "violated" not in {check.verdict for check in laws(text.format("4", "4.100")).interactive}
    slow = laws(text.format("3.800", "4.100"))
    assert "response time is 7.9% above the clients'" in sentences(slow)[1]


def test_a_row_for_all_types_is_the_system() -> None:
    text = "request_type,clients,throughput,response_ms\nget,8,600.0,8.00\nset,8,200.0,16.00\nAll,8,800.0,10.00\n"
    report = laws(text)
    together = next(check for check in report.interactive if check.request_type is None)
    assert together.throughput.measured.estimate == 800
    assert {check.verdict for check in report.interactive} == {"holds"}
    assert {check.request_type for check in report.interactive} == {None, "get", "set"}


def test_think_times_of_their_own_let_each_type_stand_for_itself() -> None:
    text = (
        "request_type,clients,throughput,response_ms,think_ms\n"
        "LIST_QUEUES,50,98.1166666667,75.2135,434.751\n"
        "SEND_MESSAGE,50,98.130952381,304.199,205.7655\n"
    )
    report = laws(text)
    assert [(check.request_type, check.verdict) for check in report.interactive] == [(None, "holds")] * 2
    assert set(report.labels.values()) == {"request_type = LIST_QUEUES", "request_type = SEND_MESSAGE"}


def test_a_type_without_a_response_time_leaves_no_silent_sum() -> None:
    text = "request_type,clients,throughput,response_ms\nget,8,600.0,8.00\nset,8,200.0,\n"
    report = laws(text)
    assert not [check for check in report.interactive if check.verdict != "cannot tell"]


def test_rounded_numbers_are_not_accused() -> None:
    # 8 / 3.8 ms = 2105 requests/s: printed as 4 ms, the law seems 5 % off.
    rounded = laws("clients,throughput,response_ms\n8,2105,4\n")
    assert [check.verdict for check in rounded.interactive] == ["cannot tell"]
    assert "rounding" in sentences(rounded)[0]
    exact = laws("clients,throughput,response_ms\n8,2105,4.000\n")
    assert [check.verdict for check in exact.interactive] == ["violated"]
    assert [check.verdict for check in laws("clients,throughput,response_ms\n8,2105,3.80\n").interactive] == ["holds"]


def test_response_times_computed_by_the_law_cannot_test_it() -> None:
    header = "clients,throughput,think_ms,response_ms\n"
    rows = [f"{n},{x},2,{1000 * n / x - 2!r}\n" for n, x in ((1, 93.7), (2, 171.3), (4, 288.1))]
    computed = laws(header + "".join(rows))
    assert computed.derived and not computed.interactive and not computed.pooled
    assert "The interactive law was not checked: every response time is N / X - Z" in " ".join(sentences(computed))
    assert not laws("clients,throughput,response_ms\n1,100,10\n2,200,10\n").derived, "few digits may agree by chance"
    assert not laws(header + "".join(rows[:2]) + "4,288.1,2,11.9").derived, "a measured time"


def test_a_response_time_of_zero_is_no_share_of_anything() -> None:
    report = laws("clients,throughput,response_ms\n1,1000.0,0\n8,1000.0,8.000\n")
    assert [check.verdict for check in report.interactive] == ["cannot tell", "holds"]
    assert "may have been rounded to zero" in sentences(report)[0]
    alone = laws("clients,throughput,response_ms\n1,1000.0,0\n")
    assert "nan" not in "".join(sentences(alone)) + render_text(alone)
    assert sentences(laws("clients,throughput,response_ms\n1,0,0\n"))[0].endswith("are all above zero.")


def test_gap_in_a_cycle_is_coordinated_omission() -> None:
    report = laws("clients,throughput,response_ms\n10,1000.0,2.000\n")
    violation, *causes = sentences(report)
    assert "violated at 10 clients" in violation and "omission" not in violation
    assert causes[0].startswith("Likely cause: clients spent time (8 ms a request)") and "omission" in causes[0]
    assert len(causes) > 1 and all(cause.startswith("Likely cause: ") for cause in causes)
    assert render_text(report).splitlines()[: len(sentences(report))] == sentences(report)


def test_too_many_in_flight_suggest_an_open_loop() -> None:
    report = laws("clients,throughput,response_ms\n10,1000.0,20.000\n")
    assert "an open loop" in sentences(report)[1]
    assert "coordinated omission" not in " ".join(sentences(report))


def test_causes_in_both_directions_are_separate() -> None:
    report = laws("clients,throughput,response_ms\n10,1000.0,2.000\n20,1000.0,40.000\n")
    assert "violated at 10 and 20 clients" in sentences(report)[0]
    for cause in ("at 10 clients: clients spent time", "at 20 clients: more requests in flight"):
        assert any(sentence.startswith(f"Likely cause {cause}") for sentence in sentences(report)[1:])


def test_empty_think_time_is_a_named_open_loop() -> None:
    found = parse("clients,throughput,response_ms,think_ms\n10,1000,20.0,\n", "x")
    assert found.notes == ("think_ms is empty in 1 of 1 rows: these count as an open loop.",)
    assert [check.verdict for check in laws_of_measurements(found).interactive] == ["does not apply"]


@pytest.mark.parametrize(
    "text",
    [
        "rate,throughput,response_ms\n100,100,1\n200,190,2\n",
        "rate,throughput\n100,100\n",
        "clients,rate,throughput,response_ms\n40,100,100,1\n40,200,190,2\n",
        "clients,rate,throughput,response_ms\n40,100,0,1\n40,200,190,2\n",
        "throughput,response_ms,think_ms\n100,1,\n",
    ],
)
def test_open_loop_needs_no_clients(text: str) -> None:
    (sentence,) = sentences(laws(text))
    assert sentence.endswith("clients neither wait for answers nor think, so there is neither N nor Z.")


def test_rows_without_clients_have_demands() -> None:
    report = laws("clients,rate,throughput,response_ms,utilization_db\n8,,90,88.9,0.9\n,50,50,20,0.5\n")
    assert [dict(demand.factors) for demand in report.demands] == [{"rate": None}, {"rate": 50}]
    assert [demand.clients for demand in report.demands] == [8, None]
    assert "–" in render_text(report) and "None" not in render_text(report)


def test_a_busy_station_with_zero_visits_has_no_service_time() -> None:
    (report,) = laws("clients,throughput,response_ms,utilization_db,visits_db\n8,100,80,0.5,0\n").demands
    assert [(demand.demand_ms.estimate, demand.service_ms) for demand in report.demands] == [(5.0, None)]


def test_clients_in_some_rows_of_an_open_loop_are_left_out() -> None:
    report = laws("clients,rate,throughput,response_ms,utilization_db\n8,100,100,40,0.3\n,100,101,40,0.31\n")
    assert [demand.clients for demand in report.demands] == [None]


STATION = """\
clients,throughput,response_ms,visits_db,throughput_db,servers_db,service_ms_db,utilization_db,queue_length_db,response_ms_db
8,100.0,80.0,2,{flow},4,10.00,{busy},{queue},12.00
"""


@pytest.mark.parametrize(
    ("values", "violated"),
    [
        ({"flow": "200.0", "busy": "0.500", "queue": "2.40"}, set()),
        ({"flow": "200.0", "busy": "0.600", "queue": "2.40"}, {"the utilisation law"}),
        ({"flow": "200.0", "busy": "0.500", "queue": "3.00"}, {"Little's law"}),
        ({"flow": "250.0", "busy": "0.625", "queue": "3.00"}, {"the forced flow law"}),
    ],
)
def test_each_law_of_a_station_is_checked(values: dict[str, str], violated: set[str]) -> None:
    report = laws(STATION.format(**values))
    assert {check.law for check in report.stations} == {"Little's law", "the utilisation law", "the forced flow law"}
    assert {check.law for check in report.stations if check.verdict == "violated"} == violated


@pytest.mark.parametrize(("queue", "verdict"), [("0.00", "violated"), ("0", "cannot tell")])
def test_queue_of_zero_is_judged_with_its_rounding(queue: str, verdict: str) -> None:
    # Little's law makes 0.4 of it.
    report = laws(f"clients,throughput,response_ms,queue_length_db,response_ms_db\n8,100.0,80.0,{queue},4.00\n")
    (check,) = report.stations
    assert check.verdict == verdict
    assert any("The measured value is 0, but the law predicts 0.400." in sentence for sentence in sentences(report))


def test_single_type_rows_note_their_assumption() -> None:
    rows = (DATA / "seed001_figure2.csv").read_text().splitlines()
    assert "Every row is about LIST_QUEUES: Knee assumes that clients send no other requests." in " ".join(
        laws("\n".join(rows[:2])).notes
    )
    assert not laws("request_type,clients,throughput,response_ms\nall,8,1000,8.000\n").notes


@pytest.mark.parametrize("station", ["db-1", "data base", "bücher"])
def test_a_station_may_have_any_name(station: str) -> None:
    (demands,) = laws(f"clients,throughput,utilization_{station}\n8,100,0.500\n16,110,0.550\n").demands
    assert [demand.station for demand in demands.demands] == [station]


def test_assumptions_about_stations_are_noted() -> None:
    report = laws("clients,throughput,service_ms_db,utilization_db\n8,100,5.00,0.500\n")
    assert report.notes == (
        "No column visits_db: Knee assumes one visit per request.",
        "No column servers_db: Knee assumes one server.",
    )
    lonely = laws("clients,throughput,response_ms_p99\n8,100,5.00\n")
    assert lonely.notes == ("response_ms_p99: left out, because no law applies without other columns of p99.",)


def test_missing_clients_or_response_times_are_named() -> None:
    for text in (
        "workers,throughput\n8,100\n16,200\n",
        "clients,throughput\n8,100\n16,200\n",
        "request_type,throughput,response_ms\nget,8,1.0\nset,16,2.0\n",
    ):
        report = laws(text)
        assert not report.interactive
        assert sentences(report)[0].startswith("The interactive law was not checked")
        assert render_text(report)


def test_a_long_table_shows_its_worst_and_says_how_much_it_leaves_out() -> None:
    rows = "".join(f"{n},1000.0,{n + (n == 3):.3f}\n" for n in range(1, 121))
    report = laws("clients,throughput,response_ms\n" + rows)
    text = render_text(report)
    assert "… and 20 more checks: --details shows them all" in text
    assert any(line.split()[:2] == ["2", "3"] for line in text.splitlines())
    assert len(render_text(report, details=True).splitlines()) > 120


def test_configurations_are_named_where_there_are_several() -> None:
    text = "servers,clients,throughput,response_ms\n1,8,1000.0,8.000\n3,8,1000.0,9.000\n"
    sentence = sentences(laws(text))[0]
    assert "8 clients (servers = 3)" in sentence and "servers = 1" not in sentence


def test_response_times_in_another_unit_are_named_as_such() -> None:
    for times, way in (
        (1e-3, "1,000 times too short"),
        (1e3, "1,000 times too long"),
        (1e-6, "1,000,000 times too short"),
    ):
        found = " ".join(
            sentences(laws(f"clients,throughput,response_ms\n8,1000,{8 * times}\n16,1200,{13.3 * times}\n"))
        )
        assert f"Likely cause: the response times are about {way}: correct their unit." in found
        assert "coordinated omission" not in found
