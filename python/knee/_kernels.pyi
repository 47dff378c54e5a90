"""Exact solvers of closed networks, a simulator, and measurements of this machine, from crates/kernels. Arrays are the
bytes of 64-bit numbers.

An exception from a signal handler, such as KeyboardInterrupt, ends each solver and the simulator.
"""

POPULATION_MAX: int

class TooLargeError(ValueError):
    """More values than are allowed; `args` are their number and the limit."""

class LostError(ValueError):
    """Far more rounds are lost than completed; `args` are both numbers."""

def closed(
    population: int, think_time: float, demands: list[float], rates: list[list[float]]
) -> tuple[bytes, bytes, bytes]:
    """Solves a closed network of one class for the populations 1, …, N.

    Parameters
    ----------
    rates
        Of every station: its rates with 1, 2, … customers there; the last one also holds for more.

    Returns
    -------
    Throughput, (N); queue lengths, (stations, N); probability that a station is busy, (stations, N).

    Raises
    ------
    TooLargeError
        For more terms of load-dependent stations' series than are allowed.
    ValueError
        For an impossible argument, or numbers out of range.
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
    Throughput, (N_1 + 1, …, N_C + 1, classes); the residence time of one unit of demand that arrives at a station, and
    the probability that the station is busy, (N_1 + 1, …, N_C + 1, stations).

    Raises
    ------
    TooLargeError
        For more values, or terms of load-dependent stations' polynomials, than are allowed.
    ValueError
        For an impossible argument, or numbers out of range.
    """

# Name, parameters, and the probabilities of quantiles: exponential, deterministic, erlang (stages), hyperexponential
# (probability of the slower kind), lognormal (deviation of the logarithm), samples, quantiles. All with mean 1.
Shape = tuple[str, list[float], list[float]]
# Mean, shape.
Time = tuple[float, Shape]
# Population, None if open; think or interarrival time; service at every station; the step of every position (position 0
# is the outside and has none); the probabilities of going from every position to others.
Class = tuple[int | None, Time, list[Time], list[int], list[list[tuple[float, int]]]]

def simulate(
    stations: list[tuple[int, list[float], int, bool, list[int], bool]],
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
        Servers, 0 for a delay; speeds with 1, 2, … customers there, empty for a constant speed; places; whether
        customers share the servers; levels by class (0 is served first), or none; whether a customer waits in
        its server for a place here.
    steps
        The stations that a customer visits at the same time; none to move on at once.
    seed, first_stream, replications
        Replication i takes the stream first_stream + i of the seed.
    warmup, observed
        Time, or completed rounds of all classes.
    has_series
        Whether to keep response times in the order of completion.

    Returns
    -------
    Of every replication: the observed time; completed and lost rounds and the sum of the completed ones' response
    times, (classes, 3); at every station arrivals, departures, refusals, the sum of the stays that ended, and
    ∫ number there dt, (stations, classes, 5); ∫ busy servers dt, (stations), for varying speeds the busy time, for
    delays 0; of every class the histogram of response times, (buckets, 3): beginning, end, count; and the series from
    the beginning of the warm-up: rounds per window, mean response time and end of every window.

    Raises
    ------
    LostError
        When more than a million rounds are lost, and more than a thousand times those to be completed.
    ValueError
        For an impossible argument, or more concurrent requests or events than are allowed.
    """

def simulate_layered(
    cores: list[float],
    tiers: list[tuple[int, int, float, float, bool]],
    outside: tuple[float, float, list[float]],
    inside: tuple[float, float, list[float]],
    *,
    think: Time,
    work: Shape,
    customers: int,
    pools: int,
    slots: int,
    seed: int,
    replications: int,
    warmup: int,
    rounds: int,
) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Simulates a layered network several times over, on all processors.

    Parameters
    ----------
    tiers
        Host, threads, mean processor time of a request, additional time to wake a thread, whether each slot has its own
        thread.
    outside, inside
        Delay, stretch, shares by tier.
    slots
        Of each pool; 0 if requests need none.
    warmup, rounds
        Completed requests.

    Returns
    -------
    Of every replication: the observed time, completed requests, and the sums of their response times, waits for a slot
    and times with a slot, (5); ∫ active threads dt, (tiers); ∫ busy cores dt, (hosts); the histogram of response times,
    (buckets, 3): beginning, end, count.

    Raises
    ------
    ValueError
        For an impossible argument, or more events than are allowed.
    """

# Measurements of this machine, each for about `seconds`. Each raises OSError if the system refuses memory, a file or a
# connection. Signals are handled when a measurement ends.

def memory(bytes: int, seconds: float, seed: int) -> tuple[float, float, float, float]:  # noqa: A002
    """What one thread gets from new memory of so many bytes.

    Returns
    -------
    The mean time (ns) of a read that depends on the read before, in random order over the cache lines. Bytes per second
    that are read, that ordinary stores write, and that memcpy copies from the first half to the second half.
    """

def clock(seconds: float) -> tuple[float, float, float]:
    """Time to read the clock, the smallest difference above zero of two readings (both in ns), and the mean delay of a
    sleep of 100 µs (in µs)."""

def loopback_bytes_per_s(seconds: float) -> float:
    """Bytes per second of one TCP connection over the loopback interface."""

def loopback_round_trip_us(seconds: float) -> float:
    """Mean time until a byte's answer of one byte arrives, over TCP on the loopback interface."""

def file_fill(file: int, bytes: int, seconds: float, seed: int) -> int:  # noqa: A002
    """Writes random bytes to an open file, for at most `seconds`, and syncs it. Returns the number of bytes."""

def file_transfers_per_s(
    file: int,
    bytes: int,  # noqa: A002
    seconds: float,
    seed: int,
    *,
    block_bytes: int,
    writes: bool,
    random: bool,
    direct: bool,
    synced: bool,
) -> float:
    """Transfers per second of blocks within the first bytes of an open file, at random places or one after the other.

    `direct` passes by the page cache (O_DIRECT). `synced` calls fdatasync after each.

    Raises
    ------
    OSError
        EINVAL if the file is shorter than a block, or its file system takes no direct transfers.
    """

def file_takes_direct(file: int) -> bool:
    """Whether direct transfers (O_DIRECT) of an open file of a page or more pass by the page cache."""

def file_scan_mapped(file: int, bytes: int, from_disk: bool) -> list[tuple[float, int, int]]:  # noqa: A002
    """Scans the first bytes of an open file twice through one mapping: bytes per second, minor and major page faults.

    `from_disk` drops the file from the page cache before the first scan; else the file is read into it.
    """
