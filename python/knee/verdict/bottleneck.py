"""The bottleneck: which resource saturates, since when, and which part of the response time grows for it.

Where the clients' queue grows is not yet where the bottleneck is: worker slots that wait for a saturated store
are full, too. So a saturated physical resource (a thread, the CPUs) outranks saturated slots, which are
the bottleneck only when nothing beneath them is (software bottlenecks: Neilson et al. 1995). Between the two are
the connections to a database, which slots wait for where they are fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from knee.data.trim import RUN, trim
from knee.stats.intervals import LEVEL, Interval, counted, difference_interval, mean_interval, number
from knee.verdict.connections import waited_for
from knee.verdict.foreign_stores import foreign_stores
from knee.verdict.knee import OPEN_LOOP, Confidence, Knee
from knee.verdict.threads import threads

if TYPE_CHECKING:
    from knee.data import Dataset

SATURATED = 0.90
"""Utilisation from which a resource counts as saturated. At 90 % no change above it can gain more than 11 %."""

CLOSE = 0.05
"""Two saturated resources whose utilisations differ by less are both named."""

OUTSIDERS_MAX = 0.10
"""Share of the host's CPU that programs outside the experiment may take before confidence suffers."""

Resource = Literal["worker slots", "connections", "commits", "thread", "CPU share", "host CPU", "station"]
"""A "station" is what somebody else's measurements call one, and is taken for a physical resource."""

_SLOTS = ("worker slots", "connections")
"""From the client inwards: who has one waits for what lies beneath."""

_SOFT = (*_SLOTS, "commits")
"""Busy for as long as what lies beneath them is: slots wait for a store, and a commit takes all who came meanwhile."""

BottleneckStatus = Literal["found", "load generator", "cannot tell", "none"]

_REPETITIONS_SURE = 3
"""Fewer repetitions make a verdict less sure."""

OUTSIDERS_DECISIVE = 0.25
"""Share from which a full host says nothing about the system any more."""

_ROLE_NAMES = {"load": "load generator", "middleware": "middleware", "store": "store", "host": "host"}


@dataclass(frozen=True)
class Candidate:
    """A resource and how busy it is, at its busiest process.

    `first_saturated` is the smallest client count at which it was saturated; None if never.
    """

    name: str
    resource: Resource
    role: str
    process: str
    at_knee: Interval
    at_most: Interval
    first_saturated: int | None


@dataclass(frozen=True)
class Component:
    """A part of the response time, at the knee and at the largest client count. `share` is of the whole growth."""

    name: str
    at_knee_ms: Interval
    at_most_ms: Interval
    growth_ms: Interval
    share: float


@dataclass(frozen=True)
class Bottleneck:
    """The verdict and its evidence, in words and in numbers.

    `cpu_shares` is whose CPU time it was at the largest client count, as shares of all cores.
    """

    status: BottleneckStatus
    sentence: str
    evidence: tuple[str, ...]
    names: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    components: tuple[Component, ...]
    cpu_shares: dict[str, float]
    confidence: Confidence
    reasons: tuple[str, ...]


def utilizations(dataset: Dataset) -> pl.DataFrame:
    """How busy every resource was in each run, over the trimmed windows.

    Returns
    -------
    One row per run and resource of a process: `point, repetition, role, process, resource, utilization` (0 to 1).
    "worker slots": workers_busy_s / (workers · s). "connections": service time less the wait for a connection, over
    (connections · s), :mod:`connections`; absent where nobody waits for one. "commits": share of the time that a
    store was making writes safe, one group after the other; absent where it made none. "thread": CPU time of the
    process's busiest thread per second, from the process itself or, where it prints nothing or its tier works beside
    its threads (:mod:`threads`), from the probes. "CPU share": CPU time of a store that is confined to a share of
    the host's processors, over that share. "host CPU": CPU time of all over all cores, less what the hypervisor kept.
    """
    stations = trim(dataset.stations, dataset.points)
    probes = trim(dataset.probes, dataset.points)
    keys = [*RUN, "role", "process"]
    pools = waited_for(dataset).select(*keys, pl.col("utilization").alias("connections"))
    own = stations.group_by(keys).agg(
        (pl.col("workers_busy_s").sum() / (pl.col("workers") * pl.col("seconds")).sum())
        .fill_nan(None)
        .alias("worker slots"),
        pl.when(pl.col("commits").sum() > 0)
        .then(pl.col("commit_sum_ns").sum() / pl.col("seconds").sum() / 1e9)
        .alias("commits"),
    )
    told = threads(dataset).filter(pl.col("untold").is_null() & pl.col("busiest").is_not_null())
    busiest = told.select(*keys, pl.col("busiest").alias("thread"))
    seen = (
        probes.filter(pl.col("thread_cpu_max_s").is_not_null())
        .with_columns(
            pl.col("target").alias("process"),
            pl.col("target").str.replace(r"-\d+$", "").alias("role"),
        )
        .filter(pl.col("role").is_in(["load", "middleware", "store"]))
        .group_by(keys)
        .agg((pl.col("thread_cpu_max_s").sum() / pl.col("seconds").sum()).alias("thread"))
        .join(busiest, on=keys, how="anti")
    )
    confined = (
        foreign_stores(dataset)
        .filter("confined")
        .select(*RUN, pl.lit("store").alias("role"), "process", pl.col("utilization").alias("CPU share"))
    )
    host = (
        probes.filter(pl.col("target") == "host")
        .group_by(RUN)
        .agg(
            (
                (pl.col("cpu_user_s") + pl.col("cpu_system_s")).sum()
                # What the hypervisor kept was no capacity.
                / (pl.col("cpu_count") * pl.col("seconds") - pl.col("cpu_steal_s").fill_null(0.0)).sum()
            ).alias("host CPU")
        )
        .with_columns(pl.lit("host").alias("role"), pl.lit("host").alias("process"))
    )
    return (
        pl.concat([own, pools, busiest, seen, confined, host], how="diagonal")
        .unpivot(index=keys, variable_name="resource", value_name="utilization")
        .drop_nulls("utilization")
        .sort(*keys, "resource")
    )


def cpu_shares(dataset: Dataset) -> pl.DataFrame:
    """Whose CPU time it was: `point, repetition, owner, share` of all the host's cores, over the trimmed windows.

    Owners: "load", "middleware", "store", "knee" (the lab) and "others", which is what is left of the host's use.
    """
    probes = trim(dataset.probes, dataset.points).with_columns(
        (pl.col("cpu_user_s") + pl.col("cpu_system_s")).alias("cpu_s"),
        pl.col("target").str.replace(r"-\d+$", "").alias("owner"),
    )
    host = (
        probes.filter(pl.col("target") == "host")
        .group_by(RUN)
        .agg(
            pl.col("cpu_s").sum().alias("used_s"),
            (pl.col("cpu_count") * pl.col("seconds")).sum().alias("capacity_s"),
        )
    )
    owned = probes.filter(pl.col("target") != "host").group_by(*RUN, "owner").agg(pl.col("cpu_s").sum())
    others = host.join(owned.group_by(RUN).agg(pl.col("cpu_s").sum()), on=RUN, how="left").select(
        *RUN,
        pl.lit("others").alias("owner"),
        (pl.col("used_s") - pl.col("cpu_s").fill_null(0.0)).clip(lower_bound=0.0).alias("cpu_s"),
    )
    return (
        pl.concat([owned, others], how="vertical")
        .join(host, on=RUN)
        .select(*RUN, "owner", (pl.col("cpu_s") / pl.col("capacity_s")).alias("share"))
        .sort(*RUN, "owner")
    )


def find_bottleneck(
    knee: Knee,
    observations: pl.DataFrame,
    utilization: pl.DataFrame,
    shares: pl.DataFrame,
    load_limits: Sequence[str] = (),
    *,
    load_waited: bool = False,
    unmeasured: Sequence[str] = (),
    level: float = LEVEL,
) -> Bottleneck:
    """What limits the throughput of one combination of the other factors.

    Parameters
    ----------
    observations, utilization, shares
        Of this combination's runs: :func:`observations`, :func:`utilizations`, :func:`cpu_shares`.
    load_limits
        What the load generators said of being the limit themselves, in runs at or beyond the knee.
    load_waited
        Whether closed-loop generators waited for a processor there: their response times contain it.
    unmeasured
        What may be the bottleneck and nobody measured, in words.
    """
    clients = observations.select(*RUN, "clients")
    if not knee.levels:
        return Bottleneck("cannot tell", "Nothing was measured.", (), (), (), (), {}, "low", ("no finished run",))
    most = knee.levels[-1].clients
    at_knee = knee.level.clients if knee.level else most
    candidates = _candidates(utilization.join(clients, on=RUN), at_knee, most, level)
    from_clients = at_knee if at_knee < most else knee.levels[0].clients
    components = _components(observations, from_clients, most, level)
    owners = _owners(shares.join(clients, on=RUN).filter(pl.col("clients") == most))
    return _Decision(knee, candidates, components, owners, load_limits, load_waited, unmeasured).bottleneck()


def find_bottleneck_at_rate(
    observations: pl.DataFrame,
    utilization: pl.DataFrame,
    shares: pl.DataFrame,
    load_limits: Sequence[str] = (),
    *,
    keeps_up: bool | None = None,
    repetitions: int | None = None,
    unmeasured: Sequence[str] = (),
    level: float = LEVEL,
) -> Bottleneck:
    """What limits the throughput of an open loop at one arrival rate: nothing, where throughput follows it.

    Parameters are those of :func:`find_bottleneck`, of runs at this rate; `keeps_up` is whether throughput follows,
    None where that cannot be told, and `repetitions` those of the throughput that decided it.
    """
    alone = observations.select(*RUN, pl.lit(1).alias("clients"))
    candidates = _candidates(utilization.join(alone, on=RUN), 1, 1, level)
    owners = _owners(shares.join(alone, on=RUN))
    knee = Knee("cannot tell", OPEN_LOOP, ())
    decision = _Decision(
        knee,
        candidates,
        (),
        owners,
        load_limits,
        load_waited=False,
        unmeasured=unmeasured,
        may_keep_up=keeps_up is None,
        repetitions=repetitions,
    )
    return decision.without_bottleneck() if keeps_up else decision.bottleneck()


def _candidates(utilization: pl.DataFrame, at_knee: int, most: int, level: float) -> tuple[Candidate, ...]:
    """One candidate per role and resource: the process that is busiest at the largest client count."""
    found: list[Candidate] = []
    for (role, resource), rows in utilization.sort("role", "resource").group_by(
        "role", "resource", maintain_order=True
    ):
        means = rows.group_by("clients", "process").agg(pl.col("utilization").mean())
        last = means.filter(pl.col("clients") == most).sort("utilization", "process")
        if last.is_empty():
            continue
        process = str(last["process"][-1])
        own = rows.filter(pl.col("process") == process)
        saturated = means.filter((pl.col("process") == process) & (pl.col("utilization") >= SATURATED))[
            "clients"
        ].to_list()

        def at(count: int, own: pl.DataFrame = own) -> Interval:
            values = own.filter(pl.col("clients") == count)["utilization"].to_numpy()
            return mean_interval(values, level)

        found.append(
            Candidate(
                name=_name(str(role), str(resource)),
                resource=str(resource),  # type: ignore[arg-type]
                role=str(role),
                process=process,
                at_knee=at(at_knee),
                at_most=at(most),
                first_saturated=min(saturated, default=None),
            )
        )
    return tuple(sorted(found, key=lambda candidate: -candidate.at_most.estimate))


def _owners(shares: pl.DataFrame) -> dict[str, float]:
    """Each owner's mean share of the CPU time, the largest first."""
    means = shares.group_by("owner").agg(pl.col("share").mean()).sort("share", descending=True)
    return {str(owner): float(share) for owner, share in means.iter_rows()}


def _name(role: str, resource: str) -> str:
    if role == "host":
        return "the host's CPU"
    if resource == "station":
        return f"station {role}"
    what = {"commits": "commits to disk", "thread": "busiest thread"}.get(resource, resource)
    return f"the {_ROLE_NAMES[role]}'s {what}"


def _components(observations: pl.DataFrame, from_clients: int, to_clients: int, level: float) -> tuple[Component, ...]:
    """Client response = (client − middleware) + queueing + service + the middleware's own rest.

    Of the service, what a request waits for a connection is a part of its own, where the middlewares tell of it.
    """
    rows = observations
    if "middleware_response_ms" not in rows.columns or rows["middleware_response_ms"].null_count():
        return ()
    pooled = "connection_ms" in rows.columns and not rows["connection_ms"].null_count()
    waiting_ms = pl.col("connection_ms") if pooled else pl.lit(0.0)
    parts = {
        "queueing in the middleware": pl.col("queueing_ms"),
        **({"waiting for a connection": waiting_ms} if pooled else {}),
        "service beyond the middleware": pl.col("service_ms") - waiting_ms,
        "between client and middleware": pl.col("response_ms") - pl.col("middleware_response_ms"),
        "reply inside the middleware": pl.col("middleware_response_ms") - pl.col("queueing_ms") - pl.col("service_ms"),
    }
    start = rows.filter(pl.col("clients") == from_clients)
    end = rows.filter(pl.col("clients") == to_clients)
    if from_clients == to_clients or start.is_empty() or end.is_empty():
        return ()
    whole = float(end["response_ms"].mean()) - float(start["response_ms"].mean())  # type: ignore[arg-type]
    components: list[Component] = []
    for name, expression in parts.items():
        before = start.select(expression).to_series().drop_nulls().to_numpy()
        after = end.select(expression).to_series().drop_nulls().to_numpy()
        if not before.size or not after.size:
            continue
        growth = difference_interval(after, before, level)
        components.append(
            Component(
                name,
                mean_interval(before, level),
                mean_interval(after, level),
                growth,
                growth.estimate / whole if whole > 0 else 0.0,
            )
        )
    return tuple(sorted(components, key=lambda component: -component.growth_ms.estimate))


@dataclass(frozen=True)
class _Decision:
    """What the verdict is taken from; the attributes are those of :func:`find_bottleneck`.

    `may_keep_up`: nobody can tell whether throughput follows the arrival rate, at which there would be no bottleneck.
    `repetitions`: of the throughput that decided it.
    """

    knee: Knee
    candidates: tuple[Candidate, ...]
    components: tuple[Component, ...]
    owners: dict[str, float]
    load_limits: Sequence[str]
    load_waited: bool
    unmeasured: Sequence[str]
    may_keep_up: bool = False
    repetitions: int | None = None

    def bottleneck(self) -> Bottleneck:
        if not self.candidates:
            return self._verdict("cannot tell", "Cannot tell the bottleneck: no utilisation was measured.")
        if self.knee.status == "not reached":
            return self._verdict(
                "cannot tell",
                "There is no bottleneck to name yet: throughput still rises.",
                f"Busiest so far: {_ranking(self.candidates)}.",
                f"But the load generator says that it was a limit: {self.load_limits[0]}." if self.load_limits else "",
            )
        saturated = [c for c in self.candidates if c.at_most.estimate >= SATURATED]
        chosen = _first_saturated(saturated)
        generators = [c for c in chosen if c.role == "load"]
        if generators or (self.load_limits and not chosen):
            busy = f" ({self._busy(generators[0])})" if generators else ""
            own = "knee" if self.knee.levels else "throughput"
            return self._verdict(
                "load generator",
                f"The load generator itself is the limit{busy}, so this {own} is its own, not the system's.",
                f"It says so itself: {self.load_limits[0]}." if self.load_limits else "",
                "Give it more threads or hosts and measure again.",
                chosen=generators,
            )
        if not chosen:
            return self._verdict(
                "cannot tell",
                f"Cannot tell the bottleneck: nothing measured is near saturation (≥ {SATURATED:.0%}).",
                f"Busiest: {_ranking(self.candidates)}.",
                "What was not measured (a link, a lock, a foreign machine) may be it.",
            )
        on_host = any(c.resource == "host CPU" for c in chosen)
        outsiders = self.owners.get("others", 0.0)
        if on_host and outsiders >= OUTSIDERS_DECISIVE:
            return self._verdict(
                "cannot tell",
                f"Cannot tell the system's own bottleneck: the host's CPU is full, and {outsiders:.0%} of it went to "
                "programs outside the experiment.",
                self._shared_host(),
                "Stop the other programs and measure again.",
            )
        evidence: list[str] = []
        doubts: list[str] = []
        if on_host:
            evidence.append(self._shared_host())
            if self.owners.get("load", 0.0) >= CLOSE:
                doubts.append("the load generator takes its share of the same cores")
        elif self.load_waited:
            doubts.append("the load generator at times waited for a processor")
        waiting = [c for c in saturated if c not in chosen and c.resource in _SLOTS]
        if waiting and any(c.resource != "worker slots" for c in chosen):
            named = " and ".join(c.name for c in waiting)
            evidence.append(f"{_capital(named)} are full as well, because they wait for it.")
        elif all(c.resource in _SOFT for c in chosen) and (later := [c for c in saturated if c not in chosen]):
            evidence.append(f"{_capital(later[0].name)} fills up only beyond the knee ({self._busy(later[0])}).")
        if self.load_limits:
            evidence.append(f"The load generator also says that it was a limit: {self.load_limits[0]}.")
            doubts.append("the load generator may have been a limit, too")
        named = " and ".join(f"{c.name} ({self._busy(c)})" for c in chosen)
        sentence = f"The bottleneck is {named}." if len(chosen) == 1 else f"Saturated together: {named}."
        return self._verdict("found", sentence, *evidence, chosen=chosen, doubts=doubts)

    def without_bottleneck(self) -> Bottleneck:
        """Of an open loop of which throughput follows the arrival rate."""
        full = any(c.resource == "host CPU" and c.at_most.estimate >= SATURATED for c in self.candidates)
        return self._verdict(
            "none",
            "There is no bottleneck at this arrival rate: throughput follows it.",
            f"Busiest: {_ranking(self.candidates)}." if self.candidates else "",
            self._shared_host() if full else "",
            f"The load generator says that it was late, and response times contain that: {self.load_limits[0]}."
            if self.load_limits
            else "",
        )

    def _verdict(
        self,
        status: BottleneckStatus,
        sentence: str,
        *evidence: str,
        chosen: Sequence[Candidate] = (),
        doubts: Sequence[str] = (),
    ) -> Bottleneck:
        reasons = (*self._doubts(), *doubts)
        confidence: Confidence = "high" if not reasons else "medium" if len(reasons) == 1 else "low"
        blind = f"Not measured: {'; '.join(self.unmeasured)}." if self.unmeasured else ""
        return Bottleneck(
            status=status,
            sentence=sentence,
            evidence=tuple(filter(None, (*evidence, self._growth(), blind))),
            names=tuple(candidate.name for candidate in chosen),
            candidates=self.candidates,
            components=self.components,
            cpu_shares=self.owners,
            confidence="low" if status == "cannot tell" else confidence,
            reasons=reasons,
        )

    def _doubts(self) -> list[str]:
        doubts: list[str] = []
        level, outsiders = self.knee.level, self.owners.get("others", 0.0)
        if level is not None:
            repetitions = level.throughput.repetitions
        else:
            known = [] if self.repetitions is None else [self.repetitions]
            repetitions = min((*known, *(c.at_most.repetitions for c in self.candidates)), default=_REPETITIONS_SURE)
        if repetitions < _REPETITIONS_SURE:
            doubts.append(f"only {counted(repetitions, 'repetition')}")
        if self.knee.status == "cannot tell" and self.knee.levels:
            doubts.append("the knee itself is uncertain")
        if self.may_keep_up:
            doubts.append("whether throughput follows the arrival rate cannot be told")
        if outsiders > OUTSIDERS_MAX:
            doubts.append(f"programs outside the experiment took {outsiders:.0%} of the host's CPU")
        if self.unmeasured:
            doubts.append("what was not measured may be it")
        if not self.components and self.knee.levels:
            doubts.append("nothing shows which part of the response time grows")
        return doubts

    def _growth(self) -> str:
        if not self.components or self.knee.level is None:
            return ""
        top = self.components[0]
        low = top.growth_ms.low
        if top.growth_ms.estimate <= 0 or (low is not None and low <= 0):
            return ""
        most = self.knee.levels[-1].clients
        start = self.knee.level.clients if self.knee.level.clients < most else self.knee.levels[0].clients
        return (
            f"From {start} to {most} clients, {min(top.share, 1.0):.0%} of the added response time is {top.name} "
            f"({number(top.at_knee_ms.estimate)} → {number(top.at_most_ms.estimate)} ms)."
        )

    def _shared_host(self) -> str:
        names = {
            "load": "load generators",
            "middleware": "middlewares",
            "store": "stores",
            "knee": "the lab itself",
            "others": "other programs",
        }
        parts = [f"{names.get(owner, owner)} {share:.0%}" for owner, share in self.owners.items() if share >= 0.005]
        return (
            f"Its CPU time went to {', '.join(parts)}. The load generator shares these cores, so the figures belong to "
            "this machine with its load generator on it."
        )

    def _busy(self, candidate: Candidate) -> str:
        at_most = f"{candidate.at_most.estimate:.0%}"
        if not self.knee.levels:
            return f"{at_most} busy"
        most = self.knee.levels[-1].clients
        if self.knee.level is None or self.knee.level.clients == most:
            return f"{at_most} busy at {most} clients"
        return f"{candidate.at_knee.estimate:.0%} busy at {self.knee.level.clients} clients, {at_most} at {most}"


def _first_saturated(saturated: Sequence[Candidate]) -> list[Candidate]:
    """The saturated resources that bind: physical before connections before slots, then the first, then the busiest.

    Slots and commits are busy because of a physical resource only where that is busy at the knee already: one that
    fills up later, with the overhead of more clients, did not make the knee.
    """
    pooled = any(c.resource == "connections" for c in saturated)
    soft = [c for c in saturated if c.resource in _SOFT and not (pooled and c.resource == "worker slots")]
    physical = [c for c in saturated if c.resource not in _SOFT]
    binding = [c for c in physical if c.at_knee.estimate >= SATURATED - CLOSE] or soft or physical
    if not binding:
        return []
    first = min(c.first_saturated or 0 for c in binding)
    earliest = [c for c in binding if (c.first_saturated or 0) == first]
    top = max(c.at_most.estimate for c in earliest)
    return [c for c in earliest if c.at_most.estimate >= top - CLOSE]


def _ranking(candidates: Sequence[Candidate]) -> str:
    return ", ".join(f"{c.name} {c.at_most.estimate:.0%}" for c in candidates[:3])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
