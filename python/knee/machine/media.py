"""Storage media: price, durability and power as cited inputs, beside this machine's measured access times."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knee import spec
from knee.errors import SpecError
from knee.machine.findings import Machine
from knee.stats.intervals import number
from knee.stats.tables import columns

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Medium(_Table):
    """One medium; only its name and its sources are required."""

    name: Annotated[str, Field(min_length=1)]
    sources: Annotated[list[str], Field(min_length=1)]
    read_access_us: _Positive | None = None
    write_access_us: _Positive | None = None
    capacity_gb: _Positive | None = None
    price: _Positive | None = None
    mtbf_hours: Annotated[list[_Positive], Field(min_length=2, max_length=2)] | None = None
    keeps_data_without_power: bool | None = None
    idle_w: _Positive | None = None
    typical_w: _Positive | None = None
    writing_w: _Positive | None = None


class Media(_Table):
    """The media of a file, with the currency of their prices."""

    currency: str
    medium: Annotated[list[Medium], Field(min_length=1)]


def read_media(file: Path) -> Media:
    """Read a TOML file of media. Raises SpecError that names every problem."""
    try:
        return Media.model_validate(tomllib.loads(spec.read(file)))
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{file}: not valid TOML: {error}") from error
    except ValidationError as error:
        problems = (
            f"{file}: {'.'.join(str(part) for part in detail['loc'])}: {detail['msg'].lower()}; see docs/machine.md"
            for detail in error.errors()
        )
        raise SpecError("\n".join(problems)) from error


def render_media(media: Media, machine: Machine, capacities_gb: tuple[float, float]) -> str:
    """The media side by side, then this machine's disk and memory with their capacities, and the sources."""
    (disk, memory), beyond = capacities_gb, machine.beyond_caches
    measured = [
        Medium(
            name="this disk",
            sources=["measured: random reads, and random writes with a sync each"],
            read_access_us=1e6 / machine.figures["disk_random_read_per_s"].estimate,
            write_access_us=1e6 / machine.figures["disk_random_synced_write_per_s"].estimate,
            capacity_gb=disk,
        ),
        Medium(
            name="this memory",
            sources=["measured: dependent random reads over the largest working set"],
            read_access_us=None if beyond is None else beyond.latency_ns.estimate / 1000,
            capacity_gb=memory,
        ),
    ]
    every = [*media.medium, *measured]
    sources = list(dict.fromkeys(source for medium in every for source in medium.sources))
    rows = [
        ["", *(medium.name for medium in every)],
        ["read access (µs)", *(_shown(medium.read_access_us) for medium in every)],
        ["write access (µs)", *(_shown(medium.write_access_us) for medium in every)],
        ["capacity (GB)", *(_shown(medium.capacity_gb) for medium in every)],
        [f"price ({media.currency})", *(_shown(medium.price) for medium in every)],
        [f"price per GB ({media.currency})", *(_price_per_gb(medium) for medium in every)],
        ["MTBF (million hours)", *(_range(medium.mtbf_hours) for medium in every)],
        ["keeps data without power", *(_yes(medium.keeps_data_without_power) for medium in every)],
        ["power, idle (W)", *(_shown(medium.idle_w) for medium in every)],
        ["power, typical (W)", *(_shown(medium.typical_w) for medium in every)],
        ["power, writing (W)", *(_shown(medium.writing_w) for medium in every)],
        ["sources", *(" ".join(f"[{sources.index(source) + 1}]" for source in medium.sources) for medium in every)],
    ]
    listed = (f"[{index}] {source}" for index, source in enumerate(sources, start=1))
    return "\n".join(["Storage media", *columns(rows, {0}), *listed])


def _shown(value: float | None) -> str:
    return "–" if value is None else number(value)


def _price_per_gb(medium: Medium) -> str:
    return "–" if medium.price is None or medium.capacity_gb is None else number(medium.price / medium.capacity_gb)


def _range(hours: Sequence[float] | None) -> str:
    return "–" if hours is None else f"{hours[0] / 1e6:g}–{hours[1] / 1e6:g}"


def _yes(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"
