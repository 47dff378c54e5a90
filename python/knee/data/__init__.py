"""The run folder: the only owner of its file names and of the tables' columns.

    runs/NAME/UTC-TIME/
        experiment.toml               the experiment file, verbatim
        manifest.json                 provenance of the numbers: versions, machine, seed, commands
        points/POINT-rREP/            one folder per point and repetition
            PROCESS.jsonl             the process's output, line by line
            PROCESS.log               its standard error
        tables/TABLE/POINT-rREP.parquet
        report.html
        scouts/                       points/ and tables/ of the runs that chose the clients ("load.clients" = "auto")

The part of a table is written atomically when its run ends. The part of `points` is written last; a run without it does
not count. So an interruption loses at most the current run, and all tables have the same runs. A failed run has a part
in `points` only.

Windows are kept whole: warm-up and cool-down are trimmed on read, by :mod:`knee.data.trim`.

All times ending in `_ns` are nanoseconds, `_s` seconds, `second` and `*_unix_s` seconds of the Unix epoch.
"""

from knee.data.columns import POINTS, PROBES, SUMMARIES, TABLES
from knee.data.reading import Dataset, is_run_folder, run_folders
from knee.data.recording import Outcome, RunFolder

__all__ = [
    "POINTS",
    "PROBES",
    "SUMMARIES",
    "TABLES",
    "Dataset",
    "Outcome",
    "RunFolder",
    "is_run_folder",
    "run_folders",
]
