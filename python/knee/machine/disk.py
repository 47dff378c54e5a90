"""The disk, by a file without a name: nothing remains of it, whatever ends the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from knee import _kernels
from knee.errors import SpecError
from knee.machine.sizes import MIB
from knee.storage import storage_error

BLOCK_BYTES, PAGE_BYTES = MIB, 4096
SYNC = "disk_sync_per_s"
"""The figure of a log's way to the disk: through the page cache into blocks that were written before, and a sync."""

_SHARE_OF_FREE = 1 / 8
_FILL_S = 2.0
_MAPPED_BYTES_MAX = 64 * MIB

_TRANSFERS = {
    "disk_random_read_per_s": (PAGE_BYTES, {"writes": False, "random": True, "direct": True, "synced": False}),
    "disk_random_write_per_s": (PAGE_BYTES, {"writes": True, "random": True, "direct": True, "synced": False}),
    "disk_random_synced_write_per_s": (PAGE_BYTES, {"writes": True, "random": True, "direct": True, "synced": True}),
    SYNC: (PAGE_BYTES, {"writes": True, "random": False, "direct": False, "synced": True}),
    "disk_read_bytes_per_s": (BLOCK_BYTES, {"writes": False, "random": False, "direct": True, "synced": False}),
    "disk_write_bytes_per_s": (BLOCK_BYTES, {"writes": True, "random": False, "direct": True, "synced": False}),
    "disk_synced_write_bytes_per_s": (BLOCK_BYTES, {"writes": True, "random": False, "direct": True, "synced": True}),
}
_SCANS = ((True, ("uncached", None)), (False, ("cached", "again")))


class DiskFile:
    """A file of random bytes in a folder, and what can be measured with it.

    Attributes
    ----------
    size_bytes
        At most an eighth of the free space, but a block at least, and what the disk takes within two seconds.
    is_direct
        Whether transfers can pass by the page cache.
    """

    def __init__(self, folder: Path, number: int, most_bytes: int, seed: int) -> None:
        """Fills the open file of this number with random bytes. All methods raise StorageError if the disk fails."""
        self._folder, self._number = folder, number
        with _on(folder):
            space = os.fstatvfs(number)
            size_bytes = min(most_bytes, max(BLOCK_BYTES, int(space.f_bavail * space.f_frsize * _SHARE_OF_FREE)))
            self.size_bytes = _kernels.file_fill(number, size_bytes, _FILL_S, seed)
            self.is_direct = _kernels.file_takes_direct(number)

    def transfers(self, seconds: float, seed: int) -> Iterator[tuple[str, float]]:
        """Every kind of transfer for some seconds: its figure's name and value."""
        for name in _TRANSFERS:
            yield name, self.transfer(name, seconds, seed)

    def transfer(self, name: str, seconds: float, seed: int) -> float:
        """The figure of this name."""
        block_bytes, kind = _TRANSFERS[name]
        kind = {**kind, "direct": kind["direct"] and self.is_direct}
        with _on(self._folder):
            per_s = _kernels.file_transfers_per_s(
                self._number, self.size_bytes, seconds, seed, block_bytes=block_bytes, **kind
            )
        return per_s * block_bytes if name.endswith("_bytes_per_s") else per_s

    def scans(self) -> Iterator[tuple[str, float]]:
        """Scans of the file, mapped into memory: from the disk, and from the page cache, twice."""
        size_bytes = min(self.size_bytes, _MAPPED_BYTES_MAX)
        for from_disk, names in _SCANS:
            with _on(self._folder):
                scans = _kernels.file_scan_mapped(self._number, size_bytes, from_disk)
            for name, (bytes_per_s, minor, major) in zip(names, scans, strict=True):
                if name is None:
                    continue
                yield f"mapped_{name}_bytes_per_s", bytes_per_s
                if name != "again":
                    yield f"mapped_{name}_major_faults_per_1000_pages", 1000 * major * PAGE_BYTES / size_bytes
                    yield f"mapped_{name}_minor_faults_per_1000_pages", 1000 * minor * PAGE_BYTES / size_bytes


@contextmanager
def disk_file(folder: Path, most_bytes: int, seed: int) -> Iterator[DiskFile]:
    """A new file in a folder. Raises SpecError without the folder, and StorageError if it cannot be written."""
    if not folder.is_dir():
        raise SpecError(f"{folder}: no such folder; make it, or choose another with --disk")
    with _on(folder):
        file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed below
    with file:
        yield DiskFile(folder, file.fileno(), most_bytes, seed)


@contextmanager
def _on(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(folder, error, "--disk") from error
