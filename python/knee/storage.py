"""Writing to the disk: failures as errors with a remedy, and locks. It imports little: agents start with it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from knee.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "make room, or choose another place with {}",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`), or choose another place with {}",
    errno.EDQUOT: "make room, or choose another place with {}",
    errno.EROFS: "choose a writable place with {}",
    errno.EACCES: "choose a writable place with {}",
    errno.EPERM: "choose a writable place with {}",
    errno.ENOENT: "make its directory first",
    errno.ENOTDIR: "choose another place with {}",
}


def locks(directory: Path) -> bool:
    """Lock a directory until this process ends. False if another process holds the lock, or without locks."""
    with suppress(OSError):
        fcntl.flock(os.open(directory, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def writing(path: Path, option: str = "--runs-dir") -> Iterator[None]:
    """Convert a write failure below `path` to a StorageError. Its remedy names the option of the place."""
    try:
        yield
    except OSError as error:
        raise storage_error(error.filename or path, error, option) from error


def storage_error(path: Path | str, error: OSError, option: str) -> StorageError:
    """The error of a write below `path`, with a remedy."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "check the disk").format(option)
    return StorageError(f"{path}: cannot be written: {reason}; {remedy}")
