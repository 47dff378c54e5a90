"""Servers that report their own use: Redis, memcached, PostgreSQL, and exporters for Prometheus."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit
from urllib.request import ProxyHandler, build_opener

import psutil

from knee.data.usage import Station
from knee.errors import SpecError
from knee.lab import waits
from knee.spec.tables import ESCAPED

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_TIMEOUT_S = 2.0
_BYTES_MAX = 16 << 20
_SAMPLES = 10
"""Samples of a run: an answer of node_exporter costs its machine about 10 ms of a processor."""
_PERIOD_MIN_S = 0.25
_NOT_BUSY = ("idle", "iowait", "steal")
_MACHINE, _PROCESS, _BOOT = "node_cpu_seconds_total", "process_cpu_seconds_total", "node_boot_time_seconds"
_WAYS = ("receive", "transmit")
_LINK = "node_network_"
_COUNTERS = [f"{way}_{unit}_total" for way in _WAYS for unit in ("bytes", "packets")]
_OF_LINKS = [f"{_LINK}{each}" for each in ("address_assign_type", "protocol_type", "speed_bytes", *_COUNTERS)]
_BEYOND = 1.05
"""A link that carried more than this multiple of its speed has another one, as cards of virtual machines do."""
_COVERED = 1 / 3
"""Readings over a smaller share of a run's steady part may show a moment of it."""
_FRAME_BYTES = 24
"""Preamble, check sum and gap of an Ethernet frame, which no interface counts."""
_POSTGRESQL = re.compile(rf"postgresql://(\[[0-9A-Fa-f:.]+\]|([\w.-]|{ESCAPED})+)(:[0-9]{{1,5}})?/[\w.-]{{1,63}}")
_THREADS = "go_sched_gomaxprocs_threads"
"""Threads of a process that Go's runtime lets compute at once. All threads may be more than the processors."""


@dataclass(frozen=True)
class Reading:
    """Counters of a station as in :class:`Station`, at `time_s` of the server's clock or of this machine's. Those of a
    link count bytes: its speed is their number in a busy second. Of readings with one name, the busiest counts."""

    name: str
    time_s: float
    busy_s: float
    servers: float
    steal_s: float = 0.0
    speed: float = 1.0


_Read = Callable[[], tuple[Reading, ...]]


@dataclass(frozen=True)
class Remote:
    """A target of `--watch`, at an address without secrets. `clients`: those of the load, which may wait elsewhere."""

    address: str
    clients: int = 0

    @classmethod
    def parse(cls, text: str) -> Remote:
        """Raises SpecError for another address, which is not printed if it may have a secret."""
        with suppress(ValueError):
            url = urlsplit(text)
            is_place = bool(url.hostname and url.port and url.path in ("", "/"))
            is_known = is_place if url.scheme in ("redis", "memcached") else url.scheme in ("http", "https")
            is_known |= bool(_POSTGRESQL.fullmatch(text))
            # A user, a password, a query or a fragment follows these.
            if is_known and url.hostname and not set("@?#") & set(text):
                return cls(text)
        forms = "redis://HOST:PORT, memcached://HOST:PORT, postgresql://HOST:PORT/DATABASE or http://HOST:PORT/metrics"
        raise SpecError(f"--watch: expected {forms}, without a user, a password or a query; correct the address")

    def period_s(self, seconds: float) -> float:
        """Seconds between two readings in a run of `seconds`."""
        is_sampled = self.address.startswith("postgresql:")
        return waits.PERIOD_S if is_sampled else max(_PERIOD_MIN_S, seconds / _SAMPLES)

    def read(self) -> tuple[Reading, ...]:
        """Its counters now. Raises SpecError if the server does not answer, or lacks a counter."""
        with self.reading() as read:
            return read()

    @contextmanager
    def reading(self) -> Iterator[_Read]:
        """A function that reads its counters, as `read`."""
        url = urlsplit(self.address)
        with waits.Waits(self.address, self.clients) if url.scheme == "postgresql" else nullcontext() as sessions:

            def read() -> tuple[Reading, ...]:
                try:
                    return _READERS[url.scheme](url) if sessions is None else _of_waits(sessions)
                except (OSError, HTTPException) as error:
                    cause = f"{error}; start it first, or correct the address"
                except (LookupError, ValueError) as error:
                    cause = f"no processor times in its answer ({error}); see docs/find.md"
                raise SpecError(f"--watch {self.address}: {cause}")

            yield read


class Sampler:
    """Reads a target during a run of about `seconds`, from `start` to `stop`."""

    def __init__(self, name: str, remote: Remote, seconds: float) -> None:
        self._name = name
        self._remote = remote
        self._period_s = remote.period_s(seconds)
        self._readings: list[tuple[float, tuple[Reading, ...]]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def end(self) -> None:
        """Begin no other reading; `stop` waits for the last."""
        self._stopping.set()

    def stop(self, begin_s: float, end_s: float) -> tuple[Station, ...]:
        """End, and return the use between the first and the last reading in a part of this machine's monotonic clock;
        empty if it has fewer, if they are of a moment, or if the server started again. A link with a fictitious speed
        is left out."""
        self.end()
        self._thread.join(_TIMEOUT_S)
        steady = [each for each in list(self._readings) if begin_s <= each[0] <= end_s]
        if len(steady) < 2:
            return ()
        (first_s, first), (last_s, last) = steady[0], steady[-1]
        if last_s - first_s < _COVERED * (end_s - begin_s):
            return ()
        if [_server(each) for each in first] != [_server(each) for each in last]:
            return ()
        found: dict[str, Station] = {}
        for before, after in zip(first, last, strict=True):
            seconds, used, steal_s = (
                getattr(after, counter) - getattr(before, counter) for counter in ("time_s", "busy_s", "steal_s")
            )
            if min(seconds, used) < 0 or not seconds:
                return ()
            own = Station(self._name, after.name, seconds, used / after.speed, max(0.0, steal_s), after.servers)
            found[own.name] = max(own, found.get(own.name, own), key=lambda station: station.busy_s)
        links = {each.name for each in last if each.speed != 1}
        return tuple(each for each in found.values() if each.name not in links or each.busy_s <= _BEYOND * each.seconds)

    def _sample_until_stopped(self) -> None:
        with self._remote.reading() as read:
            while not self._stopping.wait(self._period_s):
                with suppress(SpecError):
                    readings = read()
                    self._readings.append((time.monotonic(), readings))


def _server(reading: Reading) -> tuple[str, float, float]:
    return reading.name, reading.servers, reading.speed


def _redis(url: SplitResult) -> tuple[Reading, ...]:
    """The main thread, which executes all commands."""
    password = os.environ.get("REDISCLI_AUTH")
    login = "" if password is None else f"*2\r\n$4\r\nAUTH\r\n${len(password.encode())}\r\n{password}\r\n"
    text = _converse(url, f"{login}TIME\r\nINFO\r\nQUIT\r\n")
    info = dict(re.findall(r"^(\w+):(.*)\r$", text, re.MULTILINE))
    now = re.search(r"\*2\r\n\$\d+\r\n(\d+)\r\n\$\d+\r\n(\d+)\r\n", text)
    # A Redis without a password refuses one, and answers the rest.
    if now is None or "redis_version" not in info:
        refused = re.search(r"^-(.*)\r$", text, re.MULTILINE)
        raise ValueError(refused[1] if refused else "no time of Redis")
    # Redis 5 and older have no other thread that computes.
    thread = "" if int(info["redis_version"].partition(".")[0]) < 6 else "_main_thread"
    busy_s = sum(float(info[f"used_cpu_{mode}{thread}"]) for mode in ("user", "sys"))
    return (Reading("redis main thread", int(now[1]) + int(now[2]) / 1e6, busy_s, 1),)


def _memcached(url: SplitResult) -> tuple[Reading, ...]:
    """Its threads that serve connections. Maintenance counts as their work."""
    stats = dict(re.findall(r"^STAT (\w+) (.*)\r$", _converse(url, "stats\r\nquit\r\n"), re.MULTILINE))
    busy_s = float(stats["rusage_user"]) + float(stats["rusage_system"])
    return (Reading("memcached threads", time.monotonic(), busy_s, int(stats["threads"])),)


def _converse(url: SplitResult, request: str) -> str:
    """The answers of a server that closes the connection after them."""
    with socket.create_connection((url.hostname or "", url.port or 0), _TIMEOUT_S) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as answers:
            return answers.read(_BYTES_MAX).decode(errors="replace")


def _prometheus(url: SplitResult) -> tuple[Reading, ...]:
    """The processors and links of node_exporter's machine, or the process of another exporter."""
    from prometheus_client.parser import text_string_to_metric_families

    # No proxy: the server is a part of the system.
    with build_opener(ProxyHandler({})).open(url.geturl(), timeout=_TIMEOUT_S) as answer:
        lines = answer.read(_BYTES_MAX).decode().splitlines(keepends=True)
    now_s = time.monotonic()
    metrics = "".join(line for line in lines if line.startswith((_MACHINE, _PROCESS, _BOOT, _THREADS, *_OF_LINKS)))
    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    times = [
        (sample.labels["cpu"], sample.labels["mode"], sample.value) for sample in samples if sample.name == _MACHINE
    ]
    # A federation or a gateway reports for several; metrics of machines have a label for each processor and mode.
    keys = [(_MACHINE, cpu, mode) for cpu, mode, _ in times]
    keys += [
        (sample.name, "", "") for sample in samples if sample.name in ((_BOOT,) if times else (_PROCESS, _THREADS))
    ]
    if len(keys) > len(set(keys)):
        raise ValueError(f"of several {'machines' if times else 'processes'}")
    plain = {sample.name: sample.value for sample in samples}
    if not times:
        if _THREADS not in plain:
            raise ValueError(f"neither {_MACHINE} nor {_THREADS}")
        return (Reading(f"{url.hostname} process", now_s, plain[_PROCESS], plain[_THREADS]),)
    if abs(plain.get(_BOOT, 0.0) - psutil.boot_time()) <= 1:
        raise ValueError("it is of this machine, which Knee reads itself: watch port:NUMBER")
    processors = len({cpu for cpu, _, _ in times})
    busy_s = sum(value for _, mode, value in times if mode not in _NOT_BUSY)
    steal_s = sum(value for _, mode, value in times if mode == "steal")
    # Counters of one answer may be older than it.
    time_s = sum(value for *_, value in times) / processors
    return (Reading(f"{url.hostname} CPU", time_s, busy_s, processors, steal_s), *_links(url, time_s, samples))


def _links(url: SplitResult, time_s: float, samples: Sequence[Sample]) -> Iterator[Reading]:
    """Both directions of each network card with a speed. The speeds of tunnels and virtual pairs are fictitious: such
    interfaces have no Ethernet, or no permanent address."""
    cards: dict[str, dict[str, float]] = {}
    for sample in samples:
        if sample.name.startswith(_LINK):
            cards.setdefault(sample.labels["device"], {})[sample.name.removeprefix(_LINK)] = sample.value
    for device, card in sorted(cards.items()):
        is_real = (card.get("protocol_type"), card.get("address_assign_type")) == (1, 0)
        # A collector that is switched off leaves counters out.
        if is_real and card.get("speed_bytes", 0) > 0 and len(card) == len(_OF_LINKS):
            for way in _WAYS:
                used = card[f"{way}_bytes_total"] + _FRAME_BYTES * card[f"{way}_packets_total"]
                yield Reading(f"{url.hostname} link {device}", time_s, used, 1, speed=card["speed_bytes"])


def _of_waits(sessions: waits.Waits) -> tuple[Reading, ...]:
    now_s, busy_s = sessions.read()
    return tuple(Reading(name, now_s, each_s, 1) for name, each_s in busy_s.items())


_READERS = {"redis": _redis, "memcached": _memcached, "http": _prometheus, "https": _prometheus}
