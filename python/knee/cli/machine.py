"""`knee machine`: measures this machine, and prints what it can do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import psutil

from knee import __version__
from knee import machine as machines
from knee.cli.output import note
from knee.errors import SpecError
from knee.lab.hosts import IN_MEMORY
from knee.lab.hosts.local import LocalHost
from knee.storage import writing


def print_machine(
    disk: Path, save: Path | None, media_file: Path | None, plan: machines.Plan, *, as_json: bool
) -> None:
    """Measure and print. With `save`, also write the JSON, and the plot beside it. With `media_file`, also print these
    storage media beside this machine's."""
    if save is not None and not save.parent.is_dir():
        raise SpecError(f"--save: {save.parent}: no such folder; make it first")
    if save is not None and save.suffix == ".svg":
        raise SpecError(f"--save: {save}: the plot would have this name; choose {save.with_suffix('.json')}")
    media = None if media_file is None else machines.read_media(media_file)
    found = machines.measure(disk, plan, lambda each: note(f"round {each} of {plan.rounds}"))
    host, filesystem = LocalHost().describe(), LocalHost().filesystem(disk)
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"knee": __version__, "measured": measured, "host": host, "filesystem": filesystem}
    content = {**about, **found.content(), **({} if media is None else {"media": media.model_dump()})}
    text = json.dumps(content, indent=2)
    if save is not None:
        from knee.report.machine import svg

        for file, written in ((save, text + "\n"), (save.with_suffix(".svg"), svg(found))):
            with writing(file, "--save"):
                file.write_text(written, encoding="utf-8")
    if as_json:
        print(text)
        return
    print(f"{host['cpu_model']}, {host['cpu_count']} processors; the disk is {filesystem}")
    print(machines.render_text(found))
    if filesystem in IN_MEMORY:
        print(f"Note: {filesystem} is in memory, so the disk was not measured; choose a folder on a disk with --disk.")
    if media is not None:
        capacities_gb = psutil.disk_usage(str(disk)).total / 1e9, host["memory_bytes"] / 1e9
        print("\n" + machines.render_media(media, found, capacities_gb))
