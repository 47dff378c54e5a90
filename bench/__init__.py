"""The cost of a request, compared with widely used programs.

``python -m bench`` (``make bench``) starts every contestant, lets the same load run against each in
turn, round after round, and compares the CPU time of a request. See ``python -m bench --help``.
"""
