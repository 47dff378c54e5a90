"""Exact solvers of closed networks, and a simulator, from crates/kernels. Arrays are the bytes of 64-bit numbers.

What a signal's handler raises, KeyboardInterrupt for one, ends any of them.
"""

POPULATION_MAX: int

class TooLargeError(ValueError):
    """More values than are allowed; `args` are how many there would be and how many may be."""

class LostError(ValueError):
    """Far more rounds are lost than completed; `args` are how many were, of both."""

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
) -> tuple[bytes, bytes, bytes]:
    """Solves a closed network of several classes for all populations up to these.

    Parameters
    ----------
    demands
        By station and class.

    Returns
    -------
    Throughput, (N_1 + 1, …, N_C + 1, classes); the residence time of one unit of demand that arrives there, and the
    probability that somebody is there, (N_1 + 1, …, N_C + 1, stations).

    Raises
    ------
    TooLargeError
        For more values, or terms of load-dependent stations' polynomials, than are allowed.
    ValueError
        For an argument that cannot be right, or numbers out of range.
    """

# Name, parameters, and of quantiles their probabilities: exponential, deterministic, erlang (stages), hyperexponential
# (probability of the slower kind), lognormal (deviation of the logarithm), samples, quantiles. All with mean 1.
Shape = tuple[str, list[float], list[float]]
# Mean, shape.
Time = tuple[float, Shape]
# Population, None if open; thinking, or between arrivals; service at every station; the step of every position, without
# meaning for position 0, the outside; from every position the probabilities to go to others.
Class = tuple[int | None, Time, list[Time], list[int], list[list[tuple[float, int]]]]

def simulate(
    stations: list[tuple[int, list[float], int]],
    steps: list[list[int]],
    classes: list[Class],
    *,
    seed: int,
    first_stream: int,
    replications: int,
    warmup: float,
    observed: float,
    in_time: bool,
    has_series: bool,
) -> list[tuple[float, bytes, bytes, bytes, list[bytes], tuple[int, bytes, bytes] | None]]:
    """Simulates a network several times over, on all processors.

    Parameters
    ----------
    stations
        Servers, 0 for a delay; speeds with 1, 2, … customers there, empty but for varying speeds; places.
    steps
        The stations that are visited at the same time. Without stations a customer goes on at once.
    seed, first_stream, replications
        Replication i takes the stream first_stream + i of the seed.
    warmup, observed
        Time, or completed rounds of all classes.
    has_series
        Whether to keep response times in the order of completion.

    Returns
    -------
    Of every replication: how long it was observed; completed and lost rounds and the sum of the completed ones'
    response times, (classes, 3); at every station who came, who went, who was refused, the sum of the stays of who
    went, and ∫ number there dt, (stations, classes, 5); ∫ busy servers dt, (stations), of varying speeds ∫ 1 dt while
    somebody is there, of delays 0; of every class the histogram of response times, (buckets, 3): beginning, end, count;
    and the series from the beginning of the warm-up: rounds per window, mean response time and end of every window.

    Raises
    ------
    LostError
        Where more than a thousand times as many rounds are lost as are to be completed, and more than a million.
    ValueError
        For an argument that cannot be right, or more requests at once or events than are allowed.
    """
