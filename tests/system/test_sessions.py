"""Real systems whose bottleneck is named and moved, as on docs/reproductions/sessions.md, and the server of tokens."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.sessions import SESSIONS, Answer, measure, named, ratio
from bench.tokens import load
from systems import free_port, wait_until

from knee.data.foreign import read
from knee.lab.hosts.local import answers

TOKENS = Path(__file__).resolve().parents[2] / "bench" / "tokens.py"
FROM_DEBIAN = [name for name in SESSIONS if name not in ("nginx-oha", "redis-memtier")]
"""Debian lacks oha and memtier_benchmark."""


def assert_named(answer: Answer, expected: str) -> None:
    """The busiest resource is the expected one. It is the bottleneck, unless other programs took its processor. Without
    an expected one, Knee cannot tell."""
    (found,) = answer["results"]["bottlenecks"]
    shares = {each["name"]: each["at_most"]["estimate"] for each in found["resources"]}
    busiest = max(shares, key=lambda name: shares[name])
    assert expected in busiest
    allowed = {busiest.removeprefix("station ")} if expected else {"cannot tell"}
    assert named(answer) in allowed | ({"cannot tell"} if shares[busiest] < 0.97 else set())


@pytest.mark.skipif("KNEE_SOAK" not in os.environ, reason="make soak searches for a minute each")
@pytest.mark.parametrize("name", FROM_DEBIAN)
def test_moved_bottleneck_raises_throughput(name: str, memory_path: Path, tmp_path: Path) -> None:
    session = SESSIONS[name]
    # Commits wait for a disk.
    folder = tmp_path if name == "pgbench-commit" else memory_path
    before, after = (measure(folder / str(i), session, each, "2", "40s") for i, each in enumerate(session.settings))
    assert_named(before, session.named)
    assert ratio(before, after).estimate >= 1.3
    for answer, true in zip((before, after), session.knees or (), strict=False):
        (knee,) = answer["results"]["knees"]
        assert knee["status"] == "found"
        assert knee["clients"]["estimate"] == pytest.approx(true, rel=0.15)


def test_tokens_for_more_clients_than_slots_wait_in_the_queue(tmp_path: Path) -> None:
    # 2 slots of 5 tokens of 20 ms answer 20 requests/s.
    port, output = free_port(), tmp_path / "c6.json"
    server = subprocess.Popen([sys.executable, str(TOKENS), "serve", str(port), "2", "--token-ms", "20"])
    try:
        wait_until(lambda: answers(f"127.0.0.1:{port}", "connection"), "it answers")
        written = asyncio.run(load(f"http://127.0.0.1:{port}/", clients=6, seconds=1.5, tokens=5))
    finally:
        server.kill()
        server.wait()
    output.write_text(json.dumps(written))
    (result,), _ = read([output])
    assert (result.tool, result.clients, result.errors) == ("vllm", 6, 0)
    assert result.throughput <= 20.5
    assert result.response_ms == pytest.approx(6 / result.throughput * 1000, rel=0.15)
    assert written["mean_ttft_ms"] == pytest.approx(result.response_ms - 4 * written["mean_tpot_ms"], rel=0.01)
    assert written["mean_tpot_ms"] == pytest.approx(written["mean_itl_ms"]) and written["mean_tpot_ms"] > 19
