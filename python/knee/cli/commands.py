"""The command line: parses, calls and prints. Each command imports its modules when it runs.

Exit codes: 0, success; 1, failure; 2, wrong input; 3, a condition of `knee compare --fail-if` holds, or a point misses
a threshold of `knee run`; 130, interrupted.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from knee import __version__
from knee.cli import output
from knee.errors import KneeError, MeasurementsError

_INTERRUPTED = 130


class _Commands(TyperGroup):
    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command, and print a message at an interrupt: Typer prints none."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            output.note("interrupted")
            raise typer.Exit(_INTERRUPTED) from None


app = typer.Typer(
    cls=_Commands,
    help="Finds the knee of a client, middleware and storage system, and the bottleneck that causes it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: importing rich takes longer than importing Typer.
    rich_markup_mode=None,
)


class _Model(StrEnum):
    ADDITIVE = "additive"
    MULTIPLICATIVE = "multiplicative"


_TablePath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run folder, or a CSV with a row per observation.", show_default=False),
]
_Renames = Annotated[
    list[str] | None, typer.Option("--map", metavar="THEIRS=OURS", help="Rename a column of the CSV to a known name.")
]
_Generators = Annotated[
    list[str] | None,
    typer.Option("--generator", metavar="STATION", help="A station of the CSV that is the load generator's own."),
]
_Software = Annotated[
    list[str] | None,
    typer.Option(
        "--software",
        metavar="STATION",
        help="A station of the CSV that is also busy while it waits for another one, such as a pool.",
    ),
]
_Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Replace a value of the file; a list makes it a factor."),
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")]
_ConfidenceLevel = Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence level of the intervals.")]


def main() -> None:
    """Run the command line and exit; a user's error prints a short message, never a traceback."""
    try:
        app()
    except KneeError as error:
        output.note(str(error))
        sys.exit(error.exit_code)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"knee {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command("run")
def run_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The experiment file (TOML), or the name of an installed one.", show_default=False
        ),
    ] = None,
    overrides: _Overrides = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run the missing and failed measurements of this run folder."),
    ] = None,
    runs_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder for new run folders."),
    ] = Path("runs"),
    no_report: Annotated[bool, typer.Option("--no-report", help="Measure only.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run the hosts on the workers of the Dask scheduler at this address."),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Measure an experiment. Print its knee and the bottleneck, and write the report, which is also drawn between
    the measurements."""
    from knee.cli import measure

    measure.measure(file, overrides, resume, runs_dir, no_report=no_report, cluster=cluster, as_json=as_json)


hosts = typer.Typer(no_args_is_help=True)
app.add_typer(hosts, name="hosts")


@hosts.callback()
def _of_hosts() -> None:
    """Emulated hosts and their links."""


@hosts.command("check")
def hosts_check_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment file, or the name of an installed one.")],
    overrides: _Overrides = None,
    as_json: _AsJson = False,
) -> None:
    """Emulate the hosts, and measure the rate and the round trip of each link."""
    from knee.cli.measure import check_hosts

    check_hosts(file, overrides or [], as_json=as_json)


@app.command("init")
def init_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file, NAME.toml.", show_default=False)],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="The system: memcached, cache, kv, queue, postgresql, nginx, redis or command."
        ),
    ] = None,
    clients: Annotated[str | None, typer.Option(metavar="N,…", help="Numbers of clients, or auto.")] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N,…", help="Worker slots of each middleware; several make a factor.")
    ] = None,
    seconds: Annotated[str | None, typer.Option(metavar="S", help="Length of each measurement.")] = None,
) -> None:
    """Write a new experiment file with a comment on each key. At a terminal, ask for the values of missing flags."""
    from knee.cli import new

    new.write_experiment(file, kind, clients, workers, seconds)


@app.command("schema")
def schema_command(
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of all keys instead.")] = False,
    of_answers: Annotated[bool, typer.Option("--answers", help="Print the schema of what --json prints.")] = False,
) -> None:
    """Print a JSON Schema of experiment files, for editors; or of the commands' answers, for programs."""
    from knee.cli import new

    new.print_schema(as_markdown=as_markdown, of_answers=of_answers)


@app.command("report")
def report_command(
    path: _TablePath,
    renames: _Renames = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Path of the page; by default in the run folder, or for a CSV in the current folder.",
        ),
    ] = None,
    generators: _Generators = None,
    software: _Software = None,
    as_json: _AsJson = False,
) -> None:
    """Write the report of a run or a CSV: a page that opens without a network."""
    from knee.cli import analyse

    analyse.print_report(path, renames, out, generators or (), software or (), as_json=as_json)


@app.command("laws")
def laws_command(
    path: _TablePath,
    renames: _Renames = None,
    level: _ConfidenceLevel = 0.95,
    details: Annotated[
        bool, typer.Option("--details", help="Also print every station's laws, demands and bounds.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Check the operational laws. Print demands and bounds as well."""
    from knee.cli import analyse

    analyse.print_laws(path, renames, level, details=details, as_json=as_json)


@app.command("factorial")
def factorial_command(
    path: _TablePath,
    renames: _Renames = None,
    factors: Annotated[
        list[str] | None,
        typer.Option(
            "--factors", "--factor", metavar="NAMES", help="Factors to analyse, a,b,c; by default all varied."
        ),
    ] = None,
    responses: Annotated[
        list[str] | None,
        typer.Option(
            "--response", metavar="NAMES", help="Any columns to explain, y,z; by default throughput and response_ms."
        ),
    ] = None,
    model: Annotated[_Model | None, typer.Option(help="How effects combine; by default chosen from the data.")] = None,
    level: _ConfidenceLevel = 0.95,
    effects: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="File of published effects to audit against the responses.",
        ),
    ] = None,
    resolution: Annotated[
        float | None,
        typer.Option(
            metavar="UNIT",
            help="Rounding unit of the published responses, such as 0.1; by default found in the CSV.",
        ),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Rank the factors by their effects, or audit published effects."""
    from knee.cli import analyse

    analyse.print_factorial(
        path,
        renames,
        _names(factors),
        _names(responses),
        model.value if model else None,
        level,
        effects,
        resolution,
        as_json=as_json,
    )


def _names(given: list[str] | None) -> list[str]:
    return [stripped for names in given or [] for name in names.split(",") if (stripped := name.strip())]


@app.command("diagnose")
def diagnose_command(
    path: _TablePath,
    renames: _Renames = None,
    generators: _Generators = None,
    software: _Software = None,
    as_json: _AsJson = False,
) -> None:
    """Find the knee and the bottleneck. Print the evidence as well."""
    from knee.cli import analyse

    analyse.print_diagnosis(path, renames, generators or (), software or (), as_json=as_json)


@app.command("check")
def check_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Output files of a load generator, tables (CSV, JSON, Parquet), or folders of them.",
            show_default=False,
        ),
    ],
    tool: Annotated[
        str | None, typer.Option("--from", metavar="TOOL", help="The tool; by default recognised by its output.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Requests in flight, for output that does not name them.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, metavar="R", help="Requested requests/s: the load was an open loop.")
    ] = None,
    renames: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="COLUMN=NAME",
            help="The meaning of a table's column, such as took=latency_us; by default read from its name.",
        ),
    ] = None,
    ignored: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="A column of a table to leave out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write the results as a CSV for other commands.")
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Audit a load test of another tool: do its numbers agree, what do they hide, and where is the knee?"""
    from knee.cli import check

    check.print_check(paths, tool, clients, rate, out, renames=renames or [], ignored=ignored or [], as_json=as_json)


@app.command("find", context_settings={"allow_interspersed_args": False})
def find_command(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...",
            help="The load generator, with {clients} for the number of clients and {seconds} for the length of a run.",
            show_default=False,
        ),
    ],
    precision: Annotated[
        str, typer.Option(metavar="SHARE", help="Half width of the interval at which the search ends.")
    ] = "5%",
    budget: Annotated[str, typer.Option(metavar="TIME", help="Longest time of all runs.")] = "5m",
    slo: Annotated[
        str | None,
        typer.Option(metavar="GOAL", help="Find the largest number of clients that keeps it, such as 'p99 < 20 ms'."),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="CMD", help="Start this system first, and stop it at the end.")
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Watch the processors of pid:NUMBER, port:NUMBER, unit:NAME or cgroup:PATH, or those that "
            "redis://HOST:PORT, memcached://HOST:PORT or http://HOST:PORT/metrics reports, or the waits of "
            "postgresql://HOST/DATABASE; by default the processors of --system, or of the process that listens at the "
            "URL in COMMAND.",
        ),
    ] = None,
    ready: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="URL or HOST:PORT of the system; by default the URL in COMMAND."),
    ] = None,
    seconds: Annotated[int, typer.Option(min=1, metavar="S", help="Length of a run.")] = 10,
    least: Annotated[
        int, typer.Option(min=1, metavar="N", help="Fewest clients; all numbers are multiples of it.")
    ] = 1,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="Most clients.")] = 10_000,
    tool: Annotated[
        str | None, typer.Option("--from", metavar="TOOL", help="The generator; by default recognised by its output.")
    ] = None,
    runs_dir: Annotated[str, typer.Option(metavar="DIR", help="Folder for the results.")] = "runs",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the runs.")] = 0,
    as_json: _AsJson = False,
) -> None:
    """Find the knee of any system with any load generator, or the largest load that keeps a limit of response times."""
    from knee.cli.find import Options, find

    options = Options(
        precision, budget, slo, system, tuple(watch or ()), ready, seconds, least, most, tool, runs_dir, seed
    )
    find(command, options, as_json=as_json)


@app.command("machine")
def machine_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    disk: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder on the disk to measure.")] = Path(),
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON to FILE, and a plot beside it (.svg).")
    ] = None,
    media: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="Also print the storage media of this file (TOML) beside the disk."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, max=100, metavar="N", help="Measurements of each quantity.")] = 6,
    memory_mb: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Largest working set; at most a quarter of the free memory.")
    ] = 1024,
) -> None:
    """Measure what this machine can do: memory, mapped files, disk, loopback and clock. Takes a minute at most."""
    from knee.cli import machine
    from knee.machine import Plan

    machine.print_machine(disk, save, media, Plan(rounds, memory_bytes_max=memory_mb << 20), as_json=as_json)


@app.command("compare")
def compare_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B...", help="Run folders, folders of them, or CSVs; each is compared with A.", show_default=False
        ),
    ],
    renames: _Renames = None,
    factor: Annotated[
        str | None,
        typer.Option("--between", metavar="FACTOR", help="Compare the levels of a factor of one run folder or CSV."),
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with 3 if the data show such a change, as 'throughput < -5%' or 'p99_ms > 10%'.",
        ),
    ] = None,
    level: _ConfidenceLevel = 0.95,
    apart: Annotated[
        float | None,
        typer.Option(
            "--runs-apart",
            min=0,
            metavar="TIMES",
            help="Spread between runs of one system, in spreads of repetitions; for two separate runs.",
        ),
    ] = None,
    as_json: _AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request.")] = False,
) -> None:
    """Compare systems: what differs, by how much, and whether chance explains it."""
    from knee.cli import compare

    if as_json and as_markdown:
        raise MeasurementsError("--json and --markdown: two forms of the output; pass one of them")
    form = "json" if as_json else "markdown" if as_markdown else "text"
    compare.print_comparison(paths, renames, factor, conditions or (), level, apart, form)  # type: ignore[arg-type]


@app.command("predict")
def predict_command(
    path: _TablePath,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="More settings.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Setting to predict, such as load.clients=1000 or middleware.workers=[2,4,8].",
        ),
    ] = None,
    renames: _Renames = None,
    level: _ConfidenceLevel = 0.95,
    simulated: Annotated[
        bool,
        typer.Option("--simulate", help="Also simulate, with quantiles, under the assumptions of the options below."),
    ] = False,
    measured: Annotated[
        bool,
        typer.Option("--measure", help="Then run exactly this configuration, and print the prediction's error."),
    ] = False,
    sought: Annotated[
        str | None, typer.Option("--seek", metavar="NAME", help="Find the value of this setting that meets --slo.")
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(metavar="GOAL", help="Goal, such as 'response_ms < 5', 'p99 < 5 ms' or 'throughput > 1000'."),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Distribution of service times: deterministic, exponential, erlang:STAGES, hyper:C2, lognormal:C2. "
            "By default as measured, or exponential.",
        ),
    ] = None,
    thinking: Annotated[str | None, typer.Option(metavar="SHAPE", help="Distribution of think times.")] = None,
    places: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Places to wait for a slot. If all are taken, a request is refused, and its client thinks again.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1000,
            max=10**9,
            metavar="N",
            help="Requests per replication. By default 50,000, and at least five per client; from a table 100,000.",
        ),
    ] = None,
    replications: Annotated[
        int | None,
        typer.Option(min=2, max=1000, metavar="N", help="Independent simulations; 10 by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of all random numbers.")] = 0,
    as_json: _AsJson = False,
) -> None:
    """Predict unmeasured settings: clients, think time, and of a run folder also workers, hosts, threads, links and
    cores."""
    from knee.cli import predict

    predict.print_prediction(
        path,
        [*(settings or []), *(more or [])],
        renames,
        level,
        seed,
        simulated=simulated,
        service=service,
        thinking=thinking,
        places=places,
        rounds=rounds,
        replications=replications,
        measured=measured,
        sought=sought,
        slo=slo,
        as_json=as_json,
    )
