"""All sentences of a verdict, made from findings. The terminal and the page print the same sentences."""

from knee.verdict.words.arrivals import arrivals
from knee.verdict.words.balance import balance, uncounted
from knee.verdict.words.bottleneck import bottleneck, bottleneck_lines, confidence, evidence, gain
from knee.verdict.words.ceilings import note_on_syncs
from knee.verdict.words.crossing import crossing
from knee.verdict.words.drift import drift
from knee.verdict.words.health import (
    note_on_throughput,
    note_on_times,
    response_times_of_failed,
    warning,
)
from knee.verdict.words.knee import doubt, knee, knee_lines
from knee.verdict.words.levels import levels
from knee.verdict.words.operations import operations
from knee.verdict.words.outcomes import clusters, outcomes, reads, shown_first
from knee.verdict.words.peak import names_all, peak
from knee.verdict.words.sections import arrival_lines, beside_lines, factor_lines, law_lines, model_lines, unexplained
from knee.verdict.words.thresholds import thresholds
from knee.verdict.words.timeline import log, log_growth
from knee.verdict.words.views import views

__all__ = [
    "arrival_lines",
    "arrivals",
    "balance",
    "beside_lines",
    "bottleneck",
    "bottleneck_lines",
    "clusters",
    "confidence",
    "crossing",
    "doubt",
    "drift",
    "evidence",
    "factor_lines",
    "gain",
    "knee",
    "knee_lines",
    "law_lines",
    "levels",
    "log",
    "log_growth",
    "model_lines",
    "names_all",
    "note_on_syncs",
    "note_on_throughput",
    "note_on_times",
    "operations",
    "outcomes",
    "peak",
    "reads",
    "response_times_of_failed",
    "shown_first",
    "thresholds",
    "uncounted",
    "unexplained",
    "views",
    "warning",
]
