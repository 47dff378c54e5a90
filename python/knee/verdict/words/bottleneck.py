"""The sentences on the bottleneck."""

from __future__ import annotations

import re
from collections.abc import Sequence

from knee.data.utilization import OUTSIDERS_MAX, SATURATED
from knee.fit.layered import LIMITS, Limit
from knee.laws import Demand, capacity
from knee.stats.intervals import capital, counted, number
from knee.verdict.bottleneck import Bottleneck
from knee.verdict.candidates import BEYOND, FULL, Candidate
from knee.verdict.knee import Knee
from knee.verdict.limits import Limits
from knee.verdict.words.knee import doubt

_OWNERS = {
    "load": "load generators",
    "middleware": "middlewares",
    "store": "stores",
    "links": "emulated links",
    "knee": "Knee",
    "others": "other programs",
}


def bottleneck(found: Bottleneck) -> str:
    """The bottleneck, or why it is unknown."""
    if found.status == "load generator":
        busy = f" ({_busy(found, found.chosen[0])})" if found.chosen else ""
        own = "knee" if found.over_clients else "throughput"
        limit = found.chosen[0].name if _more_of(found) else "the load generator itself"
        return f"{_capital(limit)} is the limit{busy}: this {own} is the load generator's, not the system's."
    if found.status == "none":
        return "There is no bottleneck at this arrival rate: throughput follows it."
    if found.status == "found":
        named = " and ".join(f"{c.name} ({_busy(found, c)})" for c in found.chosen)
        return (
            f"The bottleneck is {named}."
            if len(found.chosen) == 1
            else f"Several resources limit throughput together: {named}."
        )
    if found.held:
        named = " and ".join(f"{c.name} ({_busy(found, c)})" for c in found.held)
        return (
            f"Cannot tell the bottleneck: {named} fill beyond the knee. Requests hold them far longer there, because "
            "they wait for another resource."
        )
    if found.unexplained is not None:
        return f"Cannot tell the bottleneck: {_why_unexplained(found, found.unexplained)}"
    others = found.cpu_shares.get("others", 0.0)
    return {
        "nothing measured": "Cannot tell the bottleneck: no run is finished.",
        "no utilisation": "Cannot tell the bottleneck: no utilisation was measured.",
        "no knee": "Cannot tell the bottleneck: the bottleneck saturates at the knee, and the knee is unknown.",
        "still rising": "There is no bottleneck yet: throughput still rises at the largest client count.",
        "nothing saturated": f"Cannot tell the bottleneck: no resource is near saturation (≥ {SATURATED:.0%}).",
        "other programs": f"Cannot tell the system's own bottleneck: {_full_host(found)} is full, and programs outside "
        f"the experiment took {others:.0%} of the CPU time.",
        "emulated links": f"Cannot tell the system's own bottleneck: {_full_host(found)} is full, and emulated links "
        f"took {found.cpu_shares.get('links', 0.0):.0%} of the CPU time.",
    }[found.cause or "nothing measured"]


def _more_of(found: Bottleneck) -> str | None:
    """The remedy, as a noun, for the load generator's limiting resource; None for a thread or an unknown resource."""
    more = {"sending link": "faster links", "receiving link": "faster links", "host CPU": "processors"}
    return more.get(found.chosen[0].resource) if found.chosen else None


def _full_host(found: Bottleneck) -> str:
    return found.full_host.name if found.full_host is not None else "the host's CPU"


def evidence(found: Bottleneck) -> list[str]:
    """The evidence for the verdict."""
    lines = [*_evidence(found), _growth(found)]
    if found.unmeasured:
        lines.append(f"Not measured: {'; '.join(found.unmeasured)}.")
    if found.by_demand is not None:
        lines.append(by_demand(found.by_demand))
    return [line for line in lines if line]


def bottleneck_lines(found: Bottleneck, limits: Limits | None = None) -> list[str]:
    """The bottleneck, its evidence and its confidence."""
    gains = [] if limits is None else [limits_sentence(limits, found.cpu_shares.get("others", 0.0))]
    return [bottleneck(found), *gains, *evidence(found), confidence(found)]


def limits_sentence(found: Limits, others: float) -> str:
    """The gain of throughput from 10% more of each limiting resource, and the limit after a doubling of the first.

    The model ignores other programs: if their share `others` exceeds OUTSIDERS_MAX, the text omits the doubling.
    """
    first, twice = found.limits[0], found.twice
    gain, more = first.elasticity, twice.throughput
    low, high = (10 * (end if end is not None else gain.estimate) for end in (gain.low, gain.high))
    name, then = twice.limits[0]
    load = counted(round(twice.clients), "client")
    after = f"the {name}" if then >= LIMITS else "clients and think time"
    differs = found.at_knee not in ("", first.resource)
    knee = f" At the knee, the {found.at_knee} limit the throughput." if differs else ""
    also = "".join(
        f" Adding 10% to the {limit.resource} raises it by {10 * limit.elasticity.estimate:.1f}%."
        for limit in found.also
    )
    doubled = (
        f" Doubling the {first.resource} gives {number(more.estimate)} requests/s ({number(more.low or 0)} to "
        f"{number(more.high or 0)}). Then {after} limit the throughput."
    )
    return (
        f"At {load}, adding 10% to the {first.resource} raises throughput by {10 * gain.estimate:.1f}% "
        f"({low:.1f}% to {high:.1f}%).{also}{doubled if others <= OUTSIDERS_MAX else ''}{knee} "
        "These gains come from the layered model of slots, threads and processors."
    )


def gain(limit: Limit) -> str:
    """The gain of throughput from 10% more of a resource, as in :func:`limits_sentence`."""
    if limit.elasticity.estimate < LIMITS:
        return "10% more gains nothing"
    return f"10% more raises throughput by {10 * limit.elasticity.estimate:.1f}%"


def confidence(verdict: Knee | Bottleneck) -> str:
    """The confidence in a verdict, with the reasons that lower it; empty for a verdict without evidence."""
    if verdict.status == "cannot tell" and not verdict.doubts:
        return ""
    doubts = "; ".join(map(doubt, verdict.doubts))
    return f"Confidence: {verdict.confidence}" + (f" ({doubts})." if doubts else ".")


def by_demand(first: Demand) -> str:
    """Which station saturates first by its service demand."""
    # The lab's stations are "middleware-0's connections" or "the stores"; a foreign name does not show a plural.
    several = re.fullmatch(r"(.*'s|the) [^']*s", first.station) is not None
    verb, they = ("saturate", "they allow") if several else ("saturates", "it allows")
    return f"By service demand, {first.station} {verb} first: {they} at most {capacity(first)}."


def _evidence(found: Bottleneck) -> list[str]:
    busiest = _ranking(found.candidates)
    if found.cause == "no knee":
        return [f"Busiest at any load: {busiest}."]
    if found.cause == "still rising":
        limit = f"The load generator reports that it was a limit: {found.load_limit}." if found.load_limit else ""
        return [f"Busiest so far: {busiest}.", limit]
    if found.cause == "nothing saturated":
        return [
            f"Busiest: {busiest}.",
            "The bottleneck may be an unmeasured resource: a link, a lock, another machine.",
        ]
    if found.held:
        return [
            f"Busiest: {busiest}.",
            _full_later(found.later, found) if found.later else "",
            "The limit may be a resource that is nearly full, a lock, a disk, a link or another machine.",
            f"The load generator reports that it was a limit: {found.load_limit}." if found.load_limit else "",
        ]
    if found.unexplained is not None:
        remedy = (
            "Measure all that lies behind it, such as a database or a disk."
            if found.cause == "waits"
            else "The limit may be a link, a lock or another machine."
        )
        return [f"Busiest: {busiest}.", remedy]
    if found.cause == "other programs":
        return [_shared_host(found), "Stop the other programs and measure again."]
    if found.cause == "emulated links":
        return [_shared_host(found), "Measure on a machine with more processors, or with fewer emulated hosts."]
    if found.status == "load generator":
        limit = f"The load generator reports this itself: {found.load_limit}." if found.load_limit else ""
        more = _more_of(found) or "threads"
        return [limit, f"Give the load generator more hosts or {more}, and measure again."]
    if found.status == "none":
        return [
            f"Busiest: {busiest}." if found.candidates else "",
            _shared_host(found) if found.full_host else "",
            f"The load generator was late, and response times include the delay: {found.load_limit}."
            if found.load_limit
            else "",
        ]
    if found.status == "found":
        return _evidence_found(found)
    return []


def _why_unexplained(found: Bottleneck, station: Candidate) -> str:
    """Why a busy station of a table is not the bottleneck."""
    plateau = station.plateau
    assert plateau is not None
    if station.polls:
        return f"{station.name} is as busy at a lighter load, for far fewer requests: it may poll while it waits."
    if found.cause == "waits":
        grew = "Throughput hardly grew" if station.waits else "No lighter load shows whether throughput grew"
        behind = [c for c in found.candidates if not c.is_soft and c.at_most.estimate >= SATURATED]
        something = f"{behind[0].name} ({_busy(found, behind[0])})" if behind else "an unmeasured resource"
        return (
            f"{station.name} is full, but its requests may wait there for {something}. {grew} while {station.name} "
            "filled."
        )
    share, most = plateau.share, plateau.share.high
    if most is None or most >= FULL:
        return (
            f"{station.name} is {share.estimate:.0%} busy. A bottleneck is at least {FULL:.0%} busy. "
            + (f"The interval of the utilisation reaches {min(most, 1.0):.0%}: add repetitions." if most else "")
        ).rstrip()
    at = f" at {plateau.clients} clients{' and more' if plateau.clients < found.to_clients else ''}"
    only = f"{station.name} is at most {most:.0%} busy{at if found.over_clients else ''}"
    if plateau.beyond or not found.over_clients:
        return f"{only}, so an unmeasured resource limits throughput."
    return f"{only}. Measure at {BEYOND:g} times the clients of the knee: a bottleneck is full there."


def _evidence_found(found: Bottleneck) -> list[str]:
    lines = [_shared_host(found)] if found.full_host else []
    if found.waiting:
        named = _capital(" and ".join(c.name for c in found.waiting))
        are, they = ("is", "it waits") if len(found.waiting) == 1 and found.waiting[0].plateau else ("are", "they wait")
        lines.append(f"{named} {are} full as well, because {they} for the bottleneck.")
    elif found.later is not None:
        lines.append(_full_later(found.later, found))
    if found.load_limit:
        lines.append(f"The load generator also reports that it was a limit: {found.load_limit}.")
    return lines


def _full_later(later: Candidate, found: Bottleneck) -> str:
    return f"{_capital(later.name)} becomes full only beyond the knee ({_busy(found, later)})."


def _growth(found: Bottleneck) -> str:
    top = found.growing
    if top is None:
        return ""
    return (
        f"From {found.from_clients} to {found.to_clients} clients, {min(top.share, 1.0):.0%} of the added response "
        f"time is {top.name}, which grows from {number(top.from_ms.estimate)} to {number(top.to_ms.estimate)} "
        "ms."
    )


def _shared_host(found: Bottleneck) -> str:
    parts = [f"{_OWNERS.get(owner, owner)} {share:.0%}" for owner, share in found.cpu_shares.items() if share >= 0.005]
    shared = (
        " The load generator uses the same cores, so the results include its CPU use."
        if "load" in found.cpu_shares
        else ""
    )
    return f"Shares of {_full_host(found)} time: {', '.join(parts)}.{shared}"


def _busy(found: Bottleneck, candidate: Candidate) -> str:
    at_most = f"{candidate.at_most.estimate:.0%}"
    if not found.over_clients:
        return f"{at_most} busy"
    if found.at_knee_clients in (None, found.to_clients):
        return f"{at_most} busy at {found.to_clients} clients"
    return f"{candidate.at_knee.estimate:.0%} busy at {found.at_knee_clients} clients, {at_most} at {found.to_clients}"


def _ranking(candidates: Sequence[Candidate]) -> str:
    return ", ".join(f"{c.name} {c.at_most.estimate:.0%}" for c in candidates[:3])


def _capital(text: str) -> str:
    """The start of a sentence; a machine's name keeps its spelling."""
    return capital(text) if text.startswith(("the ", "station ")) else text
