"""What this machine can do: memory, mapped files, disk, loopback and clock.

    sizes       the working sets, by the caches and the free memory
    groups      the control groups of a process
    disk        a file of the measurement's own: its transfers, and its scans through a mapping
    rounds      rounds of all measurements; their medians
    findings    the result, and its form as JSON
    text        the result as tables
    media       price, durability and power of storage media, from a file, beside the result

`knee._kernels` measures. Nothing here depends on an experiment.
"""

from knee.machine.findings import FIGURES, Figure, Machine, WorkingSet
from knee.machine.media import Media, read_media, render_media
from knee.machine.rounds import Plan, brief, measure
from knee.machine.text import render_text

__all__ = [
    "FIGURES",
    "Figure",
    "Machine",
    "Media",
    "Plan",
    "WorkingSet",
    "brief",
    "measure",
    "read_media",
    "render_media",
    "render_text",
]
