"""The sentences on the knee."""

from __future__ import annotations

from knee.stats.intervals import client_count, clients_between, counted, quantity
from knee.verdict.configuration import Verdict
from knee.verdict.knee import LEVELS_MIN, STEP_MIN, Doubt, Knee, Obstacle

_COLUMNS = {
    "clients": "the number of clients (column clients)",
    "throughput": "throughput (column throughput)",
    "response_ms": "response times (column response_ms)",
}


def knee(found: Knee) -> str:
    """The knee, or why it is unknown."""
    if found.obstacle is not None:
        return _obstacle(found, found.obstacle)
    assert found.clients is not None
    estimate = client_count(found.clients.estimate)
    if found.status == "not reached":
        largest = found.levels[-1].clients
        before = max(found.levels[0].clients, int(largest / STEP_MIN))
        return (
            f"The knee was not reached: throughput still rises at {largest} clients, the largest number measured. It "
            f"is {found.rise:.0%} higher there than the best at {counted(before, 'client')} or fewer. The knee lies "
            f"above {estimate} clients. Measure more clients."
        )
    if found.status == "saturated from the start":
        smallest = found.levels[0].clients
        return (
            f"The system is already saturated at {counted(smallest, 'client')}, the smallest number measured: more "
            "clients bring no more throughput, only longer response times. The knee lies at or below "
            f"{counted(smallest, 'client')}. Measure fewer clients."
        )
    low, high = found.between
    if low is None:
        place = f", at or below {counted(high or 0, 'client')}, the smallest number measured"
    elif high is None:
        place = f", above {low} clients, the largest number measured"
    elif (found.clients.low or low) < low or (found.clients.high or high) > high:
        place = ""
    else:
        place = f", between the measured {low} and {high} clients"
    interval = (
        "" if found.clients.low is None else f" {found.clients.level:.0%} interval: {clients_between(found.clients)}."
    )
    return f"The knee is at {estimate} clients{place}.{interval}"


def knee_lines(verdict: Verdict) -> list[str]:
    """The knee of a configuration, and throughput and response time there."""
    found = verdict.knee
    lines = [knee(found)]
    if verdict.bottleneck.status == "load generator":
        lines.append("This is the load generator's own knee: the system could serve more.")
    if found.level is not None:
        beyond = (
            found.status == "found"
            and found.clients is not None
            and found.level.clients > round(found.clients.estimate)
        )
        place = ", the smallest measured number above the knee" if beyond else ""
        lines.append(
            f"At {counted(found.level.clients, 'client')}{place}, throughput is "
            f"{quantity(found.level.throughput, 'requests/s')}. "
            f"The response time is {quantity(found.level.response_ms, 'ms')}."
        )
    if found.retrograde:
        lines.append("Beyond the plateau, throughput falls again as clients are added.")
    if found.status == "found" and found.power_clients is not None:
        lines.append(
            "For comparison, power (throughput divided by response time) is largest at "
            f"{counted(found.power_clients, 'client')}."
        )
    return lines


def doubt(found: Doubt) -> str:
    """A reason to trust a verdict less."""
    match found.kind:
        case "few repetitions":
            return f"only {counted(int(found.figure), 'repetition')}"
        case "noisy repetitions":
            return (
                "the repetitions scatter: by chance alone, the means of two equal throughputs can differ by "
                f"{found.figure:.0%}"
            )
        case "wide interval":
            return f"the interval is wide (±{found.figure:.0%})"
        case "unknown interval":
            return "the interval is unknown"
        case "one level on the plateau":
            return "no neighbouring client count comes near the largest throughput"
        case "loaded from the start":
            return (
                f"the lightest load already reaches {found.figure:.0%} of the largest throughput, so its response "
                "time may include waiting, and the knee may be lower"
            )
        case "uncertain knee":
            return "the knee itself is uncertain"
        case "may keep up":
            return "throughput may follow the arrival rate"
        case "outsiders":
            return f"programs outside the experiment took {found.figure:.0%} of {found.name}"
        case "unmeasured":
            return "an unmeasured part may be the bottleneck"
        case "unknown growth":
            return "no measurement shows which part of the response time grows"
        case "load shares cores":
            return "the load generator uses the same cores"
        case "load waited":
            return "the load generator at times waited for a processor"
        case "load limited":
            return "the load generator may have been a limit, too"
        case "other demand":
            return f"service demands point to {found.name} instead"
        case "other utilisation":
            return "utilisation alone points to another resource"
        case "hardly full":
            return f"{found.name} may be as little as {found.figure:.0%} busy: an unmeasured resource may be the limit"
        case "may wait":
            return f"requests at {found.name} may wait for an unmeasured resource"


def _obstacle(found: Knee, why: Obstacle) -> str:
    levels = len(found.levels)
    match why.kind:
        case "open loop":
            return "The load is an open loop: the number of clients does not limit it, so it has no knee over clients."
        case "missing columns":
            return f"Cannot look for a knee without {' and '.join(_COLUMNS[name] for name in why.missing)}."
        case "no answer":
            return "Cannot look for a knee: no request was answered, so throughput is 0 at every client count."
        case "single request type":
            return (
                "Cannot look for a knee among requests of single types: a knee needs the throughput of all requests. "
                "Add rows that count all requests, with request_type all."
            )
        case "few levels":
            return (
                f"Only {counted(levels, 'client count')} {'was' if levels == 1 else 'were'} measured. Knee "
                f"needs at least {LEVELS_MIN} client counts to find a knee. Measure more client counts."
            )
        case "noise":
            return (
                f"The noise hides the knee. Throughput grows by {why.growth:.0%} from the lightest load. "
                f"By chance alone, the means of two equal throughputs can differ by {why.noise:.0%}. "
                "Measure longer, with more repetitions, on a quieter machine."
            )
        case "unclear growth":
            return (
                f"Cannot tell whether throughput still rises at {found.levels[-1].clients} clients: with more "
                f"clients, it may rise by up to {min(why.growth, 1.0):.0%}{' or beyond' * (why.growth > 1)}. Add "
                "repetitions and larger client counts."
            )
        case "one repetition":
            estimate = client_count(found.clients.estimate) if found.clients else "unknown"
            return (
                f"The asymptotes meet at {estimate} clients, but with one repetition the error of this estimate is "
                "unknown. Measure every client count three times or more."
            )
