"""The scratch directory: made anew, and never left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from knee import spec
from knee.data import RunFolder
from knee.errors import StorageError
from knee.lab.hosts.local import LocalHost
from knee.lab.run import new_manifest
from knee.lab.scratch import keeps_data, needs_scratch, scratch
from knee.storage import locks

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
def test_only_data_on_disk_and_graphs_need_scratch(overrides: list[str], keeps: bool, needs: bool) -> None:
    experiment = read(*overrides)
    assert (keeps_data(experiment), needs_scratch(experiment)) == (keeps, needs)


def test_scratch_is_gone_after_an_interrupt(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", TEXT)
    with pytest.raises(KeyboardInterrupt), scratch(folder.scratch_path) as room:
        assert room.path.parent == folder.path.parent
        store = room.data_path("store-0")
        store.mkdir(parents=True)
        (store / "log").write_text("…")
        room.remove_data()
        assert not store.exists()
        store.mkdir(parents=True)
        raise KeyboardInterrupt
    assert list(folder.path.parent.iterdir()) == [folder.path]


def test_scratch_of_a_killed_lab_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / "room" / "data" / "store-0"
    left.mkdir(parents=True)
    with scratch(tmp_path / "room") as room:
        assert not left.exists()
        assert room.path.is_dir()
    assert not room.path.exists()


def left_by_killed_labs(runs_dir: Path, count: int) -> list[RunFolder]:
    """Run folders of labs that were killed, and their scratch directories."""
    folders = [RunFolder.create(runs_dir, "x", TEXT) for _ in range(count)]
    for folder in folders:
        folder.scratch_path.mkdir()
        (folder.scratch_path / "password").touch()
    return folders


def test_scratch_of_other_killed_labs_is_removed(tmp_path: Path) -> None:
    killed, gone, at_work, mine = left_by_killed_labs(tmp_path, 4)
    gone.path.rename(tmp_path / "kept elsewhere")
    assert locks(at_work.scratch_path)
    assert mine.remove_abandoned_scratch() == []
    left = [folder.scratch_path for folder in (killed, gone, at_work, mine) if folder.scratch_path.exists()]
    assert left == [at_work.scratch_path, mine.scratch_path]


def test_scratch_in_use_stays_when_its_folder_is_moved(tmp_path: Path) -> None:
    at_work, mine = (RunFolder.create(tmp_path, "x", TEXT) for _ in range(2))
    at_work.lock()
    with scratch(at_work.scratch_path) as room:
        at_work.path.rename(tmp_path / "moved")
        assert mine.remove_abandoned_scratch() == []
        assert room.path.exists()


def test_scratch_that_cannot_be_removed_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed, mine = left_by_killed_labs(tmp_path, 2)
    monkeypatch.setattr("knee.data.recording.shutil.rmtree", lambda *_, **__: None)
    (note,) = mine.remove_abandoned_scratch()
    assert note.startswith(f"{killed.scratch_path}, which a run that was killed has left")


def test_scratch_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"), scratch(tmp_path / "file" / "room"):
        pass


def test_the_manifest_has_the_place_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / ".x.scratch"
    manifest = new_manifest(read("store.durability=always"), 1, LocalHost(), {}, room)
    assert manifest["scratch"]["path"] == str(room)
    assert manifest["scratch"]["filesystem"]
    assert "removed it" in manifest["scratch"]["lifetime"]
    assert "scratch" not in new_manifest(read(), 1, LocalHost(), {}, room)
    monkeypatch.setattr(LocalHost, "filesystem", lambda *_: "tmpfs")
    (note,) = new_manifest(read("store.durability=always"), 1, LocalHost(), {}, room)["notes"]
    assert "tmpfs, which is in memory" in note
