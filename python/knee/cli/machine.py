"""`knee machine`: measures this machine, and prints what it can do."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from knee import __version__
from knee import machine as machines
from knee.data import writing
from knee.lab.hosts.local import LocalHost
from knee.lab.run import IN_MEMORY


def print_machine(disk: Path, save: Path | None, plan: machines.Plan, *, as_json: bool) -> None:
    """Measure and print; with `save`, also write the JSON, and the plot beside it."""
    found = machines.measure(disk, plan, lambda each: print(f"knee: round {each} of {plan.rounds}", file=sys.stderr))
    host, filesystem = LocalHost().describe(), LocalHost().filesystem(disk)
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"knee": __version__, "measured": measured, "host": host, "filesystem": filesystem}
    content = json.dumps({**about, **found.content()}, indent=2)
    if save is not None:
        with writing(save, "--save"):
            save.write_text(content + "\n", encoding="utf-8")
    if as_json:
        print(content)
        return
    print(f"{host['cpu_model']}, {host['cpu_count']} processors; the disk is {filesystem}")
    print(machines.render_text(found))
    if filesystem in IN_MEMORY:
        print(f"Note: {filesystem} is in memory, so the disk was not measured; choose a folder on a disk with --disk.")
