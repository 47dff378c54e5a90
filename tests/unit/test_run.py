"""What a run does apart from its processes: throughput as it comes, programs it needs, its provenance, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from command_line import knee
from rich.console import Console

from knee import spec
from knee.cli import measure
from knee.data import Dataset, Outcome, RunFolder
from knee.errors import DatasetError, ProcessError, ProgramError, SpecError, StorageError
from knee.lab import run as run_module
from knee.lab.deploy.deployment import Deployment, LateStartError, Progress, Throughput
from knee.lab.deploy.stores import populating_s
from knee.lab.hosts.local import LocalHost
from knee.lab.progress import LiveProgress, PlainProgress, duration, name_of
from knee.lab.run import (
    PROVENANCE,
    Lab,
    Tally,
    check_processors,
    check_programs,
    check_resumable,
    new_manifest,
    note_cluster,
    resumed_manifest,
)
from knee.spec.design import Run, runs

TEXT = """\
[experiment]
name = "x"
[system]
load = {}
middleware = { workers = 1 }
store = {}
[factors]
"load.clients" = [1, 2]
[measure]
repetitions = 1
order = "given"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("knee-kv", "knee-proxy", "knee-load"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} 0.1.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))
    return tmp_path


def test_throughput_is_that_of_the_latest_complete_second() -> None:
    throughput = Throughput()
    assert throughput.latest() is None
    for second, count in [(10, 100), (10, 120), (11, 90)]:
        throughput.note({"second": second, "ops": {"get": {"count": count}, "set": {"count": 1}}})
    assert throughput.latest() == 222


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], {"knee-load", "knee-proxy", "knee-kv"}),
        (["store.kind=memcached"], {"knee-load", "knee-proxy", "memcached"}),
        (['store.kind=["memcached", "knee-kv"]'], {"knee-load", "knee-proxy", "knee-kv", "memcached"}),
        (['store.address=["h:1"]'], {"knee-load", "knee-proxy"}),
    ],
)
def test_only_programs_that_will_be_started_are_needed(
    programs: Path, overrides: list[str], expected: set[str]
) -> None:
    experiment = spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides))
    assert set(check_programs(experiment)) == expected
    (programs / "knee-load").unlink()
    with pytest.raises(ProgramError, match="knee-load"):
        check_programs(experiment)


DATABASE = """\
[experiment]
name = "x"
[system]
load = { clients = 1 }
middleware = { workers = 1 }
store = { kind = "postgresql" }
[workload]
protocol = "queue"
"""


def test_psql_is_needed_for_unusual_indexes(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("knee-queue", "setpriv", "initdb", "postgres", "psql"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    for override, expected in (
        ("store.indexes=needed", False),
        ("store.indexes=none", True),
        ('store.indexes=["needed", "arrival"]', True),
    ):
        found = check_programs(spec.parse(DATABASE, "x.toml", spec.parse_overrides([override])))
        assert ("psql" in found) == expected, override


def test_a_missing_program_is_reported_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("knee-load", "knee-queue", "setpriv", "initdb", "postgres"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("knee.lab.programs._POSTGRESQL", tmp_path / "postgresql")
    assert {"knee-queue", "initdb", "postgres"} <= set(check_programs(spec.parse(DATABASE, "x.toml")))
    asked_by_pgbench = DATABASE.replace("load = {", 'load = { kind = "pgbench",').replace(
        "middleware = { workers = 1 }", ""
    )
    for name, text in (("psql", asked_by_pgbench), ("postgres", DATABASE), ("initdb", DATABASE)):
        (tmp_path / name).unlink(missing_ok=True)
        with pytest.raises(
            ProgramError, match=f"^{name} is not installed; on Debian, install it with `apt-get install postgresql`"
        ):
            check_programs(spec.parse(text, "x.toml"))
    # The command reports it as well, and begins nothing.
    file = tmp_path / "x.toml"
    file.write_text(DATABASE)
    done = knee("run", str(file), "--runs-dir", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "initdb is not installed; on Debian, install it with `apt-get install postgresql`" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("levels", "refused"),
    [
        ("[1, 2]", None),
        ("2", None),
        ("[0.5, 1.0]", "^store.cpus: should be a whole number of processors, not 0.5$"),
        ("[1, 4]", "^store.cpus: a store may use only 2 processors, not 4; take a larger machine"),
    ],
)
def test_a_database_gets_whole_processors_that_are_there(
    monkeypatch: pytest.MonkeyPatch, levels: str, refused: str | None
) -> None:
    monkeypatch.setattr("knee.lab.hosts.local.os.sched_getaffinity", lambda _: {0, 1})
    experiment = spec.parse(DATABASE, "x.toml", spec.parse_overrides([f"store.cpus={levels}"]))
    with nullcontext() if refused is None else pytest.raises(SpecError, match=refused):
        check_processors(experiment, LocalHost())


def test_the_manifest_says_where_the_numbers_come_from(programs: Path) -> None:
    experiment = spec.parse(TEXT, "x.toml", {"store.link_mbit": 100})
    manifest = new_manifest(experiment, 7, LocalHost(), check_programs(experiment), programs)
    assert manifest["programs"]["knee-kv"] == {"path": str(programs / "knee-kv"), "version": "knee-kv 0.1.0"}
    assert (manifest["seed"], manifest["overrides"]) == (7, {"store.link_mbit": 100})
    assert "not emulated" in manifest["notes"][0]


def test_a_resumed_manifest_has_what_differs() -> None:
    begun = {"seed": 7, "commands": {"0-r1": {}}, "notes": ["a note"]} | dict.fromkeys(PROVENANCE, "old")
    now = dict.fromkeys(PROVENANCE, "old") | {"started": "later", "seed": 0, "commands": {}, "notes": []}
    same = resumed_manifest(begun, now)
    assert (same["seed"], same["commands"], same["notes"]) == (7, {"0-r1": {}}, ["a note"])
    assert same["resumed"] == [{"started": "later"}]
    other = resumed_manifest(same, {**now, "programs": "new"})
    assert other["notes"][1] == ("resumed at later with different values of programs; the manifest has both")
    assert other["resumed"] == [{"started": "later"}, {"started": "later", "programs": "new"}]
    del begun["seed"]
    with pytest.raises(DatasetError, match="has no seed"):
        resumed_manifest(begun, now)


def test_resumed_run_on_a_cluster_names_machines_that_differ() -> None:
    def record(**names: str) -> dict[str, Any]:
        return {
            "hosts": {each: each for each in names},
            "workers": {k: {"host": {"name": v}} for k, v in names.items()},
        }

    manifest: dict[str, Any] = {"notes": []}
    note_cluster(manifest, first := record(load="a", store="b"))
    manifest["resumed"] = [{}]
    for _ in range(2):
        note_cluster(manifest, later := record(load="a", store="c"))
    assert manifest["notes"] == ["resumed with other machines for store; the manifest has both"]
    assert (manifest["cluster"], manifest["resumed"]) == (first, [{"cluster": later}])
    check_resumable(manifest, "tcp://x")
    with pytest.raises(DatasetError, match=r"began on a cluster: .*resume it with --cluster"):
        check_resumable(manifest, None)
    with pytest.raises(DatasetError, match=r"began on this machine: .*resume it without --cluster"):
        check_resumable({}, "tcp://x")


@pytest.mark.parametrize(
    ("value_bytes", "expected"), [(1, 5.001), (1_000_000, 1005), ("uniform:1:10000", 15), ("exponential:10000", 15)]
)
def test_populating_large_values_may_take_longer(value_bytes: int | str, expected: float) -> None:
    assert populating_s(spec.Workload(value_bytes=value_bytes, keys=10_000)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "rates", "expected"),
    [
        # By the second of the report: the warm-up of 5 s is reported until 7 s or 8 s, the cool-down from 16 s on.
        ((20, 5, 6), {7.05: 10, 8.02: 1000, 15.04: 2000, 16.01: 10, 19.9: 0}, "about 1,500 requests/s"),
        ((20, 5, 6), {8.0: 0}, "about 0 requests/s"),
        ((20, 5, 6), {8.0: None}, "done"),
        ((20, 5, 6), {3.0: 7, 20: 6904}, "done"),
        ((20, 5, 6), {}, "done"),
        # Without a cool-down, the final report is no second.
        ((4, 0, 0), {3.0: 100, 4.01: 300, 4: 500}, "about 100 requests/s"),
    ],
)
def test_a_finished_line_has_the_rate_of_the_measured_seconds(
    seconds: tuple[int, int, int], rates: dict[float, int | None], expected: str
) -> None:
    (run, _) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    said = StringIO()
    whole, warmup_s, cooldown_s = seconds
    measured = spec.Measure(seconds=whole, warmup_s=warmup_s, cooldown_s=cooldown_s)
    progress = PlainProgress(Console(file=said), measured)
    for _ in range(2):
        progress.begin(run, 1, 2, remaining_s=9)
        for elapsed_s, rate in rates.items():
            progress.second(elapsed_s, rate)
        progress.end(run, Outcome("done", start_unix_s=1_700_000_000))
        progress.begin(run, 1, 2, remaining_s=9)
        progress.second(10, 77)
    assert said.getvalue().count(f"repetition 1  {expected}  (0:09 left") == 2


def lab_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, measure: Callable[[], Outcome], cleanup: Callable[[], object] = int
) -> tuple[Lab, spec.Spec, RunFolder]:
    """A lab whose runs do this, and clean up so."""

    class Scripted(Deployment):
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            self._cleanup.callback(cleanup)
            return measure()

        def _start_servers(self, configuration: spec.Configuration) -> NoReturn:
            raise NotImplementedError

        def _requests(self, index: int, configuration: spec.Configuration) -> NoReturn:
            raise NotImplementedError

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Scripted)
    experiment = spec.parse(TEXT, "x.toml")
    run_folder = RunFolder.create(folder, "x", TEXT)
    run_folder.write_manifest({})
    return Lab(experiment, 1, run_folder, LocalHost(), Progress()), experiment, run_folder


def raising(error: BaseException | None) -> Callable[[], Outcome]:
    """A run that ends with this error, or well."""

    def end() -> Outcome:
        if error is not None:
            raise error
        return Outcome("done", start_unix_s=1_700_000_000)

    return end


@pytest.mark.parametrize(("took_s", "leads_s"), [(0.1, [0.5002]), (3.0, [0.5002, 6.0])])
def test_late_clients_get_twice_the_time_that_they_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, leads_s: list[float]
) -> None:
    lab, experiment, _ = lab_of(tmp_path, monkeypatch, raising(AssertionError()))
    given_s = []

    def measure(_: object, lead_s: float, __: object) -> Outcome:
        given_s.append(lead_s)
        if lead_s < took_s:
            raise LateStartError(took_s)
        return Outcome("done", start_unix_s=1_700_000_000)

    monkeypatch.setattr(run_module.deployment_of(experiment.base), "measure", measure)
    assert lab.make(runs(experiment, seed=1)[:1], lambda *_: None).done == 1
    assert given_s == pytest.approx(leads_s)


def test_scratch_that_stays_hides_no_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def stays(_: Path) -> Iterator[None]:
        try:
            yield
        finally:
            raise StorageError("scratch is left")

    lab, experiment, folder = lab_of(tmp_path, monkeypatch, raising(KeyboardInterrupt()))
    monkeypatch.setattr(run_module, "needs_scratch", lambda _: True)
    monkeypatch.setattr(run_module, "scratch", stays)
    monkeypatch.setattr(folder, "record", lambda *_: raising(StorageError("no row"))())
    with pytest.raises(KeyboardInterrupt) as ended:
        lab.make(runs(experiment, seed=1), lambda *_: None)
    assert ended.value.args == ("no row", "scratch is left")


@pytest.mark.parametrize(
    ("failure", "cleanup", "ended", "reasons"),
    [
        (ProcessError("it ended"), ProcessError("it is left"), None, ["it ended; it is left"] * 2),
        (None, ProcessError("it is left"), None, ["it is left"] * 2),
        (ProcessError("it ended"), StorageError("it is full"), StorageError, ["it ended; it is full"]),
        (KeyboardInterrupt(), None, KeyboardInterrupt, ["interrupted"]),
        (KeyboardInterrupt(), ProcessError("it is left"), KeyboardInterrupt, ["interrupted; it is left"]),
        (KeyboardInterrupt(), StorageError("it is full"), KeyboardInterrupt, ["interrupted; it is full"]),
        (StorageError("it is full"), None, StorageError, []),
        (ValueError("a fault"), None, ValueError, []),
    ],
)
def test_failure_of_a_run_is_recorded_and_may_end_the_lab(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException | None,
    cleanup: BaseException | None,
    ended: type[BaseException] | None,
    reasons: list[str],
) -> None:
    lab, experiment, folder = lab_of(tmp_path, monkeypatch, raising(failure), raising(cleanup))
    commands: list[Run] = []
    with nullcontext() if ended is None else pytest.raises(ended) as raised:
        tally = lab.make(runs(experiment, seed=1), lambda run, _: commands.append(run))
    status = "interrupted" if ended is KeyboardInterrupt else "failed"
    assert Dataset.open(folder.path).points.select("status", "reason").rows() == [(status, each) for each in reasons]
    if raised is None:
        assert [reason for _, reason in tally.failed] == reasons and len(commands) == 2
    else:
        said = reasons[0] if reasons else str(failure)
        assert str(raised.value) == said.removeprefix("interrupted").removeprefix("; ")


def test_unreadable_output_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, experiment, folder = lab_of(tmp_path, monkeypatch, raising(None))
    measured = raising(DatasetError("a line is none of ours"))
    monkeypatch.setattr(folder, "_measured", lambda *_: measured())
    ((_, reason),) = lab.make(runs(experiment, seed=1)[:1], lambda *_: None).failed
    assert reason == "a line is none of ours"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(KeyboardInterrupt(), 130, "knee: interrupted; finished"), (StorageError("it is full"), 1, "knee: it is full\n")],
)
def test_an_ended_lab_says_how_to_resume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    _, experiment, folder = lab_of(tmp_path, monkeypatch, raising(error))
    with pytest.raises(typer.Exit) as ended:
        measure._make(experiment, folder, {"seed": 1, "commands": {}, "notes": []}, LocalHost(), no_report=True)
    assert ended.value.exit_code == code
    printed = capsys.readouterr().err
    assert said in printed and f"continue with `knee run --resume {folder.path}`" in printed


def test_other_runs_than_a_failed_one_are_reported(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    concluded: list[Path] = []
    (first, _) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    monkeypatch.setattr(measure, "_make", lambda *_, **__: Tally(1, [(first, "it ended")]))
    monkeypatch.setattr(measure, "_conclude", lambda path, **_: concluded.append(path))
    monkeypatch.setattr(RunFolder, "done", lambda _: {(1, 1)})
    (tmp_path / "x.toml").write_text(TEXT)
    with pytest.raises(typer.Exit) as ended:
        measure.measure(tmp_path / "x.toml", None, None, tmp_path / "runs", no_report=False)
    assert ended.value.exit_code == 1
    assert [path.parent for path in concluded] == [tmp_path / "runs" / "x"]


def test_a_live_line_is_gone_afterwards() -> None:
    screen = StringIO()
    (run, *_) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    with LiveProgress(Console(file=screen, force_terminal=True, width=80), seconds=9) as progress:
        progress.begin(run, 1, 2, remaining_s=9)
        progress.second(1.0, 1234)
        progress.end(run, Outcome("failed", reason="it ended"))
    assert "failed: it ended" in screen.getvalue()


def test_a_run_in_words() -> None:
    (first, _) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    assert name_of(first) == "load.clients=1  repetition 1"


@pytest.mark.parametrize(("seconds", "expected"), [(-3, "0:00"), (59.2, "1:00"), (61, "1:01"), (3661, "1:01:01")])
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
