"""The logs of pgbench, read as the lines of a load generator."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from knee import spec
from knee.data.hdr import Histogram
from knee.errors import ProcessError
from knee.lab.deploy.pgbench import LIST, OPERATION, READ, REMOVE, SEND, SESSION, Script, lines, preparation, scripts
from knee.spec import Workload

ONE = (Script(OPERATION, 1, ""),)
MIDDLEWARE = Path(__file__).resolve().parents[2] / "crates" / "queue" / "src"


def script(workload: Workload) -> str:
    """The only script of a workload."""
    (one,) = scripts(workload)
    return one.text


def test_transactions_count_in_the_second_of_their_end(tmp_path: Path) -> None:
    first, second = tmp_path / "log.1", tmp_path / "log.1.1"
    first.write_text("0 0 1500 0 1700000000 250000\n0 1 2500 0 1700000001 1\n")
    second.write_text("1 0 failed 0 1700000001 999999\n")
    *windows, summary = lines([first, second], ONE, clients=2, started_unix_s=1_700_000_000.2, seconds=3)
    assert [window["second"] for window in windows] == [1_700_000_000, 1_700_000_001, 1_700_000_002]
    assert windows[0]["ops"][OPERATION]["response_sum_ns"] == 1_500_000
    assert (windows[1]["ops"][OPERATION]["count"], windows[1]["ops"][OPERATION]["errors"]) == (2, 1)
    assert windows[2]["ops"] == {}
    assert (summary["clients"], summary["ops"][OPERATION]["count"]) == (2, 3)
    histogram = Histogram.decode(summary["histograms"][0]["hdr"])
    assert histogram.total == 2
    assert histogram.percentile(100) == pytest.approx(2_500_000, rel=1e-3)


def test_a_transaction_that_failed_took_as_long_as_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log.1"
    log.write_text(
        "0 0 1000 0 1700000000 1\n1 0 2000 0 1700000000 2\n2 0 failed 0 1700000000 3\n0 1 failed 0 1700000001 4\n"
    )
    *windows, summary = lines([log], ONE, clients=3, started_unix_s=1_700_000_000, seconds=2)
    counts = [window["ops"][OPERATION] for window in (*windows, summary)]
    assert [one["response_sum_ns"] / one["count"] for one in counts] == [1_500_000] * 3
    # Unknown where none was timed.
    log.write_text("0 0 failed 0 1700000000 1\n")
    window, _ = lines([log], ONE, clients=1, started_unix_s=1_700_000_000, seconds=1)
    assert window["ops"][OPERATION]["response_sum_ns"] is None


def test_late_starts_of_a_rate_are_no_part_of_what_it_took(tmp_path: Path) -> None:
    log = tmp_path / "log.1"
    log.write_text("0 0 1500 0 1700000000 250000 77\n")
    window, _ = lines([log], ONE, clients=1, started_unix_s=1_700_000_000, seconds=1)
    assert window["ops"][OPERATION]["response_sum_ns"] == 1_500_000


def test_transactions_after_the_last_window_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log.1"
    log.write_text("0 0 1500 0 1700000000 250000\n0 1 1500 0 1700000001 2\n")
    window, summary = lines([log], ONE, clients=1, started_unix_s=1_700_000_000, seconds=1)
    assert window["ops"][OPERATION]["count"] == summary["ops"][OPERATION]["count"] == 1


def test_a_line_that_pgbench_was_ended_in_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log.1"
    log.write_text("0 0 1500 0 1700000000 250000\n0 1 1500 0 17000")
    window, _ = lines([log], ONE, clients=1, started_unix_s=1_700_000_000, seconds=1)
    assert window["ops"][OPERATION]["count"] == 1


@pytest.mark.parametrize(
    "text", ["", "not a log\n", "0 0 1500 0 1 2\n0 1 soon 0 1 2\n", "0 0 1 0 1 2\n0 1 1\n", "0 0 1 1 1 2\n"]
)
def test_what_is_no_log_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.1").write_text(text)
    with pytest.raises(ProcessError, match=r"log\.1"):
        list(lines([tmp_path / "log.1"], ONE, clients=1, started_unix_s=0, seconds=1))
    with pytest.raises(ProcessError, match="no transaction"):
        list(lines([], ONE, clients=1, started_unix_s=0, seconds=1))


def test_a_script_asks_for_more_at_each_level() -> None:
    asked = [script(Workload(protocol="queue", level=level, characters=3)).count("SELECT") for level in range(3)]
    assert asked == [1, 2, 4]


def test_queue_beyond_memory_lists_no_backlog() -> None:
    file = Path(__file__).resolve().parents[2] / "experiments" / "queue-beyond-memory.toml"
    asked = script(spec.parse(spec.read(file), str(file), {}).base.workload)
    assert [name for name in ("send(", "take(", "read(", "list_queues(") if name in asked] == ["send(", "take("]


def test_messages_are_constant_and_incompressible() -> None:
    workload = Workload(protocol="queue", level=0, characters=20_000)
    _, content, _ = script(workload).split("'")
    assert len(content) == 20_000
    # Of letters of six bits each three quarters are left at best, by a better compressor than PostgreSQL's.
    assert len(zlib.compress(content.encode(), level=9)) > 15_000
    assert content in script(workload)
    assert content in preparation(4, Workload(protocol="queue", characters=20_000, backlog=300), "needed")


def test_what_grows_sends_ten_or_removes_one() -> None:
    asked = scripts(Workload(protocol="queue", level=3))
    assert [(one.operation, one.items, one.text.count("SELECT")) for one in asked] == [
        ("send", 10, 10),
        ("remove", 1, 1),
    ]


def test_scripts_are_operations_apart(tmp_path: Path) -> None:
    """Numbered from 0, as they are on the command line."""
    log = tmp_path / "log.1"
    log.write_text(
        "0 0 9000 0 1700000000 1\n1 0 500 1 1700000000 2\n1 1 700 1 1700000000 3\n0 1 failed 0 1700000001 4\n"
    )
    asked = scripts(Workload(protocol="queue", level=3))
    first, second, summary = lines([log], asked, clients=2, started_unix_s=1_700_000_000, seconds=2)
    assert {op: counts["response_sum_ns"] for op, counts in first["ops"].items()} == {
        "send": 9_000_000,
        "remove": 1_200_000,
    }
    assert set(second["ops"]) == {"send"}
    totals = {op: (counts["count"], counts["items"], counts["errors"]) for op, counts in summary["ops"].items()}
    # Nothing was sent by the transaction that failed.
    assert totals == {"send": (2, 10, 1), "remove": (2, 2, 0)}
    assert (first["ops"]["send"]["items"], second["ops"]["send"]["items"]) == (10, 0)
    histograms = {one["op"]: Histogram.decode(one["hdr"]).total for one in summary["histograms"]}
    assert histograms == {"send": 1, "remove": 2}


def test_a_database_is_prepared_with_the_indexes_that_are_wanted() -> None:
    workload = Workload(protocol="queue", backlog=300)
    assert "generate_series(1, 300)" in preparation(4, workload, "needed")
    assert "DROP INDEX knee_queue.ready;" in preparation(4, workload, "none")
    assert "(arrived_at)" in preparation(4, workload, "arrival")
    assert "INDEX" not in preparation(4, workload, "needed")


@pytest.mark.parametrize("statement", [SEND, LIST, READ, REMOVE])
def test_pgbench_calls_the_functions_as_the_middleware_does(statement: str) -> None:
    """For the same columns, with as many arguments; or what is compared would not be the middleware."""
    theirs = " ".join((MIDDLEWARE / "postgres" / "statements.rs").read_text().split())
    call, arguments = statement.split("(", 1)
    assert call in theirs
    asked = theirs.split(f"{call}(", 1)[1].split(")", 1)[0]
    assert asked.count("$") == len(arguments.removesuffix(");").split(","))


def test_pgbench_reads_as_much_at_a_time_as_the_middleware() -> None:
    messages = (MIDDLEWARE / "grpc" / "message.rs").read_text()
    (count,) = re.findall(r"const MESSAGES_MAX: u32 = (\d+);", messages)
    ((bytes_of, bits),) = re.findall(r"const PART_CONTENT_BYTES: u64 = (\d+) << (\d+);", messages)
    assert f", 0, {count}, {int(bytes_of) << int(bits)}, " in READ


def test_pgbench_has_sessions_set_as_the_middleware_has() -> None:
    address = (MIDDLEWARE / "postgres" / "address.rs").read_text()
    (theirs,) = re.findall(r'const SESSION: &str = "([^"]*)"', address)
    settings = re.findall(r"-c (\w+=\w+)", theirs)
    ours = re.findall(r"-c (\w+=\w+)", SESSION)
    # The others override settings of a role or a database, which a private cluster has none of.
    assert settings[: len(ours)] == ours
    assert {setting.split("=")[0] for setting in settings[len(ours) :]} == {
        "default_transaction_isolation",
        "default_transaction_deferrable",
        "client_encoding",
    }
