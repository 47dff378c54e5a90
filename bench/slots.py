"""An HTTP server with a known knee, N* = slots · (1 + Z / S).

    python bench/slots.py PORT SLOTS SERVICE_MS [DELAY_MS] [--random]

A request waits for DELAY_MS (Z) outside of the slots, then for a free slot, and holds it for SERVICE_MS (S). Slots are
free at computed times, so a late wake-up does not lower the largest throughput. Random service times are exponential.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"


class Slots:
    """Equal slots, which serve in the order of arrival."""

    def __init__(self, slots: int, service_s: float, delay_s: float, *, is_random: bool) -> None:
        self._free_s = [0.0] * slots
        self._service_s = service_s
        self._delay_s = delay_s
        self._random = random.Random(0) if is_random else None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        clock = asyncio.get_running_loop().time
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(self._delay_s)
                service_s = self._service_s * (self._random.expovariate(1) if self._random else 1)
                end_s = max(clock(), self._free_s[0]) + service_s
                heapq.heapreplace(self._free_s, end_s)
                await asyncio.sleep(end_s - clock())
                writer.write(_ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser()
    for name, kind in (("port", int), ("slots", int), ("service_ms", float)):
        parser.add_argument(name, type=kind)
    parser.add_argument("delay_ms", type=float, nargs="?", default=0.0)
    parser.add_argument("--random", action="store_true")
    given = parser.parse_args()
    slots = Slots(given.slots, given.service_ms / 1000, given.delay_ms / 1000, is_random=given.random)
    server = await asyncio.start_server(slots.serve, "127.0.0.1", given.port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
