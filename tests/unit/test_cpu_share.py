"""Groups that have a share of the processors: who is ended when one is removed, and who else may remove it."""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from knee.lab.hosts import cpu_share
from knee.lab.hosts.cpu_share import CpuShare, shares_cpus


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is busy until it has been waited for once."""
    path = tmp_path / "group"
    path.mkdir()
    members = path / "cgroup.procs"
    members.write_text("11\n12\n13\n")
    rmdir = Path.rmdir

    def rmdir_group(path: Path) -> None:
        if path.exists() and any(path.iterdir()):
            raise OSError(errno.EBUSY, "Device or resource busy")
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", rmdir_group)
    monkeypatch.setattr(cpu_share, "_made", lambda *_: path)
    monkeypatch.setattr(cpu_share.time, "sleep", lambda _: members.unlink())
    return path


def ended(monkeypatch: pytest.MonkeyPatch, errors: Mapping[int, OSError] = MappingProxyType({})) -> list[int]:
    """Who will have been ended, though nobody truly is, and some are not at all."""
    pids: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        if pid in errors:
            raise errors[pid]
        pids.append(pid)

    monkeypatch.setattr(cpu_share.os, "kill", kill)
    return pids


@pytest.mark.parametrize("error", [ProcessLookupError(), PermissionError()])
def test_all_who_are_left_are_ended_also_beside_one_who_has_just_ended(
    group: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    pids = ended(monkeypatch, {11: error})
    CpuShare(1.0).close()
    assert pids == [12, 13]
    assert not group.exists()


def test_who_is_not_seen_from_here_is_not_taken_for_the_lab(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (group / "cgroup.procs").write_text("0\n0\n12\n")
    pids = ended(monkeypatch)
    CpuShare(1.0).close()
    assert pids == [12]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS])
def test_a_group_that_may_not_be_removed_is_not_waited_for(
    group: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(_: Path) -> None:
        raise OSError(number, "refused")

    def waited(_: float) -> None:
        pytest.fail("it has waited")

    monkeypatch.setattr(Path, "rmdir", refused)
    monkeypatch.setattr(cpu_share.time, "sleep", waited)
    pids = ended(monkeypatch)
    CpuShare(1.0).close()
    assert pids == [11, 12, 13]
    assert shares_cpus()


def test_a_group_that_somebody_else_removes_is_gone(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rmdir = Path.rmdir

    def after_somebody_else(path: Path) -> None:
        (path / "cgroup.procs").unlink()
        rmdir(path)
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", after_somebody_else)
    pids = ended(monkeypatch)
    CpuShare(1.0).close()
    group.mkdir()
    (group / "cgroup.procs").touch()
    assert shares_cpus()
    assert not pids and not group.exists()


def test_what_is_tried_is_removed_once_it_is_not_busy_and_ends_nobody(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = ended(monkeypatch)
    assert shares_cpus()
    assert not pids and not group.exists()


def test_where_no_group_can_be_made_there_are_no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_share, "_made", lambda *_: None)
    assert not shares_cpus()
