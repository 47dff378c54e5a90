"""Reads what other load generators print. Each reader is a function from the text of a run to its results.

result     what a result holds
table      a CSV, JSON or Parquet with any columns of a known meaning
aliases    the meaning of columns by their names
others     readers of the tools for HTTP, for stores, and for model servers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from knee.data.foreign import http, models, stores, table
from knee.data.foreign.result import ForeignError, Result
from knee.data.usage import SUFFIX, usage_beside
from knee.errors import MeasurementsError

__all__ = ["TOOLS", "Result", "read"]


@dataclass(frozen=True)
class _Tool:
    """A tool's reader, and a pattern that only its output has. `start` matches the first line of each run, if a file
    may hold several."""

    reader: Callable[[str], list[Result] | Result]
    mark: str
    start: str = ""

    def read(self, text: str) -> list[Result]:
        """The results in the text of a file."""
        runs = re.split(rf"(?m)^(?={self.start})", text)[1:] if self.start else [text]
        results: list[Result] = []
        for run in runs:
            found = self.reader(run)
            results += found if isinstance(found, list) else [found]
        return results


TOOLS = {
    "wrk2": _Tool(http.wrk2, r"(?m)^  Thread calibration: |Latency Distribution \(HdrHistogram", "Running "),
    "wrk": _Tool(http.wrk, r"(?m)^Running .* test @ ", "Running "),
    "hey": _Tool(http.hey, r"(?m)^  Slowest:\s", "Summary:"),
    "ab": _Tool(http.ab, r"(?m)^This is ApacheBench", "This is ApacheBench"),
    "vegeta": _Tool(http.vegeta, r'(?m)^Requests +\[total, rate|\A\s*\{"latencies":'),
    "oha": _Tool(http.oha, r'"requestsPerSec"'),
    "k6": _Tool(http.k6, r'(?s)"metrics":.*"http_req_duration"'),
    "k6-points": _Tool(http.k6_points, r'\A[^\n]*"type":"(?:Metric|Point)"|\Ametric_name,timestamp,metric_value,'),
    "locust": _Tool(http.locust, r"\AType,Name,Request Count,"),
    "redis-benchmark": _Tool(stores.redis_benchmark, r'\A"test","rps",'),
    "memtier": _Tool(stores.memtier, r'"ALL STATS"|(?m:^ALL STATS)'),
    "mutilate": _Tool(stores.mutilate, r"(?m)^#type +avg ", "#type"),
    "pgbench": _Tool(stores.pgbench, r"(?m)^transaction type: ", "transaction type: "),
    "pgbench-log": _Tool(stores.pgbench_log, r"\A\d{1,6} \d+ (?:\d+|skipped|failed) \d+ \d{9,} \d{1,6}\b"),
    "ycsb": _Tool(stores.ycsb, r"(?m)^\[OVERALL\], "),
    "sysbench": _Tool(stores.sysbench, r"(?m)^sysbench \d", r"sysbench \d"),
    "fio": _Tool(stores.fio, r'\A\s*\{\s*"fio version"'),
    "vllm": _Tool(models.vllm, r'"burstiness"'),
    "guidellm": _Tool(models.guidellm, r'(?s)"benchmarks":.*"request_latency"'),
}
"""Readers by the tool's name. The first tool whose mark a text contains wrote the text."""

_TABLE = "table"
_TABLES = re.compile(r"\A\s*(?:\{|\[\s*[{\]])|\A[^\n]*[,;\t][^\n]*(?:\n[^\n]*[,;\t]|\n?\Z)")
"""A text that no tool wrote is a table if it is JSON, or if its first two lines have several cells."""

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions of a reader if an entry is missing or has another type."""

_WORDS = "(?:c|clients|conns|connections|vus|users)"
_CLIENTS = rf"(?:^|[^a-z0-9]){_WORDS}[-_=]?(\d+)|(?:^|[^a-z0-9])(\d+)[-_]?{_WORDS}(?![a-z0-9])"
"""The number of clients in a file's name, such as c16-r1.txt or wrk-16c.txt."""


_BESIDE = ("_stats_history.csv", "_failures.csv", "_exceptions.csv")
"""Ends of the names that Locust gives to its other tables."""


def read(
    paths: Sequence[Path],
    tool: str | None = None,
    clients: int | None = None,
    rate: float | None = None,
    *,
    renames: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> tuple[list[Result], list[str]]:
    """The results of files and folders, and the assumptions about them.

    Parameters
    ----------
    tool
        A name of TOOLS, or `table`; by default the tool is recognised by its output.
    clients
        Clients of results without a number; by default it is in the file's name, as in `c16.txt`.
    rate
        Requested rate in requests/s; it makes every result one of an open loop.
    renames, ignored
        Columns of tables, see :func:`knee.data.foreign.table.table`.

    Raises
    ------
    MeasurementsError
        For a file that cannot be read, or that is no whole result.
    """
    if tool is not None and tool not in (*TOOLS, _TABLE):
        raise MeasurementsError(f"--from: no tool {tool}: expected {', '.join((*TOOLS, _TABLE))}")
    results: list[Result] = []
    guesses: dict[str, list[str]] = {}
    found = _runs(_files(paths), tool)
    if (renames or ignored) and not any(name == _TABLE for _, _, name in found):
        raise MeasurementsError(f"--map, --ignore: no table among the files; {found[0][0]} is output of {found[0][2]}")
    for path, text, name in found:
        named = re.search(_CLIENTS, path.stem.lower())
        try:
            usage = usage_beside(path)
            notes: list[str] = []
            if name == _TABLE:
                of_file, notes = table.table(text, str(path), renames, ignored)
            else:
                of_file = TOOLS[name].read(text)
            of_file = [replace(each, source=str(path), usage=usage) for each in of_file]
            if not of_file:
                raise ForeignError("no result")
            for number, result in enumerate(of_file):
                if result.clients is None and not result.is_open:
                    count = clients or (int(named[1] or named[2]) if named else None)
                    of_file[number] = replace(result, clients=count)
                    if clients is None and named:
                        guesses.setdefault(f"the name gives {count} clients; --clients overrides it", []).append(
                            path.name
                        )
            if rate is not None:
                of_file = [replace(result, is_open=True, rate=rate) for result in of_file]
        except (ForeignError, *_UNREADABLE) as error:
            raise MeasurementsError(
                f"{path}: {_reason(error)}: not whole output of {name}; repeat the run, or name its tool with --from"
            ) from None
        for note in notes:
            guesses.setdefault(note, []).append(path.name)
        if tool is None and name != _TABLE:
            guesses.setdefault(f"the output has the form of {name}; --from overrides it", []).append(path.name)
        results += of_file
    return results, [f"{_first(names)}: {guess}" for guess, names in guesses.items()]


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no entry {error.args[0]}"
    return str(error) if isinstance(error, ForeignError) else f"an entry has another type ({error!r})"


def _first(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        below = [each for each in sorted(path.rglob("*")) if each.is_file()] if path.is_dir() else [path]
        shown = [each for each in below if not each.name.startswith(".") and not each.name.endswith(SUFFIX)]
        if not shown:
            raise MeasurementsError(f"{path}: holds no file; expected results of a load generator")
        found += shown
    return found


def _runs(paths: Sequence[Path], tool: str | None) -> list[tuple[Path, str, str]]:
    """The first file of each run, its text, and its tool: every thread of pgbench writes a log, and Locust writes four
    tables."""
    found: dict[Path, tuple[Path, str, str]] = {}
    for path in paths:
        stem = next((path.name.removesuffix(end) for end in _BESIDE if path.name.endswith(end)), None)
        if stem is not None and path.with_name(f"{stem}_stats.csv") in paths:
            continue
        text = table.text_of(path)
        name = tool or next((name for name, each in TOOLS.items() if re.search(each.mark, text)), None)
        if not text.strip():
            raise MeasurementsError(f"{path}: is empty; repeat the run")
        if name is None and not _TABLES.match(text):
            raise MeasurementsError(f"{path}: no known tool wrote it; name one with --from: {', '.join(TOOLS)}, table")
        name = name or _TABLE
        run = path
        if name == "pgbench-log":
            run = path.with_name(re.sub(r"^(.+\.\d{2,})\.\d+$", r"\1", path.name))
        first, before, _ = found.get(run, (path, "", name))
        found[run] = first, before + text, name
    return list(found.values())
