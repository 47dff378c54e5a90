"""Runs any load generator on any system, as commands.

runner  starts a system, runs a load generator, and reads what it prints
lab     the runs of an experiment whose load is a command
"""
