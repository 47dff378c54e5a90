"""What a request costs, side by side with the programs that people use today.

``python -m bench`` (``make bench``) starts every contestant, lets the same load run against each in
turn, round after round, and compares the CPU time of a request. See ``python -m bench --help``.
"""
