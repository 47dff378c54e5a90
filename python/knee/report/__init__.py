"""The report: one self-contained HTML page of a run.

It computes nothing: it draws what the pure modules return. The page needs no network; its one script (Vega, with
Vega-Lite and Vega-Embed) is inlined from the bundle that vl-convert-python ships.
"""

from knee.report.page import write

__all__ = ["write"]
