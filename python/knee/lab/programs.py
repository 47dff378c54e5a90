"""Paths of the programs that the lab starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from knee.errors import ProgramError

_PROFILES = ("release", "fast", "debug")
_POSTGRESQL = Path("/usr/lib/postgresql")
_PACKAGES = {
    **dict.fromkeys(("nsenter", "setpriv", "unshare"), "util-linux"),
    **dict.fromkeys(("ip", "tc"), "iproute2"),
    **dict.fromkeys(("redis-benchmark", "redis-cli"), "redis-tools"),
}
"""Debian's packages of programs; others have the names of their packages."""
_ELSEWHERE = ContextVar("elsewhere", default=False)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Within the block, a program's path is its name: the machines that run it find it."""
    token = _ELSEWHERE.set(True)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)


def find(name: str) -> Path:
    """The path of a Knee program, such as `knee-load`. If $KNEE_BIN_DIR is set, the search covers only that folder.
    Otherwise it covers the interpreter's folder, where the wheel installs programs, and the target folder of a
    checkout. Raises ProgramError.
    """
    if _ELSEWHERE.get():
        return Path(name)
    if chosen := os.environ.get("KNEE_BIN_DIR"):
        folders = [Path(chosen)]
    else:
        folders = [Path(sys.executable).parent]
        checkout = Path(__file__).resolve().parents[3]
        if (checkout / "Cargo.toml").is_file():
            folders += [checkout / "target" / profile for profile in _PROFILES]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    raise ProgramError(
        f"{name} is not installed (looked in {', '.join(str(folder) for folder in folders)}); "
        "build it with `make build`, or set KNEE_BIN_DIR to its folder"
    )


def find_foreign(name: str, package: str | None = None) -> Path:
    """The path of a program of the distribution, or of one with a path. Raises ProgramError that names its Debian
    package."""
    if _ELSEWHERE.get():
        return Path(name)
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None and "/" in name:
        raise ProgramError(f"{name}: no such program, or it may not be executed; correct its path, or use `chmod +x`")
    if found is None:
        package = package or _PACKAGES.get(name, name)
        raise ProgramError(f"{name} is not installed; on Debian, install it with `apt-get install {package}`")
    return Path(found)


def find_postgresql(name: str) -> Path:
    """The path of a program of PostgreSQL's server: in PATH, or the newest version in Debian's folder.

    Raises ProgramError.
    """
    if _ELSEWHERE.get():
        return Path(name)
    if (found := shutil.which(name)) is not None:
        return Path(found)
    installed = [path for path in _POSTGRESQL.glob(f"*/bin/{name}") if os.access(path, os.X_OK)]
    if not installed:
        raise ProgramError(f"{name} is not installed; on Debian, install it with `apt-get install postgresql`")
    return max(installed, key=lambda path: _version(path.parts[-3]))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
