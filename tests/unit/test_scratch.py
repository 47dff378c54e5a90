"""What stores keep on disk: made anew, and never left behind."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from knee import spec
from knee.data import RunFolder
from knee.errors import DatasetError, StorageError
from knee.lab.hosts.local import LocalHost
from knee.lab.interrupts import interruptible, interrupts_deferred
from knee.lab.run import new_manifest
from knee.lab.scratch import keeps_data, needs_scratch, scratch

TEXT = """\
[experiment]
name = "x"
[system]
load = { clients = 1 }
store = {}
[workload]
protocol = "kv"
"""


def read(*overrides: str) -> spec.Spec:
    return spec.parse(TEXT, "x.toml", spec.parse_overrides(overrides))


@pytest.mark.parametrize(
    ("overrides", "keeps", "needs"),
    [
        ([], False, False),
        (["store.durability=memory"], False, False),
        (["store.durability=none"], True, True),
        (['store.durability=["memory", "always"]'], True, True),
        (["workload.graph.users=9", "workload.graph.largest=3"], False, True),
    ],
)
def test_room_is_made_only_for_what_needs_some(overrides: list[str], keeps: bool, needs: bool) -> None:
    experiment = read(*overrides)
    assert (keeps_data(experiment), needs_scratch(experiment)) == (keeps, needs)


def test_it_lies_beside_the_run_folder_and_is_gone_after_an_interrupt(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", TEXT)
    with pytest.raises(KeyboardInterrupt), interrupts_deferred(), scratch(folder.scratch_path) as room:
        assert room.path.parent == folder.path.parent
        store = room.data_path("store-0")
        store.mkdir(parents=True)
        (store / "log").write_text("…")
        room.remove_data()
        assert not store.exists()
        store.mkdir(parents=True)
        interruptible(os.kill, os.getpid(), signal.SIGTERM)
    assert list(folder.path.parent.iterdir()) == [folder.path]


@pytest.mark.parametrize(
    ("ended_by", "told"),
    [(KeyboardInterrupt("a schema was left"), KeyboardInterrupt), (StorageError("a schema was left"), StorageError)],
)
def test_what_ends_a_lab_is_told_also_where_its_room_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException, told: type[BaseException]
) -> None:
    def rmtree(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr("knee.lab.scratch.shutil.rmtree", rmtree)
    with pytest.raises(told) as ended, scratch(tmp_path / "room"):
        raise ended_by
    said = "; ".join(map(str, ended.value.args))
    assert said.startswith(f"a schema was left; {tmp_path / 'room'}: cannot be written: Read-only file system")


def test_what_a_killed_lab_left_behind_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "room" / "data" / "store-0"
    left.mkdir(parents=True)
    with scratch(tmp_path / "room") as room:
        assert not left.exists()
        assert room.path.is_dir()
    assert not room.path.exists()


def left_by_killed_labs(runs_dir: Path, count: int) -> list[RunFolder]:
    """Run folders nobody is at work in, and what is beside them."""
    folders = [RunFolder.create(runs_dir, "x", TEXT) for _ in range(count)]
    for folder in folders:
        folder.scratch_path.mkdir()
        (folder.scratch_path / "password").touch()
    return folders


def test_what_other_killed_labs_left_behind_is_removed_and_nothing_of_those_at_work(tmp_path: Path) -> None:
    killed, gone, at_work, mine = left_by_killed_labs(tmp_path, 4)
    gone.path.rename(tmp_path / "kept elsewhere")
    at_work.lock()
    mine.lock()
    assert mine.remove_abandoned_scratch() == []
    left = [folder.scratch_path for folder in (killed, gone, at_work, mine) if folder.scratch_path.exists()]
    assert left == [at_work.scratch_path, mine.scratch_path]
    # It was locked only meanwhile.
    killed.lock()


def test_nobody_goes_on_with_a_run_while_what_it_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, beginning, mine = left_by_killed_labs(tmp_path, 3)
    removed = []

    def rmtree(path: Path) -> None:
        with pytest.raises(DatasetError, match="removes what a killed one left"):
            RunFolder(killed.path).lock()
        removed.append(path)
        assert beginning.remove_abandoned_scratch() == []

    monkeypatch.setattr("knee.data.recording.shutil.rmtree", rmtree)
    for folder in (beginning, mine):
        folder.lock()
    assert mine.remove_abandoned_scratch() == []
    assert removed == [killed.scratch_path]


def test_what_a_run_uses_stays_also_when_its_folder_is_moved(tmp_path: Path) -> None:
    at_work, mine = (RunFolder.create(tmp_path, "x", TEXT) for _ in range(2))
    at_work.lock()
    with scratch(at_work.scratch_path) as room:
        at_work.path.rename(tmp_path / "moved")
        assert mine.remove_abandoned_scratch() == []
        assert room.password_path.exists()


@pytest.mark.parametrize(("number", "told"), [(errno.EACCES, ["Permission denied"]), (errno.ENOENT, [])])
def test_what_cannot_be_removed_of_others_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: list[str]
) -> None:
    def rmtree(path: Path) -> None:
        raise OSError(number, os.strerror(number), path)

    killed, mine = left_by_killed_labs(tmp_path, 2)
    monkeypatch.setattr("knee.data.recording.shutil.rmtree", rmtree)
    mine.lock()
    notes = mine.remove_abandoned_scratch()
    assert [note.rpartition(": ")[2] for note in notes] == told
    assert all(str(killed.scratch_path) in note for note in notes)


def test_room_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"), scratch(tmp_path / "file" / "room"):
        pass


def test_the_manifest_says_where_the_data_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / ".x.scratch"
    manifest = new_manifest(read("store.durability=always"), 1, LocalHost(), {}, room)
    assert manifest["scratch"]["path"] == str(room)
    assert manifest["scratch"]["filesystem"]
    assert "removed after it" in manifest["scratch"]["lifetime"]
    assert "scratch" not in new_manifest(read(), 1, LocalHost(), {}, room)
    monkeypatch.setattr(LocalHost, "filesystem", lambda *_: "tmpfs")
    (note,) = new_manifest(read("store.durability=always"), 1, LocalHost(), {}, room)["notes"]
    assert "tmpfs, which is memory" in note
