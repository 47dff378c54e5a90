"""The command line's errors: one line for a person, an exit code for a script, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import knee
from tests.browser import unmarked

from knee import spec
from knee.data import Outcome, RunFolder
from knee.spec.design import runs

pytestmark = pytest.mark.usefixtures("scriptless")

REPOSITORY = Path(__file__).resolve().parents[2]
QUICKSTART = str(REPOSITORY / "experiments" / "quickstart.toml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "expected either an experiment file or --resume RUN"),
        (["run", "absent.toml"], "absent.toml: cannot be read: No such file or directory"),
        (["run", QUICKSTART, "--set", "measure.secnds=5"], 'did you mean "measure.seconds"?'),
        (["run", QUICKSTART, "--set", "measure.seconds"], "expected NAME=VALUE"),
        (["run", "--resume", "/tmp", "--set", "measure.seconds=5"], "--set: cannot change a run that has begun"),
        (["run", "/tmp"], "/tmp: is a folder; resume its run with `knee run --resume /tmp`"),
        (["laws", QUICKSTART], "is an experiment file: measure it with `knee run"),
        (["factorial", QUICKSTART], "is an experiment file: measure it with `knee run"),
        (["run", "--resume", "/nowhere"], "/nowhere: no such run folder"),
        (["laws", "/tmp"], "/tmp: not a run folder: it has no experiment.toml"),
        (["diagnose", "/nowhere"], "/nowhere: no such run folder"),
        (["report", "/nowhere"], "/nowhere: no such run folder"),
        (["factorial", "absent.csv"], "absent.csv: cannot be read: No such file or directory"),
        (["run", "my experiment (1).toml"], "my experiment (1).toml: cannot be read: No such file or directory"),
        (["run", "experiments/*.toml"], "experiments/*.toml: cannot be read: No such file or directory"),
        (["machine", "--save", "/nowhere/m.json"], "--save: /nowhere: no such folder; make it first"),
        (["machine", "--save", "m.svg"], "--save: m.svg: the plot would have this name; choose m.json"),
        (["machine", "--input", "absent.toml"], "absent.toml: cannot be read: No such file or directory"),
        (["machine", "--disk", "/nowhere"], "/nowhere: no such folder; make it, or choose another with --disk"),
        (["run", "2025-01-02T14:13:08.toml"], "2025-01-02T14:13:08.toml: cannot be read: No such file or directory"),
    ],
)
def test_bad_input_exits_with_2_and_a_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = knee(*arguments, KNEE_BIN_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.startswith("knee: ") and len(done.stderr.splitlines()) == 1


DATA = REPOSITORY / "tests" / "data"
TABLE = str(DATA / "seed000_table15.csv")
SECRET = "kept2themselves"


@pytest.mark.parametrize(
    "setting", [f"store.address=me:{SECRET}@h:5432", f"store.password={SECRET}", f"postgresql://me:{SECRET}@h/db?a=1"]
)
def test_no_message_repeats_an_address(setting: str) -> None:
    done = knee("run", QUICKSTART, "--set", setting)
    assert done.returncode == 2 and done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["predict", TABLE, "--set", "clients", "x"], "--set (number 1 of 2): expected NAME=VALUE"),
        (["predict", TABLE, "set_get=1:1"], "set_get: no such setting: expected one of"),
        (["predict", TABLE, "clients=abc"], "clients: expected a whole number from 1 to"),
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["run", "--rseume"], "No such option: --rseume"),
    ],
)
def test_a_wrong_command_line_is_reported(arguments: list[str], says: str) -> None:
    done = knee(*arguments, COLUMNS="400")
    assert done.returncode == 2 and says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--simulate"], "--simulate: needs a setting, such as --set load.clients=1000"),
        (["clients=9", "--service", "erlang:2"], "--service: applies to a simulation only; add --simulate"),
        (["clients=9", "--rounds", "5000"], "--rounds: applies to a simulation only; add --simulate"),
        (["clients=9", "--simulate", "--service", "gamma"], "--service: expected deterministic, exponential, erlang:"),
        (["clients=9", "--simulate", "--service", ""], "--service: expected deterministic, exponential, erlang:"),
        (["clients=9", "--simulate", "--thinking", "erlang:0"], "--thinking erlang:0: stages: expected a whole number"),
        (["workers=[9,10]", "--seek", "clients", "--slo", "p99 < 5 ms"], "expected one value, not a list"),
    ],
)
def test_a_senseless_simulation_is_refused_at_once(arguments: list[str], says: str) -> None:
    done = knee("predict", "/nowhere", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_plan_is_predicted_and_simulated() -> None:
    """Seed 000, table 15."""
    table = str(DATA / "seed000_table15.csv")
    options = ["--simulate", "--places", "50", "--service", "lognormal:2", "--rounds", "5000", "--seed", "3"]
    done = knee("predict", table, "--set", "load.clients=300", *options)
    assert done.returncode == 0, done.stderr
    forecast, *_ = done.stdout.splitlines()
    assert forecast.startswith("At 300 clients, 64 worker slots:")
    assert "Simulated: the load-dependent network with a service time of" in done.stdout
    assert "With lognormal (c² = 2) service times, 50 places to wait" in done.stdout
    assert "rounds refused" in done.stdout and "seed 3" in done.stdout


def test_an_interrupted_prediction_exits_with_130_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("knee.fit.fit_systems", interrupted)
    done = knee("predict", str(DATA / "seed000_table15.csv"), "clients=300")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "knee: interrupted")


def test_factorial_explains_any_column_by_named_factors(tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    rows = [f"{t},{c},{s},{-3 + 8 * t + 2 * c + 0.5 * s}" for t in (1, 2) for c in (0, 1) for s in (1, 2)]
    plain.write_text("\n".join(["threads,cache,servers_db,y", *rows]))
    done = knee("factorial", str(plain), "--response", "y", "--factors", "threads,cache")
    assert "A = threads (1, 2), B = cache (0, 1)" in done.stdout and "raises y by 8.00" in done.stdout
    assert "2^2·2 full factorial" in done.stdout, "rows that differ in other columns are repetitions"
    plain.write_text("\n".join(["threads,cache,servers_db,y", *rows[:-1], "2,1,2,"]))
    done = knee("factorial", str(plain), "--response", "y")
    assert "plain.csv:9: column y: no value" in done.stderr
    plain.write_text("\n".join(["threads,id,y", *(f"{n % 2},{n},{n}" for n in range(8))]))
    done = knee("factorial", str(plain), "--response", "y")
    assert "column id: cannot tell whether it is a factor or a response" in done.stderr


def test_factorial_reads_only_the_columns_that_it_needs(tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    rows = [f"{t},{c},,many,{2 * t + c + r / 10},{t * c + r}" for t in (1, 2) for c in (0, 1) for r in (1, 2)]
    plain.write_text("\n".join(["threads,cache,comment,clients,y,z", *rows]))
    done = knee("factorial", str(plain), "--response", "y, z,", "--factors", "threads,cache,")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines() if "full factorial design" in line] == ["y", "z"]
    done = knee("factorial", str(plain), "--response", "y")
    assert "column comment: no level" in done.stderr and "column clients: 'many' is not a number" in done.stderr


@pytest.mark.parametrize(("option", "name"), [("--response", "yy"), ("--factors", "thread")])
def test_factorial_suggests_the_column_for_an_unknown_one(option: str, name: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    plain.write_text("threads,y\n1,1\n2,2\n")
    done = knee("factorial", str(plain), "--response", "y", option, name)
    assert done.returncode == 2
    assert f"no column {name}: did you mean {'y' if name == 'yy' else 'threads'}?" in done.stderr


def test_factorial_audits_published_effects_per_response() -> None:
    """Seed 002, table 2: one throughput is misprinted, the response times are sound."""
    effects = DATA / "seed002_table2_effects.csv"
    done = knee("factorial", str(DATA / "seed002_table2.csv"), "--effects", str(effects))
    assert done.returncode == 0, done.stderr
    assert "One row explains it: row 16" in done.stdout
    assert "response_ms: All 16 published effects follow" in done.stdout


@pytest.mark.parametrize(
    ("more", "says"), [((), "All 7 published effects follow"), (("--resolution", "0.01"), "5 of 7 published effects")]
)
def test_effects_of_rounded_means_are_audited_at_their_resolution(more: tuple[str, ...], says: str) -> None:
    """Seed 000, tables 27 and 28: the means are printed to 0.1, the errors about them to 0.01."""
    effects = str(DATA / "seed000_table28_effects.csv")
    done = knee("factorial", str(DATA / "seed000_table27.csv"), "--effects", effects, *more)
    assert done.returncode == 0, done.stderr
    assert f"throughput: {says}" in done.stdout


def test_every_problem_of_a_file_is_on_a_line_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[experiment]\nname = "a b"\n[system]\nload = { hsts = 1 }\nstore = {}\n')
    done = knee("run", str(file), KNEE_BIN_DIR=str(tmp_path))
    assert done.returncode == 2
    assert [line.split(": ")[-2] for line in done.stderr.splitlines()] == ["experiment.name", "load.hsts"]
    assert f'{file}:4: load.hsts: no such field; did you mean "hosts"?' in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_loading_is_a_line(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "knee", "run", QUICKSTART],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY / 'python'}"},
        # nohup ignores SIGHUP, and children inherit that.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "knee: interrupted\n")


HEAVY = {"numpy", "polars", "pydantic", "rich", "scipy", "psutil", "vl_convert"}


@pytest.mark.parametrize(("option", "printed"), [("--version", "knee 0.1.0"), ("--help", "Usage: knee")])
def test_version_and_help_import_nothing_heavy(option: str, printed: str) -> None:
    program = (
        "import sys; sys.argv = ['knee', sys.argv[1]]\n"
        "from knee.__main__ import main\n"
        "try: main()\n"
        "finally: print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, option],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY / "python")},
    )
    assert done.stdout.startswith(printed)
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


def test_an_installed_experiment_is_found_by_name(tmp_path: Path) -> None:
    done = knee("run", "quickstart", cwd=tmp_path, KNEE_BIN_DIR=str(tmp_path))
    assert "knee-load is not installed" in done.stderr
    (tmp_path / "quickstart").write_text("[experiment")
    done = knee("run", "quickstart", cwd=tmp_path, KNEE_BIN_DIR=str(tmp_path))
    assert "quickstart: not valid TOML" in done.stderr


@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_a_csv_stands_for_a_run(command: str, tmp_path: Path) -> None:
    """Jain (1991), example 18.1, whose response needs a --map."""
    csv = str(DATA / "jain_example_18_1.csv")
    unmapped = knee(command, csv, cwd=tmp_path)
    assert (unmapped.returncode, unmapped.stdout) == (2, "")
    assert "no response: expected a column throughput or response_ms" in unmapped.stderr
    done = knee(command, csv, "--map", "mips=throughput", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout if command == "diagnose" else unmarked((tmp_path / "jain_example_18_1.html").read_text())
    assert "Largest effect on throughput: memory_mb. Going from 4 to 16 multiplies throughput by" in said
    assert "Cannot look for a knee without the number of clients" in said


def test_flags_declare_the_kinds_of_stations(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [
        f"{n},{r},{min(n, 8) * 100 + r},{max(n, 8) * 10},{min(n, 8) / 8}" for n in (1, 4, 16, 64) for r in (1, 2, 3)
    ]
    table.write_text("\n".join(["clients,repetition,throughput,response_ms,utilization_injector", *rows]))
    assert "The bottleneck is station injector" in knee("diagnose", str(table)).stdout
    for command in ("diagnose", "report"):
        done = knee(command, str(table), "--generator", "injector", cwd=tmp_path)
        said = done.stdout if command == "diagnose" else (tmp_path / "table.html").read_text()
        assert "The load generator itself is the limit" in said
    refused = knee("diagnose", str(table), "--software", "gate")
    assert refused.returncode == 2
    assert "has no columns of a station gate: expected injector" in refused.stderr
    folder = without_a_complete_run(tmp_path, Outcome("interrupted", "interrupted"))
    assert "--generator: declares a station of a CSV" in knee("diagnose", str(folder), "--generator", "load").stderr


def test_a_report_replaces_only_a_report(tmp_path: Path) -> None:
    csv = str(DATA / "seed001_figure4.csv")
    page = tmp_path / "seed001_figure4.html"
    for _ in range(2):
        done = knee("report", csv, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "seed001_figure4.html\n"), done.stderr
    page.write_text("<p>A letter to my aunt.</p>")
    refused = knee("report", csv, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "seed001_figure4.html: exists and is not a report written by Knee" in refused.stderr
    assert page.read_text() == "<p>A letter to my aunt.</p>"
    elsewhere = tmp_path / "elsewhere.html"
    assert knee("report", csv, "--out", str(elsewhere), cwd=tmp_path).returncode == 0
    assert "Largest effect on throughput: database." in elsewhere.read_text()


@pytest.mark.parametrize(
    ("effects", "options", "says"),
    [
        ("effect,latency\nA,1\n", [], "column latency: "),
        ("effect,throughput\nA,\n", [], "no effect has a value"),
        ("effect,throughput\nA,1\n", ["--model", "additive"], "without a model"),
        ("effect,throughput\nA,1\n", ["--response", "throughput"], "every response of that file"),
    ],
)
def test_an_impossible_audit_is_refused(effects: str, options: list[str], says: str, tmp_path: Path) -> None:
    published = tmp_path / "effects.csv"
    published.write_text(effects)
    done = knee("factorial", str(DATA / "seed001_figure4.csv"), "--effects", str(published), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_run_folder_has_no_columns_to_rename(tmp_path: Path) -> None:
    for command in ("laws", "factorial", "diagnose"):
        done = knee(command, str(tmp_path), "--map", "tps=throughput")
        assert done.returncode == 2
        assert "--map: renames columns of a CSV" in done.stderr


def test_a_table_of_stations_alone_has_no_response_to_explain() -> None:
    done = knee("factorial", str(DATA / "seed001_bottleneck.csv"))
    assert done.returncode == 2
    assert "no response to analyse" in done.stderr


def test_an_unknown_response_lists_the_files_own_columns() -> None:
    done = knee("factorial", str(DATA / "seed001_figure4.csv"), "--response", "latency")
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if "no column latency" in line)
    assert "throughput" in line and "rounding" not in line and "point" not in line


@pytest.mark.parametrize(("column", "says"), [("servers", "expected clients"), ("clients", "no factor varied")])
def test_a_constant_column_is_no_factor(column: str, says: str, tmp_path: Path) -> None:
    csv = tmp_path / "rows.csv"
    rows = "2,4,10\n2,8,20\n" if column == "servers" else "2,4,10\n2,4,20\n"
    csv.write_text(f"servers,clients,throughput\n{rows}")
    done = knee("factorial", str(csv), "--factor", "servers")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"knee: servers was 2 throughout, so it is not a factor: {says}" in done.stderr


def test_a_page_needs_its_directory(tmp_path: Path) -> None:
    done = knee("report", str(DATA / "seed001_figure4.csv"), "--out", str(tmp_path / "absent" / "page.html"))
    assert done.returncode == 1
    assert "make its directory first" in done.stderr


EMPTY = """\
[experiment]
name = "empty"
[system]
load = {}
store = {}
[factors]
"load.clients" = [4, 8]
"""


def without_a_complete_run(folder: Path, *outcomes: Outcome) -> Path:
    """A run folder whose first runs ended so."""
    experiment = spec.parse(EMPTY, "x.toml")
    empty = RunFolder.create(folder, "empty", EMPTY)
    empty.write_manifest({"seed": 1, "overrides": {}})
    for run, outcome in zip(
        sorted(runs(experiment, 1), key=lambda run: (run.point, run.repetition)), outcomes, strict=False
    ):
        empty.record(run, experiment, outcome)
    return empty.path


@pytest.mark.parametrize("command", [["laws"], ["factorial"], ["predict", "--set", "load.clients=9"]])
def test_a_folder_without_a_complete_run_is_refused(tmp_path: Path, command: list[str]) -> None:
    path = without_a_complete_run(tmp_path, Outcome("failed", "store-0 ended"), Outcome("failed", "it was late"))
    done = knee(command[0], str(path), *command[1:])
    assert (done.returncode, done.stdout) == (2, "")
    resume = f"`knee run --resume {path}` repeats them"
    assert done.stderr == f"knee: {path}: no run is complete: the first failed: store-0 ended; {resume}\n"


def test_a_failed_run_is_reported_before_an_interrupted_one(tmp_path: Path) -> None:
    path = without_a_complete_run(tmp_path, Outcome("interrupted", "interrupted"), Outcome("failed", "it was late"))
    done = knee("laws", str(path))
    assert f"no run is complete: one failed: it was late; `knee run --resume {path}`" in done.stderr


def test_a_folder_without_a_complete_run_has_a_report(tmp_path: Path) -> None:
    path = without_a_complete_run(tmp_path, Outcome("interrupted", "interrupted"))
    for command in ("diagnose", "report"):
        done = knee(command, str(path))
        assert done.returncode == 0
        assert f"{path}: no run is complete: the first was interrupted; `knee run --resume {path}`" in done.stderr
    page = (path / "report.html").read_text()
    assert "No run is complete: the first was interrupted" in page and "nothing to diagnose" in page
    assert "nothing to diagnose" in knee("diagnose", str(path)).stdout
    none = without_a_complete_run(tmp_path)
    done = knee("laws", str(none))
    assert done.returncode == 2 and "no run is complete: no run has ended" in done.stderr


def test_init_writes_a_file_once_and_runs_need_no_change(tmp_path: Path) -> None:
    arguments = ["init", "new.toml", "--kind", "cache", "--clients", "2,4", "--workers", "1", "--seconds", "3"]
    done = knee(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "new.toml: measure it with `knee run new.toml`\n")
    text = (tmp_path / "new.toml").read_text()
    assert spec.load(tmp_path / "new.toml").factors == {"load.clients": (2, 4)}
    done = knee(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "knee: new.toml: exists; choose another name\n")
    assert (tmp_path / "new.toml").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["new.toml"], "--kind: missing; expected memcached or cache or kv or queue or postgresql"),
        (["new.toml", "--kind", "mongo"], "--kind mongo: expected memcached or"),
        (["new", "--kind", "kv"], "new: expected a name that ends in .toml"),
        (["new.toml", "--kind", "kv", "--clients", "8 16"], "--clients 8 16: expected whole numbers, such as 8,16,"),
        (["new.toml", "--kind", "kv", "--seconds", "5,6"], "--seconds: expected one number"),
        (["new.toml", "--kind", "kv", "--workers", "4"], "--workers: kind kv has no middleware; leave it out"),
        (["new.toml", "--kind", "kv", "--seconds", "0"], "measure.seconds: should be greater than or equal to 1"),
        (["absent/new.toml", "--kind", "kv"], "absent/new.toml: cannot be written: No such file or directory"),
    ],
)
def test_init_refuses_wrong_flags(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = knee("init", *arguments, cwd=tmp_path)
    assert done.returncode in (1, 2) and done.stderr.startswith(f"knee: {says}"), done.stderr
    assert not list(tmp_path.iterdir())


def test_init_asks_at_a_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "knee", "init", "new.toml", "--seconds", "5"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment
    ) as process:
        os.close(theirs)
        os.write(ours, b"mongo\nkv\n2,4\n")
        assert process.wait(60) == 0
    printed = os.read(ours, 4096).decode()
    os.close(ours)
    assert printed.count("Kind of system: ") == 2 and "Numbers of clients, or auto [8,16,32,64,128]: " in printed
    assert "Workers" not in printed and "Seconds" not in printed
    found = spec.load(tmp_path / "new.toml")
    assert found.factors == {"load.clients": (2, 4)} and found.measure.seconds == 5


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("knee dia", "diagnose"), ("knee diagnose --ge", "--generator"), ("knee hosts ch", "check")],
)
def test_bash_completes_commands_and_options(tmp_path: Path, typed: str, completed: str) -> None:
    program = tmp_path / "knee"
    program.write_text(f"#!{sys.executable}\nfrom knee.__main__ import main\nmain()\n")
    program.chmod(0o755)
    script = (
        f'eval "$(knee --show-completion)"; COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); '
        '_knee_completion knee; echo "${COMPREPLY[@]}"'
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY / "python")}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == f"{completed}\n", done.stderr
