"""Factorial analysis: which factors matter, by how much, and with what confidence. Pure: tables in, findings out.

    transform      the sign table, and its fast transform
    fraction       2^(k−p): defining relation, aliases, resolution
    design         observations as factors, levels and cells; checks of the input
    decomposition  cells' means into effects
    noise          intervals from the error of single observations
    analysis       effects with intervals, and the allocation of variation, under one model
    prediction     responses at measured levels, and changes between levels
    lenth          significant effects without repetitions
    residuals      checks of the intervals' assumptions
    box_cox        whether an additive or a multiplicative model suits the data
    findings       the whole analysis of one response
    text           findings as sentences and as a table
    audit          do published effects follow from published responses?
    explanations   which changed value would make published effects follow
    audit_text     the audit as sentences and as a table

Formulas, assumptions and sources, a page per technique: docs/methods/factorial.md.
"""

from knee.factorial.analysis import Analysis, Cell, Term, analyse_model
from knee.factorial.audit import audit_design, audit_effects
from knee.factorial.audit_text import audit_sentence, render_audit
from knee.factorial.design import design_of
from knee.factorial.findings import Findings, analyse
from knee.factorial.fraction import from_generators
from knee.factorial.lenth import lenth_margins
from knee.factorial.prediction import change, marginal_means, predict
from knee.factorial.text import render_text, sentences

__all__ = [
    "Analysis",
    "Cell",
    "Findings",
    "Term",
    "analyse",
    "analyse_model",
    "audit_design",
    "audit_effects",
    "audit_sentence",
    "change",
    "design_of",
    "from_generators",
    "lenth_margins",
    "marginal_means",
    "predict",
    "render_audit",
    "render_text",
    "sentences",
]
