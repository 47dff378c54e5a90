"""The bottleneck: which resource saturates, from which client count, and which part of the response time grows.

A queue alone does not show the bottleneck: worker slots that wait for a saturated store are also full. So a saturated
physical resource (a thread, the CPUs) outranks saturated slots. Slots are the bottleneck only if no resource behind
them is saturated (software bottlenecks: Neilson et al. 1995). Connections to a database rank between the two: slots
wait for connections if there are fewer of them. Slots and connections are no bottleneck if requests hold them far
longer beyond the knee.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl

from knee.data.trim import RUN
from knee.data.utilization import OUTSIDERS_DECISIVE, OUTSIDERS_MAX, SATURATED, cpu_of
from knee.laws import Demand
from knee.stats.intervals import LEVEL, mean_interval
from knee.verdict.candidates import CLOSE, FULL, SLOTS, SOFT, Candidate, candidates_of, limits_among
from knee.verdict.components import Component, components_of
from knee.verdict.knee import OPEN_LOOP, Confidence, Doubt, Knee, confidence_of

BottleneckStatus = Literal["found", "load generator", "cannot tell", "none"]

CannotTell = Literal[
    "nothing measured",
    "no utilisation",
    "no knee",
    "still rising",
    "nothing saturated",
    "not explained",
    "waits",
    "held longer",
    "other programs",
    "emulated links",
]

_LONGER = 2
"""By the utilisation law, a request holds a slot for U · m / X. If this time grows beyond the knee by at least this
factor, requests wait in the slots for another resource."""

_REPETITIONS_SURE = 3
"""With fewer repetitions, confidence in the verdict is lower."""


@dataclass(frozen=True)
class Bottleneck:
    """The verdict on the limit of throughput, with its evidence.

    cause         why the bottleneck is unknown; empty otherwise
    chosen        the resources that are the bottleneck; several if they saturate together
    candidates    all measured resources, the busiest first
    components    parts of the response time and their growth from `from_clients` to `to_clients`, largest growth first
    cpu_shares    by owner, the share of CPU time at the largest client count: of all cores of `full_host`, or without
                  it of the machine that other programs used most
    over_clients  whether client counts varied; otherwise utilisations are from one load
    full_host     the processors of a machine, if the report shows which processes used them
    waiting       full slots and connections that only wait for the chosen resources
    later         a resource that saturates only beyond the knee
    unexplained   the station of a table that is busy but does not explain the plateau, for the causes "not explained"
                  and "waits"
    held          slots or connections that requests hold far longer beyond the knee, for the cause "held longer"
    load_limit    a load generator's report that it was the bottleneck; empty without one
    unmeasured    parts without a measurement
    by_demand     the station with the largest service demand, if it is not among the chosen resources
    """

    status: BottleneckStatus
    cause: CannotTell | Literal[""] = ""
    chosen: tuple[Candidate, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    components: tuple[Component, ...] = ()
    cpu_shares: Mapping[str, float] = field(default_factory=dict)
    from_clients: int = 0
    at_knee_clients: int | None = None
    to_clients: int = 0
    over_clients: bool = False
    full_host: Candidate | None = None
    waiting: tuple[Candidate, ...] = ()
    later: Candidate | None = None
    unexplained: Candidate | None = None
    held: tuple[Candidate, ...] = ()
    load_limit: str = ""
    unmeasured: tuple[str, ...] = ()
    by_demand: Demand | None = None
    confidence: Confidence = "low"
    doubts: tuple[Doubt, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(candidate.name for candidate in self.chosen)

    @property
    def growing(self) -> Component | None:
        """The part of the response time with the largest significant growth; None without one."""
        top = self.components[0] if self.components else None
        if top is None or self.at_knee_clients is None or top.growth_ms.estimate <= 0:
            return None
        return None if top.growth_ms.low is not None and top.growth_ms.low <= 0 else top


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
    """The bottleneck of one combination of the other factors.

    Parameters
    ----------
    observations, utilization, shares
        Of this combination's runs: :func:`observations`, :func:`utilizations`, :func:`cpu_shares`.
    load_limits
        Reports of load generators that they were the bottleneck, in runs at or beyond the knee.
    load_waited
        Whether closed-loop generators waited for a processor in these runs: their response times contain this wait.
    unmeasured
        Unmeasured parts that may be the bottleneck.
    """
    clients = observations.select(*RUN, "clients", "throughput")
    if not knee.levels:
        return Bottleneck("cannot tell", "nothing measured")
    most = knee.levels[-1].clients
    at_knee = knee.level.clients if knee.level else most
    rising = knee.status == "not reached" or knee.clients is None
    candidates = candidates_of(
        utilization.join(clients, on=RUN),
        at_knee,
        most,
        level,
        knee=None if rising or knee.clients is None else knee.clients.estimate,
    )
    from_clients = at_knee if at_knee < most else knee.levels[0].clients
    components = components_of(observations, from_clients, most, level)
    owners = _owners(shares.join(clients, on=RUN).filter(pl.col("clients") == most))
    return _Decision(
        knee, candidates, components, owners, load_limits, load_waited, unmeasured, from_clients=from_clients
    ).bottleneck()


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
    """The bottleneck of an open loop at one arrival rate. If throughput follows the rate, there is none.

    The parameters are those of :func:`find_bottleneck`, for runs at this rate. `keeps_up` is whether throughput follows
    the rate; None if unknown. `repetitions` is the number of repetitions that `keeps_up` follows from.
    """
    alone = observations.select(*RUN, pl.lit(1).alias("clients"), pl.lit(1.0).alias("throughput"))
    candidates = candidates_of(utilization.join(alone, on=RUN), 1, 1, level)
    owners = _owners(shares.join(alone, on=RUN))
    knee = Knee("cannot tell", (), OPEN_LOOP)
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


def _owners(shares: pl.DataFrame) -> dict[str, dict[str, float]]:
    """By machine, each owner's mean share of the CPU time, the largest first."""
    means = shares.group_by("machine", "owner").agg(pl.col("share").mean()).sort("share", descending=True)
    found = defaultdict[str, dict[str, float]](dict)
    for machine, owner, share in means.iter_rows():
        found[machine][owner] = share
    return found


def without_knee(utilization: pl.DataFrame) -> Bottleneck:
    """The bottleneck if there is no knee: the busiest stations at any load."""
    if utilization.is_empty():
        return Bottleneck("cannot tell", "no utilisation")
    busiest = (
        utilization.group_by("point", "resource", "process")
        .agg(pl.col("utilization").mean())
        .group_by("resource", "process")
        .agg(pl.col("utilization").max())
        .sort("utilization", descending=True)
    )
    candidates = tuple(
        Candidate(process, resource, process, process, alone, alone, None)
        for resource, process, share in busiest.iter_rows()
        for alone in (mean_interval([share]),)
    )
    return Bottleneck("cannot tell", "no knee", candidates=candidates)


@dataclass(frozen=True)
class _Decision:
    """The inputs of the verdict; the attributes are those of :func:`find_bottleneck`.

    `may_keep_up`: whether throughput may follow the arrival rate; if it does, there is no bottleneck.
    `repetitions`: the number of repetitions that this finding follows from.
    """

    knee: Knee
    candidates: tuple[Candidate, ...]
    components: tuple[Component, ...]
    owners: dict[str, dict[str, float]]
    load_limits: Sequence[str]
    load_waited: bool
    unmeasured: Sequence[str]
    from_clients: int = 0
    may_keep_up: bool = False
    repetitions: int | None = None

    def bottleneck(self) -> Bottleneck:
        if not self.candidates:
            return self._cannot_tell("no utilisation")
        if any(c.plateau is not None for c in self.candidates):
            return self._of_stations()
        if self.knee.status == "not reached":
            return self._cannot_tell("still rising")
        saturated = [c for c in self.candidates if c.at_most.estimate >= SATURATED]
        chosen = _first_saturated(saturated)
        generators = tuple(c for c in chosen if c.generates)
        if generators or (self.load_limits and not chosen):
            return self._verdict(Bottleneck("load generator", chosen=generators))
        if not chosen:
            return self._cannot_tell("nothing saturated")
        if all(map(self._is_held_longer, chosen)):
            later = next((c for c in saturated if c.resource not in SOFT), None)
            return self._verdict(Bottleneck("cannot tell", "held longer", held=tuple(chosen), later=later))
        host = next((c for c in chosen if c.resource == "host CPU"), None)
        taken = {} if host is None else self.owners.get(host.process, {})
        if taken.get("others", 0.0) >= OUTSIDERS_DECISIVE:
            return self._verdict(Bottleneck("cannot tell", "other programs", full_host=host))
        if taken.get("links", 0.0) >= OUTSIDERS_DECISIVE:
            return self._verdict(Bottleneck("cannot tell", "emulated links", full_host=host))
        waiting = tuple(c for c in saturated if c not in chosen and c.resource in SLOTS)
        if not any(c.resource != "worker slots" for c in chosen):
            waiting = ()
        later = None
        if not waiting and all(c.resource in SOFT for c in chosen):
            later = next((c for c in saturated if c not in chosen), None)
        found = Bottleneck("found", chosen=tuple(chosen), full_host=host, waiting=waiting, later=later)
        return self._verdict(found, *self._doubts_of_load(taken))

    def _is_held_longer(self, candidate: Candidate) -> bool:
        """Whether these are slots or connections that requests hold far longer beyond the knee. A throughput that falls
        beyond the knee counts as constant.
        """
        knee = self.knee.level
        if knee is None or self.knee.status != "found" or candidate.resource not in SLOTS:
            return False
        most = self.knee.levels[-1].throughput.estimate
        grown = candidate.at_most.estimate * min(knee.throughput.estimate, most)
        return grown >= _LONGER * candidate.at_knee.estimate * most

    def _of_stations(self) -> Bottleneck:
        """The verdict on a table: a full station limits throughput, even if throughput still rises a little."""
        chosen = limits_among(self.candidates)
        if chosen:
            shares = [(c.plateau.share.low, c.name) for c in chosen if c.plateau is not None]
            ends = sorted((max(low, 0.0), name) for low, name in shares if low is not None)
            doubts = [Doubt("hardly full", low, name) for low, name in ends[:1] if low < FULL]
            doubts += [Doubt("may wait", name=c.name) for c in chosen if c.may_wait]
            if all(c.generates for c in chosen):
                return self._verdict(Bottleneck("load generator", chosen=chosen), *doubts)
            if any(c.generates for c in chosen):
                doubts.append(Doubt("load limited"))
            waiting = tuple(c for c in self.candidates if c not in chosen and c.is_full and (c.is_soft or c.waits))
            return self._verdict(Bottleneck("found", chosen=chosen, waiting=waiting), *doubts)
        if self.knee.status == "not reached":
            return self._cannot_tell("still rising")
        full = next((c for c in self.candidates if c.is_full), None)
        if full is not None:
            return self._verdict(Bottleneck("cannot tell", "waits", unexplained=full))
        busiest = self.candidates[0]
        if busiest.at_most.estimate >= SATURATED:
            return self._verdict(Bottleneck("cannot tell", "not explained", unexplained=busiest))
        return self._cannot_tell("nothing saturated")

    def without_bottleneck(self) -> Bottleneck:
        """The verdict for an open loop whose throughput follows the arrival rate."""
        full = (c for c in self.candidates if c.resource == "host CPU" and c.at_most.estimate >= SATURATED)
        return self._verdict(Bottleneck("none", full_host=next(full, None)))

    def _cannot_tell(self, cause: CannotTell) -> Bottleneck:
        return self._verdict(Bottleneck("cannot tell", cause))

    def _verdict(self, found: Bottleneck, *more: Doubt) -> Bottleneck:
        """The bottleneck with all evidence, and with `more` doubts in addition to the usual ones."""
        machine = self._machine(found.full_host)
        doubts = (*self._doubts(machine), *more)
        return replace(
            found,
            candidates=self.candidates,
            components=self.components,
            cpu_shares=self.owners.get(machine, {}),
            from_clients=self.from_clients,
            at_knee_clients=self.knee.level.clients if self.knee.level else None,
            to_clients=self.knee.levels[-1].clients if self.knee.levels else 0,
            over_clients=bool(self.knee.levels),
            load_limit=self.load_limits[0] if self.load_limits else "",
            unmeasured=tuple(self.unmeasured),
            confidence="low" if found.status == "cannot tell" else confidence_of(doubts),
            doubts=doubts,
        )

    def _machine(self, host: Candidate | None) -> str:
        """The machine of processors; without them, the one that other programs used most."""
        if host is not None:
            return host.process
        return max(self.owners, key=lambda machine: self.owners[machine].get("others", 0.0), default="host")

    def _doubts_of_load(self, taken: Mapping[str, float]) -> list[Doubt]:
        """`taken`: the shares of a full machine."""
        doubts = []
        if taken.get("load", 0.0) >= CLOSE:
            doubts.append(Doubt("load shares cores"))
        elif not taken and self.load_waited:
            doubts.append(Doubt("load waited"))
        if self.load_limits:
            doubts.append(Doubt("load limited"))
        return doubts

    def _doubts(self, machine: str) -> list[Doubt]:
        doubts: list[Doubt] = []
        level, outsiders = self.knee.level, self.owners.get(machine, {}).get("others", 0.0)
        if level is not None:
            repetitions = level.throughput.repetitions
        else:
            known = [] if self.repetitions is None else [self.repetitions]
            repetitions = min((*known, *(c.at_most.repetitions for c in self.candidates)), default=_REPETITIONS_SURE)
        if repetitions < _REPETITIONS_SURE:
            doubts.append(Doubt("few repetitions", repetitions))
        if self.knee.status == "cannot tell" and self.knee.levels:
            doubts.append(Doubt("uncertain knee"))
        if self.may_keep_up:
            doubts.append(Doubt("may keep up"))
        if outsiders > OUTSIDERS_MAX:
            doubts.append(Doubt("outsiders", outsiders, cpu_of(machine)))
        if self.unmeasured:
            doubts.append(Doubt("unmeasured"))
        if not self.components and self.knee.levels:
            doubts.append(Doubt("unknown growth"))
        return doubts


def _first_saturated(saturated: Sequence[Candidate]) -> list[Candidate]:
    """The limiting resources among the saturated ones. Physical resources rank before connections, and connections
    before slots; then the first to saturate, then the busiest. A physical resource explains busy slots and commits only
    if it is busy at the knee. One that saturates later, from the overhead of more clients, did not cause the knee.
    """
    pooled = any(c.resource == "connections" for c in saturated)
    soft = [c for c in saturated if c.resource in SOFT and not (pooled and c.resource == "worker slots")]
    physical = [c for c in saturated if c.resource not in SOFT]
    binding = [c for c in physical if c.at_knee.estimate >= SATURATED - CLOSE] or soft or physical
    if not binding:
        return []
    first = min(c.first_saturated or 0 for c in binding)
    earliest = [c for c in binding if (c.first_saturated or 0) == first]
    top = max(c.at_most.estimate for c in earliest)
    return [c for c in earliest if c.at_most.estimate >= top - CLOSE]
