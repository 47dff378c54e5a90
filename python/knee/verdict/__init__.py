"""The verdict on a measurement: the knee, its cause, and the confidence in both. Pure.

analyse        applies every analysis to a run folder or a table, once
findings       results of the analyses, as data
evidence       input of the analyses, from a run folder or a table
configuration  knee and bottleneck of one combination of the other factors
knee, bottleneck, arrivals, levels, peak, crossing
               one analysis each
beside         fitted queues beside measured ones
health         warnings about the measurements
details        data that only a run folder has: views, operations, balance, outcomes, clusters, distributions, timeline,
               drift
naming         names of configurations and points
words          every sentence
text           the findings as text, for a terminal
"""

from knee.verdict.analyse import analyse
from knee.verdict.findings import Findings
from knee.verdict.text import render_text

__all__ = ["Findings", "analyse", "render_text"]
