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

STAYS = ProcessError("a middleware stays")
INTERRUPT = KeyboardInterrupt("interrupt")
LEFT = "is left there: exit code 3; remove it with DROP SCHEMA knee_queue CASCADE"


@pytest.mark.parametrize(
    ("codes", "closing", "raised"),
    [
        ({"schema": 0, "drop": 0}, None, None),
        ({"schema": 3}, None, "cannot make the schema knee_queue: exit code 3"),
        ({"schema": 0, "drop": 0}, STAYS, "a middleware stays"),
        ({"schema": 0, "drop": 0}, INTERRUPT, "interrupt"),
        ({"schema": 0, "drop": 3}, STAYS, LEFT),
    ],
)
def test_a_schema_is_dropped_or_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    codes: dict[str, int],
    closing: BaseException | None,
    raised: str | None,
) -> None:
    for name in ("psql", "setpriv"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    left = {**codes}

    def close(_: float) -> None:
        if closing is not None:
            raise closing

    def start(_: QueueDeployment, command: Command) -> Any:
        code = left.pop(command.process)
        return SimpleNamespace(wait=lambda _: code, describe=lambda: f"exit code {code}")

    monkeypatch.setattr(QueueDeployment, "_start", start)
    host: Any = SimpleNamespace(close=close)
    needless: Any = SimpleNamespace(repetition=1)
    with nullcontext() if raised is None else pytest.raises(BaseException, match=raised), ExitStack() as cleanup:
        deployment = QueueDeployment(needless, 1, needless, host, needless, [], None, cleanup)
        deployment._make_schema("postgresql://bench@h/messages", reset=False)
    assert left == {}
