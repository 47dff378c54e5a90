"""A toy server of tokens with a queue in front, and its load generator.

    python bench/tokens.py serve PORT SLOTS [--token-ms 5]
    python bench/tokens.py load URL --clients N --seconds S --output FILE [--tokens 20]

The server decodes in SLOTS requests at once, and each token takes a fixed time. Other requests wait in the order of
arrival, so the knee is at SLOTS clients. Tokens stream as server-sent events, and the last one has their number. The
generator is a closed loop, and writes what
`vllm bench serve --save-result --percentile-metrics ttft,tpot,itl,e2el` documents.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def serve(port: int, slots: int, token_s: float) -> None:
    """Serve until the process ends."""
    free, clock = asyncio.Semaphore(slots), asyncio.get_running_loop().time

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            wanted = json.loads(await reader.readexactly(length))["max_tokens"]
            async with free:
                writer.write(_HEAD)
                # A late wake-up delays no later token.
                began_s = clock()
                for i in range(1, wanted + 1):
                    await asyncio.sleep(began_s + i * token_s - clock())
                    writer.write(b'data: {"choices": [{"text": "token "}]}\n\n')
            writer.write(b'data: {"usage": {"completion_tokens": %d}, "choices": []}\n\ndata: [DONE]\n\n' % wanted)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


@dataclass(frozen=True)
class Request:
    """When a request began, and when each of its tokens arrived, in seconds."""

    began_s: float
    tokens_s: Sequence[float]

    @property
    def first_s(self) -> float:
        """Until the first token."""
        return self.tokens_s[0] - self.began_s

    @property
    def whole_s(self) -> float:
        """Until the last token."""
        return self.tokens_s[-1] - self.began_s


async def load(url: str, clients: int, seconds: float, tokens: int) -> dict[str, Any]:
    """Each client sends a request after its last one was answered. The result ends when all are answered."""
    place, clock = urlsplit(url), asyncio.get_running_loop().time
    body = json.dumps({"prompt": "a", "max_tokens": tokens, "stream": True})
    request = (
        f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )

    async def ask() -> Request:
        began_s, arrived_s = clock(), list[float]()
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(request)
        async for line in reader:
            if line.startswith(b'data: {"choices"'):
                arrived_s.append(clock())
        writer.close()
        if len(arrived_s) != tokens:
            raise ConnectionError(f"{len(arrived_s)} of {tokens} tokens arrived")
        return Request(began_s, arrived_s)

    async def client() -> list[Request]:
        return [await ask() for _ in iter(lambda: clock() < end_s, False)]

    began_s, began = clock(), datetime.now().strftime("%Y%m%d-%H%M%S")
    end_s = began_s + seconds
    done = [each for some in await asyncio.gather(*(client() for _ in range(clients))) for each in some]
    return {"date": began, "max_concurrency": clients} | result(done, clock() - began_s)


def result(done: Sequence[Request], duration_s: float) -> dict[str, Any]:
    """The result of vLLM's benchmark for a closed loop. Times are in ms."""
    tokens = sum(len(each.tokens_s) for each in done)
    times = {
        "ttft": [each.first_s for each in done],
        "tpot": [(each.whole_s - each.first_s) / (len(each.tokens_s) - 1) for each in done],
        "itl": [
            after - before for each in done for before, after in zip(each.tokens_s, each.tokens_s[1:], strict=False)
        ],
        "e2el": [each.whole_s for each in done],
    }
    summary = dict[str, float]()
    for name, taken in times.items():
        summary |= {
            f"mean_{name}_ms": 1000 * statistics.fmean(taken),
            f"median_{name}_ms": 1000 * statistics.median(taken),
            f"std_{name}_ms": 1000 * statistics.pstdev(taken),
            f"p99_{name}_ms": 1000 * statistics.quantiles(taken, n=100, method="inclusive")[-1],
        }
    return {
        "backend": "openai",
        "model_id": "toy",
        "num_prompts": len(done),
        "request_rate": "inf",
        "burstiness": 1.0,
        "duration": duration_s,
        "completed": len(done),
        "failed": 0,
        "total_output_tokens": tokens,
        "request_throughput": len(done) / duration_s,
        "output_throughput": tokens / duration_s,
    } | summary


def main() -> None:
    """Serve, or load and write the result."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("serve")
    server.add_argument("port", type=int)
    server.add_argument("slots", type=int)
    server.add_argument("--token-ms", type=float, default=5.0)
    generator = commands.add_parser("load")
    generator.add_argument("url")
    generator.add_argument("--clients", type=int, required=True)
    generator.add_argument("--seconds", type=float, required=True)
    generator.add_argument("--output", type=Path, required=True)
    generator.add_argument("--tokens", type=int, default=20)
    given = parser.parse_args()
    if given.command == "serve":
        asyncio.run(serve(given.port, given.slots, given.token_ms / 1000))
    else:
        given.output.write_text(json.dumps(asyncio.run(load(given.url, given.clients, given.seconds, given.tokens))))


if __name__ == "__main__":
    main()
