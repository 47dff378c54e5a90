"""A layered model between two measured levels of a setting on which a request's demands depend linearly: the size of
values, and the mix of requests."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from knee.errors import FitError
from knee.fit.layered import LayeredFit, LayeredSystem
from knee.fit.scenario import Setting

if TYPE_CHECKING:
    from knee.data import Dataset

SIZES = ("workload.value_bytes", "workload.characters")

MIX = "workload.set_get"


def amount(name: str, level: object) -> float | None:
    """The number on which demands depend linearly: bytes, or the share of sets; None for another setting or value."""
    if name in SIZES and isinstance(level, int | float) and not isinstance(level, bool):
        return float(level)
    if name == MIX and isinstance(level, str):
        sets, _, gets = level.partition(":")
        if sets.isdigit() and gets.isdigit() and int(sets) + int(gets):
            return int(sets) / (int(sets) + int(gets))
    return None


def neighbours(
    dataset: Dataset, asked: Mapping[str, Setting | Sequence[Setting]]
) -> tuple[str, Setting, Setting, float] | None:
    """The first asked setting between two measured levels: its name, both levels, and the place between them, 0 to 1.
    None if every asked value of such a setting was measured, or the setting did not vary.

    Raises FitError for a value outside of the measured ones.
    """
    for name, value in asked.items():
        wanted = amount(name, value)
        levels = dataset.spec.factors.get(name, ())
        known = sorted((each, level) for level in levels if (each := amount(name, level)) is not None)
        if wanted is None or len(known) < 2 or wanted in [each for each, _ in known]:
            continue
        if not known[0][0] < wanted < known[-1][0]:
            span = f"{known[0][1]} to {known[-1][1]}"
            raise FitError(f"{name} = {value}: measured from {span}; a prediction needs a level on either side")
        at = bisect([each for each, _ in known], wanted)
        (low, first), (high, second) = known[at - 1], known[at]
        return name, first, second, (wanted - low) / (high - low)
    return None


def between(first: LayeredSystem, second: LayeredSystem, place: float) -> LayeredSystem:
    """The system at a place between two others, 0 to 1: every parameter is linear between them. Both have the same
    tiers. The interval contains the errors of both models.

    Raises FitError if the systems have different tiers.
    """
    if first.data.tiers != second.data.tiers:
        raise FitError("the two measured levels have different tiers")
    near, far = (first, second) if place < 0.5 else (second, first)

    def at(low: LayeredFit, high: LayeredFit) -> LayeredFit:
        def pair(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
            return one[0] + place * (other[0] - one[0]), one[1] + place * (other[1] - one[1])

        return replace(
            low,
            laws=low.laws + place * (high.laws - low.laws),
            inside=pair(low.inside, high.inside),
            outside=pair(low.outside, high.outside),
            share_out=low.share_out + place * (high.share_out - low.share_out),
            wire=None if low.wire is None or high.wire is None else low.wire + place * (high.wire - low.wire),
        )

    return replace(
        near,
        fit=at(first.fit, second.fit),
        draws=tuple(at(*each) for each in zip(first.draws, second.draws, strict=True)),
        misfit=np.concatenate([first.misfit, second.misfit]),
        error=(max(near.error[0], far.error[0]), max(near.error[1], far.error[1])),
        measured=False,
        _loads={},
    )
