"""Control groups (cgroups(7)), of both versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")


def groups_of(text: str, controller: str, root: Path = ROOT) -> Iterator[Path]:
    """A process's group of a controller, and those above; `text` is that of /proc/PID/cgroup. Version 2 has one
    hierarchy, for the controller "". In a container, the root may stand for a group that has another path."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = PurePosixPath(path.lstrip("/"))
            yield from (root / controller / each for each in (own, *own.parents))
