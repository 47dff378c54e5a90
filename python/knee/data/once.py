"""Keeps what was computed from a dataset: several analyses need the same tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from knee.data import Dataset

_P = ParamSpec("_P")
_T = TypeVar("_T")


def once(compute: Callable[Concatenate[Dataset, _P], _T]) -> Callable[Concatenate[Dataset, _P], _T]:
    """A function whose results stay with the dataset, until one of its tables or settings is replaced."""

    @wraps(compute)
    def kept(dataset: Dataset, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        key = (compute, arguments, tuple(options.items()))
        known = dataset.computed.get(key)
        if known is None or any(getattr(dataset, name) is not value for name, value in known[0].items()):
            result = compute(dataset, *arguments, **options)
            known = dataset.computed[key] = {**vars(dataset)}, result
        return known[1]

    return kept
