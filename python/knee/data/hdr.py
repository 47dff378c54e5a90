"""HdrHistogram V2: decodes, merges and evaluates the histograms that the programs print.

The format is that of HdrHistogram's `encodeIntoCompressedByteBuffer` (Tene, hdrhistogram.org): base64 of a
cookie, a length and a zlib stream. The stream has a header of 40 bytes and the counts as ZigZag LEB128; a negative
number −n is a run of n zeros. Percentiles are never averaged: merge the histograms first.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from knee.errors import KneeError

_COOKIE = 0x1C849313
_COOKIE_COMPRESSED = 0x1C849314
_HEADER = struct.Struct(">iiiiqqd")
_WRAPPER = struct.Struct(">ii")

_LEB128_BYTES_MAX = 8
"""56 bits. The ninth byte that the format allows would hold counts beyond 2^55."""

Counts = NDArray[np.int64]


class HistogramError(KneeError):
    """The text is not an HdrHistogram, or two histograms have different resolutions."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of values with a resolution of `significant_digits`, in units of `lowest`.

    counts   per bucket from zero upwards, without trailing zeros
    lowest   lowest value that differs from zero, in the unit of the values (here nanoseconds)
    highest  highest value that can be counted
    """

    counts: Counts
    significant_digits: int = 3
    lowest: int = 1
    highest: int = 60_000_000_000

    @classmethod
    def decode(cls, *texts: str) -> Histogram:
        """Read base64 texts of compressed V2 histograms, merged into one. Raises HistogramError."""
        contents = [_content(text) for text in texts]
        resolutions = {content.resolution for content in contents}
        if len(resolutions) > 1:
            raise HistogramError("histograms of different resolutions cannot be merged")
        if not contents:
            return cls(np.zeros(0, dtype=np.int64))
        ((digits, lowest),) = resolutions
        highest = max(content.highest for content in contents)
        numbers, firsts = _read_leb128([content.payload for content in contents])
        # A few bytes can encode a run of zeros of any length: check the length before allocation.
        buckets_max = bucket_of(highest, digits, lowest) + (2 << _half_magnitude(digits))
        lengths = np.where(numbers < 0, -numbers, 1)
        if len(lengths) and lengths.max() > buckets_max:
            raise HistogramError("an HdrHistogram with more buckets than its highest value allows")
        starts = np.cumsum(lengths) - lengths
        sizes = np.diff(np.append(firsts, len(numbers)))
        places = starts - np.repeat(starts[firsts[sizes > 0]], sizes[sizes > 0])
        filled = numbers > 0
        if len(places) and (places + lengths).max() > buckets_max:
            raise HistogramError("an HdrHistogram with more buckets than its highest value allows")
        counts = np.zeros(int(places[filled].max()) + 1 if filled.any() else 0, dtype=np.int64)
        np.add.at(counts, places[filled], numbers[filled])
        return cls(counts, digits, lowest, highest)

    @classmethod
    def merge(cls, histograms: Iterable[Histogram]) -> Histogram:
        """The sum of several histograms. Raises HistogramError if resolutions differ."""
        together = list(histograms)
        if not together:
            return cls(np.zeros(0, dtype=np.int64))
        if len(together) == 1:
            return together[0]
        first = together[0]
        for other in together[1:]:
            if (other.significant_digits, other.lowest) != (first.significant_digits, first.lowest):
                raise HistogramError("histograms of different resolutions cannot be merged")
        counts = np.zeros(max(len(one.counts) for one in together), dtype=np.int64)
        for one in together:
            counts[: len(one.counts)] += one.counts
        highest = max(one.highest for one in together)
        return cls(counts, first.significant_digits, first.lowest, highest)

    def encode(self) -> str:
        """The base64 text of the compressed V2 histogram."""
        payload = _write_leb128(_collapse(self.counts))
        header = _HEADER.pack(_COOKIE, len(payload), 0, self.significant_digits, self.lowest, self.highest, 1.0)
        compressed = zlib.compress(header + payload)
        return base64.b64encode(_WRAPPER.pack(_COOKIE_COMPRESSED, len(compressed)) + compressed).decode("ascii")

    @cached_property
    def total(self) -> int:
        """Number of counted values."""
        return int(self.counts.sum())

    @cached_property
    def _cumulative(self) -> Counts:
        return np.cumsum(self.counts)

    @property
    def mean(self) -> float:
        """Mean of the values, with each at the middle of its bucket; NaN without values."""
        if not self.total:
            return math.nan
        lows, widths = self.buckets()
        return float(((lows + widths // 2) * self.counts).sum() / self.total)

    def percentile(self, percentile: float) -> float:
        """The value that `percentile` % of all values do not exceed: the upper end of its bucket.

        The same as HdrHistogram's `value_at_percentile`. NaN without values.
        """
        total = self.total
        if not total:
            return math.nan
        rank = max(1, math.ceil(round(min(percentile, 100.0) / 100 * total, 6)))
        index = int(np.searchsorted(self._cumulative, rank))
        low, width = _bucket(index, self.significant_digits, self.lowest)
        return float(low + width - 1)

    def buckets(self) -> tuple[Counts, Counts]:
        """Lowest value and width of every bucket of `counts`, in the unit of the values."""
        return _bucket(np.arange(len(self.counts), dtype=np.int64), self.significant_digits, self.lowest)


def _half_magnitude(digits: int) -> int:
    """Binary magnitude of half the sub-buckets of a bucket: 2 · 10^digits values are distinguishable."""
    return max(0, math.ceil(math.log2(2 * 10**digits)) - 1)


def _bucket(index: Counts | int, digits: int, lowest: int) -> tuple[Counts, Counts]:
    """Lowest value and width of the buckets with these indices."""
    half = _half_magnitude(digits)
    bucket = np.maximum((index >> half) - 1, 0)
    sub_bucket = index - (bucket << half)
    shift = bucket + (lowest.bit_length() - 1)
    return sub_bucket << shift, np.int64(1) << shift


def bucket_of(value: int, significant_digits: int = 3, lowest: int = 1) -> int:
    """Index of the bucket that counts a value."""
    half = _half_magnitude(significant_digits)
    units = value >> (lowest.bit_length() - 1)
    bucket = max(0, units.bit_length() - (half + 1))
    return (bucket << half) + (units >> bucket)


def _collapse(counts: Counts) -> Counts:
    """Replace each run of zeros by one negative number."""
    counts = np.trim_zeros(counts, "b")
    if not len(counts):
        return counts
    is_zero = counts == 0
    starts = np.flatnonzero(~is_zero | np.concatenate(([True], ~is_zero[:-1])))
    lengths = np.diff(np.append(starts, len(counts)))
    return np.where(is_zero[starts], -lengths, counts[starts])


@dataclass(frozen=True)
class _Content:
    payload: bytes
    resolution: tuple[int, int]
    highest: int


def _content(text: str) -> _Content:
    """The counts of one histogram as ZigZag LEB128, with its header's fields."""
    try:
        wrapped = base64.b64decode(text, validate=True)
        cookie, length = _WRAPPER.unpack_from(wrapped)
        if cookie != _COOKIE_COMPRESSED:
            raise HistogramError(f"not a compressed HdrHistogram V2: its cookie is {cookie:#x}")
        content = zlib.decompress(wrapped[_WRAPPER.size : _WRAPPER.size + length])
        cookie, size, offset, digits, lowest, highest, _ratio = _HEADER.unpack_from(content)
    except (ValueError, struct.error, zlib.error) as error:
        raise HistogramError(f"not an HdrHistogram: {error}") from error
    if cookie != _COOKIE or offset != 0 or not 0 <= digits <= 5 or lowest < 1:
        raise HistogramError("not an HdrHistogram V2 of Knee's programs")
    payload = content[_HEADER.size : _HEADER.size + size]
    if len(payload) != size:
        raise HistogramError("an HdrHistogram that is cut off")
    if payload and payload[-1] >= 0x80:
        raise HistogramError("an HdrHistogram that is cut off within a number")
    return _Content(payload, (digits, lowest), highest)


def _read_leb128(payloads: list[bytes]) -> tuple[Counts, Counts]:
    """The ZigZag LEB128 numbers of all payloads, and the index of each payload's first number."""
    data = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    lengths = ends - starts + 1
    longest = int(lengths.max(initial=0))
    if longest > _LEB128_BYTES_MAX:
        raise HistogramError("an HdrHistogram with a count beyond 2^55")
    numbers = np.zeros(len(ends), dtype=np.uint64)
    for place in range(longest):
        has = np.flatnonzero(lengths > place)
        septet = (data[starts[has] + place] & 0x7F).astype(np.uint64)
        numbers[has] |= septet << np.uint64(7 * place)
    signed = (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)
    offsets = np.cumsum([0, *(len(payload) for payload in payloads[:-1])])
    return signed, np.searchsorted(starts, offsets)


def _write_leb128(numbers: Counts) -> bytes:
    payload = bytearray()
    for number in numbers.tolist():
        rest = (number << 1) ^ (number >> 63)
        while rest >= 0x80:
            payload.append(rest & 0x7F | 0x80)
            rest >>= 7
        payload.append(rest)
    return bytes(payload)
