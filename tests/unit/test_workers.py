"""Workers as hosts: which worker takes a host, what their samples add up to, and which experiments they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from knee import spec
from knee.errors import ProcessError, SpecError, StorageError
from knee.lab import programs
from knee.lab.command import Command, life, tied
from knee.lab.hosts.agent import Agent, _Child
from knee.lab.hosts.remote import chosen, named
from knee.lab.run import check_elsewhere, tiers_programs
from knee.lab.scratch import Scratch, scratch

WORKERS: dict[str, dict[str, Any]] = {
    "a": {"name": "store-0"},
    "b": {"name": "b", "resources": {"load": 2.0}},
    "c": {"name": "c", "resources": {"load": 1.0, "store": 1.0}},
    "d": {"name": "middleware", "resources": None},
}


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [
        # Its own name comes first.
        ("store-0", {}, "a"),
        ("store-1", {"store-0": "a"}, "c"),
        # The worker with the most room, counted by tier.
        ("load-0", {"store-1": "c"}, "b"),
        ("load-1", {"load-0": "b"}, "b"),
        ("load-2", {"load-0": "b", "load-1": "b"}, "c"),
        ("load-3", {"load-0": "b", "load-1": "b", "load-2": "c"}, None),
        # A worker with the name of a tier takes all of its hosts.
        ("middleware-0", {}, "d"),
        ("middleware-1", {"middleware-0": "d"}, "d"),
    ],
)
def test_host_takes_the_worker_of_its_name_or_resource(name: str, taken: dict[str, str], expected: str | None) -> None:
    assert chosen(name, WORKERS, taken) == expected
    assert chosen(name, {}, taken) is None


def test_host_keeps_its_worker_while_there_is_room() -> None:
    assert chosen("load-0", WORKERS, {}, "c") == "c"
    assert chosen("load-1", WORKERS, {"load-0": "c"}, "c") == "b"
    assert chosen("store-0", WORKERS, {}, "c") == "a"


def test_samples_have_their_machine_and_each_machine_once() -> None:
    def of(target: str, cpu_s: float) -> dict[str, Any]:
        return {"second": 7, "target": target, "cpu_user_s": cpu_s}

    here = [of("host", 1.0), of("knee", 0.1), of("load-0", 0.5)]
    beside = [of("host", 1.1), of("knee", 0.2)]
    there = [of("host", 2.0), of("knee", 0.3), of("store-0", 0.7)]
    found = named([("clients", here), ("clients", beside), ("store-0", there)])
    assert [(one["machine"], one["target"], one["cpu_user_s"]) for one in found] == [
        ("clients", "host", 1.0),
        ("clients", "knee-0", 0.1),
        ("clients", "load-0", 0.5),
        ("clients", "knee-1", 0.2),
        ("store-0", "host", 2.0),
        ("store-0", "knee-2", 0.3),
        ("store-0", "store-0", 0.7),
    ]


EXPERIMENT = """\
[experiment]
name = "x"
[system]
load = { clients = 1 }
middleware = { workers = 1 }
store = { kind = "memcached" }
"""

MESSAGES = EXPERIMENT.replace("memcached", "postgresql") + '[workload]\nprotocol = "queue"\n'


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (EXPERIMENT, ["measure.hosts=emulated"], "--set measure.hosts=local"),
        (
            '[experiment]\nname = "x"\n[system]\nload = { kind = "pgbench", clients = 1 }\n'
            'store = { kind = "postgresql" }\n[workload]\nprotocol = "queue"\n',
            [],
            "pgbench",
        ),
        (MESSAGES, ["store.kind=sqlite"], "sqlite"),
        (MESSAGES, ['store.kind=["postgresql", "sqlite"]'], "sqlite"),
        (MESSAGES, ['store.address=["10.0.0.5:5432"]'], "schema of another database"),
    ],
)
def test_experiment_that_needs_this_machine_is_refused(text: str, overrides: list[str], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        check_elsewhere(spec.parse(text, "x.toml", spec.parse_overrides(overrides)))
    for fitting in (EXPERIMENT, MESSAGES):
        check_elsewhere(spec.parse(fitting, "x.toml"))


def test_tier_needs_only_its_own_programs() -> None:
    assert tiers_programs(["knee-load", "knee-proxy", "memcached"]) == {
        "load": ["knee-load"],
        "middleware": ["knee-proxy"],
        "store": ["knee-load", "memcached"],
    }
    assert tiers_programs(["knee-load", "knee-queue", "postgres"]) == {
        "load": ["knee-load"],
        "middleware": ["knee-queue"],
        "store": ["knee-load", "knee-queue", "postgres"],
    }


def test_agent_starts_its_own_program_tied_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    program = bin_dir / "knee-load"
    program.write_text('#!/bin/sh\necho "{\\"type\\":\\"ready\\",\\"listen\\":\\"$*\\"}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("KNEE_BIN_DIR", str(bin_dir))
    with programs.elsewhere():
        ours = Command("load-0", "load", (str(programs.find("knee-load")), "memcached", "--tied-to-parent", "1"))
        theirs = Command("x", "store", (*tied(), str(programs.find_foreign("env", "coreutils"))))
        assert life()[-2] == "--tied-to-parent"
    assert ours.argv[0] == "knee-load"
    with scratch(tmp_path / "agent") as room:
        agent = Agent("127.0.0.1", room)
        assert agent.start(ours) > 0
        assert agent.start(theirs) > 0
        while not all(report.is_whole for report in agent.pull().values()):
            time.sleep(0.01)
        assert (tmp_path / "agent" / "load-0.jsonl").read_text() == (
            f'{{"type":"ready","listen":"memcached --tied-to-parent {os.getpid()}"}}\n'
        )
        assert "KNEE_BIN_DIR=" in (tmp_path / "agent" / "x.jsonl").read_text()
        agent.close(0)
        assert [path.name for path in room.path.iterdir()] == ["data"]


def test_agent_uses_its_own_scratch_directory(tmp_path: Path) -> None:
    labs = Scratch(tmp_path / "lab")
    command = Command(
        "store-0",
        "store",
        ("sh", "-c", f'mkdir {labs.data_path("store-0")}; cp {labs.password.path} "$PASSWORDS" {labs.graph_path}.d'),
        environment=(("PASSWORDS", str(labs.pgpass.path)),),
        files=(labs.password, labs.pgpass),
        makes=labs.data_path("store-0"),
        scratch=labs.path,
    )
    with scratch(tmp_path / "agent") as room:
        copies = room.graph_path.with_name("graph.txt.d")
        copies.mkdir()
        agent = Agent("127.0.0.1", room)
        assert not agent.has_made(command)
        agent.start(command)
        while not agent.pull()["store-0"].is_whole:
            time.sleep(0.01)
        assert agent.pull()["store-0"].code == 0
        assert agent.has_made(command)
        assert (copies / "password").read_text() == labs.password.text
        assert {(copies / name).stat().st_mode & 0o777 for name in ("password", "pgpass")} == {0o600}
        agent.clear(0)
        assert not agent.has_made(command)
        # A graph stays.
        assert copies.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == []


def test_dask_is_imported_for_a_cluster_only() -> None:
    script = "import sys, knee, knee.cli.commands, knee.cli.measure; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_agent_answers_a_failed_call_and_goes_on(tmp_path: Path) -> None:
    child = _Child("127.0.0.1", tmp_path / "agent")
    try:
        answer = child.call("stop", ("store-0", 0.0))
        assert isinstance(answer, ProcessError)
        assert str(answer) == "stop: KeyError('store-0')"
        assert child.call("pull", ()) == {}
        assert child.call("introduce", ())["scratch"]["path"] == str(tmp_path / "agent")
    finally:
        child.close()
    assert list(tmp_path.iterdir()) == []


def test_scratch_directory_of_a_killed_agent_is_removed(tmp_path: Path) -> None:
    child = _Child("127.0.0.1", tmp_path / "agent")
    assert child.call("pull", ()) == {}
    child._popen.kill()
    child.close()
    assert list(tmp_path.iterdir()) == []


def test_agent_without_room_names_the_place_of_a_workers_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    child = _Child("127.0.0.1", tmp_path / "file" / "agent")
    try:
        answer = child.call("introduce", ())
    finally:
        child.close()
    assert isinstance(answer, StorageError)
    assert str(answer).endswith("Not a directory; choose another place with `dask worker --local-directory`")


def test_password_is_absent_from_what_dask_logs_of_a_command(tmp_path: Path) -> None:
    room = Scratch(tmp_path)
    assert room.password.text not in repr(Command("x", "store", ("x",), files=(room.password, room.pgpass)))
