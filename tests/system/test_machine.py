"""`knee machine` as a program of its own, and on disks that refuse it."""

from __future__ import annotations

import json
import shutil
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
    ("options", "filled", "reason"),
    [
        ("size=64k", "", "No space left on device; make room, or choose another place with --disk"),
        ("size=64k", "4k", "No space left on device; make room, or choose another place with --disk"),
        ("ro", "", "Read-only file system; choose a writable place with --disk"),
    ],
    ids=["small", "full", "read-only"],
)
def test_machine_reports_a_disk_that_takes_no_file(tmp_path: Path, options: str, filled: str, reason: str) -> None:
    mounted = [*IN_NAMESPACE, "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if subprocess.run(mounted, check=False, capture_output=True).returncode:
        pytest.skip("mounts are not permitted here")
    fill = f"! dd if=/dev/zero of={tmp_path}/file bs={filled} 2> /dev/null &&" if filled else ""
    script = f'mount -t tmpfs -o {options} none {tmp_path} && {fill} exec "$@"'
    done = knee_machine("--disk", tmp_path, within=(*IN_NAMESPACE, "sh", "-c", script, "sh"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"knee: {tmp_path}: cannot be written: {reason}\n"


@pytest.mark.parametrize(("options", "is_noted"), [("loop", False), ("loop,data=journal", True)])
def test_machine_notes_direct_transfers_that_use_the_page_cache(tmp_path: Path, options: str, is_noted: bool) -> None:
    # With its data in the journal, ext4 takes direct transfers, and makes them through the page cache.
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(40 << 20)
    within = ("unshare", "--mount", "sh", "-c", f'mount -o {options} {image} {disk} && exec "$@"', "sh")
    made = shutil.which("mkfs.ext4") and subprocess.run(["mkfs.ext4", "-q", image], check=False).returncode == 0
    if not made or subprocess.run([*within, "true"], check=False, capture_output=True).returncode:
        pytest.skip("mounts are not permitted here")
    done = knee_machine("--disk", disk, within=within)
    assert done.returncode == 0, done.stderr
    assert ("direct transfers use the page cache on this file system" in done.stdout) == is_noted


def test_machine_on_a_disk_in_memory_says_so(memory_path: Path) -> None:
    if not str(memory_path).startswith("/dev/shm"):
        pytest.skip("no disk in memory")
    done = knee_machine("--disk", memory_path)
    assert done.returncode == 0, done.stderr
    assert "Note: tmpfs is in memory, so the disk was not measured; choose a folder on a disk" in done.stdout
    assert "the page cache kept the file" in done.stdout
