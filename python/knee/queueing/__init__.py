"""Queueing models and their solvers: pure functions of numbers.

Times are in any one unit that the caller keeps to, and rates are per that unit.
"""
