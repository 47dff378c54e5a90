"""Temporary files of a lab: the stores' data and the files that they load.

.UTC-TIME.scratch/          beside the run folder, on its disk; removed when the lab ends. After a killed lab, the next
                            lab of the same experiment removes it
    graph.txt               the graph that stores load, made once
    password, pgpass        the password of the lab's databases, plain and for libpq, readable by its user only
    NAME.sql                scripts that prepare a database, and pgbench's scripts
    data/STORE/             a store's directory; each run makes and removes its own
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from knee.data import unused, writing
from knee.spec import Spec

_DATA = "data"
_GRAPH = "graph.txt"
_PASSWORD = "password"
_PGPASS = "pgpass"
_PGBENCH = "pgbench"
_DURABILITY = "store.durability"
_KIND = "store.kind"


@dataclass(frozen=True)
class Scratch:
    """The scratch directory."""

    path: Path

    @property
    def graph_path(self) -> Path:
        """Path of the graph."""
        return self.path / _GRAPH

    @property
    def password_path(self) -> Path:
        """The file with the password of all databases of the lab."""
        return self.path / _PASSWORD

    @property
    def pgpass_path(self) -> Path:
        """The password file for libpq (PGPASSFILE)."""
        return self.path / _PGPASS

    def script_path(self, name: str) -> Path:
        """Path of a script for psql or pgbench."""
        return self.path / f"{name}.sql"

    @property
    def pgbench_log_path(self) -> Path:
        """Prefix of the paths of pgbench's logs."""
        return self.path / _DATA / _PGBENCH

    def data_path(self, process: str) -> Path:
        """Path of a store's directory; the store makes it."""
        return self.path / _DATA / process

    def remove_data(self) -> None:
        """Remove all stores' directories, so that no run finds the data of another."""
        _remove(self.path / _DATA)
        with writing(self.path):
            (self.path / _DATA).mkdir()


@contextmanager
def scratch(path: Path) -> Iterator[Scratch]:
    """Make an empty directory for the block, and remove it afterwards. Leftovers of a killed lab are removed first.
    Raises StorageError if it cannot be made or removed.
    """
    _remove(path)
    try:
        with writing(path):
            (path / _DATA).mkdir(parents=True)
        # The lock protects the directory from labs that remove leftovers, even if the run folder was moved.
        with unused(path):
            with writing(path):
                password = secrets.token_urlsafe(24)
                for name, text in ((_PASSWORD, password), (_PGPASS, f"*:*:*:*:{password}\n")):
                    (path / name).touch(mode=0o600)
                    (path / name).write_text(text, encoding="ascii")
            yield Scratch(path)
    finally:
        _remove(path)


def keeps_data(spec: Spec) -> bool:
    """Whether stores keep their data on disk at any point."""
    points = [
        spec.base,
        *(spec.at({name: level}) for name in (_DURABILITY, _KIND) for level in spec.factors.get(name, ())),
    ]
    return any(point.system.store is not None and point.system.store.on_disk for point in points)


def needs_scratch(spec: Spec) -> bool:
    """Whether stores keep data on disk or load a graph."""
    return keeps_data(spec) or spec.base.workload.graph is not None


def _remove(path: Path) -> None:
    with writing(path):
        if path.exists():
            shutil.rmtree(path)
