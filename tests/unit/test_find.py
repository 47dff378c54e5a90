"""Searches of known knees and goals, without noise from a machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knee.cli.find import Options, find
from knee.data.foreign import Result
from knee.errors import KneeError, MeasurementsError, ProcessError, SpecError
from knee.find.goals import GoalTarget
from knee.find.knees import KneeTarget, knee_of
from knee.find.quantities import SHARES, TIMES_S, quantity
from knee.find.search import REPETITIONS_MIN, Search, SharesError, Spent
from knee.find.text import result_lines, run_line
from knee.fit import Goal
from knee.generators.runner import ExitError
from knee.queueing import Delay, Network, Queue, solve_closed
from knee.spec.template import Template
from knee.stats.intervals import counted

Measure = Callable[[int, bool], Result]


def slots(number: int, service_ms: float, delay_ms: float, noise: float = 0.0, seed: int = 0) -> Measure:
    """Runs against constant service times: N* = number · (1 + Z / S)."""
    rng = np.random.default_rng(seed)

    def measure(clients: int, is_scout: bool) -> Result:
        cycle_ms = max(service_ms + delay_ms, clients * service_ms / number)
        cycle_ms *= float(np.exp(rng.normal(0, noise * (2 if is_scout else 1))))
        times = {50.0: cycle_ms, 99.0: cycle_ms}
        return Result("tool", 1000 * clients / cycle_ms, cycle_ms, clients=clients, percentiles_ms=times)

    return measure


def network(servers: int, noise: float, seed: int) -> Measure:
    """Runs against random service times."""
    solved = solve_closed(Network([Delay("wire", 1.0), Queue("disk", 0.5), Queue("cpu", 4.0, servers=servers)]), 2048)
    rng = np.random.default_rng(seed)

    def measure(clients: int, _: bool) -> Result:
        cycle_ms = clients / float(solved.throughput[clients - 1]) * float(np.exp(rng.normal(0, noise)))
        return Result("tool", 1000 * clients / cycle_ms, cycle_ms, clients=clients)

    return measure


def search_of(measure: Measure, goal: str | None = None, precision: float = 0.05) -> tuple[Search, list[str]]:
    reports: list[str] = []
    target = KneeTarget(precision) if goal is None else GoalTarget(Goal.parse(goal), precision)
    return Search(target, measure, reports.append, random.Random(0)), reports


@pytest.mark.parametrize(("number", "delay_ms"), [(2, 0), (5, 30), (8, 0), (13, 10), (32, 20), (100, 100)])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_search_of_slots_finds_their_knee(number: int, delay_ms: float, noise: float) -> None:
    search, _ = search_of(slots(number, 10, delay_ms, noise, seed=number))
    assert search.go() == "precise"
    assert knee_of(search.runs).clients.estimate == pytest.approx(number * (1 + delay_ms / 10), rel=0.10)  # type: ignore[union-attr]
    assert min(map(len, search.runs.values())) >= REPETITIONS_MIN
    if not noise:
        assert sum(map(len, search.runs.values())) <= 4 * REPETITIONS_MIN


@pytest.mark.parametrize("servers", [1, 4, 16])
def test_search_of_a_network_finds_its_knee(servers: int) -> None:
    search, _ = search_of(network(servers, 0.01, seed=servers))
    assert search.go() == "precise"
    # The disk limits if the processor has more than eight servers.
    truth = 5.5 / max(0.5, 4 / servers)
    assert knee_of(search.runs).clients.estimate == pytest.approx(truth, rel=0.10)  # type: ignore[union-attr]


def test_search_with_noise_repeats_the_loads_that_narrow_the_interval() -> None:
    search, _ = search_of(slots(8, 10, 10, noise=0.04), precision=0.03)
    assert search.go() == "precise"
    counts = {load: len(results) for load, results in search.runs.items()}
    assert counts[min(counts)] > REPETITIONS_MIN and counts[max(counts)] > REPETITIONS_MIN
    assert min(counts.values()) == REPETITIONS_MIN


def test_search_of_a_generator_with_threads_uses_multiples_of_them() -> None:
    works = slots(8, 10, 10)

    def measure(clients: int, is_scout: bool) -> Result:
        if clients % 4:
            raise ExitError("wrk: connections must be >= threads")
        return works(clients, is_scout)

    search, reports = search_of(measure)
    assert search.go() == "precise"
    assert reports == [f"wrk: connections must be >= threads; trying {load} clients" for load in (2, 4)]


@pytest.mark.parametrize("threads", [3, 5, 7])
def test_search_of_a_generator_with_odd_threads_finds_their_number(threads: int) -> None:
    works = slots(8, 10, 10)

    def measure(clients: int, is_scout: bool) -> Result:
        if clients < threads:
            raise ExitError("wrk: connections must be >= threads")
        if over := clients % threads:
            raise SharesError("wrk: some clients ran", clients - over)
        return works(clients, is_scout)

    search, reports = search_of(measure)
    assert search.go() == "precise"
    assert search.least == threads and reports[-1] == f"wrk: some clients ran; trying {threads} clients"


def test_search_of_a_generator_that_runs_ever_other_clients_ends() -> None:
    loads = []

    def measure(clients: int, _: bool) -> Result:
        loads.append(clients)
        raise SharesError("wrk: 3 clients ran", 3) if clients == 4 else ExitError("wrk: exit code 1")

    with pytest.raises(ProcessError, match="exit code 1"):
        search_of(measure)[0].scout()
    assert loads == [1, 2, 4, 3, 6, 12]


def test_search_of_a_generator_that_fails_stays_below() -> None:
    works = slots(64, 10, 0)

    def measure(clients: int, is_scout: bool) -> Result:
        if clients > 40:
            raise ProcessError("wrk: too many open files")
        return works(clients, is_scout)

    search, reports = search_of(measure)
    assert search.go() == "limit"
    assert max(search.runs) == 32 and "the search stays at 32 clients or fewer" in reports[0]
    assert "more than 32 clients failed" in result_lines(search, "limit", 60, 300)[-1]


@pytest.mark.parametrize(("kind", "tries"), [(ExitError, 5), (ProcessError, 1)])
def test_search_of_a_generator_that_always_fails_raises_its_error(kind: type[ProcessError], tries: int) -> None:
    loads = []

    def measure(clients: int, _: bool) -> Result:
        loads.append(clients)
        raise kind("wrk: connection refused")

    with pytest.raises(ProcessError, match="connection refused"):
        search_of(measure)[0].go()
    assert len(loads) == tries


def failing(works: Measure, load: int, at: int, times: int) -> Measure:
    """Runs with this load fail, from one of them on, this many times."""
    seen = 0

    def measure(clients: int, is_scout: bool) -> Result:
        nonlocal seen
        seen += clients == load and not is_scout
        if clients == load and not is_scout and at <= seen < at + times:
            raise ProcessError("wrk: timed out")
        return works(clients, is_scout)

    return measure


@pytest.mark.parametrize("load", [1, 32, 64])
def test_search_with_a_run_that_fails_once_repeats_it(load: int) -> None:
    search, reports = search_of(failing(slots(8, 10, 0, 0.03), load, 2, 1), "p99 < 50 ms")
    assert search.go() == "precise"
    assert reports == [f"wrk: timed out; trying {counted(load, 'client')} again"]
    assert min(map(len, search.runs.values())) == REPETITIONS_MIN and load in search.runs


def test_search_below_whose_loads_all_fail_ends() -> None:
    # Without an end, the search would repeat loads that it leaves out.
    search, reports = search_of(failing(slots(8, 10, 0, 0.05, seed=1), 32, 3, 9), "p99 < 50 ms", precision=0.01)
    with pytest.raises(ProcessError, match="timed out"):
        search.go()
    assert len(reports) == 1


def test_search_without_budget_keeps_its_runs() -> None:
    works, made = slots(8, 10, 10, noise=0.2), []

    def measure(clients: int, is_scout: bool) -> Result:
        if len(made) == 30:
            raise Spent
        made.append(clients)
        return works(clients, is_scout)

    search, _ = search_of(measure)
    assert search.go() == "budget"
    assert len(search.scouts) + sum(map(len, search.runs.values())) == 30
    assert "the budget of 5:00 is spent" in result_lines(search, "budget", 299, 300)[-1]


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("bound", [12, 20, 200])
def test_search_of_a_goal_finds_the_largest_load(bound: float, noise: float) -> None:
    search, _ = search_of(slots(8, 10, 0, noise, seed=int(bound)), f"p99 < {bound} ms")
    assert search.go() == "precise"
    truth = bound * 8 / 10
    limit = search.target.limit(search.runs)  # type: ignore[attr-defined]
    assert limit.estimate == pytest.approx(truth, rel=0.10)
    assert limit.low <= truth + 0.5 and limit.high >= truth - 0.5
    assert f"p99 < {bound} ms holds up to" in result_lines(search, "precise", 60, 300)[0]


def test_goal_that_no_load_keeps_is_reported() -> None:
    search, _ = search_of(slots(8, 10, 0), "p99 < 5 ms")
    assert search.go() == "precise"
    sentence, end = result_lines(search, "precise", 60, 300)
    assert "does not hold at 1 client, the smallest" in sentence
    assert end.endswith("The search ended without an interval: the fewest clients miss the goal.")


def test_search_that_ends_beyond_its_precision_names_the_reason() -> None:
    search, _ = search_of(slots(1, 10, 0, 0.10))
    assert search.go() == "precise"
    assert result_lines(search, "precise", 60, 300)[-1].endswith("an interval: the fewest clients saturate the system.")
    search, _ = search_of(slots(2, 10, 0, 0.10), "p99 < 12 ms", precision=0.001)
    assert search.go() == "precise"
    assert "%: its interval has one client at most." in result_lines(search, "precise", 60, 300)[-1]
    search, _ = search_of(slots(64, 10, 0), "p99 < 50 ms")
    search.most = 16
    assert search.go() == "limit"
    assert "without an interval: no more than 16 clients ran" in result_lines(search, "limit", 60, 300)[-1]


def test_goal_without_its_percentile_names_the_printed_ones() -> None:
    with pytest.raises(MeasurementsError, match="p95 < 5 ms': tool printed p50, p99; choose another goal"):
        search_of(slots(8, 10, 0), "p95 < 5 ms")[0].go()
    with pytest.raises(SpecError, match="expected a limit of response times"):
        search_of(slots(8, 10, 0), "throughput > 5")


@pytest.mark.parametrize("drop", [0.1, 0.5, 2.0])
def test_search_of_a_system_that_falls_beyond_its_knee_measures_the_peak(drop: float) -> None:
    works = slots(8, 10, 10, noise=0.02)

    def measure(clients: int, is_scout: bool) -> Result:
        result = works(clients, is_scout)
        fall = 1 + drop * max(0, clients / 16 - 1)
        return replace(result, throughput=result.throughput / fall, response_ms=(result.response_ms or 0) * fall)

    search, _ = search_of(measure)
    assert search.go() == "precise"
    assert knee_of(search.runs).clients.estimate == pytest.approx(16, rel=0.10)  # type: ignore[union-attr]
    assert sum(map(len, search.runs.values())) <= 60


def test_goal_of_times_rounded_to_zero_has_an_interval() -> None:
    def measure(clients: int, _: bool) -> Result:
        return Result("ab", 800, 1, clients=clients, percentiles_ms={50.0: max(0, clients - 24) // 4})

    search, _ = search_of(measure, "p50 < 1 ms")
    assert search.go() == "precise"
    assert search.target.limit(search.runs).estimate == pytest.approx(28, abs=4)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"precision": "5"}, "--precision 5: expected a share, such as 5%"),
        ({"least": 8, "most": 4}, "--least 8: expected a number up to --most, 4"),
        ({"system": "true", "ready": "http://127.0.0.1:{port}/"}, "--ready http.*: expected a URL or HOST:PORT"),
        ({"system": "true", "ready": "127.0.0.1:99999"}, "--ready 127.0.0.1:99999: expected a URL or HOST:PORT"),
        ({"system": "true", "ready": "127.0.0.1"}, "expected a URL or HOST:PORT"),
        ({"system": "true", "ready": "http://[::1/"}, "expected a URL or HOST:PORT"),
        ({"system": "", "ready": "h:1"}, "--system '': expected a command"),
        ({"system": "no-such-program", "ready": "h:1"}, "no-such-program is not installed"),
        ({"system": "true"}, "add --ready HOST:PORT"),
        ({"tool": "x"}, "--from: no tool x"),
        ({"watch": ("pid:999999999",)}, "--watch pid:999999999: no such process"),
        ({"budget": "1s"}, "--budget 1s: ended before the first run; add --budget, or shorten --seconds"),
    ],
)
def test_find_with_a_wrong_option_names_it(given: dict[str, Any], expected: str, tmp_path: Path) -> None:
    usual = Options("5%", "5m", None, None, (), None, 10, 1, 10_000, None, str(tmp_path), 0)
    with pytest.raises(KneeError, match=expected) as refused:
        find(["true", "{clients}"], replace(usual, **given), as_json=False)
    assert refused.value.exit_code == 2
    assert "budget" in given or not list(tmp_path.iterdir())


def test_template_replaces_only_its_placeholders() -> None:
    template = Template.parse(
        ["x", "-c{clients}", '-d{"a": {b}}', "{seconds}s", "http://h:80/p?q={clients}", "{output}"]
    )
    assert template.argv(4, 2, "file") == ("x", "-c4", '-d{"a": {b}}', "2s", "http://h:80/p?q=4", "file")
    assert template.url == "http://h:80/p?q={clients}"
    with pytest.raises(SpecError, match=r"no \{clients\}"):
        Template.parse(["wrk", "-c8"])


@pytest.mark.parametrize("text", ["", "0", "-5%", "5 m%", "x"])
def test_quantity_of_an_option_is_refused(text: str) -> None:
    assert quantity("--budget", "1.5m", TIMES_S, "") == 90 and quantity("--precision", "5 %", SHARES, "") == 0.05
    with pytest.raises(KneeError, match="expected a time"):
        quantity("--budget", text, TIMES_S, "a time")


def test_line_of_a_run_has_the_curve_so_far() -> None:
    search, _ = search_of(slots(4, 10, 0))
    search.scouts = {load: [search.measure(load, True)] for load in (1, 2, 4)}
    line = run_line(search, 8, search.measure(8, True), 0, 62)
    assert line.split() == ["1:02", "scout", "8", "clients", "400.0/s", "20.0", "ms", "▃▅██"]
