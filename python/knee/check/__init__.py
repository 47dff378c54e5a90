"""Checks the results of other load generators. Pure.

rules     what contradicts what within one result, and what a set of results lacks
findings  the findings of all results, with the knee and a prediction, as data
text      the findings as text and as JSON
"""

from knee.check.findings import Findings, check, table
from knee.check.rules import Finding
from knee.check.text import render_json, render_text

__all__ = ["Finding", "Findings", "check", "render_json", "render_text", "table"]
