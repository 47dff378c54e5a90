"""The buttons below each figure, in a browser without a display: what they save."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

from synthetic import System, synthetic_dataset
from tests.browser import Browser, with_browser

from knee.report.page import html
from knee.verdict import analyse

CLICK_ALL = """
const blobs = [], saved = {};
URL.createObjectURL = (blob) => "blob:" + blobs.push(blob);
HTMLAnchorElement.prototype.click = function () {
  blobs[this.href.slice(5) - 1].text().then((text) => {
    saved[this.download] = text;
    if (Object.keys(saved).length === document.querySelectorAll(".save button[title^=Save]").length) send(saved);
  });
};
document.querySelectorAll("details").forEach((details) => { details.open = true; });
const drawn = setInterval(() => {
  if (![...document.querySelectorAll("figure")].every((figure) => figure.querySelector(".save"))) return;
  clearInterval(drawn);
  document.querySelectorAll(".save button[title^=Save]").forEach((button) => button.click());
}, 100);
"""


@with_browser
def test_every_figure_is_saved_as_svg_and_csv(tmp_path: Path) -> None:
    page = html(analyse(synthetic_dataset(System(), (4, 16, 24, 48), workers=(4, 8), repetitions=2)))
    with Browser(tmp_path) as browser:
        browser.open(page, CLICK_ALL)
        saved: dict[str, str] = browser.sent()
    figures = [*re.findall(r'data-chart="([^"]+)"', page), "stages-0"]
    assert {f"{name}.{end}" for name in figures for end in ("svg", "csv")} <= set(saved)
    for name, text in saved.items():
        if name.endswith("svg"):
            assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
            assert "var(--" not in text
        else:
            rows = list(csv.reader(StringIO(text)))
            assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
    throughput = list(csv.DictReader(StringIO(saved["clients-throughput.csv"])))
    assert {(row["clients"], row["series"]) for row in throughput} == {
        (clients, workers) for clients in ("4", "16", "24", "48") for workers in ("4", "8")
    }
    assert all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in throughput)
    # A menu's numbers are saved as the names that it shows.
    points = {row["point"] for row in csv.DictReader(StringIO(saved["histogram.csv"]))}
    assert len(points) == 8 and "4 clients, middleware.workers = 4" in points
