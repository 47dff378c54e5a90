"""Knee finds the knee of a client, middleware and storage system, and says why it is there.

    >>> import knee
    >>> run = knee.load("runs/quickstart/20260102T030405Z")
    >>> run.knee.clients, run.predict(clients=500).throughput, run.observations, run.plot()

The data flows one way: :mod:`knee.spec` reads the experiment, :mod:`knee.spec.design` lays out its runs,
:mod:`knee.lab.run` measures them on :mod:`knee.lab.hosts`, :mod:`knee.data` keeps the measurements, and the other
packages only read them. :func:`load` is :func:`knee.api.load`, imported when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from knee.api import load

__all__ = ["__version__", "load"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the analyses only if they are used: they take a second."""
    if name == "load":
        from knee.api import load

        return load
    raise AttributeError(f"module 'knee' has no attribute {name!r}")
