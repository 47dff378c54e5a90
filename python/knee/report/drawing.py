"""A chart outside of the page: for notebooks, and as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import vl_convert

from knee.errors import KneeError
from knee.report.charts.knee import knee_response, knee_throughput
from knee.report.charts.vega import Spec
from knee.verdict.knee import Knee

_WIDTH = 520


@dataclass(frozen=True)
class Drawing:
    """A chart as a Vega-Lite specification. Notebooks show it."""

    spec: Spec

    def save(self, path: str | Path) -> None:
        """Write the chart to a file, by its suffix: svg, png, pdf, html or json. Raises KneeError for another one."""
        path = Path(path)
        convert = _FORMATS.get(path.suffix)
        if convert is None:
            raise KneeError(f"{path}: expected a name that ends in {' or '.join(_FORMATS)}")
        found = convert(self.spec)
        path.write_bytes(found if isinstance(found, bytes) else found.encode())

    def _repr_svg_(self) -> str:
        return vl_convert.vegalite_to_svg(self.spec)


def drawing(knee: Knee) -> Drawing:
    """Throughput above response time. Raises KneeError if fewer than two numbers of clients were measured."""
    if len(knee.levels) < 2:
        raise KneeError("plot: needs a closed loop with two numbers of clients or more")
    charts = [{"width": _WIDTH, **chart} for chart in (knee_throughput(knee), knee_response(knee))]
    whole = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "vconcat": charts}
    return Drawing(json.loads(json.dumps(whole), object_hook=_coloured))


def _coloured(part: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _colours()[value[1:]] if isinstance(value, str) and value.startswith("@") else value
        for name, value in part.items()
    }


@cache
def _colours() -> dict[str, str]:
    """The page's colours of the light scheme by name."""
    style = (files("knee.report") / "style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(\w+): (#[0-9a-f]+);", style.partition("@media")[0]))


_FORMATS: dict[str, Callable[[Spec], str | bytes]] = {
    ".svg": vl_convert.vegalite_to_svg,
    ".png": vl_convert.vegalite_to_png,
    ".pdf": vl_convert.vegalite_to_pdf,
    ".html": vl_convert.vegalite_to_html,
    ".json": lambda spec: json.dumps(spec, indent=2),
}
