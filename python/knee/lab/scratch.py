"""Temporary files of a lab: the stores' data and the files that they load.

.UTC-TIME.scratch/          beside the run folder, on its disk; removed when the lab ends. After a killed lab, the next
                            lab of the same experiment removes it
    graph.txt               the graph that stores load, made once
    password, pgpass        the password of the lab's databases, plain and for libpq, readable by its user only
    NAME.sql                scripts that prepare a database, and pgbench's scripts
    data/STORE/             a store's directory; each run makes and removes its own

Each worker of a cluster has such a directory below its local directory, for the programs that run there. The lab's
own one then stays empty.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from knee.lab.command import File
from knee.storage import locks, writing

if TYPE_CHECKING:
    from knee.spec import Spec


class Scratch:
    """The scratch directory.

    graph_path        the graph
    password          the password of all databases of the lab
    pgpass            the same password for libpq (PGPASSFILE)
    pgbench_log_path  prefix of the paths of pgbench's logs
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.graph_path = path / "graph.txt"
        password = secrets.token_urlsafe(24)
        self.password = File(path / "password", password)
        self.pgpass = File(path / "pgpass", f"*:*:*:*:{password}\n")
        self._data = path / "data"
        self.pgbench_log_path = self._data / "pgbench"

    def script(self, name: str, text: str) -> File:
        return File(self.path / f"{name}.sql", text)

    def data_path(self, process: str) -> Path:
        """Path of a store's directory; the store makes it."""
        return self._data / process

    def remove_data(self) -> None:
        """Remove all stores' directories, so that no run finds the data of another."""
        _remove(self._data)
        with writing(self.path):
            self._data.mkdir(parents=True)


@contextmanager
def scratch(path: Path) -> Iterator[Scratch]:
    """Make an empty directory for the block, and remove it afterwards. Leftovers of a killed lab are removed first.
    Raises StorageError if it cannot be made or removed.
    """
    room = Scratch(path)
    _remove(path)
    try:
        room.remove_data()
        # Labs that remove leftovers respect the lock.
        locks(path)
        yield room
    finally:
        _remove(path)


def keeps_data(spec: Spec) -> bool:
    """Whether stores keep their data on disk at any point."""
    names = ("store.durability", "store.kind")
    points = [spec.base, *(spec.at({name: level}) for name in names for level in spec.factors.get(name, ()))]
    return any(point.system.store is not None and point.system.store.on_disk for point in points)


def needs_scratch(spec: Spec) -> bool:
    """Whether stores keep data on disk or load a graph."""
    return keeps_data(spec) or spec.base.workload.graph is not None


def _remove(path: Path) -> None:
    with writing(path):
        if path.exists():
            shutil.rmtree(path)
