"""Quantities of options. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from knee.errors import SpecError

SHARES = {"%": 0.01, "": 1.0}
TIMES_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def quantity(option: str, text: str, units: Mapping[str, float], example: str) -> float:
    """A number above 0, times its unit. Raises SpecError that names the option."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z%]*)", text.strip())
    if not found or found[2] not in units or not float(found[1]):
        raise SpecError(f"{option} {text}: expected {example}")
    return float(found[1]) * units[found[2]]
