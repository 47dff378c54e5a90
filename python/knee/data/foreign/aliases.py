"""The meaning of a foreign table's columns by their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from knee.data.measurements import KNOWN, PERCENTILE, station_column

UNITS = {"ns": -6, "us": -3, "ms": 0, "s": 3}
"""Powers of ten to milliseconds."""

_SPELT = {
    "ns": "ns nsec nsecs nanos nanosecond nanoseconds",
    "us": "us µs μs usec usecs micros microsecond microseconds",
    "ms": "ms msec msecs millis millisecond milliseconds",
    "s": "s sec secs second seconds",
}
_UNIT_OF = {word: unit for unit, words in _SPELT.items() for word in words.split()}

_PER_S = r"(?:s|per_(?:s|secs?|seconds?))"
_ITEM = r"(?:req|request|op|operation|query|querie|transaction|tx|txn|message|msg|call)"
_ITEMS = rf"{_ITEM}s?"
_RATE = rf"(?:[rqt]ps|iops|{_ITEMS}_{_PER_S})"
_LATENCY = (
    r"(?:latency|latencies|lat|rtt?|response|resp(?:onse)?_times?|(?:http_)?req(?:uest)?_(?:duration|latency|times?)"
    r"|e2el?(?:_latency)?|sojourn(?:_time)?)"
)
_MEAN = r"(?:mean|avg|average)"


def _of_latency(word: str) -> str:
    """A pattern of `word` with or without the latency on either side."""
    return rf"(?:{_LATENCY}_)?(?:{word})(?:_{_LATENCY})?"


_PLAIN = (
    ("rate", rf"rate|(?:target|requested|offered|nominal|arrival|request)_(?:rate|load|throughput|{_RATE})"),
    ("throughput", rf"(?:(?:achieved|actual|measured|total|{_MEAN})_)?(?:(?:throughput|tput)(?:_{_RATE})?|{_RATE})"),
    (
        "clients",
        r"clients?|vus?|(?:virtual_)?users?|(?:max_)?concurrency(?:_level)?|in_?flight|(?:client|user|vu)_count"
        rf"|(?:concurrent|parallel|active)_(?:clients|users|vus|connections|{_ITEMS})|(?:num|number_of)_(?:clients|users|vus)",
    ),
    ("clients", r"(?:(?:num|number_of)_)?conn(?:ection)?s|connection_count"),
    ("clients", r"(?:(?:num|number_of)_)?threads|thread_count"),
    ("repetition", r"rep|run|trial|repeat|iteration"),
    (
        "requests",
        rf"(?:(?:total|num|number_of|completed)_)?{_ITEM}s(?:_(?:count|total|completed))?|{_ITEM}_(?:count|total)",
    ),
    ("errors", r"(?:(?:total|num|number_of)_)?(?:errors?|failures?|failed)(?:_(?:count|total|requests))?"),
    ("", r"(?:success(?:es)?|errors?|fail(?:ures?|ed)?|miss(?:es)?|hits?)_(?:rate|ratio|share|pct|percent(?:age)?)"),
    ("", r"retries|timeouts|dropped"),
)
"""Patterns of names without a unit; of one meaning, the earlier pattern has precedence. The last are outcomes that no
rule reads."""

_TIMED = (
    ("duration_s", r"(?:test_|run_)?duration|run_?time|elapsed_time|wall_?time"),
    ("think_ms", r"think(?:_time)?"),
    ("response_ms", rf"(?:{_MEAN}_)?{_LATENCY}(?:_{_MEAN})?|{_MEAN}"),
    ("p50_ms", _of_latency(r"median|med")),
    ("max_ms", _of_latency(r"max|maximum|longest|slowest|p_?100")),
    ("", _of_latency(r"min|minimum|fastest|std|std_?dev|sd")),
)
"""Patterns of names with or without a unit. The last meaning is that of a time that no rule reads."""

_SHARE = re.compile(_of_latency(r"p_?(\d\d?)_?(\d*)|(\d\d?)_?(\d*)th(?:_percentile)?"))


@dataclass(frozen=True)
class Meaning:
    """The meaning of a column.

    name    Knee's column; empty for a measured quantity that no rule reads
    place   place of the pattern that fits; the smallest of several columns with one meaning has precedence
    is_time whether the column holds times
    unit    the unit in its name; None without one
    """

    name: str
    place: int
    is_time: bool = False
    unit: str | None = None


def meaning_of(column: str) -> Meaning | None:
    """The meaning of a column by its name, in any case and with any marks between words; None for an unknown one."""
    if column in KNOWN or PERCENTILE.fullmatch(column):
        end = column.rpartition("_")[2]
        return Meaning(column, -1, end in UNITS, end if end in UNITS else None)
    words = re.sub(r"(?<=\d)%", "th", column).replace("%", " percent")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words)
    plain = re.sub(r"[\W_]+", "_", words).strip("_").lower()
    for place, (name, pattern) in enumerate(_PLAIN):
        if re.fullmatch(pattern, plain):
            return Meaning(name, place)
    parts = plain.split("_")
    units = [_UNIT_OF[part] for part in parts if part in _UNIT_OF]
    plain = "_".join(part for part in parts if part not in _UNIT_OF)
    unit = units[0] if units else None
    for known, pattern in _TIMED:
        if re.fullmatch(pattern, plain):
            return Meaning(known, 0, is_time=True, unit=unit)
    if share := _SHARE.fullmatch(plain):
        whole, rest, *_ = (part for part in share.groups() if part is not None)
        return Meaning(f"p{whole}{rest}_ms", 0, is_time=True, unit=unit)
    return Meaning("", -1) if station_column(column) else None


def times_in_order(names: Collection[str]) -> list[str]:
    """The response times among Knee's columns: the mean, then the percentiles from the smallest, then the longest."""
    shares = {name: share for name in names if (share := share_of(name)) is not None}
    return [name for name in ("response_ms", *sorted(shares, key=lambda each: shares[each]), "max_ms") if name in names]


def share_of(name: str) -> float | None:
    """The percentage of a column such as p50_ms or p999_ms; None for another column."""
    share = PERCENTILE.fullmatch(name)
    return float(f"{share[1]}.{share[2] or 0}") if share else None
