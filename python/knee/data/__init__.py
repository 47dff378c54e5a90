"""The run folder: the only owner of its file names and of the tables' columns.

    runs/NAME/UTC-TIME/
        experiment.toml               the experiment file, verbatim
        manifest.json                 where the numbers come from: versions, machine, seed, commands
        points/POINT-rREP/            one folder per point and repetition
            PROCESS.jsonl             what the process printed, line by line as it came
            PROCESS.log               its standard error
        tables/TABLE/POINT-rREP.parquet
        report.html

A part of a table is written when its point is over, under a name that appears atomically; the part of
`points` comes last and is what makes the point count. So an interruption loses at most the point that was
running, and two tables never disagree about which points there are. A run in which something failed has a part
in `points` only.

Windows are kept whole: warm-up and cool-down are trimmed on read, by :mod:`knee.data.trim`.

All times ending in `_ns` are nanoseconds, `_s` seconds, `second` and `*_unix_s` seconds of the Unix epoch.
"""

from knee.data.columns import POINTS, PROBES, STATIONS, SUMMARIES, TABLES, TOTALS, WINDOWS
from knee.data.reading import Dataset, is_run_folder
from knee.data.recording import Outcome, RunFolder, unused, writing

__all__ = [
    "POINTS",
    "PROBES",
    "STATIONS",
    "SUMMARIES",
    "TABLES",
    "TOTALS",
    "WINDOWS",
    "Dataset",
    "Outcome",
    "RunFolder",
    "is_run_folder",
    "unused",
    "writing",
]
