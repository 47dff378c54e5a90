"""What a run does apart from its processes: throughput as it comes, programs it needs, its provenance."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import threading
import traceback
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from types import FrameType

import pytest
import typer
from rich.console import Console

from knee import spec
from knee.cli import commands as cli
from knee.data import Dataset, Outcome, RunFolder
from knee.errors import DatasetError, ProcessError, ProgramError, SpecError, StorageError, UnendedError
from knee.lab.commands import Command
from knee.lab.deployment import Deployment, LateStartError, Progress, QueueDeployment, Throughput, hints, populating_s
from knee.lab.design import Run, runs
from knee.lab.hosts import OnLine
from knee.lab.hosts.local import LocalHost, LocalProcess
from knee.lab.interrupts import interrupts_deferred
from knee.lab.progress import LiveProgress, PlainProgress, duration, name_of
from knee.lab.run import PROVENANCE, Lab, check_processors, check_programs, new_manifest, resumed_manifest

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


def test_throughput_is_that_of_the_latest_second_all_clients_have_told() -> None:
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


def test_who_makes_indexes_is_needed_where_others_than_usual_are_wanted(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_database_without_its_programs_is_told_with_the_package_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
            ProgramError, match=f"^{name} is not installed; on Debian, `apt-get install postgresql` does"
        ):
            check_programs(spec.parse(text, "x.toml"))
    # Said by the command as well, and nothing was begun.
    file = tmp_path / "x.toml"
    file.write_text(DATABASE)
    monkeypatch.setattr("sys.argv", ["knee", "run", str(file), "--runs-dir", str(tmp_path / "runs")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "initdb is not installed; on Debian, `apt-get install postgresql` does" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


class Host(LocalHost):
    """A machine of two processors."""

    def __init__(self, shares: bool) -> None:
        super().__init__()
        self.shares_cpus = shares

    def processors(self, cpus: float) -> float:
        return min(cpus if self.shares_cpus else math.ceil(cpus), 2)


@pytest.mark.parametrize(
    ("shares", "levels", "refused"),
    [
        (True, "[0.5, 1.0]", None),
        (False, "[1, 2]", None),
        (False, "[0.5, 1.0]", "0.5 and 1.0 would be the same 1 processor here: this machine gives them whole"),
        (False, "[1.5, 2]", "1.5 and 2 would be the same 2 processors here: this machine gives them whole"),
        (False, "1.5", None),
        (True, "2", None),
        (True, "[1, 2, 4]", "^store.cpus: 4 is more than this process may use, 2 processors, and fewer would answer"),
        (True, "2.5", "^store.cpus: 2.5 is more than this process may use, 2 processors"),
        (False, "[1, 4]", "^store.cpus: 4 is more than this process may use, 2 processors"),
    ],
)
def test_a_databases_machine_that_is_larger_than_this_one_or_the_same_as_another_is_refused(
    shares: bool, levels: str, refused: str | None
) -> None:
    experiment = spec.parse(DATABASE, "x.toml", spec.parse_overrides([f"store.cpus={levels}"]))
    if refused is None:
        check_processors(experiment, Host(shares))
    else:
        with pytest.raises(SpecError, match=refused):
            check_processors(experiment, Host(shares))


@pytest.mark.parametrize(("shares", "levels"), [(True, "[1, 4]"), (False, "[0.5, 1.0]")])
def test_a_resumed_run_that_needs_another_machine_is_not_told_to_set_what_it_cannot(
    shares: bool,
    levels: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "LocalHost", lambda: Host(shares))
    monkeypatch.setattr(cli, "check_programs", lambda _: {})
    folder = RunFolder.create(tmp_path, "x", DATABASE)
    folder.write_manifest({"seed": 1, "overrides": spec.parse_overrides([f"store.cpus={levels}"])})
    file = tmp_path / "x.toml"
    file.write_text(DATABASE)
    for arguments, is_resumed in (
        (["--resume", str(folder.path)], True),
        ([str(file), "--set", f"store.cpus={levels}", "--runs-dir", str(tmp_path / "runs")], False),
    ):
        monkeypatch.setattr("sys.argv", ["knee", "run", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert ("--set" not in said) == is_resumed
        assert ("; resume it on the machine that it began on, as it began there, or start a new" in said) == is_resumed


def test_whole_processors_are_told_of(tmp_path: Path) -> None:
    experiment = spec.parse(DATABASE, "x.toml", {"store.cpus": 0.5})
    whole, shared = (new_manifest(experiment, 7, Host(shares=shares), {}, tmp_path) for shares in (False, True))
    (note,) = whole["notes"]
    assert note.startswith("store.cpus was rounded up to whole processors")
    assert not shared["notes"]
    assert (whole["shares_cpus"], shared["shares_cpus"]) == (False, True)


def test_the_manifest_says_where_the_numbers_come_from(programs: Path) -> None:
    experiment = spec.parse(TEXT, "x.toml", {"store.link_mbit": 100})
    manifest = new_manifest(experiment, 7, LocalHost(), check_programs(experiment), programs)
    assert manifest["programs"]["knee-kv"] == {"path": str(programs / "knee-kv"), "version": "knee-kv 0.1.0"}
    assert (manifest["seed"], manifest["overrides"]) == (7, {"store.link_mbit": 100})
    assert "not emulated" in manifest["notes"][0]


def test_a_resumed_manifest_says_what_is_not_as_it_was() -> None:
    begun = {"seed": 7, "commands": {"0-r1": {}}, "notes": ["a note"]} | dict.fromkeys(PROVENANCE, "old")
    now = dict.fromkeys(PROVENANCE, "old") | {"started": "later", "id": "1", "seed": 0, "commands": {}, "notes": []}
    same = resumed_manifest(begun, now)
    assert (same["seed"], same["commands"], same["notes"]) == (7, {"0-r1": {}}, ["a note"])
    assert same["resumed"] == [{"started": "later"}]
    other = resumed_manifest(same, {**now, "programs": "new"})
    assert other["notes"][1] == ("resumed at later with another programs than it began with; the manifest has both")
    assert other["resumed"] == [{"started": "later"}, {"started": "later", "programs": "new"}]
    # One that began without an id has the one that it was given first.
    assert (same["id"], resumed_manifest(same, {**now, "id": "2"})["id"]) == ("1", "1")
    del begun["seed"]
    with pytest.raises(DatasetError, match="does not say its seed"):
        resumed_manifest(begun, now)


class InterruptedFolder(RunFolder):
    """Somebody presses Ctrl-C while a run is recorded."""

    def record(self, run: Run, spec: spec.Spec, outcome: Outcome) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        super().record(run, spec, outcome)


def test_an_interrupt_does_not_take_back_a_run_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = spec.parse(TEXT, "x.toml")
    folder = InterruptedFolder(RunFolder.create(tmp_path, "x", TEXT).path)
    folder.write_manifest({})
    monkeypatch.setattr(Lab, "_measure", lambda *_: Outcome("done", start_unix_s=1_700_000_000))
    told: list[Run] = []
    with pytest.raises(KeyboardInterrupt):
        Lab(experiment, 1, folder, LocalHost(), Progress()).make(
            runs(experiment, seed=1), lambda run, _: told.append(run)
        )
    assert folder.done() == {(0, 1)}
    assert [run.point for run in told] == [0]


@pytest.mark.parametrize(
    ("value_bytes", "expected"),
    [(1, 5.001), (1_000_000, 1005), ("uniform:1:10000", 15), ("exponential:10000", 15)],
)
def test_populating_large_values_may_take_longer(value_bytes: int | str, expected: float) -> None:
    assert populating_s(spec.Workload(value_bytes=value_bytes, keys=10_000)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # By the second in which it is told: 5 s of warm-up are known at 7 s or 8 s, and of the cool-down from 16 s on.
        ({7.05: 10, 8.02: 1000, 15.04: 2000, 16.01: 10, 19.9: 0}, "about 1,500 requests/s"),
        ({8.0: 0}, "about 0 requests/s"),
        ({8.0: None}, "done"),
        ({3.0: 7, 20: 6904}, "done"),
        ({}, "done"),
    ],
)
def test_a_finished_line_has_the_rate_of_the_measured_seconds_or_none(
    rates: dict[float, int | None], expected: str
) -> None:
    (run, _) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    said = StringIO()
    progress = PlainProgress(Console(file=said), spec.Measure(seconds=20, warmup_s=5, cooldown_s=6))
    for _ in range(2):
        progress.begin(run, 1, 2, remaining_s=9)
        for elapsed_s, rate in rates.items():
            progress.second(elapsed_s, rate)
        progress.end(run, Outcome("done", start_unix_s=1_700_000_000))
        progress.begin(run, 1, 2, remaining_s=9)
        progress.second(10, 77)
    assert said.getvalue().count(f"repetition 1  {expected}  (0:09 left") == 2


def test_without_a_cool_down_what_is_told_at_the_end_is_not_a_rate_of_its_own() -> None:
    (run, _) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    said = StringIO()
    progress = PlainProgress(Console(file=said), spec.Measure(seconds=4, warmup_s=0, cooldown_s=0))
    progress.begin(run, 1, 2, remaining_s=9)
    for elapsed_s, rate in ((3.0, 100), (4.01, 300), (4, 500)):
        progress.second(elapsed_s, rate)
    progress.end(run, Outcome("done", start_unix_s=1_700_000_000))
    assert "about 100 requests/s" in said.getvalue()


@pytest.mark.parametrize(("took_s", "leads_s"), [(0.1, [0.5002]), (3.0, [0.5002, 6.0])])
def test_clients_that_were_late_are_given_what_they_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, leads_s: list[float]
) -> None:
    given_s = []

    class SlowlyConnected(Deployment):
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            given_s.append(lead_s)
            if lead_s < took_s:
                raise LateStartError(took_s)
            return Outcome("done", start_unix_s=1_700_000_000)

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: SlowlyConnected)
    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    lab = Lab(experiment, 1, folder, LocalHost(), Progress())
    assert lab.make(runs(experiment, seed=1)[:1], lambda *_: None).done == 1
    assert given_s == pytest.approx(leads_s)


def test_what_was_left_is_told_beside_why_the_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: list[Exception] = [ProcessError("it ended"), StorageError("it is full"), ValueError("a fault")]

    class Leaving(Deployment):
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            raise reasons.pop(0)

        def clear(self) -> str | None:
            return "something may be left"

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Leaving)
    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    lab = Lab(experiment, 1, folder, LocalHost(), Progress())
    tally = lab.make(runs(experiment, seed=1)[:1], lambda *_: None)
    assert [reason for _, reason in tally.failed] == ["it ended; something may be left"]
    # Which ends the lab.
    with pytest.raises(StorageError, match=r"^it is full; something may be left$"):
        lab.make(runs(experiment, seed=1)[:1], lambda *_: None)
    # Nor is a fault of its own taken for a run that failed.
    with pytest.raises(ValueError, match="a fault") as raised:
        lab.make(runs(experiment, seed=1)[:1], lambda *_: None)
    assert raised.value.__notes__ == ["something may be left"]


def test_who_interrupts_what_cannot_be_removed_is_told_that_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Deployment):
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            raise KeyboardInterrupt

        def clear(self) -> str | None:
            os.kill(os.getpid(), signal.SIGINT)
            return "something may be left"

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Interrupted)
    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    with pytest.raises(KeyboardInterrupt) as ended:
        Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    assert ended.value.args == ("something may be left",)
    assert Dataset.open(folder.path).points["reason"].to_list() == ["interrupted; something may be left"]


def leaving(ended_by: BaseException | None) -> type[Deployment]:
    """A run that ends so, and leaves something elsewhere."""

    class Leaving(Deployment):
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            if ended_by is not None:
                raise ended_by
            return Outcome("done", start_unix_s=1_700_000_000)

        def clear(self) -> str | None:
            return "something may be left"

    return Leaving


class Ended(LocalHost):
    """Counts the ends of its processes, of which there are none."""

    ends = 0

    def close(self, grace_s: float) -> None:
        super().close(grace_s)
        self.ends += 1


def come_together(*numbers: signal.Signals) -> None:
    """Have signals come between the same two steps of Python: to this thread, as only that blocks them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.raise_signal(number)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("together_s", [math.inf, 0])
def test_two_signals_at_once_spare_no_process_and_nothing_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together_s: float
) -> None:
    class Interrupted(leaving(None)):  # type: ignore[misc]
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            come_together(signal.SIGTERM, signal.SIGHUP)
            return super().measure(lead_s, progress)  # type: ignore[no-any-return]

    # Nor where they are not taken for one, as on a machine that takes long from one step to the next.
    monkeypatch.setattr("knee.lab.interrupts._TOGETHER_S", together_s)
    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Interrupted)
    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    host = Ended()
    with pytest.raises(KeyboardInterrupt) as ended, interrupts_deferred():
        Lab(experiment, 1, folder, host, Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    assert host.ends
    assert ended.value.args == ("something may be left",)
    assert Dataset.open(folder.path).points["reason"].to_list() == ["interrupted; something may be left"]


class Interrupting:
    """Interrupts whoever makes the n-th call from some moment on, as a trace function (sys.settrace)."""

    def __init__(self, calls: int) -> None:
        self.left, self.counts = calls, False

    def __call__(self, _frame: FrameType, event: str, _argument: object) -> None:
        if self.counts and event == "call":
            self.left -= 1
            if self.left == 0:
                self.counts = False
                signal.raise_signal(signal.SIGTERM)

    def __enter__(self) -> None:
        # What a callback of the collector's raises is lost, and some of this process' are not the lab's.
        gc.disable()
        sys.settrace(self)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()


class Served:
    """A process that ends when it is killed, and not before."""

    is_served = True

    def poll(self) -> int | None:
        return None if self.is_served else 0

    def end(self, _grace_s: float) -> None:
        pass

    def kill(self) -> None:
        self.is_served = False

    def wait_ended(self, _timeout_s: float) -> int:
        return 0

    def kill_left(self) -> bool:
        return False

    def end_left(self, _deadline_s: float) -> None:
        pass

    def wait_printed(self, _deadline_s: float) -> None:
        pass

    def can_print(self) -> bool:
        return False

    def close_share(self) -> None:
        pass


def interrupted(path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException | None, calls: int) -> bool:
    """Whether a run that ends so is interrupted at such a call from its measurement on, before it is recorded."""
    interrupting, host, reasons = Interrupting(calls), LocalHost(), list[str | None]()
    served = [Served(), Served()]
    host._processes.extend(served)  # type: ignore[arg-type]

    class Measuring(leaving(ended_by)):  # type: ignore[misc]
        def measure(self, lead_s: float, progress: Progress) -> Outcome:
            interrupting.counts = True
            return super().measure(lead_s, progress)  # type: ignore[no-any-return]

        def clear(self) -> str | None:
            assert not any(process.is_served for process in served), calls
            return super().clear()  # type: ignore[no-any-return]

    class Folder(RunFolder):
        def record(self, run: Run, spec: spec.Spec, outcome: Outcome) -> None:
            interrupting.counts = False
            reasons.append(outcome.reason)

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Measuring)
    experiment = spec.parse(TEXT, "x.toml")
    lab = Lab(experiment, 1, Folder(path), host, Progress())
    told = None
    try:
        with interrupts_deferred(), interrupting:
            lab.make(runs(experiment, seed=1)[:1], lambda *_: None)
    except KeyboardInterrupt as interrupt:
        told = str(interrupt)
    assert not any(process.is_served for process in served), calls
    (reason,) = reasons
    assert reason is not None and "something may be left" in reason, calls
    is_interrupted = interrupting.left <= 0
    assert not is_interrupted or (told is not None and "something may be left" in told), calls
    return is_interrupted


@pytest.mark.parametrize("ended_by", [None, ProcessError("it ended"), KeyboardInterrupt("it ended")])
def test_whenever_it_is_interrupted_processes_are_ended_and_what_is_left_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException | None
) -> None:
    calls = 1
    while interrupted(tmp_path, monkeypatch, ended_by, calls):
        calls += 1
    assert calls > 10


def interrupted_again(folder: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> bool:
    """Whether an interrupted command is interrupted once more at such a call from when the run is recorded on."""
    interrupting = Interrupting(calls)

    class Folder(RunFolder):
        def record(self, run: Run, spec: spec.Spec, outcome: Outcome) -> None:
            interrupting.counts = True

    def tell_end(words: str, fault: BaseException | None) -> None:
        interrupting.counts = False
        tell(words, fault)

    experiment = spec.parse(TEXT, "x.toml")
    tell = cli._tell_end
    with monkeypatch.context() as patched:
        patched.setattr(cli, "_tell_end", tell_end)
        patched.setattr("knee.lab.run.deployment_of", lambda _: leaving(KeyboardInterrupt()))
        # However long it takes from the one to the other.
        patched.setattr("knee.lab.interrupts._TOGETHER_S", 0)
        with interrupting, pytest.raises((typer.Exit, KeyboardInterrupt)):
            cli._measure(experiment, Folder(folder), {"seed": 1, "commands": {}}, LocalHost())
    return interrupting.left <= 0


def test_whenever_it_is_interrupted_again_what_is_left_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    calls = 1
    while interrupted_again(folder.path, monkeypatch, calls):
        assert "knee: interrupted; something may be left" in capsys.readouterr().err, calls
        calls += 1
    assert calls > 10


@pytest.mark.parametrize("is_fault", [True, False])
def test_of_a_fault_beside_an_interrupt_it_is_told_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_fault: bool
) -> None:
    class Interrupted(leaving(KeyboardInterrupt())):  # type: ignore[misc]
        def clear(self) -> str | None:
            assert not is_fault
            return super().clear()  # type: ignore[no-any-return]

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Interrupted)
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    with pytest.raises(typer.Exit) as ended:
        cli._measure(spec.parse(TEXT, "x.toml"), folder, {"seed": 1, "commands": {}, "notes": []}, LocalHost())
    told = capsys.readouterr().err
    assert ended.value.exit_code == 130
    assert ("assert not is_fault" in told) == ("Traceback" in told) == is_fault
    reason = "AssertionError" if is_fault else "something may be left"
    assert told.splitlines()[-1].startswith(f"knee: interrupted; {reason}")


@pytest.mark.parametrize("at_write", [1, 2, 3])
def test_an_interrupt_of_the_live_line_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch, at_write: int) -> None:
    # The cursor is hidden, the line drawn, and taken back.
    class Interrupted(StringIO):
        writes = 0

        def write(self, text: str) -> int:
            written = super().write(text)
            self.writes += 1
            if self.writes == at_write:
                os.kill(os.getpid(), signal.SIGINT)
            return written

    hides, shows = "\x1b[?25l", "\x1b[?25h"
    terminal = Interrupted()
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys, "stderr", terminal)
    before = sys.stdout, sys.stderr
    progress = LiveProgress(Console(file=terminal, force_terminal=True, width=40), seconds=1)
    # Else another thread draws it as well, whenever it comes to that.
    progress._bar.live.auto_refresh = False
    with pytest.raises(KeyboardInterrupt) as ended, interrupts_deferred(), progress:
        pass
    assert not ended.value.args
    assert (sys.stdout, sys.stderr) == before
    assert not progress._bar.live.is_started
    said = terminal.getvalue()
    assert hides in said and said.rindex(shows) > said.rindex(hides)
    why = "knee: interrupted; " + 10 * "it goes on at another time; "
    print(why, file=sys.stderr)
    assert terminal.getvalue() == f"{said}{why}\n"


def test_an_interrupt_at_the_end_of_the_live_line_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = False

    def stop() -> None:
        nonlocal goes_on
        os.kill(os.getpid(), signal.SIGINT)
        # As a write does to a terminal that is stopped.
        goes_on = True

    progress = LiveProgress(Console(file=StringIO()), seconds=1)
    monkeypatch.setattr(progress._bar, "start", lambda: None)
    monkeypatch.setattr(progress._bar, "stop", stop)
    with pytest.raises(KeyboardInterrupt) as ended, interrupts_deferred(), progress:
        raise KeyboardInterrupt("something may be left")
    assert ended.value.args == ("something may be left",)
    assert not goes_on


def test_a_live_line_that_cannot_be_ended_is_drawn_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        # As it waits for whoever draws the line on a terminal that is stopped.
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys, "stderr", StringIO())
    progress = LiveProgress(Console(file=StringIO(), force_terminal=True, width=40), seconds=1)
    monkeypatch.setattr(progress._bar, "stop", stop)
    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), interrupts_deferred(), progress:
        (draws,) = set(threading.enumerate()) - threads
    draws.join(60)
    assert not draws.is_alive()


def test_why_it_ended_is_told_to_whoever_may_read_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = False

    class Full(StringIO):
        def write(self, _text: str) -> int:
            nonlocal goes_on
            os.kill(os.getpid(), signal.SIGINT)
            goes_on = True
            return 0

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(KeyboardInterrupt()))
    monkeypatch.setattr("knee.lab.interrupts._TOGETHER_S", 0)
    monkeypatch.setattr(sys, "stderr", Full())
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    with pytest.raises(KeyboardInterrupt):
        cli._measure(spec.parse(TEXT, "x.toml"), folder, {"seed": 1, "commands": {}, "notes": []}, LocalHost())
    assert not goes_on


@pytest.mark.parametrize(
    ("ended_by", "exit_code"), [(KeyboardInterrupt(), 130), (StorageError("it is full"), StorageError.exit_code)]
)
def test_it_ends_alike_where_nobody_reads_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException, exit_code: int
) -> None:
    class Closed(StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(ended_by))
    monkeypatch.setattr(sys, "stderr", Closed())
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    with pytest.raises(typer.Exit) as ended:
        cli._measure(spec.parse(TEXT, "x.toml"), folder, {"seed": 1, "commands": {}, "notes": []}, LocalHost())
    assert ended.value.exit_code == exit_code


@pytest.mark.parametrize("when", ["begin", "end"])
def test_what_is_told_of_the_progress_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    goes_on = False

    def tell(*_: object) -> None:
        nonlocal goes_on
        os.kill(os.getpid(), signal.SIGINT)
        # As a write does to a pipe that is full.
        goes_on = True

    progress, told = Progress(), list[Run]()
    monkeypatch.setattr(progress, when, tell)
    monkeypatch.setattr(Lab, "_measure", lambda *_: Outcome("done", start_unix_s=1_700_000_000))
    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    with pytest.raises(KeyboardInterrupt):
        Lab(experiment, 1, folder, LocalHost(), progress).make(
            runs(experiment, seed=1), lambda run, _: told.append(run)
        )
    assert not goes_on
    # Nor is a run that was measured taken back.
    assert len(folder.done()) == len(told) == (when == "end")


@pytest.mark.parametrize(
    ("ended_by", "again", "told"),
    [
        (None, False, StorageError("something may be left; it is full")),
        (ProcessError("it ended"), False, StorageError("it ended; something may be left; it is full")),
        (KeyboardInterrupt(), False, KeyboardInterrupt("something may be left", "it is full")),
        # Somebody does not wait until it is recorded.
        (ProcessError("it ended"), True, KeyboardInterrupt("it ended; something may be left; it is full")),
        (KeyboardInterrupt(), True, KeyboardInterrupt("something may be left", "it is full")),
    ],
)
def test_what_was_left_is_told_where_the_run_cannot_be_recorded_either(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended_by: BaseException | None,
    again: bool,
    told: BaseException,
) -> None:
    class Full(RunFolder):
        def record(self, run: Run, spec: spec.Spec, outcome: Outcome) -> None:
            if again:
                os.kill(os.getpid(), signal.SIGINT)
            raise StorageError("it is full")

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(ended_by))
    experiment = spec.parse(TEXT, "x.toml")
    folder = Full(RunFolder.create(tmp_path, "x", TEXT).path)
    folder.write_manifest({})
    with pytest.raises(type(told)) as ended:
        Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    assert ended.value.args == told.args


def test_a_run_that_fails_and_cannot_be_recorded_ends_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable(RunFolder):
        def record(self, run: Run, spec: spec.Spec, outcome: Outcome) -> None:
            raise DatasetError("it is none of ours")

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(ProcessError("it ended")))
    experiment = spec.parse(TEXT, "x.toml")
    lab = Lab(experiment, 1, Unreadable(tmp_path), LocalHost(), Progress())
    with pytest.raises(ProcessError, match=r"^it ended; something may be left; it is none of ours$"):
        lab.make(runs(experiment, seed=1), lambda *_: None)


def test_beside_a_process_that_goes_on_no_other_run_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Host(LocalHost):
        def close(self, grace_s: float) -> None:
            raise UnendedError("it goes on")

    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(ProcessError("it ended")))
    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    folder.write_manifest({})
    told: list[Run] = []
    with pytest.raises(UnendedError, match=r"^it ended; it goes on; something may be left$"):
        Lab(experiment, 1, folder, Host(), Progress()).make(runs(experiment, seed=1), lambda run, _: told.append(run))
    assert [run.point for run in told] == [0]
    assert Dataset.open(folder.path).points["status"].to_list() == ["failed"]


def test_what_was_left_is_told_where_the_manifest_cannot_be_written_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise StorageError("it is full")

    experiment = spec.parse(TEXT, "x.toml")
    folder = RunFolder.create(tmp_path, "x", TEXT)
    said = StringIO()
    lab = Lab(experiment, 1, folder, LocalHost(), PlainProgress(Console(file=said), experiment.measure))
    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt) as ended:
        lab.make(runs(experiment, seed=1)[:1], is_full)
    assert ended.value.args == ("something may be left", "it is full")
    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: leaving(ProcessError("it ended")))
    with pytest.raises(StorageError, match=r"^it is full$"):
        lab.make(runs(experiment, seed=1)[:1], is_full)
    assert "failed: it ended; something may be left" in said.getvalue()


class Claiming(QueueDeployment):
    """Makes the schema in a database elsewhere, and no more."""

    def measure(self, lead_s: float, progress: Progress) -> Outcome:
        self._folder.point_folder(self._run)
        self._claim("postgresql://bench@h:5432/messages")
        return Outcome("done", start_unix_s=1_700_000_000)


def claiming(folder: Path, monkeypatch: pytest.MonkeyPatch, psql: str) -> tuple[spec.Spec, RunFolder]:
    """An experiment that claims a schema elsewhere, by a psql that does this, and its run folder."""
    (folder / "psql").write_text(f"#!/bin/sh\n{psql}\n")
    (folder / "psql").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Claiming)
    run_folder = RunFolder.create(folder, "x", DATABASE)
    run_folder.write_manifest({})
    return spec.parse(DATABASE, "x.toml", {"store.address": ["h:5432"]}), run_folder


@pytest.mark.parametrize(
    ("claims", "removes"),
    [
        ("exit 0", True),
        # Refused, by somebody else's schema or for want of the right to make one.
        ("exit 1", False),
        # Nobody is there.
        ("exit 2", False),
        # The connection was lost, maybe with the answer on its way.
        ("""echo '{"type":"connected"}'; exit 2""", True),
        ("kill -KILL $$", True),
    ],
)
def test_only_what_may_have_been_made_elsewhere_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: str, removes: bool
) -> None:
    experiment, folder = claiming(tmp_path, monkeypatch, f"case $* in *'CREATE SCHEMA'*) {claims};; esac")
    told: list[str] = []
    lab = Lab(experiment, 1, folder, LocalHost(), Progress())
    lab.make(runs(experiment, seed=1)[:1], lambda _, started: told.extend(one.process for one in started))
    assert told == (["claim", "release"] if removes else ["claim"])


@pytest.mark.parametrize("ends", [True, False])
def test_what_could_not_be_removed_elsewhere_is_told_whatever_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    class Host(LocalHost):
        def close(self, grace_s: float) -> None:
            super().close(grace_s)
            if not grace_s and not ends:
                raise UnendedError("release did not end within 10 s")

    refuses = "case $* in *'CREATE SCHEMA'*);; *) echo refused >&2; exit 1;; esac"
    experiment, folder = claiming(tmp_path, monkeypatch, refuses)
    with nullcontext() if ends else pytest.raises(UnendedError, match="the schema knee_queue may be left in "):
        Lab(experiment, 1, folder, Host(), Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    (reason,) = Dataset.open(folder.path).points["reason"]
    assert reason.startswith("the schema knee_queue may be left in postgresql://bench@h:5432/messages and could not be")
    assert "refused" in reason and ("release did not end" in reason) != ends


def test_it_is_removed_elsewhere_though_an_interrupt_meets_the_first_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = tmp_path / "tried"
    meets = f"case $* in *'CREATE SCHEMA'*);; *) test -e {tried} && exit 0; touch {tried}; kill -INT $$;; esac"
    experiment, folder = claiming(tmp_path, monkeypatch, meets)
    Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    assert Dataset.open(folder.path).points["status"].to_list() == ["done"]


@pytest.mark.parametrize("fails_at", ["start", "close"])
def test_beside_a_fault_it_is_told_what_may_be_left_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    class Host(LocalHost):
        def start(self, command: Command, lines: Path, log: Path, on_line: OnLine) -> LocalProcess:
            assert command.process != "release" or fails_at != "start"
            return super().start(command, lines, log, on_line)

        def close(self, grace_s: float) -> None:
            super().close(grace_s)
            assert grace_s or fails_at != "close"

    refuses = "case $* in *'CREATE SCHEMA'*);; *) echo refused >&2; exit 1;; esac"
    experiment, folder = claiming(tmp_path, monkeypatch, refuses)
    with pytest.raises(AssertionError) as ended:
        Lab(experiment, 1, folder, Host(), Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    told = "".join(traceback.format_exception(ended.value))
    assert "the schema knee_queue may be left in postgresql://bench@h:5432/messages; if the comment on " in told


def test_what_was_removed_elsewhere_is_not_told_to_be_left_whatever_fails_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalls(process: LocalProcess, _deadline_s: float) -> None:
        if process.command.process == "release":
            raise ProcessError("not all of what it printed could be written down")

    (tmp_path / "psql").write_text("#!/bin/sh\n")
    (tmp_path / "psql").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("knee.lab.run.deployment_of", lambda _: Claiming)
    monkeypatch.setattr(LocalProcess, "wait_printed", stalls)
    experiment = spec.parse(DATABASE, "x.toml", {"store.address": ["h:5432"]})
    folder = RunFolder.create(tmp_path, "x", DATABASE)
    folder.write_manifest({})
    # Nor does it end the lab.
    tally = Lab(experiment, 1, folder, LocalHost(), Progress()).make(runs(experiment, seed=1)[:1], lambda *_: None)
    ((_, reason),) = tally.failed
    assert reason.startswith("not all of what it printed") and "left" not in reason


def test_a_run_in_words() -> None:
    (first, _) = runs(spec.parse(TEXT, "x.toml"), seed=1)
    assert name_of(first) == "load.clients=1  repetition 1"


@pytest.mark.parametrize(("seconds", "expected"), [(-3, "0:00"), (59.2, "1:00"), (61, "1:01"), (3661, "1:01:01")])
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


_UNCONNECTED = 'exit code 2; it said: psql: error: connection to server at "h" (10.0.0.1), port 5432 failed: '
_REFUSED = "exit code 1; it said: ERROR:  "


@pytest.mark.parametrize(
    ("said", "is_refused", "expected"),
    [
        (_UNCONNECTED + "fe_sendauth: no password supplied", False, "a password is looked for in PGPASSWORD"),
        (_UNCONNECTED + 'FATAL:  password authentication failed for user "a"', False, "a password is looked for in"),
        (
            _UNCONNECTED + 'FATAL:  permission denied for database "a" / DETAIL',
            False,
            "GRANT CONNECT ON DATABASE",
        ),
        (_REFUSED + "permission denied for database a", True, "GRANT CREATE ON DATABASE"),
        (_REFUSED + "canceling statement due to lock timeout", True, "somebody is at work on the schema"),
        # What the words are not about: names, and a file that others may read.
        (_UNCONNECTED + 'FATAL:  database "passwords_gone" does not exist', False, None),
        (_UNCONNECTED + 'WARNING: password file "/p" has group or world access / Connection refused', False, None),
        (_REFUSED + "database passwords has a schema knee_queue (not by knee run)", True, None),
        (_REFUSED + "must be owner of schema knee_queue", True, None),
        (_REFUSED + 'CONTEXT: "no password supplied"', True, None),
    ],
)
def test_what_helps_with_a_database_elsewhere_is_said_where_it_does(
    said: str, is_refused: bool, expected: str | None
) -> None:
    found = hints(said, is_refused=is_refused)
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]
