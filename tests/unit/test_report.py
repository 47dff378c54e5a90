"""The report: whole, self-contained, and honest about text it did not write."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import vl_convert
from synthetic import System, closed_system, elsewhere, open_loop, synthetic_dataset
from tests.browser import unmarked
from tests.unit.test_layered import runs, setup

from knee.data import csv
from knee.data.hdr import Histogram
from knee.fit.layered import layered_system
from knee.report import is_report, verdict, write
from knee.report import page as whole
from knee.report.charts.vega import Axis
from knee.report.page import _vega
from knee.report.sheet import Sheet
from knee.report.tables import estimate_and_ends, mapping, table
from knee.stats.intervals import Interval
from knee.verdict import Findings, analyse, words
from knee.verdict.distributions import densities, merged, percentiles
from knee.verdict.limits import limits_of

pytestmark = pytest.mark.usefixtures("scriptless")
modelless = pytest.mark.usefixtures("modelless")

LEVELS = (4, 16, 24, 48)
FEW = (8, 16)
"""Client counts for pages without a model: two are too few to fit one, which takes seconds."""
DATA = Path(__file__).resolve().parents[1] / "data"


def html(findings: Findings) -> str:
    """The page without the marks of its glossary."""
    return unmarked(whole.html(findings))


class Links(HTMLParser):
    """Every address that a browser would fetch for the page."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.charts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "data-chart" in given:
            self.charts.append(given["data-chart"] or "")
        for name in ("src", "href", "srcset", "poster", "data"):
            address = given.get(name)
            if address and not (tag == "a" and address.startswith("#")):
                self.fetched.append(address)


@cache
def two_factors() -> Findings:
    """Of clients and workers, with text that could become markup."""
    dataset = synthetic_dataset(System(), LEVELS, workers=(4, 8), repetitions=2)
    dataset.question = "Is 1 < 2 & </script><script>alert(1)</script>?"
    dataset.manifest = {"commands": ["knee-kv --listen <any>"], "seed": 7}
    return analyse(dataset)


bundle = cache(vl_convert.javascript_bundle)


@pytest.fixture
def bundled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle of Vega, made once for all tests: it takes two seconds."""
    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)


@pytest.mark.usefixtures("bundled_once")
def test_script_is_kept_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = _vega.__wrapped__()
    (kept,) = (tmp_path / "knee").iterdir()
    assert kept.read_text(encoding="utf-8").replace("</script", "<\\/script") == script
    kept.write_text("kept")
    assert _vega.__wrapped__() == "kept"


@modelless
@pytest.mark.usefixtures("bundled_once")
def test_whole_page_is_small_and_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knee.report.page._vega", _vega.__wrapped__)
    # No cache.
    monkeypatch.setenv("XDG_CACHE_HOME", __file__)
    page, links = html(two_factors()), Links()
    links.feed(page)
    assert links.fetched == []
    assert not re.search(r"@import|url\(", page.split("</style>")[0])
    assert "vegaEmbed" in page and len(page) < 2_500_000


@modelless
def test_run_of_two_factors_has_its_page() -> None:
    page, links = html(two_factors()), Links()
    links.feed(page)
    specs = specifications(page)
    assert set(specs) == set(links.charts)
    assert {"knee-0", "knee-1", "clients-throughput", "law-residuals", "percentiles", "histogram"} <= set(specs)
    assert {"utilization", "cpu-shares", "timeline-throughput", "cpu-timeline"} <= set(specs)
    draw(specs)
    order = ("The knee is at", "Against clients</h2>", "Which factor matters?</h2>", "Where the numbers come from</h2>")
    assert sorted(order, key=page.index) == list(order)
    # Text of the experiment is no markup.
    assert "<script>alert" not in page
    assert "Is 1 &lt; 2 &amp; &lt;/script&gt;" in page
    assert "knee-kv --listen &lt;any&gt;" in page
    for response in ("throughput", "response_ms"):
        assert f"Largest effect on {response}: load.clients." in page
        assert {
            f"factorial-{response}-{name}" for name in ("variation", "levels-0", "levels-1", "interaction-0")
        } <= set(specs)
        assert f"factorial-{response}-effects" not in specs, "effects of more than two levels are drawn as means"
    chart: Any = specs["clients-throughput"]
    assert chart["encoding"]["x"]["title"] == "Clients"
    assert not [layer for layer in layers(chart) if "strokeDash" in layer["mark"]]
    assert "follows the arrival rate" not in in_words(page)


def specifications(page: str) -> dict[str, dict[str, object]]:
    """The charts of a page by name."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    specs: dict[str, dict[str, object]] = json.loads(found.group(1))
    return specs


DRAWN: set[str] = set()


def draw(specs: dict[str, dict[str, object]]) -> None:
    """Every kind of chart as Vega draws it: an invalid one raises, an empty one has no path."""
    import vl_convert

    for name, spec in specs.items():
        kind = json.dumps(kind_of(spec), sort_keys=True)
        if kind in DRAWN:
            continue
        inked = json.loads(re.sub(r'"@\w+"', '"#123456"', json.dumps(spec)))
        svg = vl_convert.vegalite_to_svg(inked | {"width": 400})
        assert "<path" in svg, name
        assert "NaN" not in svg, name
        DRAWN.add(kind)


TEXTS = ("title", "labelExpr", "domain", "axis", "bind")


def kind_of(spec: Any) -> Any:
    """A chart's specification without its text; of its data, the fields with the signs of their values."""
    if isinstance(spec, list):
        return [kind_of(one) for one in spec]
    if not isinstance(spec, dict):
        return spec
    kind = {name: kind_of(of) for name, of in spec.items() if name not in TEXTS}
    if isinstance(rows := spec.get("values"), list):
        signs = {(name, sign_of(value)) for row in rows if isinstance(row, dict) for name, value in row.items()}
        kind["values"] = sorted(signs)
    return kind


def sign_of(value: object) -> str:
    """Of a number; of anything else its type."""
    return str(np.sign(float(value))) if isinstance(value, float | int) else type(value).__name__


def test_page_of_one_factor_names_hardware_and_folds_commands() -> None:
    dataset = synthetic_dataset(System(), FEW)
    odd = pl.when(pl.col("point") % 2 == 1)
    dataset.points = dataset.points.with_columns(stores=odd.then(3).otherwise("stores"))
    dataset.manifest = {"knee": "1.0", "notes": [], "commands": {"0-r1": {"store-0": ["knee-kv", "--port", "1"]}}}
    page = markup(html(analyse(dataset)))
    assert "2 middlewares · 1 or 3 stores" in page
    assert "Which factor matters?" not in page
    manifest = page.split('<section id="provenance"')[1].split("</section>")[0]
    assert manifest.index("</table>") < manifest.index("The commands as started") < manifest.index("knee-kv --port 1")
    assert "notes" not in manifest


def test_names_in_a_table_cannot_become_markup() -> None:
    page = page_of('<b>x</b>,"y"" onload=1",throughput\n</script>,1,10\n</script>,2,20\n<i>,1,30\n<i>,2,45\n')
    assert "<b>x</b>" not in page and '" onload=1' not in markup(page)
    assert "Largest effect on throughput: <b>x</b>. Going from </script> to <i>" in in_words(page)
    assert set(specifications(page)) == {
        f"factorial-throughput-{name}" for name in ("effects", "variation", "interaction-0")
    }


def test_common_findings_stand_above_configurations() -> None:
    rows = [
        f"{cache},{clients},{repetition},{x + repetition},{1000 * clients / (x + repetition)}"
        for cache, top in (("cold", 400), ("warm", 800))
        for clients, x in {1: 100, 2: 200, 4: 400, 8: top, 16: top}.items()
        for repetition in (1, 2)
    ]
    section, _ = verdict_of("\n".join(["cache,clients,repetition,throughput,response_ms", *rows]))
    first = section.index("<h3>cache = cold</h3>")
    assert section.index("</table>") < section.index("Largest effect on throughput") < first
    assert section.index("The interactive law") < first
    assert section.count("Largest effect on throughput") == section.count("The interactive law") == 1


def test_page_has_what_the_layered_model_gains() -> None:
    findings = two_factors()
    model = layered_system(runs([setup(clients) for clients in (8, 16, 32, 64, 256)]), level=0.95, seed=0)
    limits = limits_of([model], range(5), findings.verdicts[0].knee)
    found = replace(findings, verdicts=tuple(replace(each, limits=limits) for each in findings.verdicts))
    said = words.bottleneck_lines(found.verdicts[0].bottleneck, limits)
    assert any(
        line.endswith("These gains come from the layered model of slots, threads and processors.") for line in said
    )
    page = unescape(html(found))
    assert all(line in page for line in said)


def test_section_of_numbers_alone_shows_them() -> None:
    """The verdict draws the only curve, so this section has no open figure."""
    page = page_of("clients,throughput,response_ms\n1,100,10\n2,200,10\n4,400,10\n")
    section = page.split('<section id="against-clients"')[1].split("</section>")[0]
    assert "<table>" in section and "<details>" not in section and 'class="grid"' not in section


def test_parts_of_the_response_time_name_their_client_counts() -> None:
    """Without a knee, the parts grow from the fewest clients, and there is no utilisation at a knee."""
    page = html(analyse(synthetic_dataset(System(), (2, 4, 8))))
    section = page.split('<section id="resources"')[1].split("</section>")[0]
    parts = section.split("part of the response time")[1].split("</tr>")
    assert all(re.search(r"<td>2</td><td>[^<]*</td><td>8</td>", row) for row in parts[1:5])
    assert "utilisation at the largest client count" in section and "utilisation at the knee" not in section


def test_figures_have_the_digits_of_their_sentence() -> None:
    rows = [
        f"{n},{r},{x},{1000 * n / x}"
        for n, top in ((1, 100), (2, 200), (4, 203), (8, 204))
        for r, x in enumerate((top, top + 13.7), 1)
    ]
    page, _ = verdict_of("\n".join(["clients,repetition,throughput,response_ms", *rows]))
    estimate, width = re.findall(r"<dt>Requests/s</dt><dd>(.*?)<small>(.*?) at ", page)[0]
    assert f"throughput is {estimate} {width} requests/s" in page


def test_shares_stand_right_like_numbers() -> None:
    page = table(("station", "busy"), [("a", "94.2% ± 7.4%"), ("b", None), ("c", "more than 99.9%")])
    assert "<td>94.2% ± 7.4%</td>" in page and "<td>–</td>" in page and '<td class="text">c</td>' in page


def test_measured_numbers_of_the_manifest_are_rounded() -> None:
    assert ">1.2346<" in mapping({"machine": {"latency_ns": 1.23456789, "rounds": 3}})


def test_captions_claim_no_knee_where_none_was_found() -> None:
    rising, _ = verdict_of("clients,throughput,response_ms\n1,100,10\n2,200,10\n4,400,10\n")
    assert captions(rising)["knee-0"] == (
        "Measured throughput (dots) and two asymptotes: a rising line, with the response time of 1 client, and a level "
        "line, the mean of the largest measurements."
    )
    assert (
        captions(rising)["knee-response-0"]
        == "Response time at the same client counts: 10.0 ms at 1 client, 10.0 ms at 4."
    )


def test_captions_claim_no_asymptotes_where_none_are_drawn() -> None:
    two, specs = verdict_of(
        "clients,repetition,throughput,response_ms\n1,1,100,10\n1,2,101,10\n4,1,150,26\n4,2,151,26\n"
    )
    assert captions(two)["knee-0"] == "Measured throughput (dots, with error bars)."
    assert "rule" not in marks(specs["knee-response-0"], "@accent")


@pytest.mark.parametrize(
    ("levels", "ends"),
    [
        ({1: (100, 101), 2: (190, 192), 4: (300, 302), 8: (301, 303)}, "; the band is its interval."),
        (
            {1: (54, 56), 2: (200, 202), 4: (430, 436), 8: (431, 437)},
            "; the band is its interval, within the measured clients.",
        ),
        # More than twice of one client's throughput: the asymptotes meet beyond the last count.
        ({1: (100, 101), 2: (300, 303), 4: (900, 909), 8: (905, 910)}, "the largest throughput of the system."),
    ],
    ids=["inside", "partly", "beyond"],
)
def test_captions_tell_of_the_knee_as_far_as_it_is_drawn(levels: dict[int, tuple[int, int]], ends: str) -> None:
    rows = [f"{n},{r},{x},{1000 * n / x}" for n, pair in levels.items() for r, x in enumerate(pair, 1)]
    section, specs = verdict_of("\n".join(["clients,repetition,throughput,response_ms", *rows]))
    said, spec = captions(section)["knee-0"], specs["knee-0"]
    assert said.endswith(ends), said
    assert ("They meet at the knee" in said) == ("rule" in marks(spec, "@accent"))
    assert ("the band" in said) == ("rect" in marks(spec, "@accent"))
    for layer in layers(spec):
        if layer.get("mark", {}).get("type") == "rect":
            (band,) = layer["data"]["values"]
            assert min(levels) <= band["from"] <= band["to"] <= max(levels)


def test_largest_throughput_stands_in_the_verdict() -> None:
    def rows(noise: float) -> str:
        lines = [
            f"{n},{m},{r},{x},{1000 * n / x}"
            for n in (1, 2, 4, 8)
            for m in (1, 2, 4)
            for r in (1, 2)
            for x in (100 * min(n, m) * (1 + noise * (2 * r - 3)),)
        ]
        return "\n".join(["clients,connections,repetition,throughput,response_ms", *lines])

    (quiet, _), (noisy, _) = verdict_of(rows(0.01)), verdict_of(rows(0.6))
    said = "Throughput is largest with clients = 4, connections = 4: 400 requests/s (95% interval: "
    assert said in quiet and quiet.index("Largest throughput") < quiet.index("Largest effect on throughput")
    assert (
        "Throughput may be as large with clients = 8, connections = 4. With the 10 others, throughput is surely lower."
        in quiet
    )
    assert "may be the largest" not in quiet
    # More than a sentence names stand in a table.
    assert "The 12 configurations whose throughput may be the largest</summary>" in noisy
    single, _ = verdict_of("clients,throughput,response_ms\n1,100,10\n2,200,10\n4,400,10\n")
    assert "Largest throughput" not in single


def test_interval_over_more_than_two_decades_is_not_printed() -> None:
    assert estimate_and_ends(Interval(0.0568, 0.000049, 65.9e12, 0.95, 2)) == (
        0.0568,
        "cannot tell from two repetitions",
        None,
    )
    assert estimate_and_ends(Interval(5.0, 0.5, 50.0, 0.95, 5)) == (5.0, 0.5, 50.0)


def captions(page: str) -> dict[str, str]:
    """What stands below each chart."""
    found = re.findall(r'data-chart="([^"]*)".*?<figcaption>(.*?)</figcaption>', markup(page))
    return {name: unescape(text) for name, text in found}


def marks(spec: Any, color: str) -> set[str]:
    """The kinds of marks of a colour, in layers and in layers of these."""
    inner = {kind for layer in spec.get("layer", ()) for kind in marks(layer, color)}
    mark = spec.get("mark", {})
    return inner | ({mark["type"]} if mark.get("color") == color else set())


def test_page_without_own_servers_names_them_as_unmeasured() -> None:
    dataset = elsewhere(elsewhere(synthetic_dataset(System(), FEW), "store"), "middleware")
    page = html(analyse(dataset))
    assert "Not measured: the middlewares (they run elsewhere); the stores (they run elsewhere)." in page
    assert 'data-chart="clients-throughput"' in page
    assert 'data-chart="clients-queueing_ms"' not in page
    assert "Response time (ms)" in in_words(page) and "Queueing time (ms)" not in in_words(page)


RATES = {2: 800.0, 4: 1600.0, 8: 3200.0, 48: 16000.0}
"""Arrival rates, by how many clients of a closed loop get through as much: the last rate is twice that."""


def test_an_open_loop_is_drawn_against_its_arrival_rate() -> None:
    page_of_rates = html(analyse(open_loop(RATES)))
    words, specs = in_words(page_of_rates), specifications(page_of_rates)
    draw(specs)
    assert "Against the arrival rate" in headings(page_of_rates)
    measured = {
        f"rate-{name}"
        for name in ("throughput", "response_ms", "queue_length", "queueing_ms", "service_ms", "middleware_response_ms")
    }
    assert measured <= set(specs)
    assert not [name for name in specs if name.startswith(("clients-", "knee-"))]
    chart: Any = specs["rate-response_ms"]
    assert (chart["encoding"]["x"]["title"], chart["encoding"]["x"]["scale"]["type"]) == (
        "Arrival rate (requests/s)",
        "log",
    )
    assert [row["rate"] for row in chart["data"]["values"]] == list(RATES.values())
    assert all(row["low"] <= row["value"] <= row["high"] for row in chart["data"]["values"])
    assert "color" not in chart["encoding"], "the rate makes no line of its own"
    assert "the wait grows with the length of the run." in words
    assert "arrival rate (requests/s)" in words and "16,000" in words
    dotted = [layer for layer in layers(specs["rate-throughput"]) if "strokeDash" in layer["mark"]]
    assert len(dotted) == 1
    line = dotted[0]["data"]["values"]
    assert (line[0]["rate"], line[-1]["rate"]) == pytest.approx((800, 16000))
    assert all(row["rate"] == row["value"] for row in line)
    assert not [layer for layer in layers(specs["rate-response_ms"]) if "strokeDash" in layer["mark"]]
    for name, field in (("percentiles", "value_ms"), ("utilization", "resource"), ("cpu-shares", "owner")):
        assert sorted({row["rate"] for row in drawn(specs[name], field)}) == list(RATES.values())
        assert "params" not in specs[name], "there is one line, and nothing to choose"
    points: Any = specs["timeline-throughput"]["params"]
    assert points[0]["bind"]["labels"] == [f"{rate:,.0f} requests/s" for rate in RATES.values()]
    assert words.index("Throughput follows the arrival rate up to 3,200 requests/s. At 16,000") < (
        words.index("it has no knee over clients")
    )
    assert words.count("it has no knee over clients") == 1
    assert "at the knee" not in words, "one client count has no knee to be busy at"
    words = " ".join(words.split())
    said = "There is no bottleneck at this arrival rate: throughput follows it."
    assert words.count(said) == 3
    assert "workload.rate = 16000.0 The bottleneck is the middleware's worker slots (100% busy)." in words


def layers(spec: Any) -> list[dict[str, Any]]:
    return list(spec["layer"])


def test_other_factors_make_lines_over_the_arrival_rate() -> None:
    page = html(analyse(open_loop(RATES, workers=(4, 8))))
    specs = specifications(page)
    draw(specs)
    colour: Any = specs["rate-throughput"]["encoding"]
    assert (colour["color"]["title"], colour["color"]["scale"]["domain"]) == ("middleware.workers", ["4", "8"])
    assert {row["series"] for row in drawn(specs["rate-throughput"], "low")} == {"4", "8"}
    assert "middleware.workers = 4: Throughput follows the arrival rate up to" in in_words(page)
    assert "Largest effect on throughput: workload.rate." in in_words(page)


def test_a_table_with_rates_is_drawn_against_them() -> None:
    rows = [
        f"40,{workers},{rate},{repetition},{min(rate, 60 * workers) + repetition / 100},{rate / workers}"
        for workers in (4, 8)
        for rate in (100, 200, 400)
        for repetition in (1, 2)
    ]
    page = page_of("\n".join(["clients,workers,rate,repetition,throughput,response_ms", *rows]))
    specs = specifications(page)
    draw(specs)
    assert headings(page)[0] == "Against the arrival rate"
    assert {name for name in specs if not name.startswith("factorial")} == {"rate-throughput", "rate-response_ms"}
    chart: Any = specs["rate-response_ms"]
    assert [(row["series"], row["rate"]) for row in chart["data"]["values"]] == [
        (workers, rate) for workers in "48" for rate in (100, 200, 400)
    ]
    words = in_words(page)
    assert "workers = 4: Throughput follows the arrival rate up to 200 requests/s. At 400" in words
    assert words.count("it has no knee over clients") == 1
    assert "Going from 100 to 400 raises throughput" in words


BOTH = "\n".join(
    [
        "clients,rate,repetition,throughput,response_ms,utilization_db",
        *(
            f"{clients},,{repetition},{x + repetition},{1000 * clients / (x + repetition)},{x / 1000}"
            for clients, x in {1: 100, 2: 200, 4: 400, 8: 760, 16: 980, 32: 990}.items()
            for repetition in (1, 2)
        ),
        *(
            f",{rate},{repetition},{x + repetition / 10},10,{x / 1000}"
            for rate, x in {200: 200, 500: 500, 1500: 990}.items()
            for repetition in (1, 2)
        ),
    ]
)
"""Clients who wait for a database, and requests that do not."""


@modelless
def test_a_table_of_both_loops_has_each_over_its_own_axis() -> None:
    page = page_of(BOTH)
    specs, words = specifications(page), " ".join(in_words(page).split())
    draw(specs)
    assert headings(page)[:2] == ["Against clients", "Against the arrival rate"]
    for name, field, levels in (("clients", "clients", [1, 2, 4, 8, 16, 32]), ("rate", "rate", [200, 500, 1500])):
        chart: Any = specs[f"{name}-throughput"]
        assert [row[field] for row in chart["data"]["values"]] == levels
    assert [row["rate"] for row in drawn(specs["utilization-rate"], "resource")] == [200, 500, 1500]
    assert {"knee-0", "utilization"} <= set(specs) and "knee-1" not in specs
    assert re.search(r"closed loop [\d.]+ found", words) and "rate = 200 – open loop" in words
    assert "Throughput follows the arrival rate up to 500 requests/s. At 1,500" in words
    assert (
        "holds within 2% at 6 points" in words
        and "does not apply to the open loop at rate = 200; rate = 500; rate = 1500" in words
    )
    assert "Cannot tell which factor matters for a closed and an open loop together" in words
    assert "None" not in words and "nan" not in words


def test_bottleneck_of_a_table_is_at_unfollowed_rates_only() -> None:
    rows = [f"{rate},{min(rate, 300) + luck},5,{min(rate, 300) / 300}" for rate in (100, 200, 400) for luck in (0, 0.1)]
    words = " ".join(in_words(page_of("\n".join(["rate,throughput,response_ms,utilization_db", *rows]))).split())
    assert words.count("There is no bottleneck at this arrival rate: throughput follows it.") == 2
    assert "rate = 400 The bottleneck is station db (100% busy)." in words
    assert "at 1 client" not in words


def test_single_rate_over_clients_is_drawn_without_a_knee() -> None:
    dataset = synthetic_dataset(System(), LEVELS)
    dataset.points = dataset.points.with_columns(think_ms=pl.lit(None, dtype=pl.Float64), rate=pl.lit(1000.0))
    page = html(analyse(dataset))
    specs, words = specifications(page), in_words(page)
    draw(specs)
    assert not [name for name in specs if name.startswith("knee-")] and "law-throughput" not in specs
    assert "it has no knee over clients" in words
    chart: Any = specs["clients-throughput"]
    assert [row["clients"] for row in chart["data"]["values"]] == list(LEVELS)
    assert "color" not in chart["encoding"]
    assert "they meet at the knee" not in words.lower() and "grows with every client" not in words
    assert "The number of clients only limits how many requests there can be in flight" in words
    assert f"load.clients = {LEVELS[-1]}: Throughput follows the arrival rate: at 1,000 requests/s" in words
    assert "at the knee" not in words and "at most clients" not in words


def test_clients_that_grow_with_the_rate_make_no_knee_to_draw() -> None:
    rows = [f"{rate // 10},{rate},{rate},{1 + rate / 100}" for rate in (100, 200, 400)]
    page = page_of("\n".join(["clients,rate,throughput,response_ms", *rows]))
    assert set(specifications(page)) == {"rate-throughput", "rate-response_ms"}
    assert "up to 400 requests/s, the largest measured" in in_words(page)


def test_a_page_of_one_client_count_draws_no_curve_of_one_dot() -> None:
    page = html(analyse(synthetic_dataset(System(), (8,), workers=(4, 8))))
    words = in_words(page)
    assert words.count("Only 1 client count was measured") == 1
    assert words.count("Largest effect on throughput") == 0
    assert "The evidence for every bottleneck" in words
    assert "At 8 clients" in headings(page)
    assert not {"knee-0", "clients-throughput"} & set(specifications(page))


def test_numeric_factor_at_constant_load_is_the_axis() -> None:
    page = html(analyse(synthetic_dataset(System(), (32,), workers=(1, 2, 4, 8))))
    specs, words = specifications(page), in_words(page)
    draw(specs)
    assert "Against middleware.workers, at 32 clients" in headings(page)
    chart: Any = specs["level-throughput"]
    assert chart["encoding"]["x"]["title"] == "middleware.workers"
    assert [row["level"] for row in chart["data"]["values"]] == [1, 2, 4, 8]
    assert "color" not in chart["encoding"], "the factor makes no line of its own"
    assert sorted({row["level"] for row in drawn(specs["percentiles"], "value_ms")}) == [1, 2, 4, 8]
    residuals: Any = specs["law-residuals"]
    assert residuals["layer"][1]["encoding"]["x"]["title"] == "middleware.workers"
    assert list(dict.fromkeys(row["at"] for row in drawn(residuals, "residual"))) == ["1", "2", "4", "8"]
    assert "grows with every client" not in words
    assert words.index("Throughput is largest with middleware.workers = 8") < words.index("Only 1 client count")
    points: Any = specs["timeline-throughput"]["params"]
    assert points[0]["bind"]["labels"] == [f"middleware.workers = {workers}" for workers in (1, 2, 4, 8)]


def test_configurations_without_an_axis_stand_side_by_side() -> None:
    page = html(analyse(synthetic_dataset(System(), (32,), workers=(4, 8))))
    specs, words = specifications(page), " ".join(in_words(page).split())
    draw(specs)
    for name, field in (("configuration-throughput", "low"), ("percentiles", "value_ms"), ("utilization", "resource")):
        marks = [layer["mark"]["type"] for layer in layers(specs[name])]
        assert "line" not in marks, "between names there is nothing"
        assert "params" not in specs[name], "all are there, and nothing to choose"
        assert sorted({row["configuration"] for row in drawn(specs[name], field)}) == [0, 1]
    chart: Any = specs["configuration-throughput"]
    axis = chart["encoding"]["x"]
    assert (axis["title"], axis["axis"]["labelExpr"]) == ("middleware.workers", '["4", "8"][datum.value]')
    assert "middleware.workers Throughput (requests/s)" in words, "a table names them, and does not number them"
    assert "At 32 clients, get took" in words and "with middleware.workers = 8" in words


def test_names_too_long_to_stand_level_are_tilted_and_all_there() -> None:
    short, long = (Axis("configuration", "", [0, 1], [name, name]).spec["axis"] for name in ("20", 12 * "20, "))
    assert (short["labelAngle"], long["labelAngle"], long["labelOverlap"]) == (0, -40, False)


def test_factor_with_most_numbers_is_the_axis() -> None:
    rows = [
        f"8,{cache},{workers},{repetition},{100 * workers + repetition}"
        for cache in ("cold", "warm")
        for workers in (1, 2, 4)
        for repetition in (1, 2)
    ]
    page = page_of("\n".join(["clients,cache,workers,repetition,throughput", *rows]))
    chart: Any = specifications(page)["level-throughput"]
    assert chart["encoding"]["x"]["title"] == "workers"
    assert chart["encoding"]["color"]["title"] == "cache"
    words = in_words(page)
    assert "Throughput is largest with cache = cold, workers = 4: " in words, "of several factors, with levels of all"
    assert "Throughput is largest with workers" not in words


def test_percentiles_come_from_merged_histograms() -> None:
    # 99 fast requests in one repetition, 1 slow one in the other: the mean of both medians would be 50.5 ms.
    fast = Histogram(np.bincount([1000] * 99).astype(np.int64), lowest=1)
    slow = Histogram(np.bincount([2000]).astype(np.int64), lowest=1)
    table = percentiles({(0, 1, "load", "get"): fast, (0, 2, "load", "get"): slow})
    median = table.filter((pl.col("percentile") == 50) & (pl.col("op") == "get")).row(0, named=True)
    assert median["value_ms"] == pytest.approx(0.001)
    assert (median["low_ms"], median["high_ms"]) == pytest.approx((0.001, 0.002))


def test_a_drawn_histogram_holds_every_request_once() -> None:
    dataset = synthetic_dataset(System(), (8,), repetitions=2)
    sums = densities(merged(dataset)).group_by("point", "role", "op").agg(pl.col("share").sum())
    assert set(sums["role"]) == {"load", "middleware"}
    assert sums["share"].to_list() == pytest.approx([1.0] * sums.height)


@cache
def page_of(table: str, *renames: str) -> str:
    """The page of a CSV: a file of tests/data, or its text."""
    is_file = table.endswith(".csv")
    return html(analyse(csv.read(DATA / table, renames) if is_file else csv.parse(table, "theirs.csv", renames)))


def verdict_of(table: str) -> tuple[str, dict[str, Any]]:
    """The section of the verdict on a CSV, and its charts: without a model, which takes seconds to fit."""
    sheet = Sheet(analyse(csv.parse(table, "theirs.csv")))
    return verdict.section(sheet), dict(sheet.charts)


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", markup(page))


def in_words(page: str) -> str:
    """What stands on a page, without scripts and markup."""
    return unescape(re.sub(r"<[^>]+>", " ", markup(page)))


def markup(page: str) -> str:
    """A page up to its scripts."""
    return page.split('<script type="application/json"')[0]


LONE_FACTORS = ["Which factor matters?", "Do the numbers obey the laws?", "Where the numbers come from"]


def test_the_page_of_a_replicated_table() -> None:
    """Seed 000, table 27: a 2^3·3 design of throughput alone."""
    page = page_of("seed000_table27.csv")
    assert headings(page) == LONE_FACTORS
    words = in_words(page)
    assert "Largest effect on throughput: workers. Going from 8 to 32 multiplies throughput by 1.76 (1.74" in words
    assert "Cannot look for a knee without the number of clients (column clients) and response times" in words
    assert "seed000_table27.csv" in words and "24 observations" in words
    specs = specifications(page)
    assert {f"factorial-throughput-{name}" for name in ("effects", "variation", "residuals-prediction")} <= set(specs)
    assert "factorial-throughput-residuals-order" not in specs, "the order of the runs is not known"
    draw(specs)
    effects = drawn(specs["factorial-throughput-effects"], "q")
    assert [row["term"].split()[0] for row in effects] == ["C", "A", "B", "AB", "BC", "ABC", "AC"]
    assert effects[0]["q"] == pytest.approx(0.2832, abs=1e-4)
    assert effects[0]["low"] < effects[0]["q"] < effects[0]["high"]
    # No interaction explains a per cent, so the largest has a figure.
    assert [name for name in specs if "interaction" in name] == ["factorial-throughput-interaction-0"]
    lines = drawn(specs["factorial-throughput-interaction-0"], "line")
    assert {(row["level"], row["line"]) for row in lines} == {(a, c) for a in "12" for c in "13"}


def test_a_significant_interaction_is_reported() -> None:
    """Two middlewares gain 500 requests/s with few workers, 2500 with many."""
    means = {(1, 8): 3000, (1, 32): 5000, (2, 8): 3500, (2, 32): 7500}
    rows = [f"{m},{w},{r},{mean + 10 * r}" for (m, w), mean in means.items() for r in (1, 2, 3)]
    page = html(analyse(csv.parse("\n".join(["middlewares,workers,repetition,throughput", *rows]), "x.csv")))
    assert "Interactions that matter: middlewares × workers (" in in_words(page)
    figure: Any = specifications(page)["factorial-throughput-interaction-0"]
    assert {(row["level"], row["line"]) for row in drawn(figure, "line")} == {(m, w) for m in "12" for w in ("8", "32")}


def drawn(spec: Any, field: str) -> list[dict[str, Any]]:
    """The records of the first layer that has a field."""
    for layer in spec.get("layer", [spec]):
        values = layer.get("data", spec.get("data", {})).get("values", [])
        if values and field in values[0]:
            return list(values)
    raise AssertionError(f"no layer has {field}")


def test_table_without_repetitions_has_lenths_margins() -> None:
    """Seed 002, table 2: clients and both responses, but two client counts and nothing repeated."""
    page = page_of("seed002_table2.csv")
    assert headings(page) == ["Against clients", "What if there were more clients?", *LONE_FACTORS]
    words = in_words(page)
    assert words.count("No model: a model needs 3 client counts or more") == 1
    assert "Only 2 client counts were measured" in words
    assert words.count("Cannot tell the bottleneck: no utilisation was measured.") == 1
    assert "No column think_ms: Knee assumes no think time, Z = 0." in words
    specs = specifications(page)
    draw(specs)
    margins = [layer for layer in specs["factorial-throughput-effects"]["layer"] if "strokeDash" in layer["mark"]]
    assert len(margins) == 2
    assert not [name for name in specs if "residuals" in name and "law" not in name]
    # The legend has levels below names: whole labels were cut off just where they differ.
    chart: Any = specs["clients-throughput"]
    colour = chart["encoding"]["color"]
    assert colour["title"] == "middlewares, message_chars, connections"
    assert {"1, 200, 20", "2, 2000, 40"} <= set(colour["scale"]["domain"])
    assert {row["series"] for row in chart["data"]["values"]} == set(colour["scale"]["domain"])


@pytest.mark.parametrize(
    ("csv", "renames"), [("seed001_figure4.csv", ()), ("jain_example_18_1.csv", ("mips=throughput",))]
)
def test_every_chart_of_a_table_can_be_drawn(csv: str, renames: tuple[str, ...]) -> None:
    page = page_of(csv, *renames)
    assert headings(page) == LONE_FACTORS
    draw(specifications(page))


def test_interaction_without_repetitions_is_drawn_with_doubt() -> None:
    rows = [f"{clients},{workers},{1000 * min(clients, workers)}" for clients in range(1, 10) for workers in (2, 4, 8)]
    page = page_of("\n".join(["threads,workers,throughput", *rows]))
    specs = specifications(page)
    draw(specs)
    assert len(drawn(specs["factorial-throughput-interaction-0"], "line")) == 27
    assert "Whether this interaction is noise is unknown" in in_words(page)


def test_figure_of_many_effects_shows_the_largest() -> None:
    rows = [
        ",".join([*(str(number >> bit & 1) for bit in range(5)), str(100 + number * 7 % 31)]) for number in range(32)
    ]
    page = page_of("\n".join(["a,b,c,d,e,throughput", *rows]))
    specs = specifications(page)
    assert len(drawn(specs["factorial-throughput-effects"], "q")) == 20
    assert in_words(page).count("The chart shows the 20 largest of 31 effects.") == 2


@pytest.mark.parametrize(
    ("csv", "says"),
    [
        ("clients,response_ms\n1,10\n2,19\n4,20\n", "without throughput (column throughput)"),
        ("a,b,throughput\n1,1,10\n1,2,\n2,1,20\n2,2,5\n", "Cannot tell which factor matters for throughput"),
        ("request_type,clients,throughput,response_ms\nGET,1,10,5\nSET,1,9,5\n", "among requests of single types"),
    ],
    ids=["no throughput", "missing value", "types"],
)
def test_page_of_table_without_a_column_names_it(csv: str, says: str) -> None:
    page = page_of(csv)
    assert says in in_words(page)
    draw(specifications(page))


def test_types_measured_at_different_client_counts_share_a_table() -> None:
    rows = "get,1,100,10,0.5\nget,2,180,11,0.9\nset,1,90,11,0.6\n"
    section, _ = verdict_of(f"request_type,clients,throughput,response_ms,utilization_db\n{rows}")
    assert "request_type = set" in section and "<th>requests/s</th>" not in section


def test_model_is_drawn_within_and_beyond_measured_clients() -> None:
    page = page_of("seed000_table16.csv")
    words, charts = in_words(page), specifications(page)
    assert "What if there were more clients?" in headings(page)
    assert (
        "Best model: load-dependent network. Knee predicted each client count but the smallest from the others."
        in words
    )
    for name in ("model-throughput", "model-response_ms"):
        bands = [layer for layer in charts[name]["layer"] if layer["mark"]["type"] == "area"]
        inside, beyond = (sorted({row["clients"] for row in band["data"]["values"]}) for band in bands)
        assert (inside[0], inside[-1]) == (6, 192)
        assert (beyond[0], beyond[-1]) == (192, 384)
        measured = charts[name]["layer"][-1]["data"]["values"]
        assert [row["clients"] for row in measured] == [6, 24, 48, 96, 144, 192]
    draw(charts)


@modelless
def test_table_with_all_columns_has_all_other_sections() -> None:
    page = page_of(closed_system())
    assert headings(page) == [
        "Against clients",
        "Which factor matters?",
        "Do the numbers obey the laws?",
        "Resources",
        "Where the numbers come from",
    ]
    words = in_words(page)
    assert "The bottleneck is station disk (" in words
    assert "Warm-up and cool-down are cut off" not in words
    assert "Service demands of every station" in words and "Throughput between its bounds" in words
    specs = specifications(page)
    draw(specs)
    bounds = drawn(specs["bounds"], "at_most")
    assert {row["series"] for row in bounds} == {"cache = cold", "cache = warm"}
    assert all(row["at_least"] <= row["at_most"] <= row["asymptote"] * (1 + 1e-9) for row in bounds)


def test_a_law_of_single_request_types_is_drawn_apart() -> None:
    """Seed 001, figure 2: three types, each with the others' response times as think time."""
    page = page_of("seed001_figure2.csv")
    specs = specifications(page)
    draw(specs)
    types = {"LIST_QUEUES", "RECEIVE_MESSAGE", "SEND_MESSAGE"}
    assert {row["check"] for row in drawn(specs["law-types"], "residual")} == types
    assert {row["check"] for row in drawn(specs["law-residuals"], "residual")} == {"X, client", "R, client"}
    assert len(drawn(specs["law-throughput"], "view")) == 1


def test_a_page_is_known_as_a_report_and_nothing_else_is(tmp_path: Path) -> None:
    write(analyse(synthetic_dataset(System(), (8,), repetitions=1)), tmp_path / "report.html")
    (tmp_path / "letter.html").write_text("<!DOCTYPE html><title>A letter</title>")
    assert is_report(tmp_path / "report.html")
    assert not is_report(tmp_path / "letter.html")


def test_zero_on_a_logarithmic_axis_is_in_the_table_only() -> None:
    """A response time of zero has no residual, and X = N / 0 no value: neither may break the page."""
    page = page_of("clients,throughput,response_ms\n4,100,0\n8,200,40\n16,0,0\n")
    specs = specifications(page)
    draw(specs)
    for name in ("law-throughput", "law-response_ms"):
        assert [row["clients"] for row in drawn(specs[name], "view")] == [8]
    assert {row["at"] for row in drawn(specs["law-residuals"], "residual")} <= {4, 8}
    assert "Only the table shows 1 of 2" in in_words(page)
