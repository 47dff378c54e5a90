"""Watches that a password stays out of command lines and run folders."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import polars as pl


class Watch:
    """Looks for a password in the list of processes: the given one, or that of the lab's own database in a folder."""

    def __init__(self, folder: Path, password: str = "", database: str = "") -> None:
        self._folder = folder
        self._sign = (database or str(folder)).encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_until_over)
        self._is_made = not password
        self.password = password
        self.programs: set[str] = set()
        """Programs with the database or the folder in their command lines; short-lived ones may be missing."""
        self.exposed: list[bytes] = []
        """Command lines with the password."""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_until_over(self) -> None:
        while not self._over.wait(0.1):
            if self._is_made:
                # The file comes and goes.
                with suppress(FileNotFoundError):
                    for file in self._folder.glob("runs/*/.*.scratch/password"):
                        self.password = file.read_text(encoding="ascii") or self.password
            if self.password:
                self._look()

    def _look(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (process / "cmdline").read_bytes()
                if self.password.encode() in line:
                    self.exposed.append(line)
                if self._sign in line:
                    self.programs.add(Path(line.split(b"\0")[0].decode()).name)

    def assert_kept(self) -> None:
        """No command line had the password, and no file has it."""
        assert len(self.password) > 16
        assert not self.exposed
        for file in filter(Path.is_file, self._folder.rglob("*")):
            is_table = file.suffix == ".parquet"
            content = pl.read_parquet(file).write_json().encode() if is_table else file.read_bytes()
            assert self.password.encode() not in content, file
