"""Puts the page together: the verdict first, then every measurement, then the provenance."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from zlib import crc32

from knee import __version__
from knee.data.recording import write_atomically
from knee.report import (
    balance,
    clients,
    distributions,
    factorial,
    laws,
    model,
    operations,
    outcomes,
    provenance,
    resources,
    timeline,
    verdict,
    views,
)
from knee.report.glossary import explained
from knee.report.sheet import Sheet
from knee.report.tables import folded, grid, heading
from knee.verdict.findings import Findings

_EXPORT = "window.vegaEmbed = vegaEmbed;"
"""The function that the bundled script exports to page.js."""

_GENERATOR = '<meta name="generator" content="knee '
"""The mark of a report."""

_HEAD_BYTES = 1024


@dataclass(frozen=True)
class Live:
    """The state of a measurement that has not ended.

    state      a sentence, such as "In progress: 12 of 48 runs."
    refresh_s  after this time an open page reads its file again; None if the measurement stopped
    """

    state: str
    refresh_s: int | None


def write(findings: Findings, path: Path, live: Live | None = None) -> None:
    """Write the page of the findings to a file. Raises OSError if that fails."""
    content = html(findings, live).encode()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:  # An open page may read the file at any time.
        write_atomically(path, content)


def is_report(path: Path) -> bool:
    """Whether :func:`write` wrote this file. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return _GENERATOR.encode() in file.read(_HEAD_BYTES)


def html(findings: Findings, live: Live | None = None) -> str:
    sheet = Sheet(findings)
    sections: list[tuple[str, str, Callable[[Sheet], str], Sheet]] = [
        ("verdict", "Verdict", verdict.section, sheet),
        *((f"against-{part.axis.field}", clients.title(part), clients.section, part) for part in sheet.parts),
        ("views", "Throughput as server and clients see it", views.section, sheet),
        ("operations", "Response time of each operation", operations.section, sheet),
        ("outcomes", "Reads by outcome", outcomes.section, sheet),
        ("model", "What if there were more clients?", model.section, sheet.parts[0]),
        ("factors", "Which factor matters?", factorial.section, sheet),
        ("laws", "Do the numbers obey the laws?", laws.section, sheet),
        ("percentiles", "Response-time distribution", distributions.section, sheet),
        ("stores", "Requests of each store", balance.section, sheet),
        ("resources", "Resources", resources.section, sheet),
        ("timeline", "Second by second", timeline.section, sheet),
    ]
    present, further = [], ""
    for key, title, section, part in sections:
        before = len(sheet.more)
        if content := section(part):
            present.append((key, title, explained(content)))
        if figures := sheet.more[before:]:
            further += heading(title) + grid(*figures)
    if further:
        present.append(("more", "More figures", folded(f"More figures ({len(sheet.more)})", explained(further))))
    present.append(("provenance", "Where the numbers come from", provenance.section(sheet)))
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in present)
    body = "\n".join(_section(key, title, content) for key, title, content in present)
    question = findings.question
    name = escape(findings.name)
    run = findings.provenance
    cut_off = " Warm-up and cool-down are cut off." if run is not None and run.warmup_s + run.cooldown_s else ""
    style = _resource("style.css")
    state = "" if live is None else f'<p class="live" role="status">{escape(live.state)}</p>'
    refresh = ""
    if live is not None and live.refresh_s is not None:
        refresh = f'<script data-refresh-s="{live.refresh_s}">\n{_resource("live.js")}</script>\n'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{_GENERATOR}{escape(__version__)}">
<title>{name} · Knee</title>
<style>
{style}</style>
</head>
<body>
<header class="page">
<h1>{name}</h1>
{f'<p class="question">{escape(question)}</p>' if question else ""}
{state}<p class="facts">{escape(provenance.facts(findings))}</p>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
<noscript><p class="warnings">The charts need JavaScript. The tables below hold the same numbers.</p></noscript>
{body}
</main>
<footer>Written by knee {escape(__version__)}. Error bars are {findings.level:.0%} Student's t intervals over the
repetitions, unless a caption says otherwise.{cut_off}</footer>
<script type="application/json" id="charts">{_inline_json(sheet.charts)}</script>
<script>{_vega()}</script>
<script>
{_resource("page.js")}</script>
{refresh}</body>
</html>
"""


def _section(key: str, title: str, content: str) -> str:
    heading = "" if key in ("verdict", "more") else f"<h2>{escape(title)}</h2>"
    return f'<section id="{key}" aria-label="{escape(title)}">{heading}{content}</section>'


def _resource(name: str) -> str:
    return (files("knee.report") / name).read_text(encoding="utf-8")


def _inline_json(value: object) -> str:
    """JSON without `<`, so that it does not end the script element around it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def _vega() -> str:
    """The bundled script. Each `</script` in it is escaped, so that it does not end the script element; in code it
    occurs only in strings. Bundling takes seconds, so the user's cache keeps the script of each version.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "knee"
    kept = folder / f"vega-{version('vl-convert-python')}-{crc32(_EXPORT.encode()):08x}.js"
    script = ""
    with suppress(OSError):
        script = kept.read_text(encoding="utf-8")
    if not script:
        import vl_convert

        script = vl_convert.javascript_bundle(_EXPORT)
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            own = folder / f"{os.getpid()}.js"
            write_atomically(own, script.encode())
            own.replace(kept)
    return script.replace("</script", "<\\/script")
