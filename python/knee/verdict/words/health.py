"""The sentences on warnings and failed requests: the cause, then the remedy."""

from __future__ import annotations

from knee.data.utilization import OUTSIDERS_MAX
from knee.stats.intervals import capital, counted, listed, percent
from knee.verdict.failures import Failures
from knee.verdict.health import (
    Ejected,
    HealthWarning,
    Incomplete,
    LeftElsewhere,
    LeftOut,
    LoadLimited,
    LoadWaited,
    LostConnections,
    Missed,
    Note,
    Outsiders,
    SpeedChanged,
    SpeedVaried,
    Stolen,
    Unanswered,
    Unsent,
    Unsteady,
    WrongAnswers,
)


def warning(found: HealthWarning) -> str:
    """A warning in one or more sentences."""
    match found:
        case Note(text):
            return _sentence(text)
        case Incomplete(done, planned, resume):
            return f"Only {done} of {planned} runs are complete. {resume} runs the others."
        case LostConnections():
            return _lost_connections(found)
        case Unsent():
            return _unsent(found)
        case WrongAnswers():
            return _wrong_answers(found)
        case Ejected(count):
            return f"Middlewares took a store out of use {counted(count, 'time')}: see their logs."
        case Failures():
            return _failures(found)
        case Missed(affected, runs, worst, populated, expire):
            cause = "Values expired, or a store" if expire else "A store"
            return (
                f"In {affected} of {counted(runs, 'run')}, gets missed up to {percent(worst)} of the requested keys. "
                f"The load generator had set {percent(populated)} of all keys before. {cause} evicted values, "
                "restarted or refused writes. An answer without a value is faster than an answer with a value. "
                f"{'Read the logs of the stores.' if expire else 'Give the stores more memory, and read their logs.'}"
            )
        case Unanswered(affected, runs):
            return (
                f"No request was answered in {affected} of {counted(runs, 'run')} after warm-up. Their throughput "
                "is 0, and analyses that need a response time, such as the knee, leave these runs out. Measure "
                "longer, or on a quieter machine."
            )
        case LoadLimited(affected, runs, detail):
            return (
                f"The load generator was itself the limit in {affected} of {counted(runs, 'run')} ({detail}). Give it "
                "more threads or hosts."
            )
        case LoadWaited(affected, runs, full):
            fullness = (
                f"in {full} of these, the host's CPU was full" if full else "the host's CPU was not full on average"
            )
            return (
                f"In {affected} of {counted(runs, 'run')}, the load generator sometimes waited for a processor "
                f"({fullness}). Response times include these waits. Use more cores, or servers on another machine "
                "(address = [...])."
            )
        case Outsiders(affected, runs, worst, cpu):
            return (
                f"Programs outside the experiment took more than {OUTSIDERS_MAX:.0%} of a machine's CPU in {affected} "
                f"of {counted(runs, 'run')}. The most was {worst:.0%} of {cpu}. These programs may explain differences "
                "between runs. Stop them and measure again."
            )
        case Stolen(median, worst):
            return (
                f"The hypervisor kept {median:.0%} of the machine's CPU time for other guests in the median run, and "
                f"{worst:.0%} in the worst. These guests may cause the noise. Measure when they are idle, on a machine "
                "without other guests, or let idle processors poll before they halt (Linux: haltpoll)."
            )
        case SpeedChanged(affected, points, worst):
            return (
                f"The processors' speed changed: at {affected} of {counted(points, 'point')}, a request took up to "
                f"{worst - 1:.0%} more processor time in one repetition than in another. Other guests of the "
                "machine or its clock rate may be the cause. Measure again, with more repetitions."
            )
        case SpeedVaried(affected, runs, worst):
            return (
                f"The processors' speed may have changed within {affected} of {counted(runs, 'run')}: in one part of a "
                f"run, a request took each program at least {worst - 1:.0%} more processor time than in another. Other "
                "guests of the machine or its clock rate may be the cause, or answers became longer. The change may "
                "explain a drift of throughput."
            )
        case LeftElsewhere(runs, backlog):
            sends = f", and sends another {counted(backlog, 'message')} before it starts" if backlog else ""
            return (
                f"Knee cleared nothing between the {runs} runs, because another machine runs the middlewares. Each run "
                f"creates its own clients and queues{sends}. Data of earlier runs may explain differences between runs."
            )
        case Unsteady():
            return _unsteady(found)
        case LeftOut(covered, combinations):
            return (
                f"Knee looked for a knee in the first {covered} of {combinations:,} combinations of the other factors. "
                "Leave factors out to see the other combinations."
            )


def response_times_of_failed(found: Failures) -> str:
    """Whether response times include failed requests."""
    if found.timed:
        return "Response times include failed requests."
    return "Response times leave out failed requests: pgbench does not time them."


def note_on_times(found: Failures | None) -> str:
    """The end of a caption of response times; empty without failed requests."""
    return f" {response_times_of_failed(found)}" if found and found.errors else ""


def note_on_throughput(found: Failures | None) -> str:
    """The end of a caption of throughput; empty without failed requests."""
    return " Throughput includes failed requests." if found and found.errors else ""


def _sentence(text: str) -> str:
    """A note as a sentence; a field's name keeps its spelling."""
    first = text if "_" in text.split(" ", 1)[0] else capital(text)
    return first + ("" if text.endswith((".", "!", "?")) else ".")


def _unsent(found: Unsent) -> str:
    never = f"The load generator never sent {counted(found.count, 'due request')} of the open loop"
    if found.cut_off:
        return f"{never}, because connections were lost. The rate may still be within the system's capacity."
    return (
        f"{never}, because every connection was full. The rate exceeds the system's capacity, or the clients are too "
        "few. If no resource of the system was full, use more clients."
    )


def _wrong_answers(found: WrongAnswers) -> str:
    if found.of_messages:
        return f"{found.count} answers to clients had messages other than those sent, or in another order."
    return f"{found.count} values that clients read differed from the values written."


def _failures(found: Failures) -> str:
    named = listed([f"{percent(share)} of {operation}" for operation, share in found.shares])
    where = f": {named}" if found.operations > 1 else ""
    return (
        f"{found.errors} of {found.requests} requests ({percent(found.errors / found.requests)}) failed{where}. "
        "Throughput includes failed requests. These parts leave them out: the tables of operations, changes within a "
        f"run, and the best level or configuration. {response_times_of_failed(found)} Read the servers' logs before "
        "you trust the numbers."
    )


def _lost_connections(found: LostConnections) -> str:
    if found.missing:
        fact = f"clients were without {found.missing} of {found.clients} connections for {found.outage_s:.3g} s"
    else:
        fact = f"{found.clients} clients lost {counted(found.lost, 'connection')}"
    if found.affected > 1:
        fact = f"clients lost connections. In the worst run, {fact}"
    return (
        f"In {found.affected} of {found.runs} runs, {fact}. A server stopped or closed the connections; "
        f"{found.run}/{found.process}.log may name the server. Numbers from that time do not describe the system under "
        "this load. If the server lost its data, neither do later numbers."
    )


def _unsteady(found: Unsteady) -> str:
    point, repetition = found.first
    runs = f"{found.runs} runs" if found.runs > 1 else f"One run (point {point}, repetition {repetition})"
    if found.kind == "no steady state":
        return (
            f"{runs} did not reach a steady state: MSER-5 would cut half of the run or more. Measure longer, and look "
            "for a drift in the timeline."
        )
    if found.kind == "longer warm-up":
        return (
            f"{runs} needed a longer warm-up than {found.warmup_s} s. MSER-5 suggests up to {found.suggested_s} s; the "
            f"mean {found.series} then changes by {abs(found.bias):.1%}. Raise measure.warmup_s to {found.suggested_s}."
        )
    if found.length_s < found.needed_s:
        return (
            f"Runs of {found.length_s} s are too short to check that warm-up was long enough. Use at least "
            f"{found.needed_s} s."
        )
    return f"{runs} had too few seconds with an answer to check that warm-up was long enough. Measure longer."
