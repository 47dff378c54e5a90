"""The exception tree of the models.

KneeError
└── QueueingError        a model cannot be solved                                        (exit code 2)
    ├── ArgumentError    an argument is invalid; `argument` names it
    ├── UnstableError    arrivals exceed the capacity; `rho` is the offered utilisation
    ├── SizeError        an exact solution would be too large; `states` is its size
    └── ConvergenceError an approximation did not converge after `iterations`; `change` is its last change
"""

from __future__ import annotations

from knee.errors import KneeError


class QueueingError(KneeError):
    """A model cannot be solved."""

    exit_code = 2


class ArgumentError(QueueingError, ValueError):
    """An argument is invalid, independently of the others."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument}: {problem}")
        self.argument = argument


class UnstableError(QueueingError):
    """A station's arrivals exceed its capacity, so no steady state exists."""

    def __init__(self, rho: float, station: str | None = None) -> None:
        where = f"station {station!r}" if station is not None else "the station"
        super().__init__(
            f"rho = {rho:.6g}: {where} is unstable, because arrivals exceed its capacity; rho must be below 1"
        )
        self.rho = rho
        self.station = station


class SizeError(QueueingError):
    """An exact solution would need more states than are allowed."""

    def __init__(self, states: int, values: int, limit: int, remedy: str) -> None:
        super().__init__(
            f"the exact solution has {states:,} states and takes {values:,} values, more than {limit:,}: {remedy}"
        )
        self.states = states
        self.values = values
        self.limit = limit


class ConvergenceError(QueueingError):
    """An approximation did not converge."""

    def __init__(self, method: str, iterations: int, change: float) -> None:
        super().__init__(
            f"{method} did not converge: after {iterations:,} iterations queue lengths still change by "
            f"{change:.3g} of the population; raise iterations_max or tolerance, or take "
            f"{'simulate' if method == 'Bard–Schweitzer' else 'bard_schweitzer or simulate'}"
        )
        self.method = method
        self.iterations = iterations
        self.change = change
