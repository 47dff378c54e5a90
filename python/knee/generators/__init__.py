"""Runs any load generator on any system, as commands.

runner  starts a system, runs a load generator, and reads what it prints
kinds   the servers that Knee starts itself, and the commands of the generators' kinds
lab     the runs of an experiment whose load is a command
"""
