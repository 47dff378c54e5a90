"""Whether a password stays with those who have to know it."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import polars as pl


class Watch:
    """Looks for a password in the list of processes, for as long as it lasts: unless one is given, the one that a lab
    in the folder has made for its database."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_until_over)
        self.password = password
        self._is_made = not password
        self.programs: set[str] = set()
        """What ran meanwhile that has to do with the folder; what is soon done may be missing."""
        self.said_by: list[bytes] = []
        """Command lines with the password."""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_until_over(self) -> None:
        while not self._over.wait(0.02):
            if self._is_made:
                # It comes and goes while it is looked for.
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
                    self.said_by.append(line)
                if str(self._folder).encode() in line:
                    self.programs.add(Path(line.split(b"\0")[0].decode()).name)

    def assert_kept(self) -> None:
        """That nobody else could read the password, and that nobody can now."""
        assert len(self.password) > 16
        assert not self.said_by
        for file in self._folder.rglob("*"):
            if file.is_file():
                told = pl.read_parquet(file).write_json().encode() if file.suffix == ".parquet" else file.read_bytes()
                assert self.password.encode() not in told, file
