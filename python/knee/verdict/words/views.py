"""Throughput as clients and server see it, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from knee.stats.intervals import Interval, between, clients_about, counted, number, quantity, ratio_interval
from knee.verdict.knee import Knee
from knee.verdict.views import AGREE, MOVES, View


def views(found: Sequence[View], knee: Knee) -> list[str]:
    """What the views of one configuration show, and what they cannot tell."""
    if not found:
        return []
    first, last = found[0], found[-1]
    if len(found) == 1:
        return [
            f"At {counted(first.clients, 'client')} each client gets {quantity(first.each)} answers per second of "
            f"waiting, and the server gets {quantity(first.server)} requests per second from all. One client count "
            "cannot show how the two change with the clients.",
            *_disagreement(found),
        ]
    falls = " Requests cost more with more clients, or other programs had the processors: see Resources."
    return [
        f"A client's own throughput, answers per second of waiting, is bounded by the response time. It is "
        f"{quantity(first.each)} at {counted(first.clients, 'client')} and {quantity(last.each)} at {last.clients}; "
        f"{_change(first.each, last.each)}.",
        f"The server waits for its clients instead. From its first request to its last it got "
        f"{quantity(first.server)} requests per second at {counted(first.clients, 'client')} and "
        f"{quantity(last.server)} at {last.clients}; {_change(first.server, last.server)}."
        + (falls if _surely_falls(first.server, last.server) else ""),
        *_from_view_to_view(last, knee),
        *_disagreement(found),
    ]


def _from_view_to_view(most: View, knee: Knee) -> list[str]:
    """Where one view turns into the other: N*."""
    product = most.clients * most.each.estimate
    thinking = (
        " Clients did not wait for the rest of the time." if most.together.estimate < (1 - MOVES) * product else ""
    )
    identity = (
        f"Both count the same requests. {most.clients} clients that get {number(most.each.estimate)}/s each while they "
        f"wait would make {number(product)}/s together; {number(most.together.estimate)}/s were made.{thinking}"
    )
    return [f"{identity} {_at_capacity(knee)}"]


def _at_capacity(knee: Knee) -> str:
    if knee.clients is None:
        return "Cannot tell from how many clients on the server is at its capacity."
    star = clients_about(knee.clients)
    if knee.status == "found":
        sure = " (with low confidence)" if knee.confidence == "low" else ""
        return (
            f"Up to about N* = {star}{sure} the server has capacity to spare, and clients slow each other down little. "
            "Beyond it throughput grows no more, and each further client takes its share from others."
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
    """Clients and server count the same requests over the same seconds, unless something is wrong."""
    apart = {
        view.clients: view.server.estimate / view.together.estimate - 1 for view in found if view.together.estimate
    }
    clients, worst = max(apart.items(), key=lambda pair: abs(pair[1]), default=(0, 0.0))
    if abs(worst) <= AGREE:
        return []
    more = "more" if worst > 0 else "fewer"
    return [
        f"The server counted {abs(worst):.1%} {more} requests a second than all clients together at "
        f"{counted(clients, 'client')}: it was not asked in the same seconds that the clients measured."
    ]


def _change(first: Interval, last: Interval) -> str:
    """The change from the fewest clients to the most, unless the repetitions may hide it."""
    ratio = ratio_interval(last, first)
    if math.isnan(ratio.estimate):
        return "a change from zero has no ratio"
    moved = f"it falls to {ratio.estimate:.0%}" if ratio.estimate < 1 else f"it grows {number(ratio.estimate, 2)} times"
    if ratio.low is None or ratio.high is None:
        return f"{moved}, but one repetition cannot tell how surely"
    if ratio.low >= 1 - MOVES and ratio.high <= 1 + MOVES:
        return "it hardly changes"
    if ratio.low <= 1 <= ratio.high:
        return "but the repetitions differ too much to tell whether it changes"
    if ratio.estimate < 1:
        return f"{moved} ({ratio.low:.0%} to {ratio.high:.0%})"
    return f"{moved} ({between(ratio)})"


def _surely_falls(first: Interval, last: Interval) -> bool:
    """Whether the repetitions agree on a fall, and on more than MOVES."""
    ratio = ratio_interval(last, first)
    return ratio.low is not None and ratio.high is not None and ratio.high < 1 and ratio.low < 1 - MOVES
