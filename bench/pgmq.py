"""pgmq, a message queue in PostgreSQL's language, from its crate."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bench.postgresql import Cluster
from bench.programs import BenchError

VERSION = "0.33.7"
SQL = Path("src/install/embedded/sql/pgmq.sql")
_MANIFEST = f"""
[package]
name = "peer"
version = "0.0.0"
edition = "2021"
[lib]
path = "lib.rs"
[workspace]
[dependencies]
pgmq = {{ version = "={VERSION}", default-features = false }}
"""


def install(cluster: Cluster, database: str, files: Path) -> None:
    """Creates a database with pgmq. Raises BenchError if pgmq's SQL is not available."""
    cluster.create(database)
    cluster.sql(database, "CREATE SCHEMA pgmq;\n" + _sql(files / "pgmq").read_text())


def _sql(directory: Path) -> Path:
    """pgmq's SQL, in the crate that cargo downloads if necessary."""
    directory.mkdir(exist_ok=True)
    (directory / "Cargo.toml").write_text(_MANIFEST)
    (directory / "lib.rs").touch()
    command = ["cargo", "metadata", "--format-version", "1", "--manifest-path", str(directory / "Cargo.toml")]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise BenchError("pgmq cannot be had: cargo is not installed") from None
    if done.returncode != 0:
        raise BenchError(f"pgmq cannot be had: {done.stderr.strip()[-500:]}")
    packages = json.loads(done.stdout)["packages"]
    (manifest,) = (package["manifest_path"] for package in packages if package["name"] == "pgmq")
    sql = Path(manifest).parent / SQL
    if not sql.is_file():
        raise BenchError(f"pgmq {VERSION} has no {SQL}")
    return sql
