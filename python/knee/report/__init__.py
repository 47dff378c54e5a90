"""The report: one self-contained HTML page of a run folder or of a table.

    page         the frame: sections, style and script in one file; `live.js` only while a measurement goes on
    sheet        the state that the sections share
    verdict, clients, views, outcomes, model, factorial, laws, distributions, balance, resources, timeline, provenance
                 one section each: sentences, figures with captions, tables
    charts       the figures' specifications
    tables       numbers as HTML

It takes findings (:mod:`knee.verdict`), and computes nothing. The page needs no network; its one script (Vega,
with Vega-Lite and Vega-Embed) is inlined from the bundle that vl-convert-python ships.
"""

from knee.report.page import Live, is_report, write

__all__ = ["Live", "is_report", "write"]
