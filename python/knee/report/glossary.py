"""The words of the page that a reader may not know, each with its meaning on hover."""

from __future__ import annotations

import re
from html import escape

TERMS = {
    "knee": "The number of clients at which the light-load line meets the largest throughput; beyond it, waits grow.",
    "bottleneck": "A resource that limits throughput: more of it raises throughput.",
    "throughput": "Requests that the system answers in a second.",
    "response time": "Time from sending a request to its answer.",
    "think time": "Time that a client waits after an answer before it sends the next request.",
    "utilisation": "Share of the time in which a resource is busy.",
    "service demand": "Time that a request needs at a station, over all its visits, without waiting.",
    "queueing time": "Time that a request waits for a worker slot.",
    "service time": "Time that a server, such as a worker slot, needs for a request.",
    "worker slot": "A place for a request that a middleware handles; further requests wait.",
    "closed loop": "Each client sends its next request only after the answer to the last one.",
    "open loop": "Requests arrive at a rate that does not depend on the answers.",
    "arrival rate": "Requests that clients send in a second.",
    "repetition": "A further measurement of the same point.",
    "interval": "Range that holds the true value in 95 of 100 such experiments, or another named share.",
    "interactive law": "X = N / (R + Z): throughput is clients divided by response time plus think time.",
    "Little's law": "The mean number of requests at a station is their throughput times their mean time there.",
    "utilisation law": "The utilisation of a station is its throughput times its service time, per server.",
    "forced flow law": "The throughput of a station is the system's throughput times the visits of a request.",
    "asymptote": "A line that throughput approaches: with few clients, or with many.",
    "percentile": "p99 is the time that 99 of 100 requests do not exceed.",
    "warm-up": "The first part of a run, before its values are steady.",
    "residual": "Difference between a measurement and its prediction.",
    "interaction": "The effect of a factor depends on the level of another one.",
    "variation": "Sum of the squared differences from the mean.",
    "confounded": "The design cannot tell these effects apart.",
    "fairness index": "1 if all shares are equal, 1/n if one of n takes all (Jain).",
    "layered model": "A queueing model in which a request holds a worker slot while it waits for a processor.",
}
"""Terms in lower case, but for names."""

_SKIPPED = re.compile(r"<(svg|summary|pre|h2|h3|button)\b.*?</\1>|<[^>]+>", re.DOTALL)
_TERM = re.compile(
    rf"(?<!“)\b({'|'.join(sorted(map(re.escape, map(escape, TERMS)), key=len, reverse=True))})s?\b", re.IGNORECASE
)
_MEANINGS = {escape(term).lower(): meaning for term, meaning in TERMS.items()}


def explained(section: str) -> str:
    """A section's HTML, in which the first occurrence of each term shows its meaning."""
    seen: set[str] = set()

    def mark(found: re.Match[str]) -> str:
        term = found[1].lower()
        if term in seen or found[0] == "Knee":  # the program
            return found[0]
        seen.add(term)
        return f'<abbr title="{escape(_MEANINGS[term])}">{found[0]}</abbr>'

    parts, end = [], 0
    for tag in _SKIPPED.finditer(section):
        parts += [_TERM.sub(mark, section[end : tag.start()]), tag[0]]
        end = tag.end()
    return "".join([*parts, _TERM.sub(mark, section[end:])])
