"""Vega-Lite specifications of the report's charts, a module per section and in `vega` what they share.

Colours that differ between light and dark are written as "@name" and filled in by page.js; the series' palette is
Okabe & Ito's (2008), which colour-blind readers can tell apart.
"""
