"""Compares systems: what differs between their measurements, by how much, and whether chance explains it. Pure.

sides     the measurements of one system, from run folders or a table
ratios    the ratio of one quantity, with its interval and its probability
pairs     compares two sides, point by point and over all points
gates     conditions that fail a build
findings  results, as data
text      the findings as text and as Markdown
"""

from knee.compare.findings import Pair
from knee.compare.gates import Gate
from knee.compare.pairs import compare
from knee.compare.ratios import RUNS_APART
from knee.compare.sides import Side, side_of, sides_between
from knee.compare.text import render_markdown, render_text

__all__ = [
    "RUNS_APART",
    "Gate",
    "Pair",
    "Side",
    "compare",
    "render_markdown",
    "render_text",
    "side_of",
    "sides_between",
]
