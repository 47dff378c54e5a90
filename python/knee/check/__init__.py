"""Checks the results of other load generators. Pure.

rules     what contradicts what within one result
sets      the law over all results of a tool
findings  the findings of all results, what they lack, with the knee and a prediction, as data
text      the findings as text and as JSON
"""

from knee.check.findings import Findings, alone, check, checks_of, table
from knee.check.rules import Finding
from knee.check.text import render_text

__all__ = ["Finding", "Findings", "alone", "check", "checks_of", "render_text", "table"]
