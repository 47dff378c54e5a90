"""Databases of the user `bench` in the PostgreSQL of the test session."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from knee.lab import programs

PASSWORD = "kept-to-themselves"
"""Of the user `bench`."""


@dataclass(frozen=True)
class Database:
    """A database, and the file with the passwords of `bench` and of the superuser `knee`."""

    address: str
    name: str
    pgpass: Path

    def sql(self, text: str, user: str = "bench") -> str:
        """The answer of psql."""
        psql = [str(programs.find_postgresql("psql")), "--no-psqlrc", "-qAt", "--set", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [*psql, "--dbname", f"postgresql://{user}@{self.address}/{self.name}"],
            input=text,
            capture_output=True,
            env={**os.environ, "PGPASSFILE": str(self.pgpass)},
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
