"""What `--json` prints, against the published schema: every command with real input, and no field beside the schema."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import command_line
import pytest
import typer
from json_schema import ANSWERS, answered
from synthetic import SAVED, saved

from knee import check
from knee.answers import find, form, links
from knee.cli import commands
from knee.data.foreign import Result
from knee.find.goals import GoalTarget
from knee.find.search import Search
from knee.fit import Goal
from knee.lab.hosts import Link
from knee.lab.hosts.meter import LinkCheck

pytestmark = pytest.mark.usefixtures("scriptless")

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data"
TABLE = str(DATA / "seed000_table15.csv")
FACTORIAL = str(DATA / "seed002_table2.csv")


def knee(command: str, *arguments: str, code: int = 0) -> Any:
    """The answer of a command with `--json`, which keeps the schema."""
    done = command_line.knee(command, "--json", *arguments)
    assert done.returncode == code, done.stderr
    return answered(command, done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run folder with thresholds."""
    limits = "[thresholds]\np99_ms = 20\nthroughput = 100\n"
    return str(saved(tmp_path_factory.mktemp("runs") / "run", limits))


def test_schema_is_the_generated_one() -> None:
    assert form.schema() == ANSWERS, "write it again: knee schema --answers > docs/answers.schema.json"


def test_every_command_with_json_has_a_schema() -> None:
    root: Any = typer.main.get_command(commands.app)
    named = {name: command for name, command in root.commands.items() if not hasattr(command, "commands")}
    for name, group in root.commands.items():
        named |= {f"{name} {own}": command for own, command in getattr(group, "commands", {}).items()}
    with_json = {name for name, one in named.items() if any("--json" in each.opts for each in one.params)}
    assert with_json == set(form.ANSWERS) == set(named) - {"init", "schema"}


def test_diagnosis_of_a_run_has_its_knee_and_thresholds(folder: str) -> None:
    answer = knee("diagnose", folder)
    (configuration,) = answer["configurations"]
    assert configuration["knee"]["clients"]["low"] < SAVED.knee < configuration["knee"]["clients"]["high"]
    assert configuration["bottleneck"]["names"] == ["the middleware's worker slots"]
    p99, throughput = sorted(answer["thresholds"], key=lambda one: one["quantity"])
    assert p99["misses"] and not throughput["misses"]
    assert {each["name"] for each in p99["points"] if each["state"] == "misses"} <= {
        "16 clients",
        "32 clients",
        "64 clients",
    }
    assert answer["run"] is None and answer["report"] is None


def test_diagnosis_of_tables_keeps_the_schema() -> None:
    for table in ("seed001_section6.csv", "seed000_table15.csv", "seed000_table27.csv", "seed001_bottleneck.csv"):
        assert knee("diagnose", str(DATA / table))["configurations"]


def test_report_has_its_page(folder: str) -> None:
    assert Path(knee("report", folder)["report"]).is_file()


def test_laws_have_every_check(folder: str) -> None:
    answer = knee("laws", folder)
    assert not answer["violated"] and len(answer["checks"]) > 20 and answer["text"]
    assert answer["demands"][0]["bottleneck"].endswith("worker slots")
    assert knee("laws", TABLE)["checks"]


def test_factorial_ranks_terms_and_audits_effects() -> None:
    answer = knee("factorial", FACTORIAL)
    shares = [term["share"] for term in answer["responses"][0]["terms"]]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0
    answer = knee("factorial", FACTORIAL, "--effects", str(DATA / "seed002_table2_effects.csv"))
    assert answer["responses"] == [] and answer["audits"][0]["effects"]


def test_prediction_of_a_table_has_its_model() -> None:
    answer = knee("predict", TABLE, "--set", "clients=300", "--simulate", "--rounds", "1000", "--replications", "2")
    (prediction,) = answer["predictions"]
    assert prediction["clients"] == 300 and prediction["model"] == answer["models"][0]["name"]
    assert prediction["simulation"]["throughput"]["estimate"] > 0
    assert knee("predict", TABLE)["predictions"] == []


def test_prediction_of_a_run_has_limits_and_sought_settings(folder: str) -> None:
    answer = knee("predict", folder, "--set", "workers=[4,8]", "--set", "clients=64", "--slo", "throughput > 5000")
    four, eight = answer["predictions"]
    assert four["settings"] == {"workers": 4, "clients": 64} and four["model"] == "layered network"
    assert four["throughput"]["estimate"] < eight["throughput"]["estimate"]
    assert (four["goal"]["likely"], eight["goal"]["likely"]) == (False, True)
    (sought,) = knee("predict", folder, "--set", "clients=64", "--seek", "workers", "--slo", "throughput > 5000")[
        "sought"
    ]
    assert 4 < sought["value"] <= 8 and sought["prediction"]["goal"]["likely"]


def test_comparison_of_tables_keeps_the_schema(folder: str, tmp_path: Path) -> None:
    (pair,) = knee("compare", folder, folder)
    assert pair["obstacle"] == "equal measurements"
    slower = tmp_path / "slower.csv"
    rows = ["clients,repetition,throughput,response_ms", *(f"8,{n},{900 + n},{8 + n / 9}" for n in range(1, 5))]
    slower.write_text("\n".join(rows))
    faster = tmp_path / "faster.csv"
    faster.write_text("\n".join([rows[0], *(f"8,{n},{1000 + n},{7 + n / 9}" for n in range(1, 5)), "9,1,0,", "9,2,1,"]))
    (pair,) = knee("compare", str(faster), str(slower), "--fail-if", "throughput < -1%", code=3)
    assert pair["gates"][0]["state"] == "fails" and pair["only"][0] == [{"clients": 9}]


def test_check_of_every_recorded_result_keeps_the_schema() -> None:
    foreign = DATA / "foreign"
    assert knee("check", str(foreign / "levels"))["knees"]
    files = [path for path in sorted(foreign.iterdir()) if path.is_file() and path.suffix != ".md"]
    for path in files:
        if not path.name.startswith("pgbench_log"):
            assert knee("check", str(path), "--clients", "8")["results"]


@pytest.mark.parametrize("goal", [None, "p99 < 30 ms"])
def test_search_keeps_the_schema(goal: str | None) -> None:
    from knee.find.knees import KneeTarget

    results: list[Result] = []

    def measure(clients: int, is_scout: bool) -> Result:
        cycle_ms = max(20.0, 5.0 * clients) * random.Random(len(results)).uniform(0.98, 1.02)
        results.append(
            Result("tool", 1000 * clients / cycle_ms, cycle_ms, clients=clients, percentiles_ms={99.0: cycle_ms})
        )
        return results[-1]

    target = KneeTarget(0.2) if goal is None else GoalTarget(Goal.parse(goal), 0.2)
    search = Search(target, measure, print, random.Random(0))
    ended = search.go()
    found = find.of("tool", "runs/find/1", search, ended, 3.0, check.check(results), None, ("It ended.",))
    answer = answered("find", form.render("find", found))
    assert answer["ended"] == "precise" and (answer["goal"] is None) == (goal is None)


def test_links_keep_the_schema() -> None:
    measured = [
        LinkCheck("store-0", Link(100, None, 2), 99.9, 950.0, 4.1),
        LinkCheck("load-0", Link(100), 50.0, 9.0, 0.1),
    ]
    answer = answered("hosts check", form.render("hosts check", links.of(measured)))
    assert [bool(each["problems"]) for each in answer["links"]] == [False, True] and not answer["as_declared"]
