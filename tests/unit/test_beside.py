"""Fitted models beside measurements: the queue of a system whose exact solution is known."""

from __future__ import annotations

import pytest
from synthetic import System, synthetic_dataset

from knee.report import model
from knee.report.sheet import Sheet
from knee.verdict import analyse
from knee.verdict.beside import MEASURED
from knee.verdict.text import render_text

pytestmark = pytest.mark.usefixtures("scriptless")


@pytest.mark.parametrize("think_ms", [0.0, 5.0])
def test_fitted_queue_is_exact_queue(think_ms: float) -> None:
    # The closed network of 16 slots, and M/M/16.
    system = System(think_ms=think_ms)
    found = analyse(synthetic_dataset(system))
    assert [row.clients for row in found.beside] == [4, 16, 24, 48, 96]
    last = found.beside[-1]
    exact = system.solve(96)
    waiting = exact.throughput * exact.queueing_ms / 1000
    assert last.model["waiting"] == pytest.approx(waiting, rel=0.02)
    for row in found.beside:
        assert set(row.model) == set(MEASURED) == set(row.measured)
        # Little's law, in both.
        assert row.model["throughput"] * row.model["response_ms"] / 1000 == pytest.approx(row.model["customers"])
        assert row.model["utilisation"] == pytest.approx(row.measured["utilisation"].estimate, rel=0.04)
        assert row.model["customers"] == pytest.approx(row.measured["customers"].estimate, rel=0.04)


def test_model_beside_measurement_is_on_page_and_in_text() -> None:
    found = analyse(synthetic_dataset(System()))
    page = model.section(Sheet(found))
    assert "Model beside measurement</summary>" in page
    assert "<th>model: E[nq]</th>" in page and "<th>measured: E[nq]</th>" in page
    said = "At 96 clients, 76.1 requests wait in the model (closed network with worker slots), and 76.07 ± "
    assert said in page and said in render_text(found)
    assert "the middlewares count only the waiting for a worker slot" in " ".join(render_text(found).split())


def test_law_without_stations_has_no_queue_to_compare() -> None:
    found = analyse(synthetic_dataset(System(slowdown=0.01)))
    assert found.outlooks.systems[0].selection.chosen.model.name == "universal scalability law"
    assert found.beside == ()
    assert "beside measurement" not in model.section(Sheet(found))
