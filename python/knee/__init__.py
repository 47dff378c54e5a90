"""Knee finds the knee of a client, middleware and storage system, and says why it is there.

The data flows one way: :mod:`knee.spec` reads the experiment, :mod:`knee.spec.design` lays out its runs,
:mod:`knee.lab.run` measures them on :mod:`knee.lab.hosts`, :mod:`knee.data` keeps what was measured, and
everything after that only reads.
"""

__version__ = "0.1.0"
