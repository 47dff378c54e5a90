"""Limits of the experiment file, against points whose response times are known."""

from __future__ import annotations

import polars as pl
import pytest
from specs import CACHE, problems, read
from synthetic import System, synthetic_dataset

from knee import verdict
from knee.data import Dataset
from knee.data.observations import observations
from knee.spec import Thresholds
from knee.verdict.thresholds import thresholds, thresholds_of_table
from knee.verdict.words.thresholds import thresholds as sentences

LIMITED = CACHE + "[thresholds]\n"


def limited(limits: dict[str, float], **settings: int) -> Dataset:
    """Response times of 2.5 ms at 4 clients and 6 ms at 48."""
    dataset = synthetic_dataset(System(), (4, 48), **settings)
    dataset.spec = dataset.spec.model_copy(update={"thresholds": Thresholds(**limits)})
    return dataset


def states(dataset: Dataset) -> dict[str, list[str]]:
    return {one.quantity: [each.state for each in one.judged] for one in thresholds(dataset, observations(dataset))}


@pytest.mark.parametrize(
    ("quantity", "bound", "expected"),
    [
        ("response_ms", 5, ["keeps", "misses"]),
        ("response_ms", 20, ["keeps", "keeps"]),
        ("queueing_ms", 1, ["keeps", "misses"]),
        ("service_ms", 1.9, ["misses", "misses"]),
        ("throughput", 5000, ["misses", "keeps"]),
        ("error_share", 0, ["keeps", "keeps"]),
        ("p50_ms", 3, ["keeps", "misses"]),
        ("p999_ms", 15, ["cannot tell", "misses"]),
    ],
)
def test_limit_between_points_is_missed_by_the_slower(quantity: str, bound: float, expected: list[str]) -> None:
    assert states(limited({quantity: bound})) == {quantity: expected}


def test_mean_within_noise_of_the_limit_cannot_be_judged() -> None:
    dataset = limited({})
    mean = observations(dataset).filter(clients=48)["response_ms"].mean()
    assert isinstance(mean, float)
    dataset.spec = dataset.spec.model_copy(update={"thresholds": Thresholds(response_ms=mean)})
    assert states(dataset) == {"response_ms": ["keeps", "cannot tell"]}


def test_one_repetition_cannot_be_judged() -> None:
    dataset = limited({"response_ms": 5}, repetitions=1)
    assert states(dataset) == {"response_ms": ["cannot tell", "cannot tell"]}
    (line,) = sentences(thresholds(dataset, observations(dataset)), {0: "4 clients", 1: "48 clients"})
    assert line.startswith("Cannot tell whether all 2 points keep response_ms ≤ 5: 4 clients (2.5")
    assert line.endswith("one repetition). Measure more repetitions.")


def test_failed_requests_are_not_throughput() -> None:
    dataset = limited({"throughput": 1000, "error_share": 0.5})
    failing = (pl.col("role") == "load") & (pl.col("point") == 1)
    dataset.windows = dataset.windows.with_columns(errors=pl.when(failing).then(pl.col("count")).otherwise(0))
    assert states(dataset) == {"throughput": ["keeps", "misses"], "error_share": ["keeps", "misses"]}


def test_point_without_an_answer_misses_limits_of_times() -> None:
    dataset = limited({"p99_ms": 1000, "throughput": 1})
    dataset.windows = dataset.windows.filter((pl.col("point") == 0) | (pl.col("repetition") > 1))
    assert states(dataset) == {"p99_ms": ["keeps", "misses"], "throughput": ["keeps", "cannot tell"]}
    found = sentences(thresholds(dataset, observations(dataset)), {})
    assert found[0] == "1 of 2 points misses p99_ms ≤ 1,000: point 1 (a repetition got no answer)."


@pytest.mark.usefixtures("modelless")
def test_limits_of_a_table_are_judged_by_its_columns() -> None:
    rows = {"point": [0, 0, 1, 1], "p99_ms": [3.0, 3.1, 9.0, 9.1], "requests": [100] * 4, "errors": [0, 0, 4, 4]}
    limits = {"p99_ms": 5.0, "error_share": 0.01, "throughput": 1.0}
    p99, errors, throughput = thresholds_of_table(limits, pl.DataFrame(rows))
    assert [each.state for each in p99.judged] == [each.state for each in errors.judged] == ["keeps", "misses"]
    assert [each.state for each in throughput.judged] == ["cannot tell"] * 2


def test_text_names_points_and_kept_limits() -> None:
    findings = verdict.analyse(limited({"response_ms": 5, "error_share": 0.01, "throughput": 10}))
    assert findings.misses
    text = verdict.render_text(findings)
    assert "Thresholds  1 of 2 points misses response_ms ≤ 5: 48 clients (5.979 ± 0.096)." in text
    assert "Every measured point keeps throughput ≥ 10 requests/s and error_share ≤ 0.01." in text
    assert not verdict.analyse(limited({"response_ms": 20})).misses


def test_limits_are_read_and_overridden() -> None:
    assert read(LIMITED + '"p99_ms" = 5').thresholds.given == {"p99_ms": 5}
    assert read(LIMITED + "p99_ms = 5", "thresholds.p99_ms=7").thresholds.given == {"p99_ms": 7}
    assert read(CACHE).thresholds.given == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p99 = 5", 'x.toml:24: thresholds.p99: no such field; did you mean "p99_ms"?'),
        ("p99_ms = 0", "x.toml:24: thresholds.p99_ms: should be greater than 0, not 0"),
        ("error_share = 2", "x.toml:24: thresholds.error_share: should be less than or equal to 1, not 2"),
        ("completed_share = 0.9", "x.toml:24: thresholds.completed_share: needs an open loop: give workload.rate"),
    ],
)
def test_wrong_limit_is_refused_with_its_line(text: str, says: str) -> None:
    assert problems(LIMITED + text) == [says]


def test_limit_of_a_middleware_needs_one() -> None:
    direct = LIMITED.replace("middleware = { hosts = 2, workers = 8 }\n", "").replace(
        '"middleware.workers" = [8, 16]', ""
    )
    says = "x.toml:23: thresholds.queueing_ms: needs a middleware, which measures it"
    assert problems(direct + "queueing_ms = 5") == [says]
