"""The sentences on throughput as clients and server see it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from knee.stats.intervals import Interval, between, clients_about, counted, number, quantity, ratio_interval
from knee.verdict.knee import Knee
from knee.verdict.views import AGREE, MOVES, View


def views(found: Sequence[View], knee: Knee) -> list[str]:
    """The two views of one configuration's throughput, and how they change with the clients."""
    if not found:
        return []
    first, last = found[0], found[-1]
    if len(found) == 1:
        return [
            f"At {counted(first.clients, 'client')}, each client gets {quantity(first.each)} answers per second while "
            f"it waits. The server gets {quantity(first.server)} requests per second from all clients. "
            "One client count cannot show how the two change with the clients.",
            *_disagreement(found),
        ]
    falls = " With more clients, requests cost more, or other programs used the processors: see Resources."
    return [
        "A client sees its own throughput: answers per second while it waits. This throughput is "
        f"{quantity(first.each, 'answers/s')} at {counted(first.clients, 'client')} and "
        f"{quantity(last.each, 'answers/s')} at {last.clients}: {_change(first.each, last.each)}.",
        f"The server sees the throughput of all clients together, from its first request to its last: "
        f"{quantity(first.server)} requests/s at {counted(first.clients, 'client')} and "
        f"{quantity(last.server)} requests/s at {last.clients}: {_change(first.server, last.server)}."
        + (falls if _surely_falls(first.server, last.server) else ""),
        *_from_view_to_view(last, knee),
        *_disagreement(found),
    ]


def _from_view_to_view(most: View, knee: Knee) -> list[str]:
    """How the two views relate, and the client count (N*) from which the server is at its capacity."""
    product = most.clients * most.each.estimate
    thinking = (
        " For the rest of the time, clients did not wait." if most.together.estimate < (1 - MOVES) * product else ""
    )
    identity = (
        f"Both count the same requests. If {most.clients} clients waited all the time, at "
        f"{number(most.each.estimate)}/s each, they would make {number(product)} requests/s together; they made "
        f"{number(most.together.estimate)}.{thinking}"
    )
    return [f"{identity} {_at_capacity(knee)}"]


def _at_capacity(knee: Knee) -> str:
    if knee.clients is None:
        return "Cannot tell how many clients bring the server to its capacity."
    star = clients_about(knee.clients)
    if knee.status == "found":
        sure = " (with low confidence)" if knee.confidence == "low" else ""
        return (
            f"Up to about N* = {star}{sure} the server has capacity to spare, and clients hardly slow each other down. "
            "Beyond N*, throughput grows no more, and each further client takes its share from others."
        )
    if knee.status == "saturated from the start":
        return (
            f"The server was at its capacity from {counted(knee.levels[0].clients, 'client')} on: N* is at most "
            f"{number(knee.clients.estimate)}, so each further client only takes its share from the others."
        )
    if knee.status == "not reached":
        return f"The server's capacity was not reached: N* is more than {star}."
    return f"Cannot tell with confidence where the server's capacity begins: N* may be {star}."


def _disagreement(found: Sequence[View]) -> list[str]:
    """A warning if clients and server did not count the same requests; empty if they did."""
    apart = {
        view.clients: view.server.estimate / view.together.estimate - 1 for view in found if view.together.estimate
    }
    clients, worst = max(apart.items(), key=lambda pair: abs(pair[1]), default=(0, 0.0))
    if abs(worst) <= AGREE:
        return []
    more = "more" if worst > 0 else "fewer"
    return [
        f"The server counted {abs(worst):.1%} {more} requests a second than all clients together at "
        f"{counted(clients, 'client')}: the two did not count over the same seconds."
    ]


def _change(first: Interval, last: Interval) -> str:
    """The change from the fewest clients to the most, or why it is unknown."""
    ratio = ratio_interval(last, first)
    if math.isnan(ratio.estimate):
        return "a change from zero has no ratio"
    moved = (
        f"falls to {ratio.estimate:.0%}"
        if ratio.estimate < 1
        else f"becomes {number(ratio.estimate, 2)} times as large"
    )
    if ratio.low is None or ratio.high is None:
        return f"it {moved} (with one repetition the error is unknown)"
    if ratio.low >= 1 - MOVES and ratio.high <= 1 + MOVES:
        return "it hardly changes"
    if ratio.low <= 1 <= ratio.high:
        return "the repetitions scatter too much to tell whether it changes"
    if ratio.estimate < 1:
        return f"it {moved} ({ratio.low:.0%} to {ratio.high:.0%})"
    return f"it {moved} ({between(ratio)})"


def _surely_falls(first: Interval, last: Interval) -> bool:
    """Whether throughput surely falls by more than MOVES."""
    ratio = ratio_interval(last, first)
    return ratio.low is not None and ratio.high is not None and ratio.high < 1 and ratio.low < 1 - MOVES
