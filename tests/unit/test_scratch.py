"""What stores keep on disk: made anew, and never left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from knee import spec
from knee.dataset import RunFolder
from knee.errors import StorageError
from knee.hosts.local import LocalHost
from knee.interrupts import termination_as_interrupt
from knee.run import new_manifest
from knee.scratch import keeps_data, needs_scratch, scratch

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
    with pytest.raises(KeyboardInterrupt), termination_as_interrupt(), scratch(folder.scratch_path) as room:
        assert room.path.parent == folder.path.parent
        store = room.data_path("store-0")
        store.mkdir(parents=True)
        (store / "log").write_text("…")
        room.remove_data()
        assert not store.exists()
        store.mkdir(parents=True)
        os.kill(os.getpid(), signal.SIGTERM)
    assert list(folder.path.parent.iterdir()) == [folder.path]


def test_what_a_killed_lab_left_behind_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "room" / "data" / "store-0"
    left.mkdir(parents=True)
    with scratch(tmp_path / "room") as room:
        assert not left.exists()
        assert room.path.is_dir()
    assert not room.path.exists()


def test_what_other_killed_labs_left_behind_is_removed_and_nothing_of_those_at_work(tmp_path: Path) -> None:
    killed, gone, at_work, mine = (RunFolder.create(tmp_path, "x", TEXT) for _ in range(4))
    for folder in (killed, gone, at_work):
        folder.scratch_path.mkdir()
        (folder.scratch_path / "password").touch()
    gone.path.rename(tmp_path / "kept elsewhere")
    at_work.lock()
    mine.lock()
    with scratch(mine.scratch_path, mine.abandoned_scratch()) as room:
        assert room.password_path.exists()
        left = [folder.scratch_path for folder in (killed, gone, at_work) if folder.scratch_path.exists()]
        assert left == [at_work.scratch_path]
    # It was only looked at.
    killed.lock()


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
