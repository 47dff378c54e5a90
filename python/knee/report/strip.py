"""The stations of a configuration side by side: how busy each is, and how much throughput 10% more of it adds."""

from __future__ import annotations

from html import escape

from knee.verdict import words
from knee.verdict.configuration import Verdict

STATIONS_MAX = 8

_INWARDS = {"load": 0, "middleware": 1, "store": 2}
"""Tiers from the clients inwards; the host and a table's stations follow."""


def strip(verdict: Verdict) -> str:
    """The busiest stations, from the clients inwards, with the bottleneck marked; empty without a utilisation."""
    found = verdict.bottleneck
    stations = sorted(found.candidates[:STATIONS_MAX], key=lambda station: _INWARDS.get(station.role, 3))
    if not stations:
        return ""
    items = []
    for station in stations:
        busy = station.at_most.estimate
        notes = ["bottleneck"] if station in found.chosen else []
        limit = verdict.limits.of(station) if verdict.limits else None
        if limit is not None:
            notes.append(words.gain(limit))
        items.append(
            f'<li class="{"limit" if station in found.chosen else ""}"><span>{escape(station.name)}</span>'
            f'<span class="bar"><i style="width:{100 * min(1.0, max(0.0, busy)):.0f}%"></i></span>'
            f"<b>{busy:.0%} busy</b><small>{escape('; '.join(notes))}</small></li>"
        )
    at = f" at {found.to_clients} clients" if found.over_clients else ""
    return f'<ol class="strip" aria-label="The stations{at}, from the clients inwards">{"".join(items)}</ol>'
