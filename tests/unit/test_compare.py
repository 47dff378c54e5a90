"""Comparisons of two systems: tables and run folders with known differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from bench.compare_power import DESIGNS, NOISES, pair
from command_line import knee
from synthetic import CLIENTS, System, open_loop, synthetic_dataset

from knee.answers import compare as answers
from knee.answers import form
from knee.compare import Gate, Pair, Side, compare, render_markdown, render_text, side_of, sides_between
from knee.compare.ratios import Ratio, holm, ratio_of, repetitions_for
from knee.compare.text import _cell, power, verdict
from knee.data import Dataset
from knee.data.csv import parse
from knee.data.measurements import Measurements
from knee.data.reading import MANIFEST, run_folders
from knee.errors import MeasurementsError
from knee.stats.intervals import Interval

HEADER = "clients,repetition,throughput,response_ms,p99_ms"
NOISE = (1.0, 1.01, 0.99, 1.005)


def table(
    faster: float = 1.0, clients: Sequence[int] = (8, 16, 32), repetitions: int = 4, name: str = "t.csv"
) -> Measurements:
    """A table of a linear system without a knee; `faster` multiplies throughput at all points."""
    lines = [HEADER]
    for place, count in enumerate(clients):
        for repetition in range(repetitions):
            rate = 100 * count * faster * NOISE[(repetition + place) % 4]
            lines.append(f"{count},{repetition + 1},{rate:.3f},{1000 * count / rate:.6f},{3000 * count / rate:.6f}")
    return parse("\n".join(lines), name)


def side(found: Measurements, name: str = "side") -> Side:
    return side_of(name, [found])


def pair_of(a: Measurements, b: Measurements, *gates: str) -> Pair:
    return compare(side(a, "a.csv"), side(b, "b.csv"), gates=[Gate.parse(text) for text in gates])


def test_ratio_of_unpaired_logarithms_is_welchs_interval() -> None:
    from scipy import stats

    a, b = np.log([10.0, 11.0, 10.5]), np.log([12.0, 12.6, 11.9, 12.1])
    found = ratio_of(a, b, 0.95, paired=False)
    low, high = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert found.interval.low == pytest.approx(np.exp(low))
    assert found.interval.high == pytest.approx(np.exp(high))
    assert found.p == pytest.approx(stats.ttest_ind(b, a, equal_var=False).pvalue)


def test_ratio_of_pairs_removes_what_pairs_share() -> None:
    common = np.array([0.0, 0.3, -0.2, 0.1])
    a, b = common, common + 0.05 + np.array([0.001, -0.001, 0.002, -0.002])
    paired, unpaired = (ratio_of(a, b, 0.95, paired=each) for each in (True, False))
    assert paired.p is not None and paired.p < 1e-4
    assert unpaired.p is not None and unpaired.p > 0.5


def test_ratio_of_equal_repetitions_has_no_interval() -> None:
    assert ratio_of(np.zeros(3), np.ones(3), 0.95, paired=False).interval.low is None


def test_ratio_with_spread_between_runs_is_wider() -> None:
    a, b = np.array([0.0, 0.01, 0.02]), np.array([0.1, 0.11, 0.12])
    narrow, wide = (ratio_of(a, b, 0.95, paired=False, between=(v, v)).interval for v in (0.0, 1e-4))
    assert narrow.high and wide.high
    # The error grows by √(1 + 3): three repetitions, and a spread as large as theirs.
    assert np.log(wide.high / wide.estimate) == pytest.approx(2 * np.log(narrow.high / narrow.estimate))


def test_holm_stops_at_the_first_probability_above_its_share() -> None:
    assert holm([0.03, 0.001, None, 0.02], 0.05) == [True, True, False, True]
    assert holm([0.001, 0.02, 0.04, None], 0.05) == [True, True, True, False]
    assert holm([0.001, 0.026, 0.04], 0.05) == [True, False, False]


def test_repetitions_grow_with_the_variance() -> None:
    counts = [repetitions_for(2 * noise**2, 0.96, paired=True) for noise in (0.01, 0.02, 0.05)]
    assert counts == sorted(counts)  # type: ignore[type-var]
    assert repetitions_for(2 * 0.05**2, 0.96, paired=False, between=0.01) is None


def test_faster_system_without_a_knee_serves_more_over_all_points() -> None:
    found = pair_of(table(), table(1.125))
    assert verdict(found).startswith("B serves 12.5% more over 3 points (")
    assert {one.point for one in found.different} == {(("clients", count),) for count in (8, 16, 32)}
    assert verdict(pair_of(table(), table(0.8))).startswith("B serves 20.0% less over 3 points (")


def turned(found: Measurements) -> Measurements:
    """The same values in the reverse order of the repetitions."""
    return replace(found, table=found.table.with_columns((5 - pl.col("repetition")).alias("repetition")))


def test_equal_systems_cannot_be_told_apart() -> None:
    same = pair_of(table(), table())
    assert verdict(same) == "A and B are equal in every repetition" and power(same) == ""
    found = pair_of(table(), turned(table()))
    assert verdict(found).startswith("cannot tell A and B apart: throughput +0.0% over 3 points (")
    assert not found.different
    assert "would be found with a probability of 80% (4 repetitions each, not paired)" in power(found)


def test_large_difference_keeps_its_mark_and_its_interval() -> None:
    text = render_text([pair_of(table(), table(150))])
    row = next(line for line in text.splitlines() if line.startswith("clients = 8"))
    assert "*" in row and "+14900.0 ± ?" not in row


def test_vague_difference_keeps_its_mark() -> None:
    interval = Interval(3.0, 1.01, 8.9, 0.95, 3)
    assert _cell(Ratio(interval, 0.04, None, None), differs=True) == "+200.0 ± ?*"


def test_origins_of_several_runs_are_merged() -> None:
    def run(version: str) -> Dataset:
        found = synthetic_dataset(System())
        found.manifest = {**found.manifest, "knee": version}
        return found

    assert side_of("x", [run("1"), run("2"), run("1")]).origin["knee"] == "1 and 2"
    assert side_of("x", [run("1"), run("1")]).origin["knee"] == "1"


def test_origin_of_a_cluster_is_the_machine_of_each_host() -> None:
    found = synthetic_dataset(System())
    workers = {"w": {"address": "tcp://x:1", "host": {"name": "alpha"}}}
    found.manifest = {**found.manifest, "cluster": {"hosts": {"store-0": "w"}, "workers": workers}}
    origin = side_of("x", [found]).origin
    assert {name: origin[name] for name in origin if name.startswith("cluster")} == {"cluster.store-0.name": "alpha"}


def test_no_common_point_says_so() -> None:
    a, b = table(clients=(8, 16)), table(clients=(32, 64))
    assert verdict(pair_of(a, b)) == "cannot tell: no point has the same settings in both"
    with pytest.raises(MeasurementsError, match=r"a\.csv and b\.csv have no point in common"):
        pair_of(a, b, "throughput < -5%")


def test_markdown_escapes_its_own_marks() -> None:
    def of(faster: float) -> Measurements:
        found = table(faster)
        return replace(found, table=found.table.with_columns(kind=pl.lit("a|<b>")), factors=("kind", *found.factors))

    text = render_markdown([pair_of(of(1), of(1.2), "throughput < -5%")])
    assert "| kind = a\\|&lt;b>, clients = 8 |" in text and "* throughput &lt; -5%: passes" in text


def test_one_repetition_asks_for_three() -> None:
    found = pair_of(table(repetitions=1), table(0.5, repetitions=1), "throughput < -5%")
    assert found.gates[0].state == "cannot tell"
    assert verdict(found) == "cannot tell: one repetition; repeat at least 3 times"
    assert power(found) == ""


def test_points_of_one_side_are_listed() -> None:
    found = pair_of(table(clients=(8, 16, 32)), table(1.2, clients=(16, 32, 64)))
    assert found.only == (((("clients", 8),),), ((("clients", 64),),))
    assert {one.point for one in found.compared} == {(("clients", 16),), (("clients", 32),)}
    assert "only B has 1 point: clients = 64" in render_text([found])


@pytest.mark.parametrize(
    ("columns", "a", "b"),
    [("clients", "8", "64"), ("rate", "100", "200"), ("clients,think_ms", "8,0", "8,100"), ("pipeline", "1", "4")],
)
def test_tables_of_different_constant_loads_have_no_common_point(columns: str, a: str, b: str) -> None:
    def of(load: str) -> Measurements:
        rows = [f"{load},{r + 1},{800 * NOISE[r]},{NOISE[r]}" for r in range(4)]
        return parse("\n".join([f"{columns},repetition,throughput,response_ms", *rows]), "t")

    found = pair_of(of(a), of(b))
    assert found.obstacle == "no point in common"
    assert len(found.only[0]) == len(found.only[1]) == 1
    assert pair_of(of(a), of(a)).points == 1


def test_table_without_pipeline_matches_a_pipeline_of_one() -> None:
    plain = table()
    piped = replace(plain, table=plain.table.with_columns(pl.lit(1).alias("pipeline")))
    assert pair_of(plain, piped).points == 3


def test_configuration_without_a_knee_is_covered_at_all_its_points() -> None:
    def of(lost: float) -> Measurements:
        lines = ["order,clients,repetition,throughput,response_ms"]
        for order, most in (("a", 4000.0), ("b", 1e9)):
            for clients in (4, 8, 16, 32, 64, 96):
                for r in range(4):
                    rate = min(200.0 * clients, most) * NOISE[(r + clients // 4) % 4] * (lost if order == "b" else 1)
                    lines.append(f"{order},{clients},{r + 1},{rate:.3f},{1000 * clients / rate:.6f}")
        return parse("\n".join(lines), "t")

    found = pair_of(of(1), of(0.5), "throughput < -5%")
    assert found.kneeless == ((("order", "b"),),) and not found.at_knee
    assert found.gates[0].state == "fails" and verdict(found).startswith("B serves ")
    assert "or all common points without a common plateau: order = b" in render_text([found])
    assert answered([found])[0]["kneeless"] == [{"order": "b"}]


def test_difference_at_one_point_only_is_named() -> None:
    other = table()
    there = pl.when(pl.col("clients") == 8).then(2.0).when(pl.col("clients") == 16).then(0.5).otherwise(1.0)
    other = replace(other, table=other.table.with_columns(pl.col("throughput") * there))
    assert verdict(pair_of(table(), other)).startswith(
        "A and B differ in throughput at 2 points: clients = 8 (+100.0%), clients = 16 (−50.0%); overall throughput"
    )


@pytest.mark.parametrize(
    ("faster", "condition", "state"),
    [
        (0.8, "throughput < -5%", "fails"),
        (1.0, "throughput < -5%", "passes"),
        (0.95, "throughput < -5%", "cannot tell"),
        (0.8, "response_ms > 10%", "fails"),
        (1.0, "p99_ms > +10.5 %", "passes"),
    ],
)
def test_gate_is_decided_by_the_interval(faster: float, condition: str, state: str) -> None:
    assert [gate.state for gate in pair_of(table(), table(faster), condition).gates] == [state]


def silent(found: Measurements, clients: int = 32) -> Measurements:
    """The table with a throughput of 0 there, and so no response time."""
    there = pl.col("clients") == clients
    return replace(
        found,
        table=found.table.with_columns(
            pl.when(there).then(0.0).otherwise("throughput").alias("throughput"),
            *(pl.when(~there).then(name).alias(name) for name in ("response_ms", "p99_ms")),
        ),
    )


def test_system_without_answers_at_a_point_has_no_verdict_and_fails_the_gate() -> None:
    found = pair_of(table(), silent(table(1.2)), "throughput < -5%", "p99_ms > 10%", "throughput > 5%")
    assert verdict(found) == "cannot tell: A or B answered nothing at a common point"
    assert not found.differs and found.points == 2
    assert [gate.state for gate in found.gates] == ["fails", "cannot tell", "cannot tell"]
    text = render_text([found])
    assert "B answered nothing at clients = 32: no ratio includes this" in text
    assert "throughput < -5%: fails (B answered nothing)" in text and "Overall" not in text
    assert answered([found])[0]["silent"] == [[], [{"point": {"clients": 32}, "operation": "all"}]]


def test_only_the_second_system_without_any_answer_fails_the_gate() -> None:
    first = pair_of(silent(table()), table(1.2), "throughput < -5%")
    assert (first.obstacle, first.gates[0].state) == ("no answer", "cannot tell")
    dead = table(clients=(8,))
    found = pair_of(dead, silent(dead, 8), "throughput < -5%")
    assert (found.headline, found.obstacle, found.gates[0].state) == ("throughput", "no answer", "fails")


@pytest.mark.parametrize("text", ["throughput", "speed < 5%", "throughput < -5", "throughput < -100%"])
def test_malformed_gate_is_refused(text: str) -> None:
    with pytest.raises(MeasurementsError, match=r"expected a condition such as 'throughput < -5%'"):
        Gate.parse(text)


def test_gate_on_an_unmeasured_quantity_is_refused() -> None:
    with pytest.raises(MeasurementsError, match="queueing_ms was not measured in both"):
        pair_of(table(), table(), "queueing_ms > 5%")


def test_run_folders_are_compared_at_the_knee_with_stages_and_percentiles() -> None:
    a, b = (side_of(name, [synthetic_dataset(System(service_ms=ms), seed=seed)])
            for seed, (name, ms) in enumerate((("old", 2.0), ("new", 1.6))))  # fmt: skip
    found = compare(a, b)
    assert found.at_knee and found.differs
    assert verdict(found).startswith("B serves 2")
    (_, first, second) = found.knees[0]
    assert second.estimate > first.estimate
    assert {"throughput", "response_ms", "p50_ms", "p99_ms", "queueing_ms", "service_ms"} == set(found.overall)
    assert found.overall["service_ms"].interval.estimate == pytest.approx(0.8, rel=0.02)
    assert found.origin == () or found.origin is None
    assert "measured separately" in render_text([found])


def test_levels_of_a_factor_are_compared_without_a_spread_between_runs() -> None:
    sides = sides_between("run", synthetic_dataset(System(), workers=(4, 8)), "middleware.workers")
    assert [each.name for each in sides] == ["middleware.workers = 4", "middleware.workers = 8"]
    found = compare(*sides)
    assert found.apart == 0
    assert [(each.name, each.a, each.b) for each in found.settings] == [("middleware.workers", 4, 8)]


def test_unknown_factor_lists_the_factors() -> None:
    with pytest.raises(MeasurementsError, match=r"--between x: is not a factor of t: expected clients"):
        sides_between("t", table(), "x")


def test_open_loop_is_compared_by_response_time() -> None:
    a, b = (side_of(name, [open_loop({4: 1000.0, 16: 4000.0})]) for name in "ab")
    assert compare(a, b).headline == "response_ms"


def test_runs_that_alternate_are_paired_and_separate_ones_are_not() -> None:
    def run(start: float, faster: float = 1.0) -> Measurements:
        found = table(faster, repetitions=2)
        times = pl.int_range(pl.len()).cast(pl.Float64) + start
        return replace(found, table=found.table.with_columns(times.alias("run_order")))

    def runs(*starts: float) -> Side:
        return replace(side_of("x", [run(start, 1 + start / 1e5) for start in starts]), timed=True)

    alternating = compare(runs(0, 200, 400), runs(100, 300, 500))
    assert (alternating.unit, alternating.paired, alternating.apart) == ("run", True, 0)
    apart = compare(runs(0, 100, 200), runs(300, 400, 500))
    assert (apart.unit, apart.paired) == ("run", False)
    assert compare(runs(0), runs(100)).apart == 1


def test_orders_of_separate_tables_do_not_compare() -> None:
    rows = [f"8,{r + 1},{r + 1},{800 * NOISE[r]}" for r in range(4)]
    a, b = (parse("\n".join(["clients,repetition,run_order,throughput", *rows]), name) for name in "ab")
    found = pair_of(a, b)
    assert (found.paired, found.apart) == (False, 1)


def merged(order: Callable[[int, int], str]) -> list[Side]:
    """Both systems in one table; `order` of a system's repetition is the end of its row."""
    rows = [f"{'ab'[s]},8,{r + 1},{800 * NOISE[(r + s) % 4]}{order(s, r)}" for s in range(2) for r in range(4)]
    header = "system,clients,repetition,throughput" + (",run_order" if order(0, 0) else "")
    return sides_between("t", parse("\n".join([header, *rows]), "t"), "system")


def test_systems_of_one_table_share_its_conditions_if_measured_in_turn() -> None:
    in_turn, in_succession, unknown = (
        compare(*merged(order))
        for order in (lambda s, r: f",{2 * r + s}", lambda s, r: f",{4 * s + r}", lambda _s, _r: "")
    )
    assert (in_turn.paired, in_turn.apart, in_turn.ordered) == (True, 0, True)
    assert (in_succession.paired, in_succession.apart) == (False, 1)
    assert (unknown.paired, unknown.apart, unknown.ordered) == (False, 0, False)
    assert "add a column run_order" in render_text([unknown])
    assert "run_order" not in render_text([in_turn, in_succession])


def test_column_errors_of_a_table_has_no_known_meaning() -> None:
    rows = [f"8,{r + 1},{800 * NOISE[r]},{r}" for r in range(4)]
    found = parse("\n".join(["clients,repetition,throughput,errors", *rows]), "t")
    assert verdict(pair_of(found, found)) and pair_of(found, found).failed == (0, 0)


def test_runs_of_one_side_with_different_settings_are_refused() -> None:
    datasets = [synthetic_dataset(System()), synthetic_dataset(System(), CLIENTS, workers=(4, 8))]
    with pytest.raises(MeasurementsError, match="its runs have different settings"):
        side_of("x", datasets)


def test_request_types_are_compared_separately() -> None:
    lines = ["clients,request_type,repetition,throughput,response_ms"]
    for kind, rate in (("read", 800), ("write", 200), ("all", 1000)):
        lines += [f"8,{kind},{r + 1},{rate * NOISE[r]:.3f},{8 / NOISE[r]:.4f}" for r in range(4)]
    found = pair_of(parse("\n".join(lines), "a"), parse("\n".join(lines), "b"))
    assert {one.operation for one in found.compared} == {"read", "write", "all"}


@pytest.mark.parametrize("number", range(3))
def test_equal_systems_with_noise_rarely_differ(number: int) -> None:
    design, noise = DESIGNS[number], NOISES[1]
    found = [pair(np.random.default_rng(seed), noise, design, 1.0, 4) for seed in range(20)]
    # A probability of 5 % each: five or more of twenty have a probability of 0.3 %.
    assert sum(each.differs or bool(each.different) for each in found) <= 4


def write(path: Path, faster: float = 1.0, repetitions: int = 3) -> str:
    found = table(faster, repetitions=repetitions).table.select(HEADER.split(","))
    path.write_text(found.write_csv(), encoding="utf-8")
    return str(path)


def test_command_compares_each_with_the_first_and_fails_by_the_gate(tmp_path: Path) -> None:
    a, b, c = (write(tmp_path / f"{name}.csv", faster) for name, faster in (("a", 1), ("b", 1.2), ("c", 0.7)))
    code, text, _ = knee("compare", a, b, c, "--fail-if", "throughput < -5%")
    assert code == 3
    assert text.count(f"A         {a}\n") == 2
    assert "throughput < -5%: passes" in text and "throughput < -5%: fails" in text
    assert knee("compare", a, b, "--fail-if", "throughput < -5%").returncode == 0


def test_command_with_one_path_or_two_forms_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    code, _, why = knee("compare", path)
    assert (code, why) == (2, "knee: expected two run folders or tables, or one with --between FACTOR\n")
    assert knee("compare", path, path, "--json", "--markdown").returncode == 2


def answered(found: list[Pair]) -> Any:
    return json.loads(form.render("compare", tuple(map(answers.of, found))))


def test_json_has_every_finding_and_markdown_a_table() -> None:
    found = [pair_of(table(), table(1.2), "throughput < -5%")]
    (one,) = answered(found)
    assert one["verdict"].startswith("B serves 20.0% more")
    assert one["compared"][0]["point"] == {"clients": 8}
    assert one["gates"][0]["state"] == "passes"
    lines = render_markdown(found).splitlines()
    assert lines[0].startswith("**B serves 20.0% more")
    assert [line for line in lines if line.startswith("| clients = 8 |")]


def test_folder_of_run_folders_is_its_runs_in_order_of_time(tmp_path: Path) -> None:
    for name in ("20260102T0", "20260101T0", "other"):
        (tmp_path / name).mkdir()
    for name in ("20260102T0", "20260101T0"):
        (tmp_path / name / MANIFEST).touch()
    assert [each.name for each in run_folders(tmp_path)] == ["20260101T0", "20260102T0"]
    assert run_folders(tmp_path / "other") == [tmp_path / "other"]


def test_repetitions_without_all_points_are_left_out_of_the_overall_ratio() -> None:
    a = table(repetitions=2)
    # Each repetition lacks a point.
    kept = ((pl.col("clients") != 8) | (pl.col("repetition") != 1)) & (
        (pl.col("clients") != 16) | (pl.col("repetition") != 2)
    )
    found = pair_of(replace(a, table=a.table.filter(kept)), table(1.2))
    assert verdict(found) == "cannot tell: fewer than two repetitions have all points; resume the runs"
    assert answered([found])[0]["overall"]["throughput"]["interval"]["estimate"] is None
