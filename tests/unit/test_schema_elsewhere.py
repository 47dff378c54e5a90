"""The schema that a run makes in a database elsewhere is dropped afterwards, or reported."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from knee.errors import ProcessError
from knee.lab.command import Command
from knee.lab.deploy.queue import QueueDeployment

End = int | BaseException
INTERRUPT = KeyboardInterrupt("first"), KeyboardInterrupt("second")
STAYS = ProcessError("a middleware stays")
LEFT = "the schema knee_queue is left there{}; remove it with DROP SCHEMA knee_queue CASCADE"


@pytest.mark.parametrize(
    ("making", "closing", "dropping", "raised"),
    [
        ([0, 0], 0, [0], None),
        ([INTERRUPT[0], 0], 0, [0], "first"),
        ([INTERRUPT[0], 3], 0, [], "first"),
        ([INTERRUPT[0], INTERRUPT[1]], 0, [], "did not end; check whether the schema knee_queue is left"),
        ([0, 0], STAYS, [0], "a middleware stays"),
        ([0, 0], INTERRUPT[1], [0], "second"),
        ([0, 0], STAYS, [3], LEFT.format(": exit code 3")),
        ([0, 0], 0, [INTERRUPT[1]], LEFT.format("")),
        ([0, 0], 0, [ProcessError("drop did not end")], LEFT.format("")),
    ],
)
def test_a_schema_is_dropped_or_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    making: list[End],
    closing: End,
    dropping: list[End],
    raised: str | None,
) -> None:
    for name in ("psql", "setpriv"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    left = {"schema": [*making], "drop": [*dropping]}

    def end(how: End) -> int:
        if isinstance(how, BaseException):
            raise how
        return how

    def start(_: QueueDeployment, command: Command) -> Any:
        ends = left[command.process]
        return SimpleNamespace(wait=lambda _: end(ends.pop(0)), describe=lambda: "exit code 3")

    monkeypatch.setattr(QueueDeployment, "_start", start)
    host: Any = SimpleNamespace(close=lambda _: end(closing))
    needless: Any = SimpleNamespace(repetition=1)
    with nullcontext() if raised is None else pytest.raises(BaseException, match=raised), ExitStack() as cleanup:
        deployment = QueueDeployment(needless, 1, needless, host, needless, [], None, cleanup)
        deployment._make_schema("postgresql://bench@h/messages", reset=False)
    assert left == {"schema": [], "drop": []}
