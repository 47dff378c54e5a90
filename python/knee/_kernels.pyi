"""Exact solvers of closed networks, from crates/kernels. Arrays are the bytes of 64-bit numbers."""

POPULATION_MAX: int

class TooLargeError(ValueError):
    """More values than are allowed; `args` are how many there would be and how many may be."""

def closed(
    population: int, think_time: float, demands: list[float], rates: list[list[float]]
) -> tuple[bytes, bytes, bytes]:
    """Solves a closed network of one class for the populations 1, …, N.

    Parameters
    ----------
    rates
        Of every station: its rates with 1, 2, … customers there, the last one for more.

    Returns
    -------
    Throughput, (N); queue lengths, (stations, N); probability that somebody is at a station, (stations, N).

    Raises
    ------
    TooLargeError
        For more terms of load-dependent stations' series than are allowed.
    ValueError
        For an argument that cannot be right, or numbers out of range.
    """

def lattice(
    populations: list[int], think_times: list[float], demands: list[list[float]], rates: list[list[float]]
) -> tuple[bytes, bytes]:
    """Solves a closed network of several classes for all populations up to these.

    Parameters
    ----------
    demands
        By station and class.

    Returns
    -------
    Throughput, (N_1 + 1, …, N_C + 1, classes), and the residence time of one unit of demand that arrives there,
    (N_1 + 1, …, N_C + 1, stations).

    Raises
    ------
    TooLargeError
        For more values than are allowed.
    ValueError
        For an argument that cannot be right, or numbers out of range.
    """
