"""How often each type of request has to occur, and that the law of a type tells where it did not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from specs import MESSAGES, read

from knee import data as tables
from knee.data import Dataset
from knee.laws import LawReport, laws_of_run, sentences
from knee.laws.tables import request_types
from knee.verdict.words import law_lines

ROUNDS_PER_S = 1000
RESPONSE_MS = {"send": 8, "list_queues": 2, "read_all": 6, "remove": 4}
RUN = {"point": 0, "repetition": 1}


def messages(per_round: Mapping[str, float], *overrides: str, errors: int = 0, timed: float = 1.0) -> Dataset:
    """A run in which clients asked for so many of each type in a round, and never thought: N is Σ X R.

    Of each request such a part was `timed`.
    """
    spec = read(MESSAGES, "middleware.connections=[4]", *overrides)
    counts = {op: round(ROUNDS_PER_S * visits) for op, visits in per_round.items()}
    clients = round(sum(count * RESPONSE_MS[op] / 1000 for op, count in counts.items()))
    point = {"status": "done", "clients": clients, "middlewares": 1, "stores": 1, "seconds": 30, "warmup_s": 5}
    point |= {"cooldown_s": 5, "think_ms": 0.0, "middleware.connections": 4}
    frames: dict[str, list[dict[str, object]]] = {"points": [RUN | point], "windows": [], "stations": []}
    for second in range(30):
        window = RUN | {"role": "load", "process": "load-0", "elapsed_s": float(second), "seconds": 1.0}
        frames["stations"].append(window)
        for op, count in counts.items():
            times = {"count": count, "errors": errors, "response_sum_ns": round(count * RESPONSE_MS[op] * timed * 1e6)}
            frames["windows"].append(window | {"op": op} | times)
    made = Dataset(Path("/nonexistent"), spec, {"program": "synthetic"})
    schemas = tables.TABLES | {"points": pl.Schema({**tables.POINTS, "middleware.connections": pl.Int64()})}
    for name, schema in schemas.items():
        setattr(made, name, pl.DataFrame(frames.get(name, []), schema=schema, orient="row"))
    return made


def visits(run: Dataset) -> dict[str, float | None]:
    return dict(request_types(run).select("request_type", "visits").iter_rows())


def verdicts(report: LawReport) -> dict[str | None, str]:
    return {check.request_type: check.verdict for check in report.interactive if check.view == "client"}


def test_in_a_loop_every_step_occurs_once_in_a_round() -> None:
    every = dict.fromkeys(RESPONSE_MS, 1.0)
    run = messages(every, "workload.receivers=self")
    assert visits(run) == every
    report = laws_of_run(run)
    assert verdicts(report) == dict.fromkeys((None, *every), "holds")
    assert not any("computed from the throughputs" in sentence for sentence in sentences(report))


@pytest.mark.parametrize("receivers", ["self", "any"])
def test_type_beyond_its_loop_violates_its_law(receivers: str) -> None:
    """All requests together obey the law, as they would have it of any mix."""
    per_round = {"send": 1.1, "list_queues": 1.0, "read_all": 1.0, "remove": 1.0}
    report = laws_of_run(messages(per_round, f"workload.receivers={receivers}"))
    found = verdicts(report)
    assert (found.pop(None), found["send"]) == ("holds", "violated")
    (causes,) = {check.causes for check in report.interactive if check.request_type == "send"}
    assert causes == ("the types do not occur as often as the visits declare",)


def test_common_residual_blames_no_single_type() -> None:
    """Each type's own time is what remains of a round, with all that is between two requests: 15% of the shortest."""
    every = dict.fromkeys(RESPONSE_MS, 1.0)
    assert set(verdicts(laws_of_run(messages(every, timed=0.985))).values()) == {"holds"}
    # Where it is too much for all requests together, it is for each of them.
    assert set(verdicts(laws_of_run(messages(every, timed=0.95))).values()) == {"violated"}


def test_rounds_without_a_queue_are_rounds_all_the_same() -> None:
    per_round = {"send": 1.0, "list_queues": 1.0, "read_all": 0.6, "remove": 0.6}
    run = messages(per_round)
    assert visits(run) == pytest.approx(per_round)
    assert set(verdicts(laws_of_run(run)).values()) == {"holds"}
    # What is read is removed in the same round.
    assert verdicts(laws_of_run(messages(per_round | {"remove": 0.5})))["remove"] == "violated"
    # Clients that send to themselves have a queue in every round, unless sending failed.
    assert set(verdicts(laws_of_run(messages(per_round, "workload.receivers=self"))).values()) == {"holds", "violated"}
    assert visits(messages(per_round, "workload.receivers=self", errors=1)) == pytest.approx(per_round)


def test_step_of_every_round_is_missed_when_absent() -> None:
    run = messages({"send": 1.0, "list_queues": 1.0}, "workload.receivers=self")
    assert visits(run) == dict.fromkeys(RESPONSE_MS, 1.0)
    report = laws_of_run(run)
    assert report.absent == {0: ("read_all", "remove")}
    assert "should have read_all, remove, but some runs at 10 clients" in " ".join(sentences(report))
    # Of these there is no law that could be violated.
    assert law_lines(report)[1:] == ["Some run has no requests of these types: read_all, remove."]
    # Perhaps no client sent to them.
    anybody = messages({"send": 1.0, "list_queues": 1.0})
    assert set(visits(anybody)) == {"send", "list_queues"}
    assert not laws_of_run(anybody).absent


def test_unknown_loop_leaves_visits_unknown() -> None:
    every = dict.fromkeys(RESPONSE_MS, 1.0)
    run = messages(every, "workload.loop=list-receive-send")
    assert visits(run)["read_all"] is None
    report = laws_of_run(run)
    assert any("computed from the throughputs" in sentence for sentence in sentences(report))
    assert verdicts(report) == dict.fromkeys((None, *every), "holds")


def test_a_loop_may_be_a_factor() -> None:
    run = messages(dict.fromkeys(RESPONSE_MS, 1.0))
    run.spec = read(MESSAGES, "middleware.connections=4", 'workload.loop=["send-list-read-remove"]')
    run.points = run.points.with_columns(pl.lit("send-list-read-remove").alias("workload.loop"))
    assert set(visits(run).values()) == {1.0}


def test_type_that_always_failed_has_no_law() -> None:
    run = messages(dict.fromkeys(RESPONSE_MS, 1.0), "workload.receivers=self")
    untimed = pl.when((pl.col("op") != "remove") & (pl.col("elapsed_s") != 10)).then("response_sum_ns")
    run.windows = run.windows.with_columns(response_sum_ns=untimed)
    types = dict(request_types(run).select("request_type", "response_ms").iter_rows())
    assert types == {**RESPONSE_MS, "remove": None}
    report = laws_of_run(run)
    assert set(verdicts(report)) == {None}, "the others' rest of a round is not known"
    assert not report.absent
