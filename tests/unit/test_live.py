"""The page while a measurement goes on."""

from __future__ import annotations

from pathlib import Path
from queue import Empty

import polars as pl
import pytest
from synthetic import System, synthetic_dataset
from tests.browser import Browser, with_browser

from knee.cli import live
from knee.cli.live import LivePage
from knee.errors import DatasetError
from knee.report import Live
from knee.report.page import html
from knee.verdict import Findings, analyse

pytestmark = pytest.mark.usefixtures("scriptless", "modelless")


def findings_of(runs: int) -> Findings:
    """The findings after the first runs of an experiment, in a mixed order."""
    dataset = synthetic_dataset(System(), (8, 16, 32), workers=(4, 8), repetitions=2)
    points = dataset.points.sort((pl.col("point") * 7 + pl.col("repetition") * 5) % 11).head(runs)
    dataset.points = points
    for name in ("windows", "stations", "probes", "summaries", "totals"):
        table = getattr(dataset, name)
        dataset.__dict__[name] = table.join(
            points.select("point", "repetition"), on=["point", "repetition"], how="semi"
        )
    return analyse(dataset)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the page reads, to be changed."""
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 8])
def test_unfinished_experiment_has_a_page(runs: int) -> None:
    page = html(findings_of(runs), Live(f"In progress: {runs} of 12 runs.", 10))
    assert f"In progress: {runs} of 12 runs." in page and 'data-refresh-s="10"' in page
    assert "<h2>Where the numbers come from</h2>" in page


def test_page_is_drawn_again_after_a_pause(tmp_path: Path, clock: list[float]) -> None:
    found, path, drawn = findings_of(2), tmp_path / "report.html", []
    page = LivePage(path, lambda: drawn.append(clock[0]) or (found, f"{len(drawn)} of 9 runs"), 2)
    for now in (100.0, 109.0, 110.0, 111.0, 121.0):
        clock[0] = now
        page.update()
    assert drawn == [100.0, 110.0, 121.0]
    assert "In progress: 3 of 9 runs." in path.read_text()


def test_drawings_take_a_limited_share_of_the_time(tmp_path: Path, clock: list[float]) -> None:
    found, drawn = findings_of(2), []

    def slow() -> tuple[Findings, str]:
        drawn.append(clock[0])
        clock[0] += 5
        return found, "2 of 9 runs"

    page = LivePage(tmp_path / "report.html", slow, 2)
    while clock[0] < 1000:
        page.update()
        clock[0] += 1
    assert 5 * len(drawn[1:]) <= live.SHARE_MAX * (1000 - drawn[1]) + 5
    assert len(drawn) > 10


def test_stopped_measurement_leaves_a_page_that_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    found = findings_of(2)
    with pytest.raises(KeyboardInterrupt), LivePage(path, lambda: (found, "2 of 9 runs"), 2) as page:
        page.update()
        assert "location.reload" in path.read_text()
        raise KeyboardInterrupt
    text = path.read_text()
    assert "Stopped after 2 of 9 runs." in text and "location.reload" not in text


def test_failure_of_the_page_does_not_end_a_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tried = []

    def fails() -> None:
        tried.append(1)
        raise DatasetError("runs: a table is torn")

    page = LivePage(tmp_path / "report.html", fails, 2)
    page.update()
    page.update()
    said = capsys.readouterr().err
    assert said == "knee: no live page: runs: a table is torn; the measurement continues\n"
    assert len(tried) == 1 and not (tmp_path / "report.html").exists()


READER = """
addEventListener("load", () => {
  const name = "Mean response of every cell";
  const fold = [...document.querySelectorAll("summary")].find((one) => one.textContent === name).parentElement;
  if (!window.name) { window.name = "seen"; fold.open = true; scrollTo(0, 300); }
  const open = document.querySelectorAll("details[open]").length; // Others have the same summary.
  send({ state: document.querySelector(".live")?.textContent ?? "final", top: scrollY, open: fold.open ? open : 0 });
});
"""


@with_browser
def test_open_page_follows_its_file_and_keeps_its_place(tmp_path: Path) -> None:
    found, state = findings_of(8), "In progress: 8 of 12 runs."
    with Browser(tmp_path) as browser:
        browser.open(html(found, Live(state, 1)), READER)
        assert [browser.sent() for _ in range(3)] == 3 * [{"state": state, "top": 300, "open": 1}]
        browser.put(html(found), READER)
        while (last := browser.sent())["state"] != "final":
            pass
        assert last == {"state": "final", "top": 300, "open": 1}
        # The final page stays.
        with pytest.raises(Empty):
            browser.sent(3)
