"""`knee machine` as a program of its own, and on disks that refuse it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from json_schema import answered

SHORT = ("--rounds", "2", "--memory-mb", "1")
IN_NAMESPACE = ("unshare", "--map-root-user", "--mount")


def knee_machine(*arguments: str | Path, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*within, sys.executable, "-m", "knee", "machine", *SHORT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_machine_prints_json_and_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = knee_machine("--json", "--disk", disk, "--save", tmp_path / "machine.json")
    assert done.returncode == 0, done.stderr
    content = answered("machine", done.stdout)
    assert content == json.loads((tmp_path / "machine.json").read_text())
    assert [each["size_bytes"] for each in content["memory"]][-1] == 1 << 20
    assert content["figures"]["disk_sync_per_s"]["median"] > 0
    assert content["host"]["memory_bytes"] > 0
    assert (tmp_path / "machine.svg").read_text().startswith("<svg")
    assert not list(disk.iterdir())


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        (("-o", "size=64k"), "No space left on device; make room, or choose another place with --disk"),
        (("-o", "ro"), "Read-only file system; choose a writable place with --disk"),
    ],
)
def test_machine_reports_a_disk_that_takes_no_file(tmp_path: Path, mount: tuple[str, str], reason: str) -> None:
    mounted = [*IN_NAMESPACE, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if subprocess.run(mounted, check=False, capture_output=True).returncode:
        pytest.skip("mounts are not permitted here")
    script = f'mount -t tmpfs {" ".join(mount)} none {tmp_path} && exec "$@"'
    done = knee_machine("--disk", tmp_path, within=(*IN_NAMESPACE, "sh", "-c", script, "sh"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"knee: {tmp_path}: cannot be written: {reason}\n"


def test_machine_on_a_disk_in_memory_says_so(memory_path: Path) -> None:
    if not str(memory_path).startswith("/dev/shm"):
        pytest.skip("no disk in memory")
    done = knee_machine("--disk", memory_path)
    assert done.returncode == 0, done.stderr
    assert "Note: tmpfs is in memory, so the disk was not measured; choose a folder on a disk" in done.stdout
    assert "the page cache kept the file" in done.stdout
