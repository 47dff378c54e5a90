"""Results of other load generators, as recorded (tests/data/foreign/README.md), and what is wrong with them."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import knee

from knee.answers import check as answers
from knee.answers import form
from knee.check import Findings, check, checks_of, render_text, table
from knee.check.rules import INVENTED, Finding, findings_of
from knee.data.foreign import Result, http, read
from knee.errors import MeasurementsError

pytestmark = pytest.mark.usefixtures("scriptless")

RECORDED = Path(__file__).resolve().parents[1] / "data" / "foreign"
SINGLE = sorted(path for path in RECORDED.iterdir() if path.is_file() and path.suffix != ".md")


def results(name: str, clients: int | None = None) -> list[Result]:
    return read([RECORDED / name], clients=clients)[0]


def checked(name: str, clients: int | None = None) -> Findings:
    return check(results(name, clients))


def wrong(name: str, clients: int | None = None) -> dict[str, Finding]:
    return {each.kind: each for each in checked(name, clients).checks if each.state == "wrong"}


def kinds(result: Result) -> dict[str, Finding]:
    return {each.kind: each for each in findings_of(result)}


K6 = (RECORDED / "k6.json").read_text()

CLOSED = Result("tool", 1000.0, 16.0, clients=16, duration_s=60.0, requests=60_000)
"""A closed loop that obeys the law."""


@pytest.mark.parametrize(
    ("name", "throughput", "response_ms", "clients", "max_ms", "p99_ms"),
    [
        ("wrk.txt", 1360.0, 12.17, 16, 97.9, 40.57),
        ("wrk-c5.txt", 1354.34, 3.23, 4, 38.61, None),
        ("wrk-stalled.txt", 1086.93, 98.06, 16, 1050.0, 985.8),
        ("hey.txt", 1195.8, 13.3, None, 104.0, 48.2),
        ("ab.txt", 1332.11, 12.0, 16, 57.0, 39.0),
        ("wrk2.txt", 499.64, 5.36, 16, 74.11, 46.65),
        ("wrk2-overload.txt", 1482.87, 7730.0, 16, 8440.0, 8420.0),
        ("vegeta.txt", 499.88, 2.827, None, 5.866, 4.324),
        ("vegeta.json", 499.88424963583174, 2.826649, None, 5.866315, 4.324316),
        ("oha.json", 1586.6868981533432, 10.0848058, None, 15.900593, 13.141501),
        ("k6.json", 1454.7306289564506, 5.455992, 8, 78.734646, None),
        ("locust_stats.csv", 1252.673053097229, 6.157393, None, 223.2934, 17.0),
        ("memtier.json", 24321.69, 59955 / 97299, 20, 36.863, 7.679),
        ("memtier.txt", 24321.69, 0.61675, 20, None, 7.679),
        ("redis-benchmark-pipelined.csv", 387596.91, 1.696, None, 25.359, 13.487),
        ("pgbench.txt", 27005.121146, 0.286, 8, None, None),
        ("ycsb.txt", 4012.036108324975, 1.743205, None, 17.855, None),
        ("sysbench.txt", 6974 / 3.0003, 1.71, 4, 80.25, None),
        ("fio.json", 58961.346218, 0.271013042, 16, 7.850215, 2.834432),
        ("vllm.json", 38.959835291891416, 199.5393995413906, 8, None, 252.25722878203672),
        ("vllm-rate.json", 38.45290458894833, 195.62052759204866, 8, None, 202.25546616879),
        ("guidellm-rate.json", 29.833333333333336, 119.27718321482342, None, 287.62078285217285, 282.13953971862793),
    ],
)
def test_recorded_result_is_read_in_one_unit(
    name: str, throughput: float, response_ms: float, clients: int | None, max_ms: float | None, p99_ms: float | None
) -> None:
    (result,) = results(name)
    assert result.throughput == throughput
    assert result.response_ms == pytest.approx(response_ms)
    assert result.clients == clients
    assert result.max_ms == (None if max_ms is None else pytest.approx(max_ms))
    assert result.percentiles_ms.get(99.0) == (None if p99_ms is None else pytest.approx(p99_ms))


@pytest.mark.parametrize(
    "name", ["wrk.txt", "ab.txt", "k6.json", "pgbench.txt", "sysbench.txt", "fio.json", "vllm.json", "guidellm.json"]
)
def test_sound_result_has_nothing_wrong(name: str) -> None:
    assert not wrong(name)
    assert any(each.state == "holds" for each in checked(name).checks)


@pytest.mark.parametrize("name", ["wrk2.txt", "wrk2-stalled.txt", "vegeta.json"])
def test_constant_rate_is_not_accused(name: str) -> None:
    (result,) = results(name)
    (of_rate,) = [each for each in findings_of(result) if each.state != "doubt"]
    assert of_rate.state == "unknown" and of_rate.remedy == "add --rate"
    (of_rate,) = [each for each in findings_of(replace(result, rate=500.0)) if each.state != "doubt"]
    assert of_rate.state == "holds"


def test_rate_that_was_not_reached_is_named() -> None:
    assert "1,310 of 2,490 requests/s" in wrong("k6-dropped.json")["rate"].what
    assert "left out 4731 due requests (47%)" in wrong("k6-dropped.json")["generator"].what
    (result,), _ = read([RECORDED / "vegeta-overload.json"], rate=3000)
    assert kinds(result)["rate"].state == "wrong"


def test_rate_counts_the_wait_for_the_last_responses() -> None:
    # 1000 requests in 100 s, and ten seconds for the last ones.
    served = replace(CLOSED, is_open=True, rate=10.0, throughput=9.1, duration_s=110.0, response_ms=10_000.0)
    assert kinds(served)["rate"].state == "holds"
    assert kinds(replace(served, throughput=8.0))["rate"].state == "wrong"


def test_constant_rate_of_k6_is_not_accused(tmp_path: Path) -> None:
    (tmp_path / "k6.json").write_text(re.sub(r'"max": 8\b', '"max": 50', K6).replace('"min": 8', '"min": 50'))
    (result,), _ = read([tmp_path / "k6.json"])
    assert result.is_open and result.clients == 50
    assert [each.state for each in findings_of(result) if each.kind in ("law", "outside", "rate")] == ["unknown"]


def test_summary_function_of_k6_has_its_failed_requests_counted(tmp_path: Path) -> None:
    metrics = json.loads(K6)["metrics"]
    metrics["http_req_failed"] = {"rate": 0.25, "passes": 1456, "fails": 4370}
    (tmp_path / "k6.json").write_text(json.dumps({"metrics": {name: {"values": of} for name, of in metrics.items()}}))
    assert read([tmp_path / "k6.json"])[0][0].errors == 1456


@pytest.mark.parametrize(("name", "duration_s"), [("k6-points.json", 5.442), ("k6-points.csv", 4.0)])
def test_points_of_k6_agree_with_its_summary(name: str, duration_s: float) -> None:
    (result,) = results(name)
    # The summary of the same run has 9.731/s, a mean of 396.857 ms and a median of 411.000 ms.
    assert (result.throughput, result.response_ms) == (pytest.approx(9.731, rel=0.03), pytest.approx(396.857, rel=0.01))
    assert result.percentiles_ms[50.0] == pytest.approx(411.0, rel=0.02)
    assert (result.clients, result.duration_s) == (4, pytest.approx(duration_s, abs=0.001))
    assert kinds(result)["law"].state == "holds"


def test_points_of_k6_with_fine_times_need_no_whole_seconds(tmp_path: Path) -> None:
    (head, *lines), found = (RECORDED / "k6-points.csv").read_text().splitlines(), []
    for end in ("", "000", "000001", "000001000"):
        fine = [re.sub(r",(\d{10}),", rf",\g<1>{end},", line) for line in lines]
        (tmp_path / "k6.csv").write_text("\n".join([head, *fine, ""]))
        found += read([tmp_path / "k6.csv"])[0]
    # Times that end in a millisecond of 0 still look whole.
    assert [each.requests for each in found] == [40, 40, 53, 53]


MUTILATE = """\
#type       avg     min     1st     5th    10th    90th    95th    99th
read      598.8    86.0   437.2   466.6   482.6   977.0  1075.8  1170.6
update      0.0     0.0     0.0     0.0     0.0     0.0     0.0     0.0
op_q        1.5     1.0     1.0     1.1     1.1     1.9     1.9     2.0

Total QPS = 318710.8 (1593559 / 5.0s)

Misses = 0 (0.0%)
"""
"""The example of mutilate's README, for 24 threads of 8 connections; times are in microseconds."""


def test_mutilate_is_a_closed_loop_of_connections(tmp_path: Path) -> None:
    (tmp_path / "c192.txt").write_text(MUTILATE)
    (result,) = read([tmp_path / "c192.txt"])[0]
    assert (result.tool, result.clients, result.requests, result.duration_s) == ("mutilate", 192, 1_593_559, 5.0)
    assert (result.response_ms, result.percentiles_ms[99.0]) == (pytest.approx(0.5988), pytest.approx(1.1706))
    assert kinds(result)["law"].state == "holds"
    (tmp_path / "c192.txt").write_text(MUTILATE.replace("update      0.0", "update    600.0"))
    assert read([tmp_path / "c192.txt"])[0][0].response_ms is None
    (tmp_path / "c192.txt").write_text(MUTILATE.partition("Total")[0])
    with pytest.raises(MeasurementsError, match=r"c192.txt: no line Total QPS: not whole output of mutilate"):
        read([tmp_path / "c192.txt"])


FAILED = "Failed requests:        120\n   (Connect: 5, Receive: 0, Length: 115, Exceptions: 0)"


@pytest.mark.parametrize(
    ("name", "old", "new", "field", "expected"),
    [
        # Answers of other lengths are no errors.
        ("ab.txt", "Failed requests: .*", FAILED, "errors", 5),
        # A connection for each transaction.
        ("pgbench.txt", "without initial connection", "including reconnection", "throughput", 27005.121146),
        # The depth counts only for asynchronous engines: it is 16 there.
        ("fio.json", '"libaio"', '"psync"', "clients", 2),
    ],
)
def test_changed_result_is_read(name: str, old: str, new: str, field: str, expected: float, tmp_path: Path) -> None:
    (tmp_path / name).write_text(re.sub(old, new, (RECORDED / name).read_text()))
    (result,), _ = read([tmp_path / name])
    assert getattr(result, field) == expected


def test_lost_requests_of_hey_count_as_requests(tmp_path: Path) -> None:
    text = (RECORDED / "hey.txt").read_text() + "\nError distribution:\n  [3603]\tGet: EOF\n"
    (tmp_path / "hey.txt").write_text(text)
    (result,), _ = read([tmp_path / "hey.txt"])
    assert "(50.00%)" in kinds(result)["errors"].what


def test_file_named_for_no_clients_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hey-c0.txt").write_text((RECORDED / "hey.txt").read_text())
    with pytest.raises(MeasurementsError, match=r"hey-c0.txt: no clients"):
        read([tmp_path / "hey-c0.txt"])


def test_files_with_numbers_are_runs_of_their_own(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"k6.16.{number}").write_text(K6)
    assert len(read([tmp_path])[0]) == 2


VLLM = {
    "backend": "vllm",
    "num_prompts": 100,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 8,
    "duration": 50.0,
    "completed": 100,
    "failed": 0,
    "request_throughput": 2.0,
    "mean_ttft_ms": 400.0,
    "mean_e2el_ms": 3950.0,
    "median_e2el_ms": 3900.0,
    "p99_e2el_ms": 5000.0,
}
"""The entries of `vllm bench serve --save-result` that matter (vllm/benchmarks/serve.py, 0.11)."""


def test_vllm_is_a_closed_loop_without_a_rate(tmp_path: Path) -> None:
    rated = VLLM | {"request_rate": 2.5, "mean_e2el_including_client_queue_ms": 9000.0}
    mean = {name: of for name, of in VLLM.items() if "e2el" not in name}
    listed = mean | {"latencies": [3.0, 0.0, 5.0], "queue_times": [9.0, 0.0, 9.0], "failed": 1}
    (tmp_path / "v.json").write_text("\n".join(map(json.dumps, (VLLM, rated, mean, listed))))
    closed, opened, untimed, timed = read([tmp_path / "v.json"])[0]
    assert (closed.clients, closed.response_ms, closed.percentiles_ms) == (8, 3950.0, {50.0: 3900.0, 99.0: 5000.0})
    assert kinds(closed)["law"].state == "holds"
    assert (opened.is_open, opened.rate, opened.response_ms) == (True, 2.5, 9000.0)
    assert kinds(untimed)["law"].remedy == "add --percentile-metrics ttft,tpot,itl,e2el"
    assert (timed.response_ms, timed.max_ms, timed.errors, timed.requests) == (4000.0, 5000.0, 1, 101)


def test_vllm_that_writes_no_failed_requests_has_them_counted() -> None:
    # The server ended before the last of 60 requests.
    (result,) = results("vllm-lost.json")
    assert (result.requests, result.errors) == (60, 12)


def test_guidellm_with_a_rate_has_responses_timed_from_when_they_are_due() -> None:
    metrics = json.loads((RECORDED / "guidellm-rate.json").read_text())["benchmarks"][0]["metrics"]
    (result,) = results("guidellm-rate.json")
    assert (result.rate, kinds(result)["rate"].state) == (30.0, "holds")
    assert result.response_ms is not None
    assert result.response_ms > 1100 * metrics["request_latency"]["successful"]["mean"]


def test_guidellm_measures_the_time_of_its_workers_beside_responses() -> None:
    two, eight = results("guidellm.json")
    assert (two.clients, eight.clients, eight.requests, eight.errors) == (2, 8, 470, 0)
    assert (eight.throughput, eight.response_ms) == (
        pytest.approx(39.167, abs=0.001),
        pytest.approx(192.508, abs=0.001),
    )
    for result in (two, eight):
        law = kinds(result)["law"]
        assert law.state == "holds" and law.figure < 0.025
        # Without the workers' time, more of the clients' time is in no response.
        assert kinds(replace(result, rest_ms=None))["law"].figure > 0.05


def test_guidellm_has_a_result_for_each_strategy(tmp_path: Path) -> None:
    def benchmark(**strategy: object) -> dict[str, object]:
        latency = {"mean": 3.95, "max": 6.0, "percentiles": {"p50": 3.9, "p99": 5.0, "p999": 5.9}}
        metrics = {
            "requests_per_second": {"successful": {"mean": 2.0}},
            "request_latency": {"successful": latency},
            "request_totals": {"successful": 98, "incomplete": 8, "errored": 2, "total": 108},
        }
        return {"config": {"strategy": strategy}, "duration": 50.0, "metrics": metrics}

    strategies = [
        benchmark(type_="concurrent", streams=8, max_concurrency=8),
        benchmark(type_="constant", rate=2.0, max_concurrency=512),
        benchmark(kind="throughput", max_concurrency=512),
        benchmark(type_="synchronous"),
    ]
    (tmp_path / "benchmarks.json").write_text(json.dumps({"metadata": {}, "benchmarks": strategies}, indent=1))
    closed, rated, burst, alone = read([tmp_path / "benchmarks.json"])[0]
    assert (closed.tool, closed.clients, closed.response_ms, closed.max_ms) == ("guidellm", 8, 3950.0, 6000.0)
    assert (closed.requests, closed.errors, closed.percentiles_ms) == (100, 2, {50.0: 3900.0, 99.0: 5000.0})
    assert kinds(closed)["law"].state == "holds"
    assert (rated.is_open, rated.rate, kinds(rated)["rate"].state) == (True, 2.0, "holds")
    assert kinds(burst)["law"].state == "unknown"
    # One client cannot have eight requests in flight.
    assert alone.clients == 1 and kinds(alone)["clients"].state == "wrong"


def test_memtier_that_divides_by_a_longer_time_is_corrected() -> None:
    found = wrong("memtier.json")["duration"]
    assert found.cause == "memtier divides by 4 s, but sent requests for 3 s"
    # 97,299 requests in 3 s.
    assert "take 32,429/s" in found.remedy


def test_pgbench_without_progress_measures_no_mean_and_its_log_does() -> None:
    assert {each.remedy for each in checked("pgbench-t.txt").checks if each.kind == "law"} == {"add -P 1"}
    (result,), _ = read(sorted(RECORDED.glob("pgbench_log.*")))
    assert (result.clients, result.requests, len(result.percentiles_ms)) == (4, 400, 3)
    (rated,) = results("pgbench-rate.txt")
    assert rated.is_open and not rated.computed


def test_oha_does_not_count_its_deadline_as_errors() -> None:
    (result,) = results("oha.json", 16)
    assert (result.requests, result.errors) == (4749, 0)
    assert kinds(result)["law"].state == "holds"
    (rated,), _ = read([RECORDED / "oha-rate.json"], rate=3000)
    assert "1,590 of 3,000 requests/s" in kinds(rated)["rate"].what


def test_table_of_knees_columns_is_checked_with_its_think_time(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "workers,clients,think_ms,throughput,response_ms\n8,16,4,1000,12.0\n9,16,4,1000,0.012\n"
    )
    one, two = read([tmp_path / "t.csv"])[0]
    assert kinds(one)["law"].state == "holds" and one.operation == "workers = 8"
    assert "rest" not in kinds(one)
    assert "1,000 times too short" in kinds(two)["unit"].cause
    assert table([one]) == "clients,think_ms,throughput,response_ms\n16,4.0,1000.0,12.0\n"
    (tmp_path / "t.csv").write_text("clients,throughput,response_ms\n16,1000,x\n")
    with pytest.raises(MeasurementsError, match=r"t.csv:2: column response_ms: 'x' is not a number"):
        read([tmp_path / "t.csv"])


@pytest.mark.parametrize(("early_us", "warm"), [(2000, False), (4000, True)])
def test_log_with_a_slow_start_has_its_warm_up_named(early_us: int, warm: bool, tmp_path: Path) -> None:
    now, lines = 0, []
    for number in range(2000):
        now += early_us if now < 600_000 else 2000
        lines.append(f"0 {number} {early_us if now < 600_000 else 2000} 0 1700000000 {now}\n")
    (tmp_path / "log.77").write_text("".join(lines))
    (result,), _ = read([tmp_path / "log.77"])
    assert ("warm-up" in kinds(result)) == warm
    assert kinds(result)["law"].state == "holds"


def test_redis_benchmark_has_a_result_for_each_command() -> None:
    one, two = results("redis-benchmark.csv", 50)
    assert (one.operation, two.operation) == ("SET", "GET")
    # The only thread of the generator makes clients wait.
    assert kinds(one)["outside"].state == "wrong"
    assert table([one, two]).splitlines()[1] == "SET,50,63331.22,0.537"
    (pipelined,) = results("redis-benchmark-pipelined.csv", 50)
    assert "13.1 requests in flight" in kinds(pipelined)["clients"].cause


@pytest.mark.parametrize("name", ["wrk-stalled.txt", "wrk-stalled-plain.txt"])
def test_stall_under_wrk_shows_its_invented_latencies(name: str) -> None:
    found = wrong(name)["invented latencies"]
    assert "wrk adds latencies of requests that it never sent" in found.cause
    assert "wrk2 -R" in found.remedy


@pytest.mark.parametrize(
    ("name", "clients"), [("hey-stalled.txt", None), ("hey-stalled.txt", 16), ("ab-stalled.txt", None)]
)
def test_stall_in_closed_loop_is_coordinated_omission(name: str, clients: int | None) -> None:
    found = wrong(name, clients)["omission"]
    assert "the p99 of" in found.what
    # A second's pause in five is in a fifth of all due requests.
    assert "p99 of 97" in found.cause


def test_rate_beyond_capacity_is_named() -> None:
    assert "the rate exceeds the capacity" in wrong("wrk2-overload.txt")["rate"].cause


def test_connections_that_threads_cannot_share_are_named() -> None:
    assert wrong("wrk-c5.txt")["clients"].what == "4 of 5 connections were open"


@pytest.mark.parametrize(
    ("result", "kind", "says"),
    [
        (replace(CLOSED, response_ms=16_000.0), "unit", "about 1,000 times too long"),
        (replace(CLOSED, response_ms=0.016), "unit", "about 1,000 times too short"),
        (replace(CLOSED, response_ms=64.0), "clients", "each client had 4.00 requests in flight"),
        (replace(CLOSED, response_ms=12.0), "outside", "25% of the clients' time (4.00 ms a request)"),
        (replace(CLOSED, response_ms=12.0, load_s=45.0), "duration", "divides by 60 s, but sent requests for 45 s"),
        (replace(CLOSED, response_ms=None), "law", "no mean response time"),
        (replace(CLOSED, computed=True), "law", "computed its mean response time from N / X"),
        (replace(CLOSED, errors=1200), "errors", "count in the throughput"),
        (replace(CLOSED, generator_busy=0.97), "generator", "the generator limits"),
        (replace(CLOSED, duration_s=3.0), "short", "warm-up"),
        (replace(CLOSED, is_open=True, rate=2000.0), "rate", "cannot serve this rate"),
    ],
)
def test_violation_names_its_cause(result: Result, kind: str, says: str) -> None:
    found = kinds(result)[kind]
    assert found.state != "holds"
    assert says in found.cause


def test_law_that_holds_says_so_within_the_rounding() -> None:
    assert kinds(CLOSED)["law"].state == "holds"
    assert kinds(replace(CLOSED, response_ms=17.5))["clients"].state == "wrong"
    assert kinds(replace(CLOSED, response_ms=17.5, rounding=1 / 17.5))["law"].state == "holds"


def test_throughput_of_few_digits_is_not_accused() -> None:
    result = http.wrk((RECORDED / "wrk-c5.txt").read_text().replace("1354.34", "0.02").replace("3.23ms", "0.95m"))
    assert kinds(result)["law"].state == "unknown"


def test_pipelining_wrk_has_invented_no_latencies() -> None:
    piped = replace(CLOSED, tool="wrk", corrected=True, response_ms=64.0, max_ms=30.0)
    assert "by pipelining" in kinds(piped)["clients"].cause
    assert INVENTED in kinds(replace(piped, max_ms=1000.0))


@pytest.mark.parametrize(("share", "state"), [(0.95, "wrong"), (0.99, "holds")])
def test_set_shows_what_no_single_result_can(share: float, state: str) -> None:
    chance = random.Random(1)
    results = [
        replace(CLOSED, clients=count, response_ms=count * share * chance.gauss(1, 0.01), source=f"{count}-{run}")
        for count in (8, 16, 32)
        for run in range(4)
    ]
    (of_all,) = [each for each in checks_of(results) if each.kind == "set"]
    assert of_all.state == state and "over 12 results" in of_all.what
    assert "smallest violation that all 12 can show is 2." in of_all.cause
    # Without repetitions, 5 % are allowed, and the time of a response.
    assert kinds(results[0])["law"].state == "holds"


def test_single_result_is_accused_beside_its_repetitions() -> None:
    results = [replace(CLOSED, response_ms=16 + run / 100, source=f"{run}") for run in range(5)]
    results[2] = replace(results[2], response_ms=15.4)
    found = checks_of(results)
    assert [each.source for each in found if each.state == "wrong"] == ["2"]
    assert "outside" in [each.kind for each in found]


def test_scattered_results_are_not_accused_one_by_one() -> None:
    off = (0.92, 1.08, 1.0, 0.94, 1.06, 1.01, 0.93, 1.07)
    results = [replace(CLOSED, response_ms=16 * each) for each in off]
    (found,) = [each for each in checks_of(results) if each.kind in ("set", "law", "outside", "clients")]
    assert (found.kind, found.state) == ("set", "unknown")


def test_levels_give_a_knee_and_a_prediction() -> None:
    found = checked("levels")
    assert found.verdict is not None
    (verdict,) = found.verdict.verdicts
    # The server has four places.
    assert verdict.knee.clients is not None and 3 < verdict.knee.clients.estimate < 6
    assert "At 64 clients: " in found.predictions[0]
    said = render_text(found)
    assert "The knee is at" in said and "(the furthest of " in said


def test_table_is_a_csv_of_sent_requests() -> None:
    (result,) = results("wrk-stalled.txt")
    header, row = table([result]).splitlines()
    assert header == "clients,throughput,response_ms"
    # N / X, and not wrk's 98.06 ms.
    assert row.startswith("16,1086.93,14.72")


def test_json_has_results_and_findings() -> None:
    found = json.loads(form.render("check", answers.of(checked("levels"))))
    assert len(found["results"]) == 18 and found["knees"][0]["status"] == "found"
    assert {"kind", "state", "source", "figure", "what", "cause", "remedy"} == set(found["findings"][0])


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_truncated_file_is_refused_by_its_name(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    # A log of transactions has no end; a line has.
    (tmp_path / path.name).write_text(text[: len(text) // 3])
    with pytest.raises(MeasurementsError, match=path.name):
        read([tmp_path / path.name])


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_damaged_file_is_read_or_refused_in_one_line(path: Path, tmp_path: Path) -> None:
    text, chance = path.read_text(), random.Random(path.name)
    numbers = list(re.finditer(r"\d+(\.\d+)?", text))
    for _ in range(40):
        number, at = chance.choice(numbers), chance.randrange(len(text))
        damaged = [
            text[: number.start()]
            + chance.choice(["0", "-1", "nan", "null", "1e400", '"x"', "[]"])
            + text[number.end() :],
            text[:at] + text[at + chance.randrange(60) :] or "x",
        ]
        (tmp_path / path.name).write_text(chance.choice(damaged))
        try:
            for result in read([tmp_path / path.name], clients=16)[0]:
                findings_of(result)
                table([result])
        except MeasurementsError as error:
            assert path.name.partition(".")[0] in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("result", "kind"),
    [(replace(CLOSED, throughput=0.0, requests=0), "none"), (replace(CLOSED, response_ms=0.0, rounding=16.0), "law")],
)
def test_result_without_answers_or_digits_is_not_judged(result: Result, kind: str) -> None:
    assert kinds(result)[kind].state in ("wrong", "unknown")


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\xff\xfe\x00", b"{}", b"a,b\n1,2\n"])
def test_foreign_file_ends_with_one_line_and_exit_code_2(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "other.txt"
    file.write_bytes(content)
    code, said, why = knee("check", str(file))
    assert (code, said) == (2, "")
    assert why.count("\n") == 1 and f"knee: {file}: " in why


def test_command_prints_guesses_and_writes_a_table(tmp_path: Path) -> None:
    file = tmp_path / "hey-c16.txt"
    file.write_text((RECORDED / "hey.txt").read_text())
    code, said, why = knee("check", str(file), "--csv", str(tmp_path / "t.csv"))
    assert code == 0 and "X · R is 15.9, and N is 16" in said
    assert "the output has the form of hey" in why and "the name gives 16 clients" in why
    assert (tmp_path / "t.csv").read_text().startswith("clients,throughput,response_ms\n16,1195.8,")
    nameless = str(RECORDED / "hey.txt")
    assert "--csv: no result has clients" in knee("check", nameless, "--csv", str(tmp_path / "none.csv"))[2]
    assert "no tool curl" in knee("check", str(file), "--from", "curl")[2]
    assert "not whole output of wrk" in knee("check", str(file), "--from", "wrk")[2]
