"""The buttons below each figure, in a browser without a display: what they save."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from html import unescape
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic import System, synthetic_dataset

from knee.report.page import html
from knee.verdict import analyse

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

CLICK_ALL = """<script>
const blobs = [], saved = {};
URL.createObjectURL = (blob) => "blob:" + blobs.push(blob);
HTMLAnchorElement.prototype.click = function () {
  blobs[this.href.slice(5) - 1].text().then((text) => {
    saved[this.download] = text;
    document.getElementById("saved").textContent = JSON.stringify(saved);
  });
};
document.querySelectorAll("details").forEach((details) => { details.open = true; });
const drawn = setInterval(() => {
  if (![...document.querySelectorAll("figure")].every((figure) => figure.querySelector(".save"))) return;
  clearInterval(drawn);
  document.querySelectorAll(".save button").forEach((button) => button.click());
}, 100);
</script><pre id="saved"></pre>"""


@pytest.mark.skipif(CHROMIUM is None, reason="without a browser")
def test_every_figure_is_saved_as_svg_and_csv(tmp_path: Path) -> None:
    page = html(analyse(synthetic_dataset(System(), (4, 16, 24, 48), workers=(4, 8), repetitions=2)))
    path = tmp_path / "report.html"
    path.write_text(page + CLICK_ALL, encoding="utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    run = subprocess.run(
        [str(CHROMIUM), *options, "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = re.search(r'<pre id="saved">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found is not None
    saved: dict[str, str] = json.loads(unescape(found[1]))
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
