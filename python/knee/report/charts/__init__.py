"""Vega-Lite specifications of the report's charts: a module for each section, and `vega` for shared parts.

The script page.js replaces "@name" by a colour of the light or dark scheme. The series have the palette of Okabe & Ito
(2008), which colour-blind readers can distinguish.
"""
