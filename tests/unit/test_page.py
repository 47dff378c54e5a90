"""The page in a browser: what a reader sees first, and text that could become markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html import escape, unescape
from html.parser import HTMLParser

import pytest
from synthetic import System, synthetic_dataset
from tests.browser import unmarked

from knee.answers import diagnose
from knee.data import csv
from knee.report.charts.model import model_band
from knee.report.glossary import TERMS, explained
from knee.report.page import html
from knee.report.sheet import OPEN_MAX
from knee.stats.intervals import client_count
from knee.verdict import Findings, analyse, render_text

LEVELS = (4, 16, 24, 48)
EVIL = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"


@cache
def single() -> Findings:
    return analyse(synthetic_dataset(System(), LEVELS))


class Figures(HTMLParser):
    """The charts that stand open, and those below "More figures"."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.more: list[str] = []
        self._section = ""
        self._folds = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._section = given.get("id") or "" if tag == "section" else self._section
        self._folds += tag == "details"
        if "data-chart" in given and self._section == "more":
            assert self._folds == 1
            self.more.append(given["data-chart"] or "")
        elif "data-chart" in given and not self._folds:
            self.open.append(given["data-chart"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._folds -= tag == "details"


@pytest.mark.usefixtures("scriptless")
@pytest.mark.parametrize("workers", [None, (4, 8)])
def test_eight_figures_stand_open_and_the_others_in_one_place(workers: tuple[int, ...] | None) -> None:
    found = analyse(synthetic_dataset(System(), LEVELS, workers=workers)) if workers else single()
    figures = Figures()
    figures.feed(html(found))
    assert len(figures.open) == OPEN_MAX and len(figures.more) > OPEN_MAX
    assert {"knee-0", "percentiles", "utilization", "law-residuals", "model-throughput"} <= set(figures.open)


@pytest.mark.usefixtures("scriptless")
def test_knee_is_one_number_everywhere() -> None:
    found = single()
    knee = found.verdicts[0].knee
    assert knee.clients is not None and knee.status == "found"
    number, page = client_count(knee.clients.estimate), html(found)
    plain = unescape(unmarked(page))
    assert f"The knee is at {number} clients" in plain and f"The knee is at {number} clients" in render_text(found)
    assert f"<dt>Knee (clients)</dt><dd>{number}<small>" in plain
    charts = re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)
    assert charts is not None
    specs = json.loads(charts[1])
    assert f'"name": "knee {number}"' in json.dumps(specs["knee-0"])
    (answer,) = diagnose.of(found).configurations
    assert client_count(answer.knee.clients.estimate) == number
    # No other number of clients is called a knee.
    assert set(re.findall(r"knee is at ([\d,.]+) client", plain)) == {number}


@pytest.mark.usefixtures("scriptless")
def test_stations_stand_at_the_top_with_the_bottleneck_marked() -> None:
    page, bottleneck = html(single()), single().verdicts[0].bottleneck
    strip = unmarked(page).split('<ol class="strip"')[1].split("</ol>")[0]
    assert page.index('<ol class="strip"') < page.index('class="finding"')
    (limit,) = re.findall(r'<li class="limit"><span>(.*?)</span>', strip)
    assert unescape(limit) == bottleneck.chosen[0].name
    assert f"<b>{bottleneck.chosen[0].at_most.estimate:.0%} busy</b><small>bottleneck" in strip


def test_terms_are_explained_once_in_a_section() -> None:
    section = '<p title="knee">“knee” is no knee. A knee and Knee\'s, by Little&#x27;s law.</p><svg>knee</svg>'
    marked = explained(section)
    assert marked.count("<abbr") == 2
    assert f'<p title="knee">“knee” is no <abbr title="{TERMS["knee"]}">knee</abbr>. A knee and Knee\'s' in marked
    assert unmarked(marked) == section


def test_wide_band_does_not_flatten_the_measurements() -> None:
    curve = [{"clients": n, "series": "", "value": 100.0, "low": 1.0, "high": 5000.0, "beyond": False} for n in (1, 2)]
    measured = [{"clients": n, "series": "", "value": 90.0, "low": None, "high": None} for n in (1, 2)]
    spec, is_cut = model_band(curve, measured, "X", [1, 2])
    assert is_cut and spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0, 125.0]
    narrow = [row | {"high": 110.0} for row in curve]
    spec, is_cut = model_band(narrow, measured, "X", [1, 2])
    assert not is_cut and spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0, 110.0]


@pytest.mark.usefixtures("scriptless")
def test_names_stay_text() -> None:
    rows = [
        f'"{EVIL.replace(chr(34), chr(34) * 2)}{kind}",{clients},{repetition},{x + repetition},{1000 * clients / x}'
        for kind, most in (("a", 400), ("b", 800))
        for clients, x in {1: 100, 2: 200, 4: 400, 8: most, 16: most}.items()
        for repetition in (1, 2)
    ]
    name = EVIL.replace('"', '""')
    table = csv.parse("\n".join([f'"{name}",clients,repetition,throughput,response_ms', *rows]), f"{EVIL}.csv")
    page = html(replace(analyse(table), name=EVIL, question=EVIL))
    assert EVIL not in page and "<img" not in page
    assert page.count("<script") == 3, "the charts, Vega and page.js"
    assert page.count(escape(EVIL)) > 3
