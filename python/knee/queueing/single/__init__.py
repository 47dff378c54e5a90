"""Single stations: one queue, one or more servers. Pure; formulas in docs/methods/single-stations.md.

station      the results that every model has
line         times of customers behind others, first come, first served
mmm, mm_infinity, mmmk, mg1, ggm, mh21
             models by Kendall's notation; mmm has M/M/1, too
erlang       delay and loss probabilities
arguments    checks of arguments
"""
