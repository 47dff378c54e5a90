"""Tables of any origin under `knee check`: the meaning of their columns, their units, and their mistakes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars as pl
import pytest
from command_line import knee

from knee.check import Findings, check, checks_of, table
from knee.data.foreign import Result, read
from knee.data.foreign.aliases import meaning_of
from knee.errors import MeasurementsError

pytestmark = pytest.mark.usefixtures("scriptless")

Row = dict[str, object]


def rows(per_s: float = 1200.0, **units: float) -> list[Row]:
    """Three repetitions of six numbers of users; each latency by its column, in its unit of `units` ms."""
    chance = random.Random(1)
    found = []
    for users in (1, 2, 4, 8, 16, 32):
        for _ in range(3):
            rate = round(min(users * per_s / 4.8, per_s) * chance.uniform(0.99, 1.01), 1)
            found.append({"vus": users, "rps": rate} | {name: users / rate * 1000 / ms for name, ms in units.items()})
    return found


def write(path: Path, records: list[Row]) -> Path:
    frame = pl.DataFrame(records)
    match path.suffix:
        case ".csv":
            frame.write_csv(path)
        case ".parquet":
            frame.write_parquet(path)
        case ".jsonl":
            path.write_text("".join(json.dumps(each) + "\n" for each in records))
        case _:
            path.write_text(json.dumps(records, indent=1))
    return path


def results(path: Path, *renames: str, ignored: tuple[str, ...] = ()) -> list[Result]:
    return read([path], renames=renames, ignored=ignored)[0]


def notes(path: Path, *renames: str) -> str:
    return "\n".join(read([path], renames=renames)[1])


def knee_of(found: Findings) -> float:
    assert found.verdict is not None
    (verdict,) = found.verdict.verdicts
    assert verdict.knee.clients is not None
    return verdict.knee.clients.estimate


@pytest.mark.parametrize(
    ("column", "name", "unit"),
    [
        ("p95", "p95_ms", None),
        ("P99.9 (us)", "p999_ms", "us"),
        ("latency_p95_s", "p95_ms", "s"),
        ("p(90)", "p90_ms", None),
        ("95%", "p95_ms", None),
        ("99th percentile latency", "p99_ms", None),
        ("median-latency-ns", "p50_ms", "ns"),
        ("rps", "throughput", None),
        ("Throughput (req/s)", "throughput", None),
        ("requests per second", "throughput", None),
        ("achieved_qps", "throughput", None),
        ("throughput_rps", "throughput", None),
        ("target.rps", "rate", None),
        ("VUs", "clients", None),
        ("concurrentUsers", "clients", None),
        ("concurrency", "clients", None),
        ("connections", "clients", None),
        ("latency_ms", "response_ms", "ms"),
        ("avgLatencyMs", "response_ms", "ms"),
        ("mean_µs", "response_ms", "us"),
        ("Response Time [s]", "response_ms", "s"),
        ("max_latency", "max_ms", None),
        ("stddev_ms", "", "ms"),
        ("duration_s", "duration_s", "s"),
        ("think-time-ms", "think_ms", "ms"),
        ("total_requests", "requests", None),
        ("failures", "errors", None),
        ("utilization_db", "", None),
    ],
)
def test_column_has_a_meaning_by_its_name(column: str, name: str, unit: str | None) -> None:
    meaning = meaning_of(column)
    assert meaning is not None
    assert (meaning.name, meaning.unit) == (name, unit)


@pytest.mark.parametrize("column", ["workers", "region", "max_users", "time", "bytes", "cpu %", "s"])
def test_other_column_has_no_meaning(column: str) -> None:
    assert meaning_of(column) is None


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.jsonl", "t.parquet"])
def test_table_of_each_form_has_the_same_knee(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, rows(avg_latency_ms=1.0, p95_ms=0.5))
    found = results(path)
    assert [found[-1].clients, found[-1].percentiles_ms[95.0]] == [32, pytest.approx(2 * (found[-1].response_ms or 0))]
    checked = check(found)
    assert [each.state for each in checked.checks if each.kind == "set"] == ["holds"]
    assert 4 < knee_of(checked) < 6
    assert "vus is clients, rps is throughput, avg_latency_ms is response_ms" in notes(path)


def test_nested_json_has_names_with_points(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"results": [{"vus": 4, "rps": 100, "latency": {"avg_s": 0.04, "p99.9_s": 0.9}}]}'
    )
    (result,) = results(tmp_path / "t.json")
    assert (result.clients, result.response_ms, result.percentiles_ms) == (4, 40.0, {99.9: 900.0})


@pytest.mark.parametrize(("unit", "ms"), [("s", 1e3), ("ms", 1.0), ("us", 1e-3), ("ns", 1e-6)])
def test_unit_without_a_name_follows_from_the_law(unit: str, ms: float, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", rows(latency=ms, p95=ms / 2))
    found = results(path)
    assert found[0].response_ms == pytest.approx(1000 / found[0].throughput)
    assert f"latency, p95: no unit, read in {unit} by N = X · R" in notes(path)
    # The name of a unit needs no law.
    assert results(path, "latency=latency_s")[0].percentiles_ms[95.0] == pytest.approx(
        2000 / found[0].throughput * 1000 / ms
    )


def test_unit_is_assumed_without_clients(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"rps": 100, "latency": 40}])
    assert results(path)[0].response_ms == 40.0
    assert "latency: no unit, read in ms as N = X · R cannot show it" in notes(path)


@pytest.mark.parametrize(
    ("column", "ms", "says"),
    [
        ("latency_s", 1.0, "1,000 times too long: latency_s reads as seconds, the law needs ms"),
        ("latency_ms", 1e3, "1,000 times too short: latency_ms reads as ms, the law needs seconds"),
        ("latency_ms", 1e-6, "1,000,000 times too long: latency_ms reads as ms, the law needs ns"),
        ("p_us", 1e3, "1,000,000 times too short: p_us reads as µs, the law needs seconds"),
    ],
)
def test_unit_that_contradicts_the_law_is_named(column: str, ms: float, says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", rows(**{column: ms}))
    found = checks_of(results(path, *(["p_us=latency_us"] if column == "p_us" else [])))
    (cause,) = {each.cause for each in found if each.kind == "unit"}
    assert cause.replace("latency_us", "p_us").endswith(says)


def test_digits_of_another_unit_show_the_same_rounding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("vus,rps,latency_s\n16,1000.0,0.02\n")
    (result,) = results(tmp_path / "t.csv")
    # Half a digit of 0.02 s.
    assert (result.response_ms, result.rounding) == (20.0, pytest.approx(0.25 + 0.00005))


def test_whole_latencies_and_times_of_day_are_no_factors(tmp_path: Path) -> None:
    records = [
        {**row, "min_ms": at % 3, "p90": at % 2 + 1, "stddev": 2, "started": f"12:00:{at}", "region": "ab"[at % 2]}
        for at, row in enumerate(rows(latency_ms=1.0))
    ]
    path = write(tmp_path / "t.csv", records)
    assert {each.operation for each in results(path)} == {"region = a", "region = b"}
    assert "not used: min_ms, stddev, started" in notes(path)
    assert {each.operation for each in results(path, ignored=("region",))} == {""}


def test_threads_are_clients_only_without_connections(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"threads": 2, "connections": 16, "rps": 1000.0}])
    assert results(path)[0].clients == 16
    assert results(path, ignored=("connections",))[0].clients == 2


def test_table_without_latencies_has_a_knee_by_clients_and_throughput(tmp_path: Path) -> None:
    for records in (rows(), [{**row, "p95": 7} for row in rows()]):
        found = check(results(write(tmp_path / "t.csv", records)))
        assert 4 < knee_of(found) < 6
        assert {each.kind for each in found.checks} == {"law"}


def test_errors_without_a_number_of_requests_are_only_a_doubt(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"rps": 100.0, "vus": 1, "errors": 3}])
    (doubt,) = [each for each in checks_of(results(path)) if each.kind == "errors"]
    assert (doubt.state, doubt.what) == ("doubt", "3 requests failed, of an unknown number")
    path = write(tmp_path / "t.csv", [{"rps": 100.0, "vus": 1, "errors": 3, "duration_s": 10}])
    (of_known,) = [each for each in checks_of(results(path)) if each.kind == "errors"]
    assert "3 of 1000 requests failed" in of_known.what


def test_map_takes_either_order_and_any_known_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"n": 16, "speed": 1000, "took": 0.016}])
    for renames in (["n=users", "speed=rps", "took=latency_s"], ["clients=n", "throughput=speed", "latency=took"]):
        (result,) = results(path, *renames)
        assert (result.clients, result.throughput, result.response_ms) == (16, 1000.0, 16.0)


@pytest.mark.parametrize(
    ("name", "text", "options", "says"),
    [
        ("t.csv", "vus,rsp,p95\n1,2,3\n", [], "t.csv: no column of the throughput: the columns are vus, rsp, p95"),
        ("t.json", "[]", [], "t.json: no rows"),
        ("t.json", "{}", [], "t.json: no rows"),
        ("t.json", "", [], "t.json: is empty"),
        ("t.json", "[1, 2]", [], "t.json: no rows"),
        ("t.json", '[{"rps": 1}, {"rps', [], "t.json: not whole JSON"),
        ("t.jsonl", '{"rps": 1}\n{"rps": 2}\n{"rps', [], "t.jsonl: not whole JSON"),
        ("t.csv", "vus,rps\n1,2\n", ["--map", "foo=rps"], "t.csv has no column foo: the columns are vus"),
        ("t.csv", "vus,rps\n1,2\n", ["--map", "throughput=speed"], "t.csv has no column speed: the columns are vus"),
        ("t.csv", "vus,rps\n1,2\n", ["--ignore", "rpm"], "t.csv has no column rpm: did you mean rps?"),
        (
            "t.csv",
            "vus,users,rps\n1,1,2\n",
            [],
            "vus and users both read as clients: leave one out with --ignore users",
        ),
        ("t.csv", "vus,rps,latency\n1,2,fast\n", [], "t.csv:2: column latency: 'fast' is not a number"),
        ("t.csv", "vus,rps\n1,2\n", ["--from", "wrk"], "--map, --ignore: no table among the files"),
    ],
)
def test_mistake_ends_with_one_line_and_exit_code_2(
    name: str, text: str, options: list[str], says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    if "--from" in options:
        options = [*options, "--ignore", "vus"]
    code, said, why = knee("check", str(tmp_path / name), *options)
    assert (code, said, why.count("\n")) == (2, "", 1)
    assert says in why


def test_damaged_parquet_is_read_or_refused_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", rows(latency_ms=1.0))
    whole, chance = path.read_bytes(), random.Random(7)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MeasurementsError, match=r"t.parquet: not a whole Parquet file: .*; write it again"):
        results(path)
    for _ in range(60):
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + chance.randbytes(8) + whole[at + 8 :])
        try:
            results(path)
        except MeasurementsError as error:
            assert "t.parquet" in str(error)


def test_csv_of_a_table_has_the_columns_of_other_commands(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", rows(latency=1e3))
    code, _, why = knee("check", str(path), "--csv", str(tmp_path / "out.csv"))
    assert code == 0 and "latency: no unit, read in s by N = X · R" in why
    (first, *_) = found = results(tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().startswith("clients,throughput,response_ms\n1,")
    assert len(found) == 18 and table(found) == (tmp_path / "out.csv").read_text()
    assert first.response_ms == pytest.approx(1000 / first.throughput)


def test_text_or_share_is_no_number_of_requests(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("operation,vus,rps,latency_ms,Error %\nGET,8,1000,8,1.4\nSET,8,500,16,0.0\n")
    found = results(tmp_path / "t.csv")
    assert [(each.operation, each.errors) for each in found] == [("operation = GET", 0), ("operation = SET", 0)]
    path = write(tmp_path / "share.csv", [{"rps": 100.0, "vus": 1, "errors": 0.4}])
    with pytest.raises(MeasurementsError, match=r"column errors: 0\.4 is no number of errors; leave a share out"):
        results(path)


def test_unit_follows_from_the_law_with_think_time(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"clients": 1000, "rps": 100.0, "latency": 5, "think_ms": 9995}])
    assert results(path)[0].response_ms == 5 and "read in ms by N" in notes(path)
    path = write(tmp_path / "t.csv", [{"clients": 1000, "rps": 100.0, "latency": 5, "think_time": 9995}])
    assert "read in ms as N = X · R cannot show it" in notes(path)


def test_outcome_or_comment_is_no_factor(tmp_path: Path) -> None:
    table: list[dict[str, object]] = [
        {
            "vus": n,
            "rps": 100.0 * n,
            "latency_ms": 10,
            "success_rate": 100 - n // 9,
            "comment": "warm" * (n > 9),
            "size": 1,
        }
        for n in (1, 2, 4, 8, 16, 32)
    ]
    path = write(tmp_path / "t.csv", table)
    assert {each.operation for each in results(path)} == {""}
    assert "not used: success_rate, comment" in notes(path)


def test_factor_with_two_rows_a_level_stays_one(tmp_path: Path) -> None:
    table: list[dict[str, object]] = [
        {"vus": 16, "rps": 100.0 + size, "latency_ms": 1600 / (10 + size), "system": system, "size": size}
        for system in ("a", "b")
        for size in range(8)
    ]
    path = write(tmp_path / "t.csv", table)
    assert len({each.operation for each in results(path)}) == 16
    assert "factors: system, size" in notes(path)


def test_rate_of_zero_is_a_closed_loop(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"vus": 4, "rps": 3000.0, "latency_ms": 50, "target_throughput": 0}])
    assert not results(path)[0].is_open


def test_index_and_missing_values_of_a_data_frame_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",vus,rps,latency_ms,p99_ms\n0,8,1000,8,NaN\n1,16,1000,16,-\n")
    assert [each.percentiles_ms for each in results(tmp_path / "t.csv")] == [{}, {}]
    (tmp_path / "t.json").write_text('[{"vus": 8, "rps": 1000, "latency_ms": 8, "p99_ms": NaN}]')
    assert results(tmp_path / "t.json")[0].percentiles_ms == {}


def test_json_object_gives_its_entries_to_the_rows_of_its_list(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"tags": ["x"], "clients": 8, "runs": [{"rps": 1000, "latency_ms": 8}]}')
    assert results(tmp_path / "t.json")[0].clients == 8
    (tmp_path / "t.json").write_text('{"clients": 8, "throughput": 1000, "latency_ms": 8, "samples": [1, 2]}')
    assert results(tmp_path / "t.json")[0].response_ms == 8
