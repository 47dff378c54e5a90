"""Finds the knee, or the largest load that keeps a goal, with any load generator as a command.

quantities    of options. Pure
generator     runs the generator within a budget
search        which loads to measure, and when to stop. Pure
knees, goals  the targets of a search: the knee, or a limit of response times. Pure
scouts        chooses the numbers of clients of an experiment
text          a line for each run, and the result
"""
