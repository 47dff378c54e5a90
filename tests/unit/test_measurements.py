"""Reading foreign tables: factors, assumptions, and refusals with their line."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from synthetic import System, synthetic_dataset

from knee.data.csv import ROWS_MAX, parse, read, read_effects
from knee.data.measurements import configuration, of_run
from knee.errors import MeasurementsError
from knee.factorial import analyse
from knee.laws import check_laws

LOOP = "expected clients with a think_ms that may be 0 .* or a rate without think_ms"
NO_CSV = (
    "does not look like a CSV with a header: expected the names of its columns in the first line, separated by commas, "
    "such as clients,throughput,response_ms, and then rows with the same number of cells"
)

GOOD = """\
servers,workers,repetition,clients,throughput,response_ms,utilization_cpu
1,8,1,24,3000,8.0,0.5
1,8,2,24,3010,7.97,0.51
1,32,1,24,6000,4.0,0.9
1,32,2,24,6020,3.99,0.9
3,8,1,24,2500,9.6,
3,8,2,24,2510,9.56,0.4
3,32,1,24,5000,4.8,0.8
3,32,2,24,5010,4.79,0.8
"""


def test_unknown_columns_are_factors() -> None:
    found = parse(GOOD, "good.csv")
    assert found.factors == ("servers", "workers")
    assert found.responses == ("throughput", "response_ms")
    assert found.table["point"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.table["line"].to_list() == list(range(2, 10))
    assert found.table["utilization_cpu"].to_list()[4] is None
    assert found.notes == ("No column think_ms: Knee assumes no think time, Z = 0.",)


def test_the_laws_can_be_checked_on_it() -> None:
    report = check_laws(parse(GOOD, "good.csv").table)
    assert {check.verdict for check in report.interactive} == {"holds"}
    assert len(report.interactive) == 4


def test_foreign_names_are_mapped() -> None:
    text = GOOD.replace("throughput", "tps").replace("response_ms", "latency")
    found = parse(text, "theirs.csv", ["tps=throughput", "latency = response_ms"])
    assert found.responses == ("throughput", "response_ms")
    assert found.factors == ("servers", "workers")


def test_clients_are_a_factor_where_nothing_else_settles_them() -> None:
    varied = "middlewares,clients,kind,throughput\n" + "".join(
        f"{m},{c},{k},{m * c}\n" for m in (1, 2) for c in (60, 120) for k in ("a", "b")
    )
    assert parse(varied, "x").factors == ("middlewares", "clients", "kind")
    settled = "per_host,clients,throughput\n1,2,100\n2,4,200\n"
    assert parse(settled, "x").factors == ("per_host",)


def test_requests_in_flight_count_whether_they_vary_or_not() -> None:
    text = "clients,pipeline,throughput,response_ms\n8,1,1000.0,8.000\n8,4,2000.0,16.000\n"
    found = parse(text, "x")
    assert found.factors == ("pipeline",)
    for table in (found.table, parse(text.replace("8,1,1000.0,8.000\n", ""), "x").table):
        assert {check.verdict for check in check_laws(table).interactive} == {"holds"}


def test_rows_without_a_rate_beside_rates_are_closed_loop() -> None:
    rows = "8,,100,1\n16,,150,2\n,100,100,1\n,200,190,2\n"
    found = parse("clients,rate,throughput,response_ms\n" + rows, "both.csv")
    assert found.factors == ("clients", "rate") and found.table["point"].to_list() == [0, 1, 2, 3]
    assert found.table["think_ms"].to_list() == [0, 0, None, None]
    assert found.notes[-2:] == (
        "rate is empty in 2 of 4 rows: these count as a closed loop.",
        "No column think_ms: Knee assumes no think time, Z = 0.",
    )
    thinking = "8,,5,100\n,100,,100\n,200,,190\n"
    found = parse("clients,rate,think_ms,throughput\n" + thinking, "both.csv")
    assert found.factors == ("rate",), "the clients follow from whether there is a rate"
    assert found.table["think_ms"].to_list() == [5, None, None]
    assert found.notes[-1] == "rate is empty in 1 of 3 rows: these count as a closed loop."


def test_a_rate_is_an_open_loops_and_a_factor_where_it_varies() -> None:
    text = "clients,rate,throughput,response_ms\n40,100,100,1\n40,200,190,2\n"
    found = parse(text, "open.csv")
    assert (found.factors, found.responses) == (("rate",), ("throughput", "response_ms"))
    assert found.table["rate"].to_list() == [100, 200] and found.table["think_ms"].null_count() == 2
    assert found.notes == (), "nothing has to be assumed of think times"
    assert parse(text.replace("200,190", "100,190"), "open.csv").factors == ()
    # Another name of each rate separates the points as well; an unrounded one is no measurement.
    named = parse("level,rate,throughput\nlow,99.5,90\nlow,99.5,91\nhigh,200.5,190\n", "open.csv")
    assert named.factors == ("level",)
    assert named.table["rate"].to_list() == [99.5, 99.5, 200.5]
    assert "rate rounding" not in named.table.columns


def test_request_types_are_points_of_their_own() -> None:
    # Seed 001, figure 2.
    text = (
        "request_type,clients,throughput,response_ms,think_ms\n"
        "LIST_QUEUES,50,98.1166666667,75.2135,434.751\n"
        "SEND_MESSAGE,50,98.130952381,304.199,205.7655\n"
        "RECEIVE_MESSAGE,50,98.0880952381,130.552,379.4125\n"
    )
    found = parse(text, "figure2.csv")
    assert found.factors == ("request_type",)
    assert found.table["point"].to_list() == [0, 1, 2]
    assert {check.verdict for check in check_laws(found.table).interactive} == {"holds"}


def test_constant_columns_are_left_out_with_a_note() -> None:
    found = parse("host,servers,throughput\nm3.large,1,10\nm3.large,3,20\n", "x")
    assert found.factors == ("servers",)
    assert found.notes[0] == "Equal in every row, so not a factor: host = m3.large."


def test_unknown_measurements_are_no_factors() -> None:
    rows = [(8, 1000, 8.0, 12.5), (16, 1900, 8.4, 14.25), (32, 2700, 11.9, 20.125), (64, 3000, 21.3, 40.0)]
    text = "clients,throughput,response_ms,p99\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    found = parse(text, "x")
    assert found.factors == ("clients",)
    assert "p99" in found.table.columns
    assert found.notes[0].startswith("Knee treats these columns as measurements") and "p99" in found.notes[0]


def test_fractions_with_few_levels_are_factors() -> None:
    alone = "theta,throughput\n" + "".join(f"{theta},{1000 * theta}\n" for theta in (0.5, 0.6, 0.7, 0.8, 0.99))
    assert parse(alone, "x").factors == ("theta",)
    crossed = "theta,servers,throughput\n" + "".join(
        f"{theta},{servers},{1000 * theta}\n" for theta in (0.5, 0.8, 0.9, 0.99) for servers in (1, 2, 3)
    )
    assert parse(crossed, "x").factors == ("theta", "servers")


def test_missing_repetitions_are_numbered_with_a_note() -> None:
    found = parse("servers,throughput\n1,10\n3,20\n1,11\n3,21\n", "x")
    assert found.table["repetition"].to_list() == [1, 1, 2, 2]
    assert "count as repetitions (2 at most)" in found.notes[0]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["1", "2"], [1, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1", "2O"], ["1", "2O"]),
        (["m3.large", "m3.xlarge"], ["m3.large", "m3.xlarge"]),
        (["nan", "1_0"], ["nan", "1_0"]),
        # Beyond what 64 bits hold: two levels still, and neither is missing.
        (["99999999999999999998", "99999999999999999999"], ["99999999999999999998", "99999999999999999999"]),
    ],
)
def test_levels_are_numbers_where_all_of_them_are(levels: list[str], expected: list[object]) -> None:
    found = parse("f,throughput\n" + "".join(f"{level},1\n" for level in levels), "x")
    assert found.table["f"].to_list() == expected


def test_spreadsheet_quirks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_bytes('\ufeffservers, "throughput"\r\n1, 10\r\n\r\n3,20\r\n'.replace(', "', ',"').encode())
    found = read(path)
    assert found.factors == ("servers",)
    assert found.table["line"].to_list() == [2, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x: expected a header and a row per observation"),
        ("servers,throughput\n", "x: expected a header and a row per observation"),
        ("servers,workers\n1,2\n", "x: no response: expected a column throughput or response_ms"),
        ("servers,throughput\n1,fast\n", "x:2: column throughput: 'fast' is not a number$"),
        (
            'servers,throughput\n1,"12,5"\n',
            "x:2: column throughput: '12,5' is not a number; write decimals with a point",
        ),
        ("servers,throughput\n1,NaN\n", "x:2: column throughput: 'NaN' is not a number"),
        ("servers,throughput\n1,inf\n", "x:2: column throughput: 'inf' is not a number"),
        ("servers,throughput\n1,1e400\n", "x:2: column throughput: '1e400' is not a number"),
        ("servers,run_order,throughput\n1,1e19,5\n", "x:2: column run_order: 1e19 is out of range"),
        ("servers,throughput\n1,-5\n", "x:2: column throughput: -5 is negative"),
        ("servers,throughput\n,5\n", "x:2: column servers: no level"),
        ("servers,throughput\n1,5,6\n", "x:2: 3 cells, but the header has 2 columns"),
        ("servers,throughput\n1,5\n\n2\n", "x:4: 1 cell, but the header has 2 columns: servers, throughput$"),
        ("dear reader,\nnot a row\n", "x:2: 1 cell, but the header has 2 columns"),
        ("this is a text\nof lines, with a comma\n", f"x: {NO_CSV}"),
        ("this is a text\nof lines\n", f"x: {NO_CSV}"),
        ("throughput\n10,000\n", "x:2: 2 cells, but the header has 1 column: throughput$"),
        ("clients\n4\n", "x: no response: expected a column throughput or response_ms; the only column is clients; "),
        ("servers;throughput\n1;5,5\n", "separated by semicolons"),
        ("servers;throughput\n1;5\n", "separated by semicolons"),
        ("servers\tthroughput\n1\t5\n", "separated by tabs"),
        ("servers,,throughput\n1,2,5\n", "x: column 2 has no name"),
        ("servers,servers,throughput\n1,2,5\n", "x: two columns are called servers"),
        ("point,throughput\n1,5\n", "x: a column cannot be called point"),
        ("reconnects,throughput\nnone,5\n", "x: a column cannot be called reconnects: rename it with --map"),
        ("throughput rounding,throughput\n1,5\n", "x: a column cannot be called throughput rounding"),
        ("clients,throughput\n99999999999999999999,5\n", "x:2: column clients: expected a whole number from 1, not 9"),
        ("pipeline,throughput\non,5\n", "x:2: column pipeline: 'on' is not a number"),
        ("servers_db,throughput\n0,5\n", "x:2: column servers_db: expected at least one server"),
        ("utilization_db,throughput\n50%,5\n", "'50%' is not a number; write a share from 0 to 1"),
        ("servers,repetition,throughput\n1,1.5,5\n", "x:2: column repetition: expected a whole number from 1, not 1.5"),
        ("servers,repetition,throughput\n1,,5\n", "x:2: column repetition: no value"),
        ("rate,throughput\n100,5\n,5\n", f"x:3: {LOOP}"),
        ("clients,rate,throughput\n,100,5\n,,5\n", f"x:3: {LOOP}"),
        ("clients,throughput\n,5\n", f"x:2: {LOOP}"),
        ("clients,rate,think_ms,throughput\n8,,,5\n,100,,5\n", f"x:2: {LOOP}"),
        ("rate,think_ms,throughput\n100,,5\n200,1,5\n", f"x:3: {LOOP}"),
        ("servers,clients,throughput\n1,0,5\n", "x:2: column clients: expected a whole number from 1, not 0"),
        ("servers,repetition,throughput\n1,1,5\n3,1,5\n1,1,6\n", "x:4: the same levels and repetition 1 as line 2"),
        ('servers,throughput\n1,"5\n', "x:2: not a CSV"),
    ],
)
def test_mistake_is_named_by_its_line(text: str, message: str) -> None:
    with pytest.raises(MeasurementsError, match=message):
        parse(text, "x")


def test_a_run_folder_is_read_in_the_same_form() -> None:
    dataset = synthetic_dataset(System(), (4, 64), workers=(8, 32))
    found = of_run(dataset)
    assert found.factors == ("load.clients", "middleware.workers")
    assert {"throughput", "response_ms", "queueing_ms"} <= set(found.responses)
    findings = analyse(found.table, found.factors, "throughput", run_order="run_order")
    assert findings.analysis.design.label == "2^2·3 full factorial design"
    assert findings.analysis.ranked[0].factors == ("load.clients",)


def test_factor_that_sets_clients_is_no_configuration() -> None:
    assert configuration(synthetic_dataset(System(), (4, 64), workers=(8, 32))) == ["middleware.workers"]
    rows = "hosts,clients,cache,throughput\n1,4,cold,10\n1,4,warm,20\n2,8,cold,30\n2,8,warm,40\n"
    assert configuration(parse(rows, "x")) == ["cache"]
    # Of 8 clients it takes the hosts to tell one row from the other.
    rows = "hosts,each,clients,throughput\n2,4,8,10\n4,2,8,20\n4,4,16,30\n"
    assert configuration(parse(rows, "x")) == ["hosts", "each"]


def test_constant_factor_of_a_run_is_left_out_with_a_note() -> None:
    found = of_run(synthetic_dataset(System(), (4, 64), workers=(8,)))
    assert found.factors == ("load.clients",)
    assert found.notes[0] == "Equal in every row, so not a factor: middleware.workers = 8."
    assert found.constant["middleware.workers"] == 8


def test_constant_settings_come_from_experiment_or_file() -> None:
    found = of_run(synthetic_dataset(System(middlewares=3), (4, 64), workers=(8, 32)))
    assert {"load.clients", "middleware.workers"}.isdisjoint(found.constant)
    said = {
        "middleware.hosts": 3,
        "workload.protocol": "memcached",
        "workload.key_choice": "uniform",
        "workload.ttl_s": None,
        "store.address": None,
    }
    assert said.items() <= found.constant.items()
    # How long it was measured is none of its settings.
    assert not [name for name in found.constant if name.startswith("measure.")]
    assert parse("cache,clients,throughput\nwarm,4,10\nwarm,8,20\n", "x").constant == {"cache": "warm"}


def test_every_problem_is_named_up_to_a_limit() -> None:
    with pytest.raises(MeasurementsError) as error:
        parse("servers,throughput\n" + "1,fast\n" * 30, "x")
    lines = str(error.value).splitlines()
    assert len(lines) == 11 and lines[-1].endswith("and 20 more")


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ("tps", "expected THEIRS=OURS"),
        ("=throughput", "expected THEIRS=OURS"),
        ("throughputs=throughput", "no column throughputs: did you mean throughput"),
        ("servers=throughput", "two columns are called throughput"),
    ],
)
def test_a_bad_mapping_is_named(rename: str, message: str) -> None:
    with pytest.raises(MeasurementsError, match=message):
        parse(GOOD, "x", [rename])


def test_a_missing_response_is_kept_as_missing() -> None:
    found = parse("servers,throughput\n1,\n3,5\n", "x")
    assert found.table["throughput"].to_list() == [None, 5]


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knee.data.csv.ROWS_MAX", 2)
    assert ROWS_MAX >= 1_000_000
    with pytest.raises(MeasurementsError, match="more than 2 rows"):
        parse("servers,throughput\n1,1\n2,1\n3,1\n", "x")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeasurementsError, match=r"nowhere\.csv: cannot be read: No such file"):
        read(tmp_path / "nowhere.csv")
    (tmp_path / "latin.csv").write_bytes(b"\xe4,throughput\n1,2\n")
    with pytest.raises(MeasurementsError, match="not UTF-8"):
        read(tmp_path / "latin.csv")


def test_published_effects_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "effects.csv"
    path.write_text("effect,throughput,response_ms\nI,14650,6.25\nA,221,\nAB,-86,-0.40\n")
    found = read_effects(path)
    assert found["throughput"] == {"I": Decimal(14650), "A": Decimal(221), "AB": Decimal(-86)}
    assert str(found["response_ms"]["AB"]) == "-0.40"
    assert "A" not in found["response_ms"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("term,throughput\nA,1\n", "expected a column effect and one per response"),
        ("effect\nA\n", "expected a column effect and one per response"),
        ("effect,throughput\nA,one\n", ":2: column throughput: 'one' is not a number"),
        ("effect,throughput\nA,1\nA,2\n", ":3: effect A occurs twice"),
        ("effect,throughput\nA,1\nB,1e1500000\n", ":3: column throughput: 1e1500000 is out of range"),
        ("effect,throughput\nA,0e-9999999\n", ":2: column throughput: 0e-9999999 is out of range"),
        ("effect,throughput\nA,inf\n", ":2: column throughput: 'inf' is not a number"),
    ],
)
def test_bad_published_effects_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "effects.csv"
    path.write_text(text)
    with pytest.raises(MeasurementsError, match=message):
        read_effects(path)


def test_a_text_is_no_published_effects(tmp_path: Path) -> None:
    path = tmp_path / "effects.txt"
    path.write_text("none of these\nlines, in all of it, is a row\n")
    with pytest.raises(MeasurementsError, match=r"effects\.txt: does not look .* such as effect,throughput, and then"):
        read_effects(path)


@pytest.mark.parametrize("value", ["1e308", "1e16", "1e-308", "1e-400", "0e400", "0e-99999999999999999999"])
@pytest.mark.parametrize("column", ["throughput", "response_ms", "service_ms_db"])
def test_value_beyond_any_measurement_is_refused(column: str, value: str) -> None:
    row = {"throughput": "100", "response_ms": "10", "service_ms_db": "0.5"} | {column: value}
    with pytest.raises(MeasurementsError, match=rf"theirs\.csv:3: column {column}: {value} is out of range"):
        parse(f"clients,{','.join(row)}\n1,90,9,0.4\n2,{','.join(row.values())}\n", "theirs.csv")


@pytest.mark.parametrize("value", ["1" + 400 * "0", "-1e101", "1e-101", "0e400"])
def test_response_in_a_unit_of_its_own_has_a_range(value: str) -> None:
    with pytest.raises(MeasurementsError, match=rf"theirs\.csv:3: column y: {value} is out of range"):
        parse(f"a,y\n1,-1e99\n2,{value}\n", "theirs.csv", responses=["y"])


def test_the_order_of_the_runs_may_be_their_times() -> None:
    found = parse("size,run_order,throughput\n1,1732567890123456,10\n2,1732567890123456789,20\n", "theirs.csv")
    assert found.table["run_order"].to_list() == [1732567890123456, pytest.approx(1732567890123456789)]


def test_level_beyond_any_measurement_is_text() -> None:
    found = parse("size,throughput\n1e308,10\n1,20\n", "theirs.csv")
    assert found.table["size"].to_list() == ["1e308", "1"]
