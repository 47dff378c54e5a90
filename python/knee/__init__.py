"""Knee finds the knee of a client, middleware and storage system, and says why it is there.

The data flows one way: :mod:`knee.spec` reads the experiment, :mod:`knee.spec.design` lays out its runs,
:mod:`knee.lab.run` measures them on :mod:`knee.lab.hosts`, :mod:`knee.data` keeps the measurements, and the other
packages only read them.
"""

__version__ = "0.1.0"
