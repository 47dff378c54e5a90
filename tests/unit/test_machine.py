"""The sweep of `knee machine`: its working sets, its medians, and its result."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knee.errors import SpecError
from knee.machine import FIGURES, Machine, Plan, brief, measure, read_media, render_media, render_text, sizes
from knee.machine.sizes import GIB, KIB, MIB, cache_bytes, size_text, working_sets
from knee.report.machine import svg
from knee.stats.intervals import number

SAMPLE = Path(__file__).resolve().parents[2] / "docs" / "storage-2012.toml"

NAMES = {figure.name for figures in FIGURES.values() for figure in figures}


@given(most=st.integers(4 * KIB, 4 * GIB), caches=st.sets(st.integers(1, 1 << 16).map(lambda kib: kib * KIB)))
def test_working_sets_ascend_and_meet_the_caches(most: int, caches: set[int]) -> None:
    found = working_sets(most, caches)
    assert found == sorted(set(found)) and found[0] == 4 * KIB and most / 2 < found[-1] <= most
    assert all(larger <= 2 * smaller for smaller, larger in pairwise(found))
    assert {cache for cache in caches if 4 * KIB <= cache <= most} <= set(found)


def test_working_sets_of_a_gibibyte_have_19_powers_of_two() -> None:
    assert len(working_sets(GIB, [])) == 19
    assert working_sets(96 * KIB, [48 * KIB]) == [size * KIB for size in (4, 8, 16, 32, 48, 64)]


def test_caches_are_read_without_those_of_instructions(tmp_path: Path) -> None:
    for index, (kind, level, size) in enumerate(
        [("Data", "1", "48K"), ("Instruction", "1", "32K"), ("Unified", "2", "2048K")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert cache_bytes(tmp_path) == {"L1": 48 * KIB, "L2": 2 * MIB}
    assert cache_bytes(tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("own", "folder", "files"),
    [
        ("0::/a/b", "a", ("memory.max", "memory.current", "inactive_file")),
        ("0::/elsewhere", ".", ("memory.max", "memory.current", "inactive_file")),
        (
            "5:cpu,memory:/a/b\n0::/",
            "memory/a/b",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
    ids=["group above", "container", "version 1"],
)
def test_available_memory_stays_within_the_control_groups(
    own: str, folder: str, files: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, own_groups = tmp_path / "groups", tmp_path / "own"
    group = groups / folder
    group.mkdir(parents=True)
    own_groups.write_text(f"{own}\n")
    monkeypatch.setattr(sizes, "_GROUPS", groups)
    monkeypatch.setattr(sizes, "_OWN_GROUPS", own_groups)
    free = sizes.available_bytes()
    assert free > 1_000_000
    limit, used, cached = files
    (group / limit).write_text("max\n")
    assert sizes.available_bytes() > free / 2
    (group / limit).write_text("1000000\n")
    (group / used).write_text("400000\n")
    assert sizes.available_bytes() == 600_000
    (group / "memory.stat").write_text(f"active_file 7\n{cached} 100000\n")
    assert sizes.available_bytes() == 700_000


@pytest.mark.parametrize(
    ("size", "text"),
    [(4 * KIB, "4 KiB"), (48 * KIB, "48 KiB"), (MIB, "1 MiB"), (3 * MIB // 2, "1.5 MiB"), (GIB, "1 GiB")],
)
def test_sizes_have_the_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    plan = Plan(rounds=3, memory_bytes_max=64 * KIB, file_bytes_max=2 * MIB, memory_s=0.001, other_s=0.004)
    return measure(tmp_path_factory.mktemp("disk"), plan)


def test_result_has_every_quantity_with_its_interval(machine: Machine) -> None:
    assert set(machine.figures) == NAMES
    assert machine.rounds == 3
    assert [each.size_bytes for each in machine.memory] == working_sets(64 * KIB, machine.caches.values())
    of_memory = [value for each in machine.memory for value in list(vars(each).values())[1:]]
    for value in [*of_memory, *machine.figures.values()]:
        assert value.low <= value.estimate <= value.high
        assert (value.level, value.repetitions) == (0.75, 3)
    assert all(value.low > 0 for value in of_memory)
    assert all(value.low > 0 for name, value in machine.figures.items() if "faults" not in name)


def test_second_scan_of_a_mapped_file_reads_from_memory(machine: Machine) -> None:
    assert machine.figures["mapped_cached_major_faults_per_1000_pages"].estimate == 0
    # The kernel maps at most 16 pages, or a huge page, at a fault.
    assert machine.figures["mapped_cached_minor_faults_per_1000_pages"].estimate > 0


def test_result_is_json_with_an_interval_for_each_median(machine: Machine) -> None:
    content = json.loads(json.dumps(machine.content()))
    assert set(content["figures"]) == NAMES
    assert content["memory"][0]["size_bytes"] == 4 * KIB
    latency = content["memory"][0]["latency_ns"]
    assert latency["low"] <= latency["median"] <= latency["high"]


def test_table_has_a_row_for_each_quantity(machine: Machine) -> None:
    text = render_text(machine)
    assert text.startswith("Medians of 3 rounds, with 75% intervals.")
    for title in [figure.title for figures in FIGURES.values() for figure in figures]:
        assert f"\n{title} " in text
    assert [line.split()[:2] for line in text.splitlines()[4:6]] == [["4", "KiB"], ["8", "KiB"]]


def test_measurement_ends_early_in_the_budget(tmp_path: Path) -> None:
    plan = Plan(rounds=50, budget_s=0.0, memory_bytes_max=4 * KIB, file_bytes_max=MIB, memory_s=0.0, other_s=0.0)
    rounds: list[int] = []
    found = measure(tmp_path, plan, rounds.append)
    assert rounds == [1, 2] and found.rounds == 2
    assert "the time ended after 2 of 50 rounds" in found.notes


def test_memory_is_bounded_by_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knee.machine.rounds.available_bytes", lambda: 100 * KIB)
    found = measure(tmp_path, Plan(rounds=2, file_bytes_max=MIB, memory_s=0.0, other_s=0.0))
    assert [each.size_bytes for each in found.memory] == [4 * KIB, 8 * KIB, 16 * KIB]
    assert any(note.startswith("working sets end at 16 KiB") for note in found.notes)
    assert not list(tmp_path.iterdir())


def test_sets_within_a_cache_give_no_figure_of_memory(machine: Machine) -> None:
    small = replace(machine, caches={"L1": 32 * KIB})
    assert small.beyond_caches is small.memory[-1] and small.memory[-1].size_bytes == 64 * KIB
    large = replace(machine, caches={"L1": 32 * KIB, "L2": MIB})
    assert large.beyond_caches is None
    shown = [
        render_media(read_media(SAMPLE), each, (250.0, 25.0)).splitlines()[2].split()[-1] for each in (small, large)
    ]
    assert shown == [number(small.memory[-1].latency_ns.estimate / 1000), "–"]


def test_short_form_has_the_reason_for_what_is_refused(tmp_path: Path) -> None:
    found = brief(tmp_path)
    assert found["memory_copy_bytes_per_s"]["low"] > 0 < found["disk_sync_per_s"]["low"]
    assert "refused" not in found and not list(tmp_path.iterdir())
    elsewhere = brief(tmp_path / "absent")
    assert "disk_sync_per_s" not in elsewhere and "loopback_round_trip_us" in elsewhere
    (reason,) = elsewhere["refused"]
    assert reason.startswith(f"{tmp_path}/absent: no such folder")


def test_short_form_has_no_memory_that_fits_into_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knee.machine.rounds.available_bytes", lambda: 100 * KIB)
    found = brief(tmp_path)
    assert "memory_latency_ns" not in found and "loopback_round_trip_us" in found and "disk_sync_per_s" in found
    assert found["refused"] == ["memory: a quarter of what is available may fit into a cache"]


def test_media_stand_beside_the_measured_ones_with_their_sources(machine: Machine) -> None:
    machine = replace(machine, caches={})
    lines = render_media(read_media(SAMPLE), machine, (250.0, 25.0)).splitlines()
    assert lines[1].split() == ["hard", "disk", "SSD", "main", "memory", "this", "disk", "this", "memory"]
    cells = {line[:25].strip(): line[25:].split() for line in lines[2:13]}
    # Seed 003, table 1. Its price per GB of the SSD, 0.86, and of the memory, 24.37, are cut off after two decimals.
    assert cells["price per GB ($)"] == ["0.268", "0.859", "24.4", "–", "–"]
    assert cells["capacity (GB)"] == ["1,000", "128", "16.0", "250", "25.0"]
    assert cells["MTBF (million hours)"] == ["1–1.5", "1–2", "6–11", "–", "–"]
    assert cells["keeps data without power"] == ["yes", "yes", "no", "–", "–"]
    measured = 1e6 / machine.figures["disk_random_read_per_s"].estimate
    assert float(cells["read access (µs)"][3].replace(",", "")) == pytest.approx(measured, rel=0.01)
    assert cells["sources"] == ["[1]", "[2]", "[3]", "[4]", "[5]", "[6]", "[7]", "[8]", "[9]"]
    assert [line.split()[0] for line in lines[13:]] == [f"[{number}]" for number in range(1, 10)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("currency = ", "not valid TOML: "),
        ('currency = "$"\nmedium = []', "medium: list should have at least 1 item"),
        ('currency = "$"\n[[medium]]\nname = "x"', "medium.0.sources: field required; see docs/machine.md"),
        (
            'currency = "$"\n[[medium]]\nname = "x"\nsources = ["y"]\nprice = -1',
            "medium.0.price: input should be greater",
        ),
        ('currency = "$"\n[[medium]]\nname = "x"\nsources = ["y"]\nprise = 1', "medium.0.prise: extra inputs are not"),
    ],
)
def test_wrong_media_are_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "media.toml"
    file.write_text(text)
    with pytest.raises(SpecError) as raised:
        read_media(file)
    assert str(raised.value).startswith(f"{file}: {problem}")


def test_plot_names_the_axes_and_the_caches(machine: Machine) -> None:
    text = svg(machine)
    assert text.startswith("<svg")
    shown = ["Working set (KiB)", "Latency of a dependent read (ns)", "Bandwidth of one thread (GB/s)", "copy"]
    for name in [*shown, *(name for name, size in machine.caches.items() if size <= 64 * KIB)]:
        assert f">{name}</text>" in text
